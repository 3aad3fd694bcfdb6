"""The methods `agent`, `agent.wait` and `agent.identity.get`."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.reply.payloads import encode_result
from homarus.agent.run import RunOutcome
from homarus.core.errors import (
    AuthError,
    BadRequestError,
    ContextOverflowError,
    HomarusError,
    ImageTooLargeError,
    InvalidRequestError,
    ProviderError,
)
from homarus.gateway.run_tracker import RunFailedError
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import Harness, answer, run
from tests.waiting import until


def asks(text: str, run_id: str = "r", **more: Any) -> dict[str, Any]:
    return {"message": text, "idempotencyKey": run_id, **more}


async def test_agent_is_accepted_then_returns_result(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Hello")) as it:
        final = await it.ask("agent", asks("hi"))
        assert it.accepted[0]["status"] == "accepted"
        assert final["result"]["payloads"] == [{"text": "Hello", "mediaUrl": None}]
        assert final["result"]["meta"]["agentMeta"]["provider"] == "mock"


async def test_agent_silent_answer_has_no_payload(tmp_path: Path) -> None:
    async with run(tmp_path, answer("NO_REPLY")) as it:
        final = await it.ask("agent", asks("hi"))
        assert final["result"]["payloads"] == []


async def test_agent_repeated_request_returns_same_run(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Hello")) as it:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(it.ask("agent", asks("hi"))) for _ in range(3)]
        answers = [task.result() for task in tasks]
        assert answers[0] == answers[1] == answers[2] == await it.ask("agent", asks("hi"))
        assert len(it.model.requests) == 1
        assert len(it.accepted) == 3


async def test_agent_failed_run_raises_same_error_again(tmp_path: Path) -> None:
    async with run(tmp_path, BadRequestError("no such model")) as it:
        for _ in range(2):
            with pytest.raises(RunFailedError, match="no such model") as failed:
                await it.ask("agent", asks("hi"))
            assert failed.value.payload["runId"] == "r"
            assert failed.value.payload["status"] == "error"
        assert len(it.model.requests) == 1


async def test_agent_client_disconnect_keeps_run(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Hello")) as it:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(it.ask("agent", asks("hi")))
            await it.live("r")
            asking.cancel()
        waited = await it.ask("agent.wait", runId="r", timeoutMs=10_000)
        assert waited["status"] == "ok"


async def test_agent_new_resets_and_greets_or_answers(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two"), answer("three")) as it:
        await it.ask("agent", asks("hi", "a"))
        first = (await it.app.control.load("agent:main:main")).session_id
        await it.ask("agent", asks("/new", "b"))
        second = (await it.app.control.load("agent:main:main")).session_id
        assert "Greet me" in it.model.requests[1].messages[-1].text
        await it.ask("agent", asks("/reset and now?", "c"))
        assert len({first, second, (await it.app.control.load("agent:main:main")).session_id}) == 3
        assert it.model.requests[2].messages[-1].text.endswith("] and now?")
        assert len(it.model.requests[2].messages) == 1


async def test_agent_new_repeated_after_restart_resets_nothing(tmp_path: Path) -> None:
    found: list[Any] = []

    async def body(it: Harness) -> None:
        final = await it.ask("agent", asks("/new and now?"))
        session = await it.app.control.load("agent:main:main")
        found.append((final["result"]["payloads"], session.session_id, len(session.messages)))

    async with run(tmp_path, answer("Hello")) as it:
        await body(it)
    async with run(tmp_path) as it:
        await body(it)
    assert found[0] == found[1]


async def test_agent_session_by_key_id_or_agent(tmp_path: Path) -> None:
    agents = {"defaults": {"model": "mock/mock-1"}, "list": [{"id": "main"}, {"id": "ops"}]}
    async with run(tmp_path, *[answer("x")] * 4, config={"agents": agents}) as it:
        await it.ask("agent", asks("hi", "a", sessionKey="work"))
        record = await it.app.store.session("agent:main:work")
        assert record
        await it.ask("agent", asks("hi", "b", sessionId=record.session_id))
        await it.ask("agent", asks("hi", "c", sessionId="s1", channel="whatsapp", deliver=False))
        await it.ask("agent", asks("hi", "d", agentId="ops"))
        keys = {r.key for r in await it.app.store.sessions()}
        assert keys == {"agent:main:work", "agent:main:s1", "agent:ops:main"}
        assert len((await it.app.control.load("agent:main:work")).messages) == 4


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"agentId": "nobody"}, 'unknown agent id "nobody"'),
        ({"sessionKey": "agent:"}, "malformed session key"),
        ({"sessionKey": "agent:main"}, "malformed session key"),
        ({"sessionKey": "agent:nobody:main"}, "unknown agent"),
        ({"agentId": "main", "sessionKey": "agent:ops:main"}, "does not match session key agent"),
        ({"channel": "pigeon"}, "unknown channel"),
        ({"sessionId": "../../etc/passwd"}, "malformed sessionId"),
        ({"label": "x" * 65}, "label"),
        ({"inputProvenance": {"kind": "me"}}, "inputProvenance"),
        ({"lane": "session:agent:main:main"}, "unknown lane"),
        ({"timeout": 1.5}, "timeout"),
        ({"message": ""}, "message"),
    ],
)
async def test_agent_invalid_params_are_refused(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match=why) as refused:
            await it.ask("agent", {**asks("hi"), **change})
        assert refused.value.message.startswith("invalid agent params: ")
        assert not it.accepted and not it.model.requests


async def test_agent_extra_system_prompt_is_for_its_run_alone(tmp_path: Path) -> None:
    async with run(tmp_path, answer("a"), answer("b")) as it:
        extra = "You speak with the night desk.\x1b[31m"
        await it.ask("agent", asks("hi", "a", extraSystemPrompt=extra))
        await it.ask("agent", asks("hi", "b"))
        first, second = (request.system for request in it.model.requests)
        assert "You speak with the night desk." in first and "\x1b" not in first
        assert "night desk" not in second


async def test_agent_extra_system_prompt_too_long_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match="extraSystemPrompt"):
            await it.ask("agent", asks("hi", extraSystemPrompt="x" * 32_001))


async def test_agent_input_provenance_is_in_transcript(tmp_path: Path) -> None:
    source = {"kind": "inter_session", "sourceSessionKey": "agent:ops:main",
              "sourceTool": "sessions_send"}  # fmt: skip
    async with run(tmp_path, answer("a"), answer("b")) as it:
        await it.ask("agent", asks("hi", "a", inputProvenance=source))
        await it.ask("agent", asks("hi", "b"))
        record = await it.store.session("agent:main:main")
        assert record is not None
        entries = await it.store.entries(record.session_id)
        asked = [e.data["message"] for e in entries if e.type == "message"][::2]
        assert asked[0]["provenance"] == source and "provenance" not in asked[1]
        shown = (await it.ask("chat.history", sessionKey="main"))["messages"]
        assert shown[0]["provenance"] == source and "provenance" not in shown[2]


async def test_agent_group_params_describe_session(tmp_path: Path) -> None:
    async with run(tmp_path, answer("a"), answer("b")) as it:
        group = {"groupId": "-100", "groupChannel": "#general", "groupSpace": "acme"}
        key = "agent:main:slack:channel:c1"
        await it.ask("agent", asks("hi", "a", sessionKey=key, channel="telegram", **group))
        await it.ask("agent", asks("hi", "b", sessionKey="other", channel="last"))
        other, row = (await it.ask("sessions.list"))["sessions"]
        assert (row["groupId"], row["groupChannel"], row["space"]) == ("-100", "#general", "acme")
        assert (row["channel"], row["displayName"]) == ("telegram", "telegram:acme#general")
        assert not {"channel", "groupId", "displayName"} & other.keys()


@pytest.mark.parametrize("lane", ["subagent", "nested", "cron"])
async def test_agent_lane_limits_its_run(tmp_path: Path, lane: str) -> None:
    async with run(tmp_path, answer("a")) as it:
        width = it.app.lanes.snapshot()[lane][2]
        async with asyncio.TaskGroup() as group, it.app.lanes.enter(*[lane] * width):
            asked = group.create_task(it.ask("agent", asks("hi", "a", lane=lane)))
            await until(lambda: it.app.lanes.depth(lane))  # no place is free
            assert it.app.lanes.depth("main") == 0 and not it.model.requests
        assert asked.result()["status"] == "ok"


async def test_agent_spawned_by_is_saved_with_the_group_of_the_parent(tmp_path: Path) -> None:
    parent, child = "agent:main:slack:channel:c1", "agent:main:subagent:7"
    async with run(tmp_path, answer("a"), answer("b"), answer("c")) as it:
        group = {"groupId": "c1", "groupChannel": "#general", "groupSpace": "acme"}
        await it.ask("agent", asks("hi", "a", sessionKey=parent, **group))
        named = {"sessionKey": child, "groupChannel": "#other"}
        await it.ask("agent", asks("hi", "b", **named, spawnedBy=parent))
        record = await it.store.session(child)
        assert record and record.data["spawnedBy"] == parent
        fields = [record.data[name] for name in ("groupId", "groupChannel", "space")]
        assert fields == ["c1", "#other", "acme"]
        await it.ask("agent", asks("hi", "c", sessionKey=child, spawnedBy=parent))


async def test_agent_spawned_by_cannot_be_given_to_other_sessions(tmp_path: Path) -> None:
    child = "agent:main:subagent:7"
    async with run(tmp_path, answer("a")) as it:
        with pytest.raises(InvalidRequestError, match="only for sessions of subagents"):
            await it.ask("agent", asks("hi", "a", spawnedBy="agent:main:telegram:group:1"))
        await it.ask("agent", asks("hi", "b", sessionKey=child, spawnedBy="main"))
        with pytest.raises(InvalidRequestError, match="cannot be changed"):
            await it.ask("agent", asks("hi", "c", sessionKey=child, spawnedBy="other"))


async def test_agent_label_must_be_unique(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x"), answer("y")) as it:
        await it.ask("agent", asks("hi", "a", sessionKey="one", label="taxes"))
        with pytest.raises(InvalidRequestError, match="label already in use: taxes"):
            await it.ask("agent", asks("hi", "b", sessionKey="two", label="taxes"))
        await it.ask("agent", asks("hi", "c", sessionKey="one", label="taxes"))


async def test_agent_wait_ends_with_run_or_timeout(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x"), Hang()) as it:
        none = await it.ask("agent.wait", runId="later", timeoutMs=0)
        assert none == {"runId": "later", "status": "timeout"}
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(it.ask("agent.wait", runId="later", timeoutMs=20_000))
            await asyncio.sleep(0)
            group.create_task(it.ask("agent", asks("hi", "later")))
        assert waiting.result()["status"] == "ok"
        assert not it.gateway.runs._waiting
        await it.ask("chat.send", {"sessionKey": "main", "message": "x", "idempotencyKey": "h"})
        await it.asked(2)
        await it.ask("chat.abort", sessionKey="main")
        stopped = await it.ask("agent.wait", runId="h", timeoutMs=20_000)
        assert stopped["status"] == "timeout" and stopped["endedAt"]


async def test_agent_wait_reports_failed_run(tmp_path: Path) -> None:
    async with run(tmp_path, BadRequestError("no such model")) as it:
        with pytest.raises(HomarusError):
            await it.ask("agent", asks("hi"))
        ended = await it.ask("agent.wait", runId="r")
        assert (ended["status"], ended["error"]) == ("error", "no such model")


async def test_agent_identity_is_read_from_file(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        plain = await it.ask("agent.identity.get")
        assert plain == {"agentId": "main", "name": "Homarus", "avatar": "H"}
        file = it.app.agent("main").workspace / "IDENTITY.md"
        file.write_text("# me\n- **Name:** Ada\n- Emoji: 🦞\n- Avatar: ../../etc/passwd\n")
        assert await it.ask("agent.identity.get", sessionKey="main") == {
            "agentId": "main", "name": "Ada", "avatar": "A", "emoji": "🦞"
        }  # fmt: skip
        with pytest.raises(HomarusError, match="unknown agent"):
            await it.ask("agent.identity.get", agentId="nobody")
        with pytest.raises(InvalidRequestError, match="does not match"):
            await it.ask("agent.identity.get", agentId="ops", sessionKey="agent:main:x")


async def test_agent_result_has_media_and_reply_target(tmp_path: Path) -> None:
    text = "<think>x</think>[[reply_to: 7]] Look:\nMEDIA:./a.png\nMEDIA:./b.png"
    async with run(tmp_path, answer(text), answer("[[reply_to_current]]hi")) as it:
        final = await it.ask("agent", asks("hi"))
        payload = {"text": "Look:", "mediaUrl": "./a.png", "mediaUrls": ["./a.png", "./b.png"]}
        assert final["result"]["payloads"] == [{**payload, "replyToId": "7"}]
        quoted = await it.ask("agent", asks("hi", "s"))
        assert quoted["result"]["payloads"][0]["replyToId"] == "s"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ContextOverflowError("too long"), "compaction_failure"),
        (ImageTooLargeError("a picture"), "image_size"),
        (BadRequestError("messages: roles must alternate"), "role_ordering"),
    ],
)
async def test_agent_error_of_known_kind_is_an_answer(
    error: ProviderError, kind: str, tmp_path: Path
) -> None:
    async with run(tmp_path, *[error] * 9) as it:
        final = await it.ask("agent", asks("hi"))
        assert final["status"] == "ok"
        (payload,) = final["result"]["payloads"]
        assert payload["isError"] is True and payload["text"]
        assert final["result"]["meta"]["error"]["kind"] == kind
        assert final["result"]["meta"]["error"]["message"]


async def test_agent_other_error_has_its_result(tmp_path: Path) -> None:
    async with run(tmp_path, AuthError("no key")) as it:
        with pytest.raises(RunFailedError) as failed:
            await it.ask("agent", asks("hi"))
        result = failed.value.payload["result"]
        assert result["payloads"][0]["isError"] is True
        assert result["meta"]["error"]["kind"] == "provider.auth"
        named = result["meta"]["agentMeta"]
        assert (named["provider"], named["model"]) == ("mock", "mock-1") and named["sessionId"]


def test_encode_result_has_stop_reason_of_incomplete_answer() -> None:
    outcome = RunOutcome("r", "k", "answered", text="Half", stop="length")
    assert encode_result("r", outcome)["result"]["meta"]["stopReason"] == "length"
    complete = encode_result("r", replace(outcome, stop="stop"))
    assert "stopReason" not in complete["result"]["meta"]


def test_encode_result_overflow_without_compaction_is_of_its_own_kind() -> None:
    outcome = RunOutcome("r", "k", "failed", error=ContextOverflowError("too long"))
    assert encode_result("r", outcome)["result"]["meta"]["error"]["kind"] == "context_overflow"
