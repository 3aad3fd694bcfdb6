"""Arguments are checked against a plain JSON schema."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolError
from homarus.providers.base import ToolSpec
from homarus.tools.json_schema import check_arguments, find_problems
from homarus.tools.tool import ToolContext, json_tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 5},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "unit": {"enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "at": {"type": ["string", "null"]},
        "where": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["lat"]}]},
        "exact": {"const": True},
    },
    "required": ["city"],
    "additionalProperties": False,
}
SPEC = ToolSpec("forecast", "Tell the weather.", SCHEMA)


@pytest.mark.parametrize(
    "args",
    [
        {"city": "Rome"}, {"city": "Rome", "days": 3, "unit": "c", "tags": ["a", "b"]},
        {"city": "Rome", "days": 3.0, "at": None}, {"city": "Rome", "where": {"lat": 1}},
        {"city": "Rome", "exact": True},
    ],
)  # fmt: skip
def test_arguments_that_fit_the_schema_are_returned(args: dict[str, Any]) -> None:
    assert check_arguments(SPEC, args) == args


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "city: required, and missing"),
        ({"city": 4}, "city: must be string, not 4"),
        ({"city": ""}, "city: minLength is 1, got 0"),
        ({"city": "Rome", "days": True}, "days: must be integer, not True"),
        ({"city": "Rome", "days": 1.5}, "days: must be integer, not 1.5"),
        ({"city": "Rome", "days": 8}, "days: maximum is 7, got 8"),
        ({"city": "Rome", "unit": "k"}, "unit: must be one of 'c', 'f', not 'k'"),
        ({"city": "Rome", "tags": ["a", 2]}, "tags.1: must be string, not 2"),
        ({"city": "Rome", "tags": ["a", "b", "c"]}, "tags: maxItems is 2, got 3"),
        ({"city": "Rome", "at": 4}, "at: must be string or null, not 4"),
        ({"city": "Rome", "where": {}}, "where: must be string"),
        ({"city": "Rome", "exact": 1}, "exact: must be one of True, not 1"),
        ({"city": "Rome", "town": "x"}, "town: unknown argument"),
    ],
)
def test_arguments_that_do_not_fit_are_named(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolError) as refused:
        check_arguments(SPEC, args)
    assert problem in str(refused.value) and "city, days?" in refused.value.fix


@pytest.mark.parametrize(
    "schema",
    [
        {}, True, {"type": "strange"}, {"type": 7}, {"enum": "abc"}, {"required": "city"},
        {"properties": []}, {"items": 5}, {"anyOf": {}}, {"minimum": "x"}, {"pattern": "(a+)+$"},
        {"$ref": "#/x"},
    ],
)  # fmt: skip
def test_schema_that_is_not_understood_refuses_nothing(schema: Any) -> None:
    assert list(find_problems({"city": ["a" * 50]}, schema)) == []


def test_schema_and_value_nested_without_end_are_refused() -> None:
    value: Any = "x"
    schema: Any = {}
    for _ in range(100):
        value, schema = {"a": value}, {"properties": {"a": schema}}
    assert next(find_problems(value, schema)).endswith("too deeply nested")


async def test_json_tool_gets_checked_arguments(tmp_path: Path) -> None:
    async def run(_ctx: ToolContext, args: Any) -> str:
        return f"sun in {args['city']}"

    tool = json_tool(SPEC, run, groups=("weather",), effects=("send",))
    ctx = ToolContext("agent:main:main", "main", tmp_path)
    assert await tool(ctx, {"city": "Rome"}) == "sun in Rome"
    assert (tool.group, tool.spec) == ("weather", SPEC) and "send" in tool.effects
    with pytest.raises(ToolError, match="city: required"):
        await tool(ctx, {})
