"""The tool `session_status`: the card of `/status`, the model of a session, and whose it shows."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import Address, ToolCall, ToolResult
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, TaintSource, ToolCallFacts, ToolDecision
from homarus.tools.catalog import builtin_tools
from homarus.tools.execute import execute_tool_call
from homarus.tools.tool import ToolContext
from tests.unit.gateway.app_harness import CONFIG, Harness, answer, run

MAIN, WORK = "agent:main:main", "agent:main:work"
GROUP, CHILD = "agent:main:telegram:group:7", "agent:main:subagent:1"
MODELS = {
    "providers": {
        "mock": {
            **CONFIG["models"]["providers"]["mock"],
            "models": [{"id": "mock-1", "contextWindow": 1_000_000}, {"id": "mock-2"}],
        }
    }
}
SETTINGS = {
    "models": MODELS,
    "agents": {
        "defaults": {
            "model": {"primary": "mock/mock-1"},
            "userTimezone": "Europe/Berlin",
            "timeFormat": "12",
        }
    },
    "tools": {"sessions": {"visibility": "agent"}},
}


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Harness]:
    async with run(tmp_path, answer("Hello."), answer("Hi."), config=SETTINGS) as opened:
        await opened.send("hello", "r1")
        await opened.send("hello", "r2", key="work")
        yield opened


async def use(it: Harness, key: str = MAIN, *, is_owner: bool = True, **given: Any) -> ToolResult:
    """Call the tool as a model does in a session, decided by the policy."""
    sandboxed, taint = given.pop("sandboxed", False), given.pop("taint", ())
    caller = CallerFacts("main", key, is_owner=is_owner, is_sandboxed=sandboxed, taint=taint)
    ctx = ToolContext(
        key,
        "main",
        it.app.agent("main").workspace,
        here=Address("webchat", ""),
        sessions=it.store,
        get_caller=lambda: replace(caller, depth=int(":subagent:" in key)),
    )

    async def decide(facts: ToolCallFacts) -> ToolDecision:
        return decide_tool_call(facts, caller)

    call = ToolCall("c1", "session_status", given)
    return await execute_tool_call(it.app.tools("main"), ctx, call, decide)


async def test_session_status_shows_the_card_of_the_status_command(it: Harness) -> None:
    await it.send("/status", "r3")
    card = it.gateway.chats("r3")[-1]["message"]["content"][0]["text"]
    result = await use(it)
    assert result.text == card and not result.is_error
    assert "(Europe/Berlin)" in card and ("AM" in card or "PM" in card)
    for fact in ("Model: mock/mock-1", "Context: 100 of", "Thinking:", "Queue:", "Sandbox:"):
        assert fact in card, fact
    assert "Session so far: 100 tokens in · 3 out · $0.2500" in card
    assert result.details == {"ok": True, "sessionKey": MAIN, "changedModel": False}


async def test_session_status_model_is_set_and_cleared(it: Harness) -> None:
    result = await use(it, model="mock/mock-2")
    assert "Model: mock/mock-2 (chosen for this session)" in result.text
    assert result.details and result.details["changedModel"] is True
    record = await it.store.session(MAIN)
    assert record and record.data["modelOverride"] == "mock-2"
    result = await use(it, model="default")
    record = await it.store.session(MAIN)
    assert record and "modelOverride" not in record.data and "mock/mock-1" in result.text


@pytest.mark.parametrize("model", ["mock/absent", "nothing/x", "list", "status"])
async def test_session_status_unknown_model_changes_nothing(it: Harness, model: str) -> None:
    before = await it.store.session(MAIN)
    result = await use(it, model=model)
    assert result.is_error and await it.store.session(MAIN) == before


async def test_session_status_model_of_a_stranger_is_refused(it: Harness) -> None:
    result = await use(it, is_owner=False, model="mock/mock-2")
    assert result.is_error and "the owner alone" in result.text
    assert not (await use(it, is_owner=False)).is_error


async def test_session_status_model_asks_in_a_tainted_run(it: Harness) -> None:
    taint = (TaintSource("web", "evil.example"),)
    result = await use(it, taint=taint, model="mock/mock-2")
    record = await it.store.session(MAIN)
    assert result.is_error and record and "modelOverride" not in record.data
    assert not (await use(it, taint=taint)).is_error


async def test_session_status_of_another_session_is_for_the_owner(it: Harness) -> None:
    result = await use(it, sessionKey="work", model="mock/mock-2")
    assert f"Session: {WORK}" in result.text
    record = await it.store.session(WORK)
    assert record and record.data["modelOverride"] == "mock-2"
    assert "there is no session" in (await use(it, sessionKey="absent")).text


@pytest.mark.parametrize(
    ("key", "given", "reason"),
    [
        (MAIN, {"is_owner": False}, "owner alone"),
        (GROUP, {}, "other people read"),
        (CHILD, {}, "sub-agent"),
        (MAIN, {"sandboxed": True}, "sandbox"),
        (MAIN, {"sessionKey": "agent:other:main"}, "tools.sessions.visibility is agent"),
    ],
)
async def test_session_status_of_another_session_is_denied(
    it: Harness, key: str, given: dict[str, Any], reason: str
) -> None:
    before = await it.store.session(WORK)
    result = await use(it, key, **{"sessionKey": "work", "model": "mock/mock-2", **given})
    assert result.is_error and reason in result.text
    assert await it.store.session(WORK) == before


@pytest.mark.parametrize("tools", [{}, {"sessions": {"visibility": "self"}}])
async def test_session_status_visibility_setting_is_obeyed(
    tmp_path: Path, tools: dict[str, Any]
) -> None:
    settings = {**SETTINGS, "tools": tools}
    async with run(tmp_path, answer("Hi."), config=settings) as it:
        await it.send("hello", "r1", key="work")
        result = await use(it, sessionKey="work")
        assert result.is_error and "tools.sessions.visibility" in result.text


def test_session_status_specification_is_small() -> None:
    spec = builtin_tools().get("session_status").spec
    sent = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    assert len(json.dumps(sent, separators=(",", ":"))) <= 330
