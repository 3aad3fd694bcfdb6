"""Write the protocol's types for the control UI: `python web/generate_protocol.py [--check]`.

The methods and their params come from the gateway's method table, the events from
`homarus.gateway.event_payloads`. A test runs `--check`: a method or an event that is missing fails.
"""

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from homarus.gateway.event_payloads import PAYLOADS
from homarus.gateway.hello import EVENTS
from homarus.gateway.methods import METHODS, UNIMPLEMENTED

OUTPUT = Path(__file__).parent / "src" / "protocol" / "protocol.generated.ts"
HEAD = "// Written by web/generate_protocol.py from the gateway itself. Do not edit.\n"
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
_SCALARS |= {"null": "null"}


def text() -> str:
    """Return the complete file."""
    types: dict[str, str] = {}
    methods, scopes = [], []
    for name in sorted(METHODS):
        method = METHODS[name]
        schema = method.params.model_json_schema(by_alias=True)
        note = _comment(inspect.getdoc(method.run) or "", "  ")
        methods.append(f"{note}  {_quote(name)}: {_object(schema, types)};")
        scopes.append(f"  {_quote(name)}: {_quote(method.scope)},")
    for name in sorted(UNIMPLEMENTED):
        methods.append(f"  {_quote(name)}: Record<string, unknown>;")
        scopes.append(f"  {_quote(name)}: 'none',")
    events = []
    for name in sorted({*EVENTS, *PAYLOADS}):
        kind = "Record<string, unknown>"
        if name in PAYLOADS:
            kind = _type(TypeAdapter(PAYLOADS[name]).json_schema(), types, take_definitions=True)
        events.append(f"  {_quote(name)}: {kind};")
    interfaces = [types[name] for name in sorted(types)]
    parts = [
        HEAD,
        *interfaces,
        "/** The params of each method. */",
        "export interface MethodParams {\n" + "\n".join(methods) + "\n}\n",
        "export type MethodName = keyof MethodParams;\n",
        "/** The scope that each method needs. */",
        "export const METHOD_SCOPES = {\n"
        + "\n".join(scopes)
        + "\n} as const satisfies Record<MethodName, string>;\n",
        "/** The payload of each event. */",
        "export interface EventPayloads {\n" + "\n".join(events) + "\n}\n",
        "export type EventName = keyof EventPayloads;",
    ]
    return "\n".join(parts) + "\n"


def _type(
    schema: Mapping[str, Any], types: dict[str, str], *, take_definitions: bool = False
) -> str:
    """Return the TypeScript type of a JSON schema; `types` collects its definitions."""
    if take_definitions:
        _take_definitions(schema, types)
    match schema:
        case {"$ref": str(ref)}:
            return ref.rpartition("/")[2]
        case {"const": value}:
            return _literal(value)
        case {"enum": list(values)}:
            return " | ".join(map(_literal, values))
        case {"anyOf": list(options)} | {"oneOf": list(options)}:
            return _union(_type(each, types) for each in options)
        case {"type": "array"}:
            inner = _type(schema.get("items", {}), types)
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case {"type": "object"}:
            return _object_type(schema, types, is_named=take_definitions)
        case {"type": str(name)} if name in _SCALARS:
            return _SCALARS[name]
        case _:
            return "unknown"


def _object_type(schema: Mapping[str, Any], types: dict[str, str], *, is_named: bool) -> str:
    match schema:
        case {"properties": Mapping(), "title": str(title)} if is_named:
            types[title] = _interface(title, schema, types)
            return title
        case {"properties": Mapping()}:
            return _object(schema, types)
        case {"additionalProperties": Mapping() as more}:
            return f"Record<string, {_type(more, types)}>"
        case _:
            return "Record<string, unknown>"


def _take_definitions(schema: Mapping[str, Any], types: dict[str, str]) -> None:
    for name, definition in schema.get("$defs", {}).items():
        if name not in types:
            types[name] = ""  # a definition may refer to itself
            types[name] = _interface(name, definition, types)


def _interface(name: str, schema: Mapping[str, Any], types: dict[str, str]) -> str:
    note = _comment(schema.get("description", ""), "")
    if "properties" not in schema:
        return f"{note}export type {name} = {_type(schema, types)};\n"
    lines = "\n".join(f"  {field}" for field in _fields(schema, types))
    return f"{note}export interface {name} {{\n{lines}\n}}\n"


def _object(schema: Mapping[str, Any], types: dict[str, str]) -> str:
    _take_definitions(schema, types)
    fields = list(_fields(schema, types))
    return f"{{ {' '.join(fields)} }}" if fields else "Record<string, never>"


def _fields(schema: Mapping[str, Any], types: dict[str, str]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        mark = "" if name in required else "?"
        yield f"{name}{mark}: {_type(field, types)};"


def _union(options: Iterator[str]) -> str:
    return " | ".join(dict.fromkeys(options))


def _literal(value: object) -> str:
    return _quote(value) if isinstance(value, str) else json.dumps(value)


def _quote(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _comment(words: str, indent: str) -> str:
    line = " ".join(words.split()).replace("*/", "* /")
    return f"{indent}/** {line} */\n" if line else ""


def main() -> None:
    """Write the file, or check that it is fresh."""
    made = text()
    if "--check" not in sys.argv:
        OUTPUT.write_text(made, encoding="utf-8")
    elif OUTPUT.read_text(encoding="utf-8") != made:
        sys.exit(f"{OUTPUT} is out of date: run `python web/generate_protocol.py`")


if __name__ == "__main__":
    main()
