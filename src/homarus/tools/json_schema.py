"""Check the arguments of a call against a JSON schema.

The keywords that describe arguments are checked: type, enum, const, required, properties,
additionalProperties, items, the limits of numbers, texts and lists, anyOf, oneOf and allOf. Others
are left to the tool; a schema comes from outside, so its patterns are never run.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from homarus.core.errors import ToolError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.providers.base import ToolSpec

MAX_DEPTH: Final = 32
MAX_PROBLEMS: Final = 5
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}
_Compare: TypeAlias = Callable[[Any, Any], bool]
_LIMITS: Final[Mapping[str, _Compare]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}
_LENGTHS: Final[Mapping[str, tuple[type, _Compare]]] = {
    "minLength": (str, operator.ge),
    "maxLength": (str, operator.le),
    "minItems": (list, operator.ge),
    "maxItems": (list, operator.le),
}


def check_arguments(spec: ToolSpec, args: Mapping[str, Json]) -> dict[str, Json]:
    """Return the arguments. Raises ToolError that says what is wrong with them, and where."""
    from homarus.tools.tool import format_signature

    problems = []
    for problem in find_problems(dict(args), spec.parameters):
        problems.append(problem)
        if len(problems) == MAX_PROBLEMS:
            break
    if problems:
        raise ToolError(f"{spec.name}: {'; '.join(problems)}", fix=format_signature(spec))
    return dict(args)


def find_problems(value: Json, schema: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield what does not fit the schema, each with where it is: `files.0.path: …`."""
    where = path or "arguments"
    if depth > MAX_DEPTH:
        yield f"{where}: too deeply nested"
        return
    if schema is False:
        yield f"{where}: not allowed"
    if not isinstance(schema, Mapping):
        return
    if (wrong := _wrong_type(value, schema.get("type"))) or (wrong := _wrong_value(value, schema)):
        yield f"{where}: {wrong}"
        return
    if isinstance(value, dict):
        yield from _object_problems(value, schema, path, depth)
    elif isinstance(value, list | tuple):
        yield from _list_problems(value, schema, path, depth)
    yield from _combined_problems(value, schema, path, depth)


def _wrong_type(value: Json, expected: Any) -> str:
    names = [expected] if isinstance(expected, str) else expected
    if not isinstance(names, Sequence) or not names:
        return ""
    known = [name for name in names if isinstance(name, str) and name in _TYPES]
    if len(known) < len(names) or any(_has_type(value, name) for name in known):
        return ""
    return f"must be {' or '.join(known)}, not {_shown(value)}"


def _has_type(value: Json, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _wrong_value(value: Json, schema: Mapping[str, Any]) -> str:
    """Return why a value is none of those listed, or beyond a limit."""
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list | tuple) and not any(_is_same(value, each) for each in choices):
        return f"must be one of {', '.join(map(_shown, choices[:20]))}, not {_shown(value)}"
    for name, holds in _LIMITS.items():
        limit = schema.get(name)
        if _is_number(limit) and _is_number(value) and not holds(value, limit):
            return f"{name} is {limit}, got {_shown(value)}"
    size = len(value) if isinstance(value, str | list) else 0
    for name, (kind, fits) in _LENGTHS.items():
        limit = schema.get(name)
        if _is_number(limit) and isinstance(value, kind) and not fits(size, limit):
            return f"{name} is {limit}, got {size}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(value: Json, choice: Any) -> bool:
    return bool(value == choice) and isinstance(value, bool) == isinstance(choice, bool)


def _object_problems(
    value: Mapping[str, Json], schema: Mapping[str, Any], path: str, depth: int
) -> Iterator[str]:
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list | tuple) else ():
        if name not in value:
            yield f"{_join(path, name)}: required, and missing"
    others = schema.get("additionalProperties", True)
    has_patterns = bool(schema.get("patternProperties"))
    for name, item in value.items():
        if name in known:
            yield from find_problems(item, known[name], _join(path, name), depth + 1)
        elif others is False and not has_patterns:
            yield f"{_join(path, name)}: unknown argument"
        elif isinstance(others, Mapping) and not has_patterns:
            yield from find_problems(item, others, _join(path, name), depth + 1)


def _list_problems(
    value: Sequence[Json], schema: Mapping[str, Any], path: str, depth: int
) -> Iterator[str]:
    first = schema.get("prefixItems")
    first = first if isinstance(first, list | tuple) else ()
    for number, item in enumerate(value):
        own = first[number] if number < len(first) else schema.get("items")
        yield from find_problems(item, own, _join(path, number), depth + 1)


def _combined_problems(
    value: Json, schema: Mapping[str, Any], path: str, depth: int
) -> Iterator[str]:
    for each in _schemas(schema, "allOf"):
        yield from find_problems(value, each, path, depth + 1)
    for name in ("anyOf", "oneOf"):
        first = ""
        for each in (choices := _schemas(schema, name)):
            problem = next(find_problems(value, each, path, depth + 1), "")
            if not problem:
                break
            first = first or problem
        else:
            if choices:
                yield f"{first} (and fits none of the other {len(choices) - 1} forms)"


def _schemas(schema: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = schema.get(name)
    return found if isinstance(found, list | tuple) else ()


def _join(path: str, name: object) -> str:
    return f"{path}.{one_line(str(name), 60)}" if path else one_line(str(name), 60)


def _shown(value: Json) -> str:
    return one_line(repr(value), 60)
