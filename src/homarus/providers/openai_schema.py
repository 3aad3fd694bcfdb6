"""Convert a tool's JSON schema for OpenAI, and decide whether strict mode accepts it.

One schema that the service refuses fails the whole request. The top must be an object without
alternatives. Strict mode requires every object closed, every property required, and no unknown
keyword: other schemas are sent without it, never changed in meaning.
"""

from collections.abc import Mapping

from homarus.core.message import Json

MAX_STRICT_DEPTH = 10

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_NOT_AT_THE_TOP = frozenset({*_ALTERNATIVES, "not", "enum", "const"})
_STRICT = frozenset(
    {
        *("type", "description", "title", "enum", "const", "anyOf", "$ref", "$defs"),
        *("properties", "required", "additionalProperties"),
        *("items", "minItems", "maxItems", "pattern"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
)


def parameters(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return a tool's parameters as an object; top-level alternatives become properties."""
    properties = dict(_object(schema, "properties"))
    for word in _ALTERNATIVES:
        for variant in _list(schema, word):
            if isinstance(variant, Mapping):
                properties = {**_object(variant, "properties"), **properties}
    plain = {word: value for word, value in schema.items() if word not in _NOT_AT_THE_TOP}
    return {**plain, "type": "object", "properties": properties}


def fits_strict(schema: Json, depth: int = 0) -> bool:
    """Return whether strict mode accepts this schema unchanged."""
    if not isinstance(schema, Mapping) or depth > MAX_STRICT_DEPTH:
        return False
    if not _STRICT.issuperset(schema) or not _says_what(schema):
        return False
    properties = _object(schema, "properties")
    if "object" in _types(schema) or properties:
        if schema.get("additionalProperties") is not False:
            return False
        if sorted(map(str, _list(schema, "required"))) != sorted(properties):
            return False
    if "array" in _types(schema) and "items" not in schema:
        return False
    inner = [*properties.values(), *_object(schema, "$defs").values(), *_list(schema, "anyOf")]
    if "items" in schema:
        inner.append(schema["items"])
    return all(fits_strict(part, depth + 1) for part in inner)


def _says_what(schema: Mapping[str, Json]) -> bool:
    return any(word in schema for word in ("type", "anyOf", "$ref", "enum", "const"))


def _types(schema: Mapping[str, Json]) -> list[Json]:
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind]


def _object(schema: Mapping[str, Json], word: str) -> Mapping[str, Json]:
    value = schema.get(word)
    return value if isinstance(value, Mapping) else {}


def _list(schema: Mapping[str, Json], word: str) -> list[Json]:
    value = schema.get(word)
    return value if isinstance(value, list) else []
