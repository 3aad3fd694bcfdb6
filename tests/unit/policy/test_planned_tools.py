"""Tools that are declared and not implemented, and every name that rules may use."""

import pytest

from homarus.core.errors import ToolError
from homarus.policy.planned_tools import PLANNED_TOOLS
from homarus.policy.tool_policy import normalize_tool_name
from homarus.tools.catalog import builtin_tools, find_declaration, known_declarations

# Names of the seed documents and of OpenClaw, and the tools that they stand for.
NAMES = {
    "file_read": "read", "file_write": "write", "file_delete": "file_delete", "shell": "exec",
    "code_run": "exec", "bash": "exec", "apply-patch": "apply_patch", "web_browse": "browser",
    "web_search": "web_search", "web_fetch": "web_fetch", "channel_send": "message",
    "dm_send": "message", "cron_create": "cron", "webhook_create": "gateway",
    "node_list": "nodes", "node_command": "nodes", "ui_notify": "ask_user",
    "ui_prompt": "ask_user", "ui_confirm": "ask_user", "memory_search": "memory_search",
    "memory_get": "memory_get", "memory_write": "memory_write", "sessions_list": "sessions_list",
    "sessions_send": "sessions_send", "sessions_spawn": "sessions_spawn", "process": "process",
}  # fmt: skip
GROUPS = {
    "exec": "runtime", "file_delete": "fs", "memory_write": "memory", "web_fetch": "web",
    "sessions_list": "sessions", "ask_user": "ui", "cron": "automation", "gateway": "automation",
    "message": "messaging", "nodes": "nodes",
}  # fmt: skip


def test_planned_tool_that_is_implemented_is_not_declared_twice() -> None:
    implemented = {name for tool in builtin_tools() for name in (tool.name, *tool.aliases)}
    planned = {name for tool in PLANNED_TOOLS for name in (tool.name, *tool.aliases)}
    assert not implemented & planned, "remove what is implemented from planned_tools.py"


def test_tool_names_and_aliases_are_unique() -> None:
    names = [
        normalize_tool_name(name)
        for tool in known_declarations()
        for name in (tool.name, *tool.aliases)
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("name", "tool"), NAMES.items())
def test_name_of_seed_stands_for_the_tool(name: str, tool: str) -> None:
    for written in (name, f" {name.upper()} "):
        found = find_declaration(written)
        assert found and found.name == tool


def test_tools_declare_the_groups_of_the_seed() -> None:
    for name, group in GROUPS.items():
        found = find_declaration(name)
        assert found and group in found.groups, name


@pytest.mark.parametrize("name", ["gateway", "cron", "whatsapp_login"])
def test_owner_only_tools_say_so(name: str) -> None:
    found = find_declaration(name)
    assert found and found.is_owner_only


@pytest.mark.parametrize(
    ("called", "tool"), [("shell", "exec"), ("file_read", "read"), ("dm_send", "message")]
)
def test_call_by_another_name_reaches_the_tool(called: str, tool: str) -> None:
    assert builtin_tools().get(called).name == tool
    with pytest.raises(ToolError, match="no tool named"):
        builtin_tools().get("web_browse_all")
