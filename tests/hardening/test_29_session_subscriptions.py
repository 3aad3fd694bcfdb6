"""Clients of protocol 4 can follow sessions: subscribe, describe, create, and list commands."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import HomarusError, InvalidRequestError
from homarus.core.message import ToolCall
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import Harness, answer, run

MAIN = "agent:main:main"


def events(it: Harness, name: str) -> list[dict[str, Any]]:
    return [payload for _conn, event, payload in it.gateway.sent if event == name]


async def test_subscriber_receives_start_messages_and_end_of_a_run(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Gladly.")) as it:
        assert await it.ask("sessions.subscribe", None, "read") == {"subscribed": True}
        await it.send("Plan the garden", "r1")
        changes = events(it, "sessions.changed")
        assert [(c["phase"], c["runId"], c["sessionKey"]) for c in changes] == [
            ("start", "r1", MAIN),
            ("end", "r1", MAIN),
        ]
        assert changes[-1]["session"]["status"] == "done"
        sent = [event["message"] for event in events(it, "session.message")]
        assert [message["role"] for message in sent] == ["user", "assistant"]
        assert sent[0]["idempotencyKey"] == "r1:user", "its sender recognises it"
        assert sent[1]["__openclaw"]["runId"] == "r1"


async def test_subscriber_receives_each_message_once_without_tool_results(tmp_path: Path) -> None:
    call = answer(ToolCall("c1", "read", {"path": "AGENTS.md"}))
    async with run(tmp_path, answer("one"), call, answer("two")) as it:
        await it.send("before the subscription", "r0")
        await it.clock.advance(1)
        await it.ask("sessions.subscribe")
        await it.send("after it", "r1")
        roles = [event["message"]["role"] for event in events(it, "session.message")]
        assert roles == ["user", "assistant", "assistant"]
        ids = [event["messageId"] for event in events(it, "session.message")]
        assert len(set(ids)) == len(ids)


async def test_subscriber_receives_changes_by_methods_and_commands(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hi")) as it:
        await it.send("hello", "r1")
        await it.ask("sessions.subscribe")
        await it.ask("sessions.patch", key="main", label="Garden")
        await it.send("/verbose on", "r2")
        await it.ask("sessions.reset", key="main")
        await it.ask("sessions.create", key="other")
        await it.ask("sessions.delete", key="other")
        reasons = [change["reason"] for change in events(it, "sessions.changed")]
        assert reasons == ["patch", "command", "reset", "create", "delete"]
        assert events(it, "sessions.changed")[0]["session"]["label"] == "Garden"


async def test_subscriber_is_notified_of_a_message_that_is_queued(tmp_path: Path) -> None:
    async with run(tmp_path, Hang(), answer("two")) as it:
        await it.ask("sessions.subscribe")
        await it.ask("chat.send", sessionKey="main", message="begin", idempotencyKey="r1")
        await it.asked(1)
        await it.ask("chat.send", sessionKey="main", message="and then", idempotencyKey="r2")
        last = events(it, "sessions.changed")[-1]
        assert (last["reason"], last["session"]["queueDepth"]) == ("queue", 1)


async def test_subscriber_to_one_session_receives_only_its_messages(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two")) as it:
        found = await it.ask("sessions.messages.subscribe", key="main")
        assert found == {"subscribed": True, "key": MAIN}
        await it.send("elsewhere", "r1", key="other")
        await it.send("here", "r2")
        assert {event["sessionKey"] for event in events(it, "session.message")} == {MAIN}
        assert events(it, "sessions.changed") == []


async def test_nothing_is_sent_after_unsubscribing_or_disconnecting(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two")) as it:
        await it.ask("sessions.subscribe")
        await it.ask("sessions.messages.subscribe", key="main")
        await it.ask("sessions.unsubscribe")
        await it.ask("sessions.messages.unsubscribe", key="main")
        await it.send("hello", "r1")
        await it.ask("sessions.subscribe")
        it.gateway.sessions.leave("conn-1")
        await it.send("hello", "r2")
        assert events(it, "session.message") == events(it, "sessions.changed") == []


async def test_sessions_one_client_may_follow_are_bounded(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        for number in range(200):
            await it.ask("sessions.messages.subscribe", key=f"s{number}")
        with pytest.raises(InvalidRequestError, match="200 sessions"):
            await it.ask("sessions.messages.subscribe", key="one-more")


async def test_describe_returns_the_row_of_a_session_or_null(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Gladly.")) as it:
        await it.send("Plan the garden", "r1")
        row = (await it.ask("sessions.describe", key="main", includeLastMessage=True))["session"]
        assert (row["key"], row["agentId"], row["isMain"]) == (MAIN, "main", True)
        assert (row["hasActiveRun"], row["activeRunIds"]) == (False, [])
        assert row["lastMessagePreview"] == "Gladly."
        assert await it.ask("sessions.describe", key="nosuch") == {"session": None}


async def test_create_takes_over_the_settings_of_the_parent(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hi")) as it:
        await it.send("hello", "r1")
        await it.ask("sessions.patch", key="main", thinkingLevel="high")
        params = {"key": "tui-1", "agentId": "main", "parentSessionKey": MAIN}
        flags = {"succeedsParent": True, "emitCommandHooks": True}
        made = await it.ask("sessions.create", {**params, **flags})
        assert made["key"] == "agent:main:tui-1" and made["runStarted"] is False
        assert made["entry"]["thinkingLevel"] == "high"
        again = await it.ask("sessions.create", key="tui-1")
        assert again["sessionId"] == made["sessionId"], "a session that exists is kept"
        unnamed = await it.ask("sessions.create", {})
        assert unnamed["key"].startswith("agent:main:dashboard:")


async def test_commands_list_names_the_commands_that_work(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        params = {"agentId": "main", "scope": "text", "includeArgs": False}
        rows = {row["name"]: row for row in (await it.ask("commands.list", params))["commands"]}
        assert {"status", "new", "model", "think", "help"} <= rows.keys()
        assert "tts" not in rows, "it is not implemented"
        assert rows["think"]["textAliases"] == ["/think", "/thinking", "/t"]
        assert rows["think"]["acceptsArgs"] and "args" not in rows["think"]
        full = {row["name"]: row for row in (await it.ask("commands.list"))["commands"]}
        levels = [choice["value"] for choice in full["think"]["args"][0]["choices"]]
        assert levels[0] == "off" and "high" in levels
        with pytest.raises(HomarusError, match="nosuch"):
            await it.ask("commands.list", agentId="nosuch")


async def test_additive_params_are_accepted_and_agents_are_checked(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hi")) as it:
        await it.send("hello", "r1", sessionId="some-id", agentId="main")
        stopped = await it.ask("chat.abort", sessionKey="main", preserveSideRuns=True)
        assert stopped == {"ok": True, "aborted": False, "runIds": []}
        models = await it.ask("models.list", agentId="main", includeDetails=True)
        assert models["models"][0]["tags"] == ["default"] and models["models"][0]["available"]
        usable = await it.ask("models.list", view="default")
        every = await it.ask("models.list", view="all")
        assert len(every["models"]) > len(usable["models"])
        for method in ("chat.abort", "chat.history"):
            with pytest.raises(HomarusError, match="nosuch"):
                await it.ask(method, sessionKey=MAIN, agentId="nosuch")
        with pytest.raises(HomarusError, match="nosuch"):
            await it.ask("models.list", agentId="nosuch")
        with pytest.raises(InvalidRequestError, match="extra"):
            await it.ask("chat.abort", sessionKey="main", extra=1)
