"""Agents in the config: added, changed, removed; the rest of the file stays."""

from pathlib import Path

import pytest

from homarus.config.agent_edits import (
    NewAgent,
    add_agent,
    check_name,
    check_workspace,
    describe_bindings,
    remove_agent,
    update_agent,
)
from homarus.config.paths import Paths
from homarus.core.errors import UserError
from homarus.core.session_keys import AgentId

OPS = NewAgent(
    AgentId("ops"), "Ops", "~/ops", model="openai/gpt-5.2", bindings=("Slack:Work", "irc")
)


def paths(home: Path) -> Paths:
    return Paths.find({"HOME": str(home), "OPENCLAW_STATE_DIR": str(home / "state")})


def test_add_agent_first_keeps_implied_main() -> None:
    tree = add_agent({"gateway": {"port": 1}, "agents": {"defaults": {"model": "a/b"}}}, OPS)
    assert tree == {
        "gateway": {"port": 1},
        "agents": {
            "defaults": {"model": "a/b"},
            "list": [
                {"id": "main"},
                {"id": "ops", "name": "Ops", "workspace": "~/ops", "model": "openai/gpt-5.2"},
            ],
        },
        "bindings": [
            {"agentId": "ops", "match": {"channel": "slack", "accountId": "work"}},
            {"agentId": "ops", "match": {"channel": "irc"}},
        ],
    }
    assert describe_bindings(tree, "ops") == ["slack (work)", "irc"]
    assert describe_bindings({"bindings": [None, {"agentId": "ops"}]}, "ops") == []


def test_remove_agent_removes_its_bindings() -> None:
    tree = add_agent({"bindings": [{"agentId": "main", "match": {}}]}, OPS)
    left, removed = remove_agent(tree, "ops")
    assert removed == 2
    assert left == {
        "agents": {"list": [{"id": "main"}]},
        "bindings": [{"agentId": "main", "match": {}}],
    }


def test_update_agent_merges_and_keeps_other_agents() -> None:
    tree = {"agents": {"list": [{"id": "Main", "identity": {"name": "Ada"}}, {"id": "ops"}]}}
    changed = update_agent(tree, "main", {"identity": {"emoji": "🦞"}})
    assert changed["agents"]["list"] == [
        {"id": "Main", "identity": {"name": "Ada", "emoji": "🦞"}},
        {"id": "ops"},
    ]
    assert tree["agents"]["list"][0] == {"id": "Main", "identity": {"name": "Ada"}}
    with pytest.raises(UserError, match="not in the config file"):
        update_agent(tree, "other", {"name": "x"})


@pytest.mark.parametrize(
    ("name", "why"), [("main", "reserved"), ("!!", "reserved"), ("OPS", "already exists")]
)
def test_check_name_reserved_or_used_raises_user_error(name: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        check_name(name, ["main", "ops"])
    assert check_name("Night\nShift", ["main"]) == ("night-shift", "Night Shift")


@pytest.mark.parametrize("bind", ["", ":x", "  "])
def test_add_agent_binding_without_channel_raises(bind: str) -> None:
    with pytest.raises(UserError, match="names no channel"):
        add_agent({}, NewAgent(AgentId("ops"), "Ops", "~/ops", bindings=(bind,)))


def test_check_workspace_around_state_directory_raises(tmp_path: Path) -> None:
    where = paths(tmp_path)
    assert check_workspace("~/ops", where) == tmp_path / "ops"
    assert check_workspace("~/state/workspace-ops", where) == tmp_path / "state" / "workspace-ops"
    for wrong in ("ops", "~/state", "/", "~/state/agents", "~", "~/x\0"):
        with pytest.raises(UserError):
            check_workspace(wrong, where)
