"""Replies to clients that are delivered to the session's chat too, and rows of chat sessions."""

import asyncio
from pathlib import Path
from typing import Any

from homarus.core.message import Address, Inbound, InboundMetadata, ToolCall
from homarus.plugins.hooks import hook
from homarus.testing.fakes import ListChannel
from tests.unit.gateway.app_harness import Harness, answer, world

KEY = "agent:main:main"
ANN = Inbound(
    "m1",
    Address("list", "7"),
    "42",
    "hello",
    metadata=InboundMetadata(name="Ann"),
)


async def sent_by(channel: ListChannel, count: int) -> list[tuple[str, str]]:
    async with asyncio.timeout(10):
        while len(channel.sent) < count:  # noqa: ASYNC110 - the fake has no event
            await asyncio.sleep(0.005)
    return [(sent.address.chat, sent.text) for sent in channel.sent]


async def last_channel(it: Harness) -> Any:
    return (await it.app.control.load(KEY)).record.data["lastChannel"]


async def test_chat_send_deliver_sends_reply_to_last_chat(tmp_path: Path) -> None:
    channel, script = ListChannel(), [answer(text) for text in "abcd"]
    async with world(tmp_path, script, channels=[channel]) as it:
        await it.app.control.ask(KEY, ANN)
        await it.send("one", "r1", deliver=True)
        assert it.gateway.chats("r1")[-1]["message"]["content"][0]["text"] == "b"
        assert await sent_by(channel, 2) == [("7", "a"), ("7", "b")]
        assert await last_channel(it) == "list"  # the chat stays the session's last one
        await it.send("two", "r2")
        assert await last_channel(it) == "webchat"
        await it.send("three", "r3", deliver=True)  # the chat is still known
        assert await sent_by(channel, 3) == [("7", "a"), ("7", "b"), ("7", "d")]


async def test_agent_deliver_after_web_page_finds_last_chat(tmp_path: Path) -> None:
    channel, script = ListChannel(), [answer(text) for text in "abc"]
    async with world(tmp_path, script, channels=[channel]) as it:
        await it.app.control.ask(KEY, ANN)
        await it.send("one", "r1")
        params = {"message": "hi", "idempotencyKey": "r2", "deliver": True}
        await it.ask("agent", params, client="cli")
        assert await sent_by(channel, 2) == [("7", "a"), ("7", "c")]


async def test_chat_send_deliver_without_chat_answers_client(tmp_path: Path) -> None:
    channel = ListChannel()
    async with world(tmp_path, [answer("a")], channels=[channel]) as it:
        await it.send("one", "r1", deliver=True)
        assert it.gateway.chats("r1")[-1]["state"] == "final"
    assert not channel.sent


async def test_chat_send_deliver_obeys_send_policy_of_chat(tmp_path: Path) -> None:
    rules = [{"action": "deny", "match": {"channel": "list"}}]
    policy = {"session": {"sendPolicy": {"default": "allow", "rules": rules}}}
    channel = ListChannel()
    async with world(tmp_path, [answer("a")], policy, [channel]) as it:
        session = await it.app.control.load(KEY)
        # The last message was the page's, whose channel is allowed.
        await session.update(lastChannel="webchat", lastTo="list:7", lastAccountId="default")
        await it.send("one", "r1", deliver=True)
        assert it.gateway.chats("r1")[-1]["message"]["content"][0]["text"] == "a"
    assert not channel.sent


async def test_chat_send_deliver_of_command_answers_sender_alone(tmp_path: Path) -> None:
    channel = ListChannel()
    async with world(tmp_path, [answer("a")], channels=[channel]) as it:
        await it.app.control.ask(KEY, ANN)
        await it.send("/status", "r1", deliver=True)
        card = it.gateway.chats("r1")[-1]["message"]["content"][0]["text"]
        assert "Time: " in card.splitlines()[1]
        assert await sent_by(channel, 1) == [("7", "a")]


async def test_session_rows_describe_chats(tmp_path: Path) -> None:
    group = "agent:main:list:group:-100"
    metadata = InboundMetadata(kind="group", title="Family", name="Ann")
    message = Inbound("m2", Address("list", "-100"), "42", "hi", metadata=metadata)
    async with world(tmp_path, [answer("a"), answer("b")], channels=[ListChannel()]) as it:
        await it.app.control.ask(KEY, ANN)
        await it.app.control.ask(group, message)
        first, second = (await it.ask("sessions.list", includeDerivedTitles=True))["sessions"]
        assert (first["subject"], first["groupId"]) == ("Family", "-100")
        assert (first["channel"], first["kind"]) == ("list", "group")
        assert first["displayName"] == first["derivedTitle"] == "list:g-family"
        assert first["origin"]["label"] == "Family id:-100"
        assert second["displayName"] == second["origin"]["label"] == "Ann id:42"
        found = (await it.ask("sessions.list", search="ann ID:42"))["sessions"]
        assert [row["key"] for row in found] == [KEY]
        stored = (await it.ask("sessions.patch", key=group, label="kin"))["entry"]
        assert (stored["subject"], stored["groupId"]) == ("Family", "-100")


async def test_command_in_new_group_describes_it(tmp_path: Path) -> None:
    group = "agent:main:list:group:-100"
    metadata = InboundMetadata(kind="group", title="Family", name="Ann")
    address = Address("list", "-100")
    order = Inbound("m2", address, "42", "/activation always", authority="owner", metadata=metadata)
    async with world(tmp_path, channels=[ListChannel()]) as it:
        await it.app.control.ask(group, order)
        (row,) = (await it.ask("sessions.list"))["sessions"]
        assert (row["subject"], row["displayName"]) == ("Family", "list:g-family")


async def test_agent_end_hook_runs_after_result_and_never_delays_it(tmp_path: Path) -> None:
    seen, may_end = list[str](), asyncio.Event()

    class Slow:
        @hook
        async def agent_end(self, messages: tuple[object, ...], error: str) -> None:
            seen.append(f"hook {len(messages)} {error}")
            await may_end.wait()
            seen.append("hook ended")

    async with world(tmp_path, [answer("a"), answer("b")]) as it:
        it.app.hooks.register(Slow(), "slow")
        for number in "12":
            await it.ask("agent", message="hi", idempotencyKey=f"r{number}")
            seen.append(f"result {number}")
        async with asyncio.timeout(10):
            while len(seen) < 4:  # noqa: ASYNC110 - the hook has no event
                await asyncio.sleep(0.005)
        may_end.set()
    assert seen[0] == "result 1" and seen.index("result 2") < seen.index("hook 4 ")
    assert seen.count("hook ended") == 2  # the program waits for its observers


async def test_daily_note_names_session_that_writes(tmp_path: Path) -> None:
    call = ToolCall("c1", "memory_write", {"text": "Ada moved to Kiel."})
    async with world(tmp_path, [answer(call), answer("Noted.")]) as it:
        await it.ask("sessions.patch", key="main", label="my-api refactor")
        await it.send("remember it", "r1")
        workspace = it.app.agent("main").workspace
        (note,) = (workspace / "memory").glob("*.md")
        lines = note.read_text(encoding="utf-8").splitlines()
        assert lines[2:] == ["## Session: my-api refactor", "- Ada moved to Kiel."]
