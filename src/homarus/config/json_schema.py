"""Make the JSON Schema of `openclaw.json` with the names that clients have always seen.

Pydantic names definitions after Python classes. The published names are fixed, so that renaming
a class changes neither `homarus config schema` nor the gateway's `config.schema`.
"""

from typing import Any, Final

from homarus.config.schema import Config

_PREFIX: Final = "#/$defs/"
# Published names of classes whose name is more than the published one with `Config` appended.
_PUBLISHED: Final = {
    "LoopDetectorsConfig": "Detectors",
    "CrossContextMarkerConfig": "Marker",
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
