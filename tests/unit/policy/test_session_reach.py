"""Which sessions the tools of a session reach, by every setting."""

from typing import Any

import pytest

from homarus.config.schema import Config
from homarus.policy.session_reach import SessionReach, resolve_reach
from homarus.policy.tool_call import CallerFacts

MAIN, WORK, OTHER = "agent:main:main", "agent:main:work", "agent:helper:main"
GROUP, FRIEND = "agent:main:telegram:group:-1", "agent:main:telegram:direct:7"
CHILD, GRANDCHILD = "agent:main:subagent:1", "agent:helper:subagent:2"


def reach(key: str = MAIN, tools: Any = None, **caller: Any) -> SessionReach:
    sandbox = caller.pop("sandbox", {})
    config = Config.model_validate(
        {"tools": tools or {}, "agents": {"defaults": {"sandbox": sandbox}}}
    )
    return resolve_reach(config, CallerFacts("main", key, **caller))


def visibility(value: str, **agents: Any) -> dict[str, Any]:
    return {"sessions": {"visibility": value}, "agentToAgent": agents}


@pytest.mark.parametrize("value", ["self", "tree", "agent", "all"])
def test_session_reach_of_itself_is_always_there(value: str) -> None:
    assert reach(GROUP, visibility(value), is_owner=False, is_sandboxed=True).refusal(GROUP) == ""


def test_session_reach_by_default_is_the_tree() -> None:
    assert reach().refusal(CHILD, [MAIN]) == ""
    assert reach().refusal(GRANDCHILD, [CHILD, MAIN]) == ""
    assert "tools.sessions.visibility is tree" in reach().refusal(WORK)
    assert "tools.sessions.visibility is tree" in reach().refusal(CHILD, [WORK])


def test_session_reach_self_has_no_children() -> None:
    refusal = reach(tools=visibility("self")).refusal(CHILD, [MAIN])
    assert "tools.sessions.visibility is self" in refusal


def test_session_reach_agent_excludes_other_agents() -> None:
    found = reach(tools=visibility("agent", enabled=True))
    assert found.refusal(WORK) == found.refusal(GROUP) == ""
    assert "set it to all" in found.refusal(OTHER)


def test_session_reach_of_other_agents_needs_both_on_the_list() -> None:
    assert "enabled is false" in reach(tools=visibility("all")).refusal(OTHER)
    for allow in ([], ["*"], ["main", "help*"]):
        assert reach(tools=visibility("all", enabled=True, allow=allow)).refusal(OTHER) == ""
    for allow in (["main"], ["helper"], ["other"]):
        found = reach(tools=visibility("all", enabled=True, allow=allow))
        assert "tools.agentToAgent.allow" in found.refusal(OTHER)
        assert not found.can_write_to("helper") and found.can_write_to("main")


@pytest.mark.parametrize("value", ["tree", "agent", "all"])
def test_session_reach_of_a_group_excludes_private_sessions(value: str) -> None:
    found = reach(GROUP, visibility(value, enabled=True))
    for key in (MAIN, WORK, FRIEND, OTHER, "agent:main:telegram:group:-2"):
        assert found.refusal(key), key
    assert found.refusal(CHILD, [GROUP]) == ""


def test_session_reach_of_a_friend_excludes_other_people() -> None:
    found = reach(FRIEND, visibility("all"))
    assert found.refusal(MAIN) == ""  # the owner writes there
    assert found.refusal("agent:main:telegram:direct:8") and found.refusal(GROUP)
    assert "owner" in reach(FRIEND, visibility("all"), is_owner=False).refusal(MAIN)


def test_session_reach_of_a_sandbox_is_what_it_started() -> None:
    found = reach(tools=visibility("all"), is_sandboxed=True)
    assert "sessionToolsVisibility is spawned" in found.refusal(WORK)
    assert found.refusal(CHILD, [MAIN]) == ""
    sandbox = {"sessionToolsVisibility": "all"}
    assert reach(tools=visibility("all"), is_sandboxed=True, sandbox=sandbox).refusal(WORK) == ""


def test_session_reach_of_a_sub_agent_is_what_it_started() -> None:
    found = reach(CHILD, visibility("all"), depth=1)
    assert "sub-agent" in found.refusal(MAIN) and found.refusal(GRANDCHILD, [CHILD]) == ""
