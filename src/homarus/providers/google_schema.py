"""Convert a tool's JSON schema to the subset that Gemini accepts.

Google refuses a request for one unknown keyword, so a schema is rebuilt from what every Gemini
accepts: one type per place, `nullable`, `enum` of strings, `anyOf` without siblings. References are
inlined. What the subset cannot express goes into the description or is dropped: the tool validates
its arguments itself. The result is deterministic.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from homarus.core.message import Json

MAX_DEPTH = 24
MAX_NODES = 4000  # references may multiply: places beyond this number accept anything
MAX_COUNT = 2**31 - 1

_TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
_FORMATS = {"STRING": ("date-time",), "NUMBER": ("float", "double"), "INTEGER": ("int32", "int64")}
# Keywords that imply a type where none is given.
_SIGNS = (
    ("properties", "OBJECT"),
    ("required", "OBJECT"),
    ("additionalProperties", "OBJECT"),
    ("patternProperties", "OBJECT"),
    ("items", "ARRAY"),
    ("prefixItems", "ARRAY"),
    ("minimum", "NUMBER"),
    ("maximum", "NUMBER"),
)

_Node = dict[str, Json]


def parameters(schema: Mapping[str, Json]) -> _Node | None:
    """Return a tool's parameters for Gemini, or None for a tool without any."""
    made = _Translation(schema).place({**schema, "type": "object"}, frozenset(), 0)
    made.pop("nullable", None)
    return made if "properties" in made else None


class _Translation:
    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._left = MAX_NODES

    def place(self, schema: Json, seen: frozenset[str], depth: int) -> _Node:
        """Translate one place of the schema; `seen` are the references that led to it."""
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            return {"type": "OBJECT"}
        flat, seen = self._flat(schema, seen, depth)
        variants = _variants(flat)
        types = _types(flat)
        if variants and types == ["OBJECT"]:
            flat = self._with_variants(flat, variants, seen, depth)
        elif variants and not types:
            places = [self.place(variant, seen, depth + 1) for variant in variants]
            return _union(places, flat)
        if types == ["NULL"] or (not types and _nullable(flat, types)):
            return {"type": "NULL"}
        kinds = [kind for kind in types if kind != "NULL"]
        if len(kinds) > 1:
            bare = {key: value for key, value in flat.items() if key != "description"}
            places = [self._typed({**bare, "type": kind}, kind, seen, depth) for kind in kinds]
            return _union(places, {**flat, "nullable": _nullable(flat, types)})
        made = self._typed(flat, kinds[0] if kinds else "STRING", seen, depth)
        if _nullable(flat, types):
            made["nullable"] = True
        return made

    def _typed(self, flat: _Node, kind: str, seen: frozenset[str], depth: int) -> _Node:
        """Translate a place of one type with the keywords of that type."""
        made: _Node = {"type": kind}
        words = flat.get("description")
        sentences = [words] if isinstance(words, str) and words else []
        match kind:
            case "OBJECT":
                self._add_properties(made, flat, seen, depth)
            case "ARRAY":
                made["items"] = self.place(_items(flat), seen, depth + 1)
                _copy(made, flat, ("minItems", "maxItems"), _is_count)
            case "NUMBER" | "INTEGER":
                _copy(made, flat, ("minimum", "maximum"), _is_number)
                sentences += _choices(flat)
            case "STRING":
                values = _values(flat)
                if values and all(isinstance(value, str) and value for value in values):
                    made["enum"] = list(dict.fromkeys(values))
                else:
                    sentences += _choices(flat)
        if flat.get("format") in _FORMATS.get(kind, ()) and "enum" not in made:
            made["format"] = flat["format"]
        return {**made, "description": " ".join(sentences)} if sentences else made

    def _add_properties(self, made: _Node, flat: _Node, seen: frozenset[str], depth: int) -> None:
        given = flat.get("properties")
        found = {
            name: self.place(schema, seen, depth + 1)
            for name, schema in (given.items() if isinstance(given, Mapping) else ())
            if isinstance(name, str) and name
        }
        if found:
            made["properties"] = found
        required = [name for name in _strings(flat.get("required")) if name in found]
        if required:
            made["required"] = required

    def _with_variants(
        self, flat: _Node, variants: Sequence[Json], seen: frozenset[str], depth: int
    ) -> _Node:
        """Merge an object's alternatives: all properties, required where all require it.

        Gemini has no alternatives of objects.
        """
        shapes = [self._flat(variant, seen, depth)[0] for variant in variants]
        found: dict[str, list[Json]] = {}
        for shape in (flat, *shapes):
            properties = shape.get("properties")
            for name, schema in properties.items() if isinstance(properties, Mapping) else ():
                places = found.setdefault(name, [])
                if schema not in places:
                    places.append(schema)
        merged = {
            name: places[0] if len(places) == 1 else {"anyOf": places}
            for name, places in found.items()
        }
        needed = [_strings(shape.get("required")) for shape in shapes]
        shared = [name for name in needed[0] if all(name in names for names in needed)]
        required = [*_strings(flat.get("required")), *shared]
        return {**flat, "properties": merged, "required": required}

    def _flat(self, schema: Json, seen: frozenset[str], depth: int) -> tuple[_Node, frozenset[str]]:
        """Return a schema with its reference and `allOf` inlined."""
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return {}, seen
        flat = dict(schema)
        ref, parts = flat.pop("$ref", None), flat.pop("allOf", None)
        if isinstance(ref, str):
            if ref in seen:
                return {"description": flat.get("description"), "type": "object"}, seen
            there, seen = self._flat(self._at(ref), seen | {ref}, depth + 1)
            flat = {**there, **flat}
        for part in parts if isinstance(parts, list) else ():
            self._left -= 1
            if self._left < 0:
                break
            more, seen = self._flat(part, seen, depth + 1)
            flat = _both(flat, more)
        return flat, seen

    def _at(self, ref: str) -> Json:
        """Return the target of a reference within the schema; empty for others."""
        place: Json = self._root
        if not ref.startswith("#"):
            return None
        for step in filter(None, ref[1:].split("/")):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, Mapping):
                place = place.get(name)
            elif isinstance(place, list) and name.isascii() and name.isdigit():
                place = place[int(name)] if len(name) < 6 and int(name) < len(place) else None
            else:
                return None
        return place


def _variants(flat: _Node) -> list[Json]:
    for name in ("anyOf", "oneOf"):
        if isinstance(flat.get(name), list) and flat[name]:
            found: list[Json] = flat[name]
            return found
    return []


def _types(flat: _Node) -> list[str]:
    """Return the types a place declares or implies; empty when it accepts anything."""
    said = flat.get("type")
    names = said if isinstance(said, list) else [said]
    known = [name.upper() for name in names if isinstance(name, str)]
    found = list(dict.fromkeys(name for name in known if name in _TYPES))
    if found:
        return found
    for sign, kind in _SIGNS:
        if sign in flat:
            return [kind]
    values = [_type_of(value) for value in _values(flat)]
    return ["STRING"] if len(set(values)) > 1 else values[:1]


def _type_of(value: Json) -> str:
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "INTEGER"
        case float():
            return "NUMBER"
        case list():
            return "ARRAY"
        case Mapping():
            return "OBJECT"
        case _:
            return "STRING"


def _values(flat: _Node) -> list[Json]:
    """Return the values a place is limited to, without null."""
    if "const" in flat:
        values = [flat["const"]]
    else:
        values = flat["enum"] if isinstance(flat.get("enum"), list) else []
    return [value for value in values if value is not None]


def _choices(flat: _Node) -> list[str]:
    values = _values(flat)
    return [f"One of: {', '.join(map(_shown, values))}."] if values else []


def _shown(value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "?"


def _nullable(flat: _Node, types: Sequence[str]) -> bool:
    enum = flat.get("enum")
    return (
        "NULL" in types
        or flat.get("nullable") is True
        or (isinstance(enum, list) and None in enum)
        or ("const" in flat and flat["const"] is None)
    )


def _items(flat: _Node) -> Json:
    """Return an array's item schema; a tuple's items become alternatives."""
    for name in ("items", "prefixItems"):
        items = flat.get(name)
        if isinstance(items, list):
            return {"anyOf": items} if items else {}
        if isinstance(items, Mapping):
            return items
    return {}


def _union(places: Iterable[_Node], around: _Node) -> _Node:
    """Return alternatives. `anyOf` allows no siblings, so they are copied into each alternative."""
    nullable = around.get("nullable") is True
    found: list[_Node] = []
    for place in places:
        for one in place.get("anyOf", [place]):
            nullable = nullable or one["type"] == "NULL" or one.get("nullable") is True
            bare = {key: value for key, value in one.items() if key != "nullable"}
            if bare["type"] != "NULL" and bare not in found:
                found.append(bare)
    found = _one_enum(found) or [{"type": "STRING"}]
    words = around.get("description")
    for one in found:
        if nullable:
            one["nullable"] = True
        if isinstance(words, str) and words and (len(found) == 1 or "description" not in one):
            one["description"] = words
    return found[0] if len(found) == 1 else {"anyOf": found}


def _one_enum(places: list[_Node]) -> list[_Node]:
    """Merge alternatives that are lists of strings into one."""
    if len(places) < 2 or not all("enum" in place for place in places):
        return places
    words = dict.fromkeys(word for place in places for word in place["enum"])
    return [{"type": "STRING", "enum": list(words)}]


def _both(one: _Node, other: _Node) -> _Node:
    """Merge two schemas; where they differ, the first wins."""
    both = {**other, **one}
    first, second = one.get("properties"), other.get("properties")
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        both["properties"] = {**second, **first}
    names = [*_strings(one.get("required")), *_strings(other.get("required"))]
    if names:
        both["required"] = list(dict.fromkeys(names))
    return both


def _strings(value: Json) -> list[str]:
    found = value if isinstance(value, list) else []
    return list(dict.fromkeys(name for name in found if isinstance(name, str)))


def _copy(made: _Node, flat: _Node, names: Iterable[str], fits: Callable[[Json], bool]) -> None:
    made.update({name: flat[name] for name in names if fits(flat.get(name))})


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
