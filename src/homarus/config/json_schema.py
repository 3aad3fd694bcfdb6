"""Make the JSON Schema of `openclaw.json` with the names that clients have always seen.

Pydantic names definitions after Python classes. The published names are fixed, so that renaming
a class changes neither `homarus config schema` nor the gateway's `config.schema`. An object is
described by the docstring of its class, every other key by a line of `key_descriptions.txt`.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from homarus.config.channels import AccountSettings, ChannelSettings
from homarus.config.schema import Config

_PREFIX: Final = "#/$defs/"
# Published names of classes whose name is more than the published one with `Config` appended.
_PUBLISHED: Final = {
    "LoopDetectorsConfig": "Detectors",
    "CrossContextMarkerConfig": "Marker",
    "AgentToolsConfig": "Tools",
    "GlobalToolsConfig": "AllTools",
    "OAuthClientConfig": "LoginClient",
    "InboundDebounceConfig": "InboundWait",
}


# A Python name in the docstring of a class.
_PYTHON_NAME: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")


def config_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the config, with published definition names and titles."""
    schema = described_schema(Config)
    definitions: dict[str, Any] = schema.pop("$defs")
    for name, definition in definitions.items():
        if definition.get("title") == name:
            definition["title"] = published_name(name)
    named = {published_name(name): definition for name, definition in definitions.items()}
    _rename_refs(named)
    _rename_refs(schema)
    return {"$defs": dict(sorted(named.items())), **schema}


def channel_json_schema(settings: type[ChannelSettings]) -> dict[str, Any]:
    """Return the schema of a channel's section: the settings of an account, and its accounts."""
    properties: dict[str, Any] = {}
    for section in (AccountSettings, settings):
        properties |= inline_references(described_schema(section))["properties"]
    account = {"type": "object", "properties": properties, "additionalProperties": False}
    accounts = {"type": "object", "title": "Accounts", "additionalProperties": account}
    return {**account, "properties": {**properties, "accounts": accounts}}


def inline_references(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without `$ref`: each definition is written out where it is used.

    Clients that make a form of the schema resolve no references. A definition that contains itself
    is written out once; inside it, any object is accepted in its place.
    """
    definitions: dict[str, Any] = schema.get("$defs", {})

    def expand(tree: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(tree, list):
            return [expand(each, inside) for each in tree]
        if not isinstance(tree, dict):
            return tree
        rest = {key: expand(each, inside) for key, each in tree.items() if key != "$ref"}
        if rest.get("additionalProperties") is True:  # OpenClaw's form offers only the other form
            rest["additionalProperties"] = {}
        name = str(tree.get("$ref", "")).removeprefix(_PREFIX)
        if not name:
            return rest
        if name in inside:
            return {"type": "object", **rest}
        return {**expand(definitions[name], (*inside, name)), **rest}

    inlined: dict[str, Any] = expand({k: v for k, v in schema.items() if k != "$defs"}, ())
    return inlined


def described_schema(settings: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a section in which every key has a description."""
    schema: dict[str, Any] = settings.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = schema.get("$defs", {})
    for name, definition in ((settings.__name__, schema), *definitions.items()):
        texts = key_descriptions().get(published_name(name), {})
        for key, spec in _properties(definition):
            if key in texts:
                spec.setdefault("description", texts[key])
        if isinstance(text := definition.get("description"), str):
            definition["description"] = _PYTHON_NAME.sub(_to_key, text)
    return schema


@lru_cache(1)
def key_descriptions() -> dict[str, dict[str, str]]:
    """Return the descriptions of keys by the published name of their object."""
    found: dict[str, dict[str, str]] = {}
    names: list[str] = []
    text = Path(__file__).with_name("key_descriptions.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            names = line.strip("[]").split(", ")
        elif line and not line.startswith("#"):
            key, _, meaning = line.partition(": ")
            for name in names:
                found.setdefault(name, {})[key] = meaning
    return found


def _properties(definition: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the keys of an object; where a section has several forms, those of the object."""
    forms = [definition, *definition.get("anyOf", ())]
    return [pair for form in forms for pair in form.get("properties", {}).items()]


def _to_key(found: re.Match[str]) -> str:
    return f"`{to_camel(found[1])}`"


def published_name(name: str) -> str:
    """Return the name of a class in the schema."""
    return _PUBLISHED.get(name) or name.removesuffix("Config") or name


def _rename_refs(tree: Any) -> None:
    if isinstance(tree, list):
        for each in tree:
            _rename_refs(each)
    elif isinstance(tree, dict):
        ref = tree.get("$ref")
        if isinstance(ref, str) and ref.startswith(_PREFIX):
            tree["$ref"] = _PREFIX + published_name(ref.removeprefix(_PREFIX))
        for each in tree.values():
            _rename_refs(each)
