"""Actions of operators on Telegram: the calls that they make, and what they return."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from homarus.channels.base import BeforeWrite
from homarus.channels.telegram.api import BotApiClient
from homarus.channels.telegram.call_sender import CallSender
from homarus.channels.telegram.chat_actions import _ACTIONS, run_chat_action
from homarus.channels.telegram.outbound import BotApiCall
from homarus.channels.telegram.traits import TRAITS
from homarus.core.chat_action import CHAT_ACTIONS, ChatAction
from homarus.core.errors import SendError
from homarus.core.message import Address, Json

GROUP = Address("telegram", "-100", thread="4")
MEMBER = {"user": {"id": 5, "first_name": "Ada", "username": "ada"}, "status": "administrator"}


class FakeSender(CallSender):
    """Notes the calls, and answers them by their method."""

    def __init__(self, **answers: Json) -> None:
        super().__init__(BotApiClient("http://127.0.0.1:1", "t", timeout_s=1.0), 0, lambda *_: None)
        self.answers: Mapping[str, Json] = answers
        self.calls: list[tuple[str, dict[str, Json]]] = []

    async def send(self, call: BotApiCall, before_write: BeforeWrite | None = None) -> Json:
        self.calls.append((call.method, call.params))
        return self.answers.get(call.method, True)


async def act(name: Any, sender: FakeSender, **details: Any) -> dict[str, Json]:
    return await run_chat_action(sender, GROUP, ChatAction(name, **details))


def test_telegram_has_every_action_that_its_traits_name() -> None:
    assert {*_ACTIONS} == {*TRAITS.chat_actions} <= {*CHAT_ACTIONS}


async def test_pinning_is_silent_and_by_number() -> None:
    sender = FakeSender(getChat={"pinned_message": {"message_id": 9, "text": "hi", "date": 3}})
    await act("pin", sender, message_id="7")
    await act("unpin", sender, message_id="7")
    assert sender.calls == [
        ("pinChatMessage", {"chat_id": -100, "message_id": 7, "disable_notification": True}),
        ("unpinChatMessage", {"chat_id": -100, "message_id": 7}),
    ]
    found = await act("pins", sender)
    assert found["messages"] == [{"id": "9", "sender": "", "text": "hi", "timestamp": 3_000}]
    with pytest.raises(SendError):
        await act("pin", sender, message_id="seven")


async def test_kick_lets_the_member_come_back_and_ban_does_not() -> None:
    sender = FakeSender()
    await act("kick", sender, user="5")
    await act("ban", sender, user="5")
    await act("ban", sender, user="5", remove=True)
    assert [method for method, _ in sender.calls] == [
        "banChatMember", "unbanChatMember", "banChatMember", "unbanChatMember",
    ]  # fmt: skip
    assert all(params["user_id"] == 5 for _, params in sender.calls)
    for wrong in ("@ada", "-5", "", "5;6"):
        with pytest.raises(SendError, match="no person of Telegram"):
            await act("ban", sender, user=wrong)
    assert len(sender.calls) == 4


async def test_timeout_ends_and_is_never_for_ever() -> None:
    sender = FakeSender()
    done = await act("timeout", sender, user="5", duration_s=600)
    ((method, params),) = sender.calls
    assert method == "restrictChatMember" and not any(params["permissions"].values())
    assert 590 <= params["until_date"] - time.time() <= 601 and done["silenced"]
    for wrong in (0, 29, 367 * 86_400):
        with pytest.raises(SendError, match="30 seconds to 366 days"):
            await act("timeout", sender, user="5", duration_s=wrong)
    await act("timeout", sender, user="5", remove=True)
    assert all(sender.calls[-1][1]["permissions"].values())


async def test_members_and_groups_are_described() -> None:
    member = {**MEMBER, "can_pin_messages": True, "can_promote_members": False}
    sender = FakeSender(
        getChatMember=member, getMe={"id": 77}, getChatMemberCount=12,
        getChat={"id": -100, "title": "Family", "type": "supergroup", "description": "us"},
    )  # fmt: skip
    info = await act("member-info", sender, user="5")
    assert (info["name"], info["username"], info["membership"]) == ("Ada", "ada", "administrator")
    may = await act("permissions", sender)
    assert may["may"] == {"can_pin_messages": True, "can_promote_members": False}
    assert ("getChatMember", {"chat_id": -100, "user_id": 77}) in sender.calls
    group = await act("channel-info", sender)
    assert (group["name"], group["members"], group["topic"]) == ("Family", 12, "us")


async def test_topics_and_stickers_are_made() -> None:
    topic = {"message_thread_id": 33, "name": "Trip"}
    sender = FakeSender(createForumTopic=topic, sendSticker={"message_id": 8})
    assert (await act("thread-create", sender, text="Trip"))["threadId"] == "33"
    assert (await act("sticker-send", sender, text="CAAC"))["messageId"] == "8"
    assert sender.calls[-1][1]["sticker"] == "CAAC"
    with pytest.raises(SendError, match="has a name"):
        await act("thread-create", sender)


@pytest.mark.parametrize("name", ["read", "search", "thread-list", "reactions"])
async def test_action_that_bots_lack_is_refused(name: str) -> None:
    with pytest.raises(SendError, match=f"has no {name}"):
        await act(name, FakeSender())


async def test_odd_answers_break_nothing() -> None:
    sender = FakeSender(getChat=[1], getChatMember="x", getChatMemberCount={}, getMe=None)
    assert (await act("pins", sender))["messages"] == []
    assert (await act("member-info", sender, user="5"))["name"] == ""
    assert (await act("channel-info", sender))["members"] == 0
    assert (await act("permissions", sender, user="5"))["may"] == {}


async def test_role_promotes_and_demotes_with_few_rights() -> None:
    sender = FakeSender(getChatAdministrators=[{**MEMBER, "custom_title": "Host"}, 7])
    assert (await act("role-info", sender))["members"] == [
        {"user": "5", "name": "Ada", "role": "Host"}
    ]
    await act("role-add", sender, user="5", text="Host")
    await act("role-remove", sender, user="5")
    (_, added), (_, titled), (_, removed) = sender.calls[1:]
    assert added["can_pin_messages"] is True and "can_promote_members" not in added
    assert titled["custom_title"] == "Host" and removed["can_pin_messages"] is False
