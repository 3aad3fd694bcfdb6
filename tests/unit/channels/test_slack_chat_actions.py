"""Actions of operators in Slack, against the strict fake."""

from typing import Any

import pytest

from homarus.channels.slack.traits import TRAITS
from homarus.core.chat_action import CHAT_ACTIONS, ChatAction, ChatActionName
from homarus.core.errors import SendError
from homarus.core.message import Json
from homarus.testing.slack_server import ADA, GENERAL, SlackServer
from tests.unit.channels.slack_stage import bot, send, to


async def act(
    slack: SlackServer, name: ChatActionName, *, thread: str | None = None, **said: Any
) -> dict[str, Json]:
    channel = bot(slack, userToken=slack.user_token)
    return await channel.run_chat_action(to(GENERAL, thread), ChatAction(name, **said))


async def test_slack_read_returns_messages_of_channel_or_thread() -> None:
    async with SlackServer() as slack:
        one = await slack.say("one", GENERAL)
        two = await slack.say("two", GENERAL, thread=one["ts"])
        await slack.say("three", GENERAL)
        found = (await act(slack, "read"))["messages"]
        assert [row["text"] for row in found] == ["three", "one"]
        row = {"id": one["ts"], "sender": ADA, "text": "one"}
        assert found[1] == {**row, "timestamp": int(float(one["ts"]) * 1000)}
        found = (await act(slack, "read", thread=one["ts"]))["messages"]
        assert [row["id"] for row in found] == [one["ts"], two["ts"]]
        found = (await act(slack, "read", before=two["ts"], limit=1))["messages"]
        assert [row["text"] for row in found] == ["one"]


async def test_slack_search_needs_token_of_person() -> None:
    async with SlackServer() as slack:
        await slack.say("high water at six", GENERAL)
        found = await act(slack, "search", text="water")
        assert found["count"] == 1 and found["messages"][0]["chat"] == GENERAL
        with pytest.raises(SendError, match="lets no bot search"):
            await bot(slack).run_chat_action(to(GENERAL), ChatAction("search", text="x"))
        slack.user_token = "xoxp-another"
        with pytest.raises(SendError, match="user token"):
            await bot(slack, userToken="xoxp-2").run_chat_action(
                to(GENERAL), ChatAction("search", text="x")
            )


async def test_slack_pins_are_added_listed_and_removed() -> None:
    async with SlackServer() as slack:
        said = await slack.say("keep this", GENERAL)
        for _ in range(2):
            assert (await act(slack, "pin", message_id=said["ts"]))["pinned"]
        rows = (await act(slack, "pins"))["messages"]
        assert [row["text"] for row in rows] == ["keep this"]
        for _ in range(2):
            assert not (await act(slack, "unpin", message_id=said["ts"]))["pinned"]
        assert (await act(slack, "pins"))["messages"] == []


async def test_slack_reactions_are_listed_with_people() -> None:
    async with SlackServer() as slack:
        said = await slack.say("hello", GENERAL)
        slack.world.reactions[(GENERAL, said["ts"])] = {"eyes": [ADA], "lobster2": [ADA]}
        found = await act(slack, "reactions", message_id=said["ts"])
    assert found["reactions"] == [
        {"emoji": "👀", "count": 1, "users": [ADA]},
        {"emoji": ":lobster2:", "count": 1, "users": [ADA]},
    ]


async def test_slack_channel_and_members_are_described() -> None:
    async with SlackServer() as slack:
        slack.world.add_channel("C0SEA", "sea", "group")
        info = await act(slack, "channel-info")
        assert (info["id"], info["name"], info["topic"], info["members"]) == (
            GENERAL, "general", "the tide", 2,
        )  # fmt: skip
        listed = (await act(slack, "channel-list", text="#se"))["channels"]
        assert listed == [{"id": "C0SEA", "name": "sea", "private": True}]
        member = await act(slack, "member-info", user=f"user:{ADA}")
        assert (member["name"], member["username"], member["bot"]) == ("Ada Byron", "ada", False)
        assert "chat:write" in (await act(slack, "permissions"))["scopes"]
        assert (await act(slack, "permissions", user=ADA))["may"]["is_admin"] is False


async def test_slack_kick_removes_member_once() -> None:
    async with SlackServer() as slack:
        for _ in range(2):
            assert await act(slack, "kick", user=ADA) == {"user": ADA, "kicked": True}
        assert ADA not in slack.world.conversations[GENERAL].members
        with pytest.raises(SendError, match="no person"):
            await act(slack, "kick", user="ada")


async def test_slack_threads_are_created_and_listed() -> None:
    async with SlackServer() as slack:
        made = await act(slack, "thread-create", text="The <tide>", key="k")
        assert made["threadId"] == made["messageId"]
        reply = await act(
            slack, "thread-create", text="a & b", message_id=made["threadId"], key="k2"
        )
        assert reply["threadId"] == made["threadId"] != reply["messageId"]
        assert [one["text"] for one in slack.sent(GENERAL)] == ["*The &lt;tide&gt;*", "a &amp; b"]
        await send(bot(slack), "no thread", GENERAL)
        (row,) = (await act(slack, "thread-list"))["threads"]
        assert (row["threadId"], row["replies"]) == (made["threadId"], 1)
        with pytest.raises(SendError, match="starts with a text"):
            await act(slack, "thread-create")


@pytest.mark.parametrize("name", CHAT_ACTIONS)
async def test_slack_action_that_is_not_named_is_refused(name: ChatActionName) -> None:
    if name in TRAITS.chat_actions:
        return
    async with SlackServer() as slack:
        with pytest.raises(SendError, match="has no"):
            await act(slack, name)
        assert {call.method for call in slack.books.calls} <= {"auth.test"}
