"""`message.action` and `poll`: what they need, whom they obey, and that a repetition is none."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.chat_action import ChatAction
from homarus.core.errors import ForbiddenError, InvalidRequestError
from homarus.core.message import Address
from tests.unit.gateway.test_methods_channels import BROKEN, UP, at_desk

CHAT = Address("telegram", "-100")


def asked(name: str, key: str = "k1", **params: Any) -> dict[str, Any]:
    details = {"target": "telegram:-100", **params}
    return {"action": name, "params": details, "idempotencyKey": key}


async def test_action_is_done_once_for_one_key(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP) as desk:
        first = await desk.ask("message.action", "write", **asked("pin", messageId="7"))
        assert first == {
            "action": "pin", "channel": "telegram", "accountId": "default", "to": "-100",
            "threadId": None, "messageId": "7",
        }  # fmt: skip
        assert await desk.ask("message.action", "write", **asked("pin", messageId="7")) == first
        actions = desk.program.messenger.actions
        assert actions == [(CHAT, ChatAction("pin", "7", key="k1"))]
        await desk.ask("message.action", "write", **asked("pin", "k2", messageId="7"))
        assert len(actions) == 2


async def test_action_details_reach_the_channel(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP) as desk:
        details: dict[str, Any] = {
            "userId": "5",
            "message": "spam",
            "durationSeconds": 60,
            "remove": True,
        }
        await desk.ask("message.action", "admin", **asked("timeout", **details))
        ((_, action),) = desk.program.messenger.actions
        assert action == ChatAction("timeout", "", "5", "spam", "", 20, 60, True, "k1")


async def test_resolve_only_returns_the_address(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP) as desk:
        found = await desk.ask("message.action", "write", **asked("resolve", threadId="4"))
        assert (found["channel"], found["to"], found["threadId"]) == ("telegram", "-100", "4")
        assert desk.program.messenger.actions == []


@pytest.mark.parametrize(
    ("name", "params", "told"),
    [
        ("pin", {}, "pin needs messageId"),
        ("ban", {"message": "x"}, "ban needs userId"),
        ("search", {"message": " "}, "search needs message"),
        ("react", {"messageId": "1"}, "react needs emoji"),
        ("edit", {"messageId": "1"}, "edit needs message"),
        ("read", {"limit": 0}, "limit"),
        ("read", {"limits": 1}, "limits"),
        ("timeout", {"userId": "1", "durationSeconds": 10**9}, "durationSeconds"),
        ("dance", {}, "action"),
        ("read", {"target": "nowhere:1"}, "no channel is given"),
    ],
)
async def test_action_that_lacks_something_is_refused(
    tmp_path: Path, name: str, params: dict[str, Any], told: str
) -> None:
    async with at_desk(tmp_path, UP, BROKEN) as desk:
        with pytest.raises(InvalidRequestError, match=told):
            await desk.ask("message.action", **asked(name, **params))


async def test_action_a_channel_lacks_names_those_that_have_it(tmp_path: Path) -> None:
    async with at_desk(tmp_path, BROKEN) as desk:
        with pytest.raises(InvalidRequestError) as refused:
            await desk.ask("message.action", **asked("pins", target="irc:#room"))
        assert str(refused.value) == "irc has no pins (telegram can)"


async def test_moderation_needs_an_administrator(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP) as desk:
        for name in ("kick", "ban", "timeout"):
            with pytest.raises((ForbiddenError, InvalidRequestError), match=r"operator\.admin"):
                await desk.ask("message.action", "write", **asked(name, userId="5"))
        assert desk.program.messenger.actions == []


async def test_channel_list_needs_no_chat(tmp_path: Path) -> None:
    async with at_desk(tmp_path, BROKEN, UP) as desk:
        listed = {"action": "channel-list", "channel": "telegram", "idempotencyKey": "k"}
        await desk.ask("message.action", **listed)
        ((to, _),) = desk.program.messenger.actions
        assert to == Address("telegram", "", "default")
        with pytest.raises(InvalidRequestError, match="no account of matrix"):
            await desk.ask("message.action", **{**listed, "channel": "matrix"})


async def test_poll_is_sent_under_its_key(tmp_path: Path) -> None:
    params: dict[str, Any] = {"to": "telegram:-100", "question": "Tea?", "options": ["yes", "no"]}
    async with at_desk(tmp_path, UP) as desk:
        sent = await desk.ask("poll", **params, durationHours=2, idempotencyKey="p1")
        assert (sent["runId"], sent["messageId"], sent["chatId"]) == ("p1", "m0", "-100")
        ((to, poll, key),) = desk.program.messenger.polls
        assert to == CHAT and (poll.question, poll.duration_s) == ("Tea?", 7_200)
        assert not poll.is_multiple and key == "poll:p1"
        with pytest.raises(InvalidRequestError, match="options"):
            await desk.ask("poll", **{**params, "options": ["yes"]}, idempotencyKey="p2")
        with pytest.raises(InvalidRequestError, match="not built"):
            await desk.ask("poll", **params, isAnonymous=False, idempotencyKey="p3")
