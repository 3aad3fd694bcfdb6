"""Make the JSON Schema of `openclaw.json` with the names that clients have always seen.

Pydantic names definitions after Python classes. The published names are fixed, so that renaming
a class changes neither `homarus config schema` nor the gateway's `config.schema`.
"""

from typing import Any, Final

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


def config_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the config, with published definition names and titles."""
    schema = Config.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = schema.pop("$defs")
    for name, definition in definitions.items():
        if definition.get("title") == name:
            definition["title"] = _published(name)
    named = {_published(name): definition for name, definition in definitions.items()}
    _rename_refs(named)
    _rename_refs(schema)
    return {"$defs": dict(sorted(named.items())), **schema}


def channel_json_schema(settings: type[ChannelSettings]) -> dict[str, Any]:
    """Return the schema of a channel's section: the settings of an account, and its accounts."""
    properties: dict[str, Any] = {}
    for section in (AccountSettings, settings):
        properties |= inline_references(section.model_json_schema(by_alias=True))["properties"]
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


def _published(name: str) -> str:
    return _PUBLISHED.get(name) or name.removesuffix("Config")


def _rename_refs(tree: Any) -> None:
    if isinstance(tree, list):
        for each in tree:
            _rename_refs(each)
    elif isinstance(tree, dict):
        ref = tree.get("$ref")
        if isinstance(ref, str) and ref.startswith(_PREFIX):
            tree["$ref"] = _PREFIX + _published(ref.removeprefix(_PREFIX))
        for each in tree.values():
            _rename_refs(each)
