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
from homarus.core.keys import AgentId

OPS = NewAgent(
    AgentId("ops"), "Ops", "~/ops", model="openai/gpt-5.2", bindings=("Slack:Work", "irc")
)


def paths(home: Path) -> Paths:
    return Paths.find({"HOME": str(home), "OPENCLAW_STATE_DIR": str(home / "state")})


def test_the_first_agent_added_leaves_main_where_it_is() -> None:
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


def test_an_agent_removed_takes_its_bindings_along() -> None:
    tree = add_agent({"bindings": [{"agentId": "main", "match": {}}]}, OPS)
    left, removed = remove_agent(tree, "ops")
    assert removed == 2
    assert left == {
        "agents": {"list": [{"id": "main"}]},
        "bindings": [{"agentId": "main", "match": {}}],
    }


def test_a_change_merges_and_touches_nobody_else() -> None:
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
def test_a_name_that_cannot_be_is_refused(name: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        check_name(name, ["main", "ops"])
    assert check_name("Night\nShift", ["main"]) == ("night-shift", "Night Shift")


@pytest.mark.parametrize("bind", ["", ":x", "  "])
def test_a_binding_names_a_channel(bind: str) -> None:
    with pytest.raises(UserError, match="names no channel"):
        add_agent({}, NewAgent(AgentId("ops"), "Ops", "~/ops", bindings=(bind,)))


def test_a_workspace_may_not_hold_the_gateways_state(tmp_path: Path) -> None:
    where = paths(tmp_path)
    assert check_workspace("~/ops", where) == tmp_path / "ops"
    assert check_workspace("~/state/workspace-ops", where) == tmp_path / "state" / "workspace-ops"
    for wrong in ("ops", "~/state", "/", "~/state/agents", "~", "~/x\0"):
        with pytest.raises(UserError):
            check_workspace(wrong, where)
