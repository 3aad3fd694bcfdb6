"""`@tool`: the signature is the schema."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AliasChoices, Field

from homarus.core.errors import ToolError
from homarus.tools.tool import ToolContext, tool

CTX = ToolContext("agent:main:main", "main", Path())


@tool(group="test", aliases=("salute",))
async def greet(
    ctx: ToolContext,
    who: Annotated[str, Field(validation_alias=AliasChoices("who", "person"), description="Whom")],
    *,
    how_often: Annotated[int | None, Field(validation_alias="howOften", ge=1)] = None,
    words: dict[str, str] | None = None,
    loud: bool = False,
) -> str:
    """Greet somebody."""
    return " ".join([("HELLO " if loud else "hello ") + who] * (how_often or 1))


def test_tool_schema_leaves_out_titles_and_what_is_guessable() -> None:
    assert greet.name == "greet"
    assert greet.spec.description == "Greet somebody."
    assert greet.spec.parameters == {
        "type": "object",
        "required": ["who"],
        "properties": {
            "who": {"type": "string", "description": "Whom"},
            "howOften": {"type": "integer"},
            "words": {"type": "object", "additionalProperties": {"type": "string"}},
            "loud": {"type": "boolean"},
        },
    }


@pytest.mark.parametrize(
    "args", [{"who": "you", "howOften": 2}, {"person": "you", "how_often": 2, "words": None}]
)
async def test_tool_parse_accepts_names_and_aliases(args: dict[str, object]) -> None:
    assert await greet(CTX, args) == "hello you hello you"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "who: Field required"),
        ({"who": 1}, "who: Input should be a valid string"),
        ({"who": "x", "howOften": 0}, "howOften: Input should be greater"),
        ({"who": "x", "extra": 1}, "extra: Extra inputs are not permitted"),
        ({"who": "x", "person": "y"}, "person: Extra inputs"),
    ],
)
def test_tool_parse_wrong_arguments_lists_valid_ones(args: dict[str, object], said: str) -> None:
    with pytest.raises(ToolError) as wrong:
        greet.parse(args)
    assert said in str(wrong.value)
    assert "arguments are {who, howOften?, words?, loud?}" in str(wrong.value)


async def test_tool_without_arguments_has_empty_schema() -> None:
    @tool(group="test")
    async def ping(ctx: ToolContext) -> str:
        """Answer."""
        return "pong"

    assert ping.spec.parameters["properties"] == {}
    assert await ping(CTX, {}) == "pong"
