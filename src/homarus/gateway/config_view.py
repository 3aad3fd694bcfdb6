"""The config as clients and the `gateway` tool are shown it: without secrets; and its schema."""

import json
from datetime import UTC, datetime
from typing import Any, Final

from homarus import __version__
from homarus.channels.registry import (
    available_channels,
    channel_label,
    find_traits,
    load_channel,
    services_without_channel,
)
from homarus.config.load import ConfigExamination, examine_config
from homarus.config.redaction import redact_tree
from homarus.core.errors import ConfigError, UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, one_line
from homarus.gateway.services import GatewayServices

_MAX_LEVELS: Final = 3  # of a section's schema, below the section itself


def describe_config(services: GatewayServices) -> dict[str, Json]:
    """Return the config file: as written, with includes resolved, and with defaults."""
    from homarus.config.own_keys import describe_openclaw_problems
    from homarus.config.rewrite import serialize
    from homarus.config.write import read_own_tree
    from homarus.tools.catalog import describe_list_problems

    paths = services.paths
    fields: dict[str, Json] = {"path": str(paths.config), "exists": paths.config.exists()}
    try:
        own, texts = read_own_tree(paths)
        examined = examine_config(paths, services.loaded.env, texts)
        unread = describe_openclaw_problems(examined.shared)
        if examined.config:
            unread = (*unread, *describe_list_problems(examined.config))
    except ConfigError as exc:
        empty: dict[str, Json] = {"raw": None, "parsed": {}, "resolved": {}, "config": {}}
        issues = [describe_issue(exc)]
        return {**fields, **empty, "valid": False, **_describe_problems(issues, ())}
    return {
        **fields,
        # Not the raw text: a comment may hold a secret that cannot be recognised.
        "raw": serialize(redact_tree(own)) if examined.exists else None,
        "parsed": redact_tree(own),
        "resolved": redact_tree(examined.raw),
        "valid": not examined.errors,
        "config": _with_defaults(examined),
        "hash": texts.hash,
        **_describe_problems(
            [describe_issue(error) for error in examined.errors],
            examined.warnings if examined.errors else (*examined.warnings, *unread),
        ),
    }


def describe_issue(error: ConfigError) -> dict[str, Json]:
    """Return an error of the config as clients get it."""
    fields: dict[str, Json] = {
        "path": error.key,
        "message": error.reason + (f" ({error.fix})" if error.fix else ""),
    }
    return {**fields, **({"file": error.file, "line": error.line} if error.file else {})}


def describe_schema() -> dict[str, Json]:
    """Return the JSON Schema of the settings that have an effect, and which of them are secret."""
    from homarus.config.check import implemented_keys
    from homarus.config.redaction import is_secret

    tree, channels = _schema_tree()
    keys = [*implemented_keys()]
    keys += [f"channels.{name}.{key}" for name in channels for key in channels[name]["properties"]]
    secret = [key for key in keys if is_secret(tuple(key.split(".")), "x")]
    return {
        "schema": tree,
        "uiHints": {key.replace("<key>", "*"): {"sensitive": True} for key in secret},
        "version": __version__,
        "generatedAt": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def describe_section_schema(path: str, max_chars: int) -> Json:
    """Return the schema of one section, as deep as it fits. Raises UserError for an unknown path.

    What is deeper is shown by the names of its keys.
    """
    found: Json = _schema_tree()[0]
    for step in filter(None, path.split(".")):
        names: dict[str, Json] = found.get("properties") or {}
        others = found.get("additionalProperties")
        listed = found.get("items")
        if step in names:
            found = names[step]
        elif isinstance(listed, dict):
            found = listed
        elif isinstance(others, dict):
            found = others
        else:
            close = ", ".join(closest_names(step, [*names])) or ", ".join([*names][:20])
            fix = f"one of: {close}" if close else "leave the last part of the path out"
            raise UserError(f"there is no setting {one_line(path, 120)}", fix=fix)
        found = _object_form(found)
    for levels in range(_MAX_LEVELS, -1, -1):
        cut = _cut_schema(found, levels)
        if len(json.dumps(cut)) <= max_chars:
            return cut
    return {"keys": [*(found.get("properties") or ())]}


def _object_form(schema: Json) -> Json:
    """Return the form of a setting with the most fields, where several are accepted."""
    if not isinstance(schema, dict) or "properties" in schema or "anyOf" not in schema:
        return schema
    forms = [each for each in schema["anyOf"] if isinstance(each, dict)]
    return max(forms, key=lambda form: len(form.get("properties") or form.get("items") or ()))


def _cut_schema(schema: Json, levels: int) -> Json:
    """Return a schema whose objects below some levels show the names of their keys alone."""
    if isinstance(schema, list):
        return [_cut_schema(each, levels) for each in schema]
    if not isinstance(schema, dict):
        return schema
    cut: dict[str, Json] = {}
    for name, value in schema.items():
        if name == "title":
            continue
        if name == "properties" and levels <= 0:
            cut["keys"] = [*value]
        elif name == "properties":
            cut[name] = {key: _cut_schema(each, levels - 1) for key, each in value.items()}
        else:
            cut[name] = _cut_schema(value, levels)
    return cut


def _schema_tree() -> tuple[Any, dict[str, Any]]:
    from homarus.config.json_schema import (
        config_json_schema,
        described_schema,
        inline_references,
    )
    from homarus.config.memory import MemoryConfig, MemorySearchConfig

    tree = inline_references(config_json_schema())
    keys = tree["properties"]
    keys["memory"] = inline_references(described_schema(MemoryConfig))
    search = inline_references(described_schema(MemorySearchConfig))
    agents = keys["agents"]["properties"]
    for agent in (agents["defaults"], agents["list"]["items"]):
        agent["properties"]["memorySearch"] = search
    channels = {name: _channel_schema(name) for name in available_channels()}
    others = {name: _unavailable_schema(name) for name in services_without_channel()}
    keys["channels"]["properties"] = {**others, **channels}
    return tree, channels


def _channel_schema(name: str) -> dict[str, Json]:
    from homarus.config.json_schema import channel_json_schema

    return {"title": channel_label(name), **channel_json_schema(load_channel(name).Settings)}


def _unavailable_schema(name: str) -> dict[str, Json]:
    """Return the schema of a section that a config may have and that has no effect here."""
    note = "There is no adapter for this service: these settings have no effect."
    return {"title": find_traits(name).title, "description": note, "type": "object"}


def _describe_problems(issues: list[Json], warnings: tuple[str, ...]) -> dict[str, Json]:
    entries = [{"path": "", "message": text} for text in warnings]
    return {"issues": issues, "warnings": entries, "legacyIssues": []}


def _with_defaults(examined: ConfigExamination) -> Json:
    """Return what was written, over the defaults.

    Variables stay as written: their values are not shown. Defaults of settings that OpenClaw does
    not know are left out: a client that saves all it was shown would write them.
    """
    from homarus.config.own_keys import without_own

    written: Json = redact_tree(examined.raw)
    if examined.config is None:
        return written
    defaults = examined.config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _fill_defaults(redact_tree(without_own(defaults)), written)


def _fill_defaults(defaults: Json, written: Json) -> Json:
    if not isinstance(defaults, dict) or not isinstance(written, dict):
        return written
    missing = {key: value for key, value in defaults.items() if key not in written and value != {}}
    return {
        **{key: _fill_defaults(defaults.get(key), value) for key, value in written.items()},
        **missing,
    }
