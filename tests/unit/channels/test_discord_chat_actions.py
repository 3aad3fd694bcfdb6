"""What operators can do in channels of Discord."""

from typing import Any

import pytest

from homarus.channels.discord import TRAITS
from homarus.core.chat_action import ChatAction
from homarus.core.errors import SendError
from homarus.core.message import Json
from homarus.testing.discord_server import ADA, CHANNEL, EVE, FORUM, GUILD, ROLE, DiscordServer
from tests.unit.channels.discord_stage import bot, to

ROOM, EVE_ID, ROLE_ID = str(CHANNEL), str(EVE), str(ROLE)


async def act(server: DiscordServer, name: Any, chat: str = ROOM, **what: Any) -> dict[str, Json]:
    channel = bot(server, actions={"roles": True, "moderation": True})
    return await channel.run_chat_action(to(chat), ChatAction(name, **what))


async def test_discord_every_declared_action_is_known() -> None:
    refused = list[str]()
    async with DiscordServer() as server:
        for name in TRAITS.chat_actions:
            try:
                await act(server, name)
            except SendError as exc:
                refused.append(str(exc))
        with pytest.raises(SendError, match="Discord has no dance"):
            await act(server, "dance")
    assert not [text for text in refused if "Discord has no" in text]


async def test_discord_pins_are_set_listed_and_removed() -> None:
    async with DiscordServer() as server:
        id_ = server.say("remember", CHANNEL)
        assert await act(server, "pin", message_id=id_) == {"messageId": id_, "pinned": True}
        (row,) = (await act(server, "pins"))["messages"]
        assert (row["id"], row["sender"], row["text"]) == (id_, str(ADA), "remember")
        await act(server, "unpin", message_id=id_)
        assert await act(server, "pins") == {"messages": []}


async def test_discord_history_is_read_and_searched() -> None:
    async with DiscordServer() as server:
        ids = [server.say(f"note {n}", CHANNEL, EVE if n % 2 else ADA) for n in range(130)]
        rows = (await act(server, "read", limit=2))["messages"]
        assert [row["id"] for row in rows] == ids[:-3:-1]
        rows = (await act(server, "read", limit=1, before=ids[5]))["messages"]
        assert [row["id"] for row in rows] == [ids[4]]
        rows = (await act(server, "search", text="NOTE 3", limit=20))["messages"]
        assert len(rows) == 11 and rows[-1]["id"] == ids[3]
        assert (await act(server, "search", text="note 3", user=str(ADA)))["messages"][-1][
            "text"
        ] == "note 30"


async def test_discord_reactions_are_listed_with_people() -> None:
    async with DiscordServer() as server:
        id_ = server.say("hello", CHANNEL)
        await bot(server).react(to(ROOM), id_, "👍")
        found = await act(server, "reactions", message_id=id_)
        assert found["reactions"][0]["emoji"] == "👍" and found["reactions"][0]["users"]


async def test_discord_threads_are_created_and_listed() -> None:
    async with DiscordServer() as server:
        id_ = server.say("hello", CHANNEL)
        under = await act(server, "thread-create", message_id=id_, text="Under")
        assert under == {"threadId": id_, "name": "Under"}
        alone = await act(server, "thread-create", text="Alone")
        post = await act(server, "thread-create", str(FORUM), text="Idea")
        rows = (await act(server, "thread-list"))["threads"]
        assert [row["id"] for row in rows] == [id_, alone["threadId"]]
        assert server.sent(post["threadId"])[0]["content"] == "Idea"
        with pytest.raises(SendError, match="has a name"):
            await act(server, "thread-create")


async def test_discord_channels_members_and_roles_are_shown() -> None:
    async with DiscordServer() as server:
        found = await act(server, "channel-info")
        assert (found["id"], found["name"], found["kind"]) == (ROOM, "general", "text")
        names = [row["name"] for row in (await act(server, "channel-list"))["channels"]]
        assert names == ["general", "ideas"]
        found = await act(server, "member-info", user=EVE_ID)
        assert (found["user"], found["name"], found["roles"]) == (EVE_ID, "Eve", [])
        roles = (await act(server, "role-info"))["roles"]
        assert [row["name"] for row in roles] == ["@everyone", "crew", "lobster_bot"]
        may = (await act(server, "permissions"))["may"]
        assert may["send_messages"] and not may["ban_members"]


async def test_discord_roles_are_given_and_taken() -> None:
    async with DiscordServer() as server:
        await act(server, "role-add", user=EVE_ID, text=ROLE_ID)
        assert server.world.members[EVE_ID] == [ROLE_ID]
        await act(server, "role-remove", user=EVE_ID, text=ROLE_ID)
        assert server.world.members[EVE_ID] == []
        with pytest.raises(SendError, match="no role of Discord"):
            await act(server, "role-add", user=EVE_ID, text="crew")


async def test_discord_members_are_moderated_with_reason() -> None:
    async with DiscordServer() as server:
        silenced = await act(server, "timeout", user=EVE_ID, duration_s=60)
        assert silenced["silenced"] and silenced["untilMs"] > 0
        (request,) = server.books.of("PATCH member")
        assert request.data["communication_disabled_until"].endswith("+00:00")
        assert not (await act(server, "timeout", user=EVE_ID, remove=True))["silenced"]
        with pytest.raises(SendError, match="28 days"):
            await act(server, "timeout", user=EVE_ID, duration_s=29 * 86_400)
        await act(server, "ban", user=EVE_ID, text="spam\nX-Evil: 1")
        assert server.world.banned == {EVE_ID}
        (request,) = server.books.of("PUT ban")
        assert request.headers["x-audit-log-reason"] == "spam X-Evil%3A 1"
        await act(server, "ban", user=EVE_ID, remove=True)
        assert await act(server, "kick", user=EVE_ID) == {"user": EVE_ID, "kicked": True}
        assert EVE_ID not in server.world.members


@pytest.mark.parametrize("name", ["ban", "kick", "timeout", "role-add", "role-remove"])
async def test_discord_moderation_is_off_by_default(name: Any) -> None:
    action = ChatAction(name, user=EVE_ID, text=ROLE_ID, duration_s=60)
    async with DiscordServer() as server:
        with pytest.raises(SendError, match=r"channels\.discord\.actions\.\w+ is off"):
            await bot(server).run_chat_action(to(ROOM), action)
        assert not server.books.requests


async def test_discord_sticker_is_sent_once_under_its_key() -> None:
    async with DiscordServer() as server:
        first = await act(server, "sticker-send", text="77", key="k")
        assert await act(server, "sticker-send", text="77", key="k") == first


async def test_discord_direct_chat_has_no_members_to_moderate() -> None:
    async with DiscordServer() as server:
        with pytest.raises(SendError, match="direct chat has none"):
            await act(server, "kick", f"user:{ADA}", user=EVE_ID)
        assert str(GUILD) not in "".join(one.path for one in server.books.requests)
