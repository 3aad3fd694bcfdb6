"""Registry: tools are found as models write them, and listed in one order."""

import json
from types import ModuleType

import pytest

from homarus.core.errors import ToolError, UserError
from homarus.core.message import ToolCall
from homarus.tools.builtin import files, search
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import Tool, ToolContext, tool
from tests.unit.tools.exec_builders import make_exec_tool

BUILTIN = ToolRegistry([*ToolRegistry.from_modules(search, files), make_exec_tool()])


def make(name: str, *aliases: str) -> Tool:
    @tool(group="test", name=name, aliases=aliases)
    async def run(ctx: ToolContext) -> str:
        """Nothing."""
        return name

    return run


def test_registry_has_every_tool_of_module_sorted() -> None:
    names = [spec.name for spec in BUILTIN.specs()]
    assert names == ["edit", "exec", "find", "grep", "ls", "read", "write"]
    assert len(BUILTIN) == 7


def test_registry_is_independent_of_module_order() -> None:
    other = ToolRegistry([make_exec_tool(), *ToolRegistry.from_modules(files, search)])
    told = [json.dumps([spec.name, spec.parameters]) for spec in other.specs()]
    assert told == [json.dumps([spec.name, spec.parameters]) for spec in BUILTIN.specs()]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("read", "read"),
        (" READ ", "read"),
        ("file_read", "read"),
        ("file_write", "write"),
        ("BASH", "exec"),
        ("code_run", "exec"),
        ("file-read", "read"),
    ],
)
def test_registry_get_ignores_case_and_blanks(written: str, meant: str) -> None:
    assert BUILTIN.get(written).name == meant
    assert written in BUILTIN


def test_registry_get_unknown_name_suggests_closest() -> None:
    with pytest.raises(ToolError, match="did you mean read"):
        BUILTIN.get("raed")
    with pytest.raises(ToolError, match="tools: edit, exec, find"):
        BUILTIN.get("q\nq")
    assert "teleport" not in BUILTIN


def test_registry_tool_name_beats_alias() -> None:
    first, second = make("a", "b"), make("b")
    assert ToolRegistry([first, second]).get("b") is second


def test_registry_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="two tools are named 'a'"):
        ToolRegistry([make("a"), make("a")])


def test_registry_same_tool_in_two_modules_is_one() -> None:
    shared = make("a")
    one, two = ModuleType("one"), ModuleType("two")
    vars(one)["x"] = vars(two)["y"] = shared
    assert len(ToolRegistry.from_modules(one, two)) == 1


def test_registry_filtered_tools_are_unknown_by_every_name() -> None:
    fewer = BUILTIN.filter(lambda each: each.group != "runtime")
    assert "exec" not in fewer
    assert "bash" not in fewer


def test_registry_writers_run_alone_also_by_alias() -> None:
    alone = {
        name: BUILTIN.must_run_alone(ToolCall("1", name, {})) for name in ("write", "bash", "read")
    }
    assert alone == {"write": True, "bash": True, "read": False}
    assert not BUILTIN.must_run_alone(ToolCall("1", "nothing", {}))


def test_registry_readers_are_idempotent_and_writers_not() -> None:
    assert {each.name for each in BUILTIN if each.idempotent} == {"read", "ls", "find", "grep"}
    assert {each.name for each in BUILTIN if each.serial} == {"write", "edit", "exec"}


def test_registry_filtered_tool_is_found_for_a_call_alone() -> None:
    tools = ToolRegistry([make("one", "uno"), make("two")])
    kept = tools.filter(lambda tool: tool.name == "two").filter(lambda _tool: True)
    assert [tool.name for tool in kept] == ["two"] and "one" not in kept
    assert kept.find_called("UNO").name == "one" and kept.find_called("two").name == "two"
    with pytest.raises(ToolError, match="no tool named 'uno'"):
        kept.get("uno")
    with pytest.raises(ToolError, match="no tool named 'three'"):
        kept.find_called("three")
