"""`sessions_send` through a complete program: two agents, their turns, and the announcement."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import (
    Address,
    Inbound,
    Message,
    Origin,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
)
from homarus.policy.approvals import ApprovalAnswer, ApprovalQuestion
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, TaintSource, ToolCallFacts, ToolDecision
from homarus.providers.base import Delta, ModelRequest
from homarus.store.exchanges import KIND
from homarus.testing.fakes import ListChannel, ScriptedProvider
from homarus.tools.execute import execute_tool_call
from homarus.tools.tool import ToolContext
from tests.unit.gateway.app_harness import CONFIG, Harness, ScriptedModels, world
from tests.waiting import until

A, B = "agent:main:main", "agent:helper:main"
TWO_AGENTS: dict[str, Any] = {
    "agents": {
        "defaults": CONFIG["agents"]["defaults"],
        "list": [{"id": "main", "default": True}, {"id": "helper", "name": "Helper"}],
    },
    "tools": {"sessions": {"visibility": "all"}, "agentToAgent": {"enabled": True}},
}
ORIGIN = Origin("openai-completions", "mock", "mock-1")


class Brain(ScriptedProvider):
    """A model that answers by a function of the last message. A fake: no model could be run."""

    def __init__(self, answer: Callable[[str], str | ToolCall]) -> None:
        super().__init__(())
        self._answer = answer
        self.seen: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        self.requests.append(request)
        last = request.messages[-1]
        results = [part.text for part in last.parts if isinstance(part, ToolResult)]
        text = results[0] if results else last.text
        self.seen.append(text)
        found = self._answer(text)
        part = Text(found) if isinstance(found, str) else found
        stop: StopReason = "stop" if isinstance(found, str) else "toolUse"
        yield Message("assistant", (part,), origin=replace(ORIGIN, stop=stop))


@asynccontextmanager
async def open_program(
    folder: Path,
    answer: Callable[[str], str | ToolCall],
    config: dict[str, Any] | None = None,
) -> AsyncIterator[tuple[Harness, Brain, ListChannel]]:
    channel, brain = ListChannel(), Brain(answer)
    async with world(folder, (), {**TWO_AGENTS, **(config or {})}, [channel]) as it:
        ScriptedModels.script = brain
        yield it, brain, channel


async def use_chat(it: Harness, channel: ListChannel, key: str, chat: str = "ann") -> None:
    """Have a session answer a message of a chat, which becomes the session's last one."""
    inbound = Inbound(f"first-{key}", Address("list", chat), chat, "hello", authority="owner")
    await it.app.control.ask(key, inbound)
    await sent_texts(channel, 1)


async def sent_texts(channel: ListChannel, count: int) -> list[str]:
    """Wait until so many messages were sent to chats; return their texts."""
    async with asyncio.timeout(10):
        await until(lambda: len(channel.sent) >= count)
    return [one.text for one in channel.sent]


async def settled(it: Harness) -> None:
    """Wait until no exchange is open, and no run is active."""
    async with asyncio.timeout(10):
        await until(lambda: not it.app.control.active_runs())
        await exchanges_are(it, open_=False)
        await until(lambda: not it.app.control.active_runs())


async def exchanges_are(it: Harness, *, open_: bool) -> None:
    """Wait until an exchange is open, or none is."""
    while True:
        if bool(await it.store.records(KIND)) == open_:
            return
        await asyncio.sleep(0.005)


def send(**arguments: Any) -> ToolCall:
    return ToolCall("call-1", "sessions_send", {"sessionKey": B, **arguments})


def read_result(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def talk(text: str) -> str | ToolCall:
    """Answer as both agents: the owner's question is passed on, and one turn follows."""
    if "Your exchange with the session" in text:
        return "Main and I agreed on noon."
    if f"Answer of the session {B}, turn 1 of 5" in text:
        return "Which room?"
    if f"Answer of the session {A}, turn 2 of 5" in text:
        return "Room 7."
    if f"Answer of the session {B}, turn 3 of 5" in text:
        return "REPLY_SKIP"
    if f"Message of the session {A}" in text:
        return "At noon."
    if text.startswith("{"):
        return f"It says: {read_result(text)['reply']}"
    return send(message="When do we meet?") if "ask the helper" in text else "Hello."


async def test_sessions_send_answers_turns_and_one_announcement(tmp_path: Path) -> None:
    async with open_program(tmp_path, talk) as (it, brain, channel):
        await use_chat(it, channel, B)
        await it.send("ask the helper", "r1")
        await settled(it)
        assert it.gateway.chats("r1")[-1]["message"]["content"][0]["text"] == "It says: At noon."
        [result] = [read_result(text) for text in brain.seen if text.startswith("{")]
        assert result["status"] == "ok" and result["sessionKey"] == B
        assert result["delivery"] == {"status": "pending", "mode": "announce"}
        assert await sent_texts(channel, 2) == ["Hello.", "Main and I agreed on noon."]
        assert [text for text in brain.seen if "turn" in text][-1].count("turn 3 of 5") == 1
        records = await it.store.journal.inbox_records()
        steps = [row.id.rpartition(":")[2] for row in records if row.id.startswith("exchange:")]
        assert steps == ["0", "1", "2", "3", "announce"]


async def test_sessions_send_message_is_recorded_with_its_source(tmp_path: Path) -> None:
    async with open_program(tmp_path, talk) as (it, _brain, _channel):
        await it.send("ask the helper", "r1")
        await settled(it)
        session = await it.app.control.load(B)
        question = next(one for one in session.messages if "When do we meet?" in one.text)
        source = question.provenance
        assert source and (source.kind, source.session_key) == ("inter_session", A)
        assert (source.tool, source.channel) == ("sessions_send", "webchat")
        assert "EXTERNAL_UNTRUSTED" not in question.text


async def test_sessions_send_without_waiting_delivers_the_answer_later(tmp_path: Path) -> None:
    def answer(text: str) -> str | ToolCall:
        if "ask the helper" in text:
            return send(message="When do we meet?", timeoutSeconds=0)
        return "It is sent." if text.startswith("{") else talk(text)

    async with open_program(tmp_path, answer) as (it, brain, _channel):
        await it.send("ask the helper", "r1")
        await settled(it)
        [result] = [read_result(text) for text in brain.seen if text.startswith("{")]
        assert result["status"] == "accepted" and "reply" not in result
        assert any("At noon." in text for text in brain.seen if "turn 1 of 5" in text)


async def test_sessions_send_to_each_other_does_not_deadlock(tmp_path: Path) -> None:
    """Both wait for the other with a long timeout: the second does not, because it cannot end."""

    def answer(text: str) -> str | ToolCall:
        if "turn" in text:
            return "REPLY_SKIP"
        if "ask the helper" in text:
            return send(message="question one", timeoutSeconds=600)
        if "question one" in text:
            return send(sessionKey=A, message="question two", timeoutSeconds=600)
        if "question two" in text:
            return "An answer to two."
        return "Done." if text.startswith("{") else "Hello."

    limits = {"agents": {**TWO_AGENTS["agents"]}}
    limits["agents"]["defaults"] = {**CONFIG["agents"]["defaults"], "maxConcurrent": 1}
    async with open_program(tmp_path, answer, limits) as (it, brain, _channel):
        await it.send("ask the helper", "r1")
        await settled(it)
        results = [read_result(text) for text in brain.seen if text.startswith("{")]
        assert sorted(one["status"] for one in results) == ["accepted", "ok"]
        assert "An answer to two." in "".join(brain.seen)


async def test_sessions_send_loop_of_agents_ends_at_the_limit(tmp_path: Path) -> None:
    """Models that write to each other forever are refused after five messages."""

    def answer(text: str) -> str | ToolCall:
        if text.startswith("{"):
            return "Done."
        key = A if "Message of the session" in text and A in text else B
        other = send(sessionKey=key, message="and you?", timeoutSeconds=0)
        return "REPLY_SKIP" if "turn" in text else other

    async with open_program(tmp_path, answer) as (it, brain, _channel):
        await it.send("ask the helper", "r1")
        await settled(it)
        results = [read_result(text) for text in brain.seen if text.startswith("{")]
        refused = [one for one in results if one["status"] == "forbidden"]
        assert len(results) <= 20 and refused
        assert "session.agentToAgent.maxPingPongTurns" in refused[0]["error"]


async def test_sessions_send_turns_setting_of_zero_ends_after_the_answer(tmp_path: Path) -> None:
    config = {"session": {"agentToAgent": {"maxPingPongTurns": 0}}}
    async with open_program(tmp_path, talk, config) as (it, brain, channel):
        await use_chat(it, channel, B)
        await it.send("ask the helper", "r1")
        await settled(it)
        assert not [text for text in brain.seen if "turn" in text]
        assert (await sent_texts(channel, 2))[1] == "Main and I agreed on noon."


async def test_sessions_send_announce_skip_sends_nothing(tmp_path: Path) -> None:
    def answer(text: str) -> str | ToolCall:
        return "ANNOUNCE_SKIP" if "Your exchange with" in text else talk(text)

    async with open_program(tmp_path, answer) as (it, _brain, channel):
        await use_chat(it, channel, B)
        await it.send("ask the helper", "r1")
        await settled(it)
        assert await sent_texts(channel, 1) == ["Hello."]
        assert not await it.store.journal.outbox_records("pending", "sending")


async def test_sessions_send_of_a_stopped_run_has_no_turns(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def answer(text: str) -> str | ToolCall:
        if "Message of the session" in text:
            asked.set()
        return talk(text)

    async with open_program(tmp_path, answer) as (it, brain, _channel):
        async with it.app.lanes.enter(f"session:{B}"):  # the helper cannot answer yet
            await it.ask(
                "chat.send", sessionKey="main", message="ask the helper", idempotencyKey="r1"
            )
            async with asyncio.timeout(10):
                await exchanges_are(it, open_=True)
            await it.app.control.stop(A, by="rpc")
        await asked.wait()
        await settled(it)
        assert not [text for text in brain.seen if "turn" in text]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"tools": {}}, "tools.sessions.visibility is tree"),
        ({"tools": {"sessions": {"visibility": "all"}}}, "tools.agentToAgent.enabled is false"),
        (
            {
                "tools": {
                    "sessions": {"visibility": "all"},
                    "agentToAgent": {"enabled": True, "allow": ["main"]},
                }
            },
            "tools.agentToAgent.allow",
        ),
        (
            {"session": {"sendPolicy": {"default": "deny"}}},
            "session.sendPolicy",
        ),
    ],
)
async def test_sessions_send_forbidden_by_a_setting_names_it(
    tmp_path: Path, config: dict[str, Any], reason: str
) -> None:
    def answer(text: str) -> str | ToolCall:
        return "No." if text.startswith("{") else talk(text)

    async with open_program(tmp_path, answer, config) as (it, brain, _channel):
        inbound = Inbound("m1", Address("cli", ""), "owner", "ask the helper", run_id="m1")
        await it.app.control.ask(A, inbound)
        [result] = [read_result(text) for text in brain.seen if text.startswith("{")]
        assert result["status"] == "forbidden" and reason in result["error"]
        assert await it.store.session(B) is None and not await it.store.records(KIND)


async def use(it: Harness, key: str = A, **given: Any) -> ToolResult:
    """Call the tool as a model does in a session, decided by the policy."""
    is_owner, taint = given.pop("is_owner", True), given.pop("taint", ())
    asked, sandboxed = given.pop("asked", []), given.pop("sandboxed", False)
    caller = CallerFacts("main", key, is_owner=is_owner, is_sandboxed=sandboxed, taint=taint)

    class Denying:
        async def request(self, call_id: str, question: ApprovalQuestion) -> ApprovalAnswer:
            asked.append(question.reason)
            return ApprovalAnswer("deny", "the owner denied it")

    ctx = ToolContext(
        key,
        "main",
        it.app.agent("main").workspace,
        sessions=it.store,
        run_id="run-1",
        call_id="c1",
        get_caller=lambda: caller,
        get_taint=lambda: taint,
        approvals=Denying(),
    )

    async def decide(facts: ToolCallFacts) -> ToolDecision:
        return decide_tool_call(facts, caller)

    call = ToolCall("c1", "sessions_send", {"message": "When do we meet?", **given})
    return await execute_tool_call(it.app.tools("main"), ctx, call, decide)


async def question_of(it: Harness, key: str) -> Message:
    session = await it.app.control.load(key)
    return next(one for one in session.messages if "When do we meet?" in one.text)


async def test_sessions_send_names_the_session_by_label_or_agent(tmp_path: Path) -> None:
    async with open_program(tmp_path, talk) as (it, _brain, _channel):
        labelled = await it.app.control.load("agent:main:work")
        await labelled.set_label("plans")
        found = read_result((await use(it, label="plans")).text)
        assert (found["status"], found["sessionKey"]) == ("ok", "agent:main:work")
        found = read_result((await use(it, agentId="helper")).text)
        assert (found["status"], found["sessionKey"]) == ("ok", B)
        await settled(it)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "give sessionKey, label or agentId"),
        ({"sessionKey": "current"}, "that is this session"),
        ({"sessionKey": "agent:main:absent"}, "there is no session"),
        ({"sessionKey": "agent:main:subagent:new"}, "there is no session"),
        ({"sessionKey": B, "agentId": "main"}, "is not of the agent"),
        ({"agentId": "ghost"}, "agents_list"),
        ({"label": "absent"}, "no session with the label"),
        ({"sessionKey": B, "message": " "}, "1 to 20000"),
    ],
)
async def test_sessions_send_wrong_call_is_an_error(
    tmp_path: Path, given: dict[str, Any], problem: str
) -> None:
    async with open_program(tmp_path, talk) as (it, _brain, _channel):
        result = await use(it, **given)
        assert result.is_error and problem in result.text
        assert not await it.store.records(KIND) and not await it.store.journal.inbox_records()


async def test_sessions_send_of_a_tainted_run_taints_the_other(tmp_path: Path) -> None:
    def answer(text: str) -> str | ToolCall:
        return "At noon." if "When do we meet?" in text else talk(text)

    async with open_program(tmp_path, answer) as (it, _brain, _channel):
        result = await use(it, sessionKey=B, taint=(TaintSource("web", "evil.example"),))
        assert result.details and result.details["untrusted"] == [{"kind": "session", "origin": B}]
        text = (await question_of(it, B)).text
        assert f"Source: session ({A})" in text and "EXTERNAL_UNTRUSTED_CONTENT" in text
        await settled(it)


async def test_sessions_send_to_readers_asks_in_a_tainted_run(tmp_path: Path) -> None:
    """What a page said must not reach a group by way of the group's session."""
    group, taint = "agent:main:list:group:7", (TaintSource("web", "evil.example"),)
    async with open_program(tmp_path, talk) as (it, _brain, _channel):
        await (await it.app.control.load(group)).set_label("family")
        asked = list[str]()
        result = await use(it, sessionKey=group, taint=taint, asked=asked)
        assert result.is_error and len(asked) == 1 and "writes to a new recipient" in asked[0]
        assert not await it.store.records(KIND)
        assert not (await use(it, sessionKey=group)).is_error
        await settled(it)


async def test_sessions_send_without_authority_has_no_owner_tools(tmp_path: Path) -> None:
    """A sandboxed session that may write outside does not act there as the owner."""
    sandbox = {"sessionToolsVisibility": "all"}
    agents = {**TWO_AGENTS["agents"], "defaults": {**CONFIG["agents"]["defaults"]}}
    agents["defaults"]["sandbox"] = sandbox

    def names(request: ModelRequest) -> set[str]:
        return {tool.name for tool in request.tools}

    async with open_program(tmp_path, talk, {"agents": agents}) as (it, brain, _channel):
        assert not (await use(it, sessionKey=B)).is_error
        await settled(it)
        assert "gateway" in names(brain.requests[0])
        asked = len(brain.requests)
        assert not (await use(it, sessionKey="agent:helper:main", sandboxed=True,
                              message="When do we meet? Now?")).is_error  # fmt: skip
        await settled(it)
        assert "gateway" not in names(brain.requests[asked])


async def test_sessions_send_does_not_interrupt_the_run_under_way(tmp_path: Path) -> None:
    config = {"messages": {"queue": {"mode": "interrupt"}}}
    async with open_program(tmp_path, talk, config) as (it, brain, _channel):
        async with it.app.lanes.enter("main", "main", "main", "main"):  # its run cannot go on
            await it.ask("chat.send", sessionKey=B, message="a question", idempotencyKey="r1")
            await it.live("r1")
            result = await use(it, sessionKey=B, timeoutSeconds=0)
            assert read_result(result.text)["status"] == "accepted"
        await it.ended("r1")
        await settled(it)
        row = await it.store.journal.inbox_record("r1")
        assert row and row.state == "answered"
        asked = [n for n, text in enumerate(brain.seen) if "When do we meet?" in text]
        assert asked and "a question" in brain.seen[0]


async def test_sessions_send_run_again_has_the_first_answer(tmp_path: Path) -> None:
    """As after a crash between the answer and its result in the transcript."""
    async with open_program(tmp_path, talk) as (it, _brain, _channel):
        first = read_result((await use(it, sessionKey=B)).text)
        await settled(it)
        rows = await it.store.journal.inbox_records()
        assert read_result((await use(it, sessionKey=B)).text) == first
        assert await it.store.journal.inbox_records() == rows
