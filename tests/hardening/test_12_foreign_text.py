"""Text that its sender did not write is never a command: forwarded, or made by an inline bot."""

from pathlib import Path
from typing import Any

import pytest

from homarus.agent.commands.catalog import has_control_command
from homarus.channels.access_control import AccessControl, AccessGranted
from homarus.channels.telegram.inbound import TelegramIdentity, UpdateTranslator
from homarus.config.schema import Config
from homarus.core.message import Inbound
from homarus.process import open_app
from homarus.sessions.envelope import format_envelope
from homarus.sessions.routing import Route
from homarus.testing.clock import FakeClock

KEY = "agent:main:main"
ROUTE = Route("main", "telegram", "default", KEY, "", "")
READER = UpdateTranslator("telegram", "default", TelegramIdentity(9, "our_bot"))
OWNER = {"id": 42, "first_name": "Ann"}
BOT = {"id": 5, "is_bot": True, "first_name": "Gif", "username": "gif"}
FOREIGN: tuple[dict[str, Any], ...] = (
    {"via_bot": BOT},
    {"via_bot": {"id": 5, "is_bot": True}},
    {"forward_origin": {"type": "user", "sender_user": {"id": 6, "first_name": "Eve"}}},
    {"forward_origin": {"type": "hidden_user", "sender_user_name": "Eve"}},
    {"forward_origin": {"type": "mystery"}},
    {"forward_date": 5, "forward_from": {"id": 6, "first_name": "Eve"}},  # before Bot API 7
    {"forward_date": 5, "forward_sender_name": "Eve"},
    {"forward_date": 5, "forward_from_chat": {"id": -6, "title": "News"}},
)


def receive(text: str, **fields: Any) -> Inbound:
    chat = {"id": 42, "type": "private"}
    message = {"message_id": 4, "date": 1, "chat": chat, "from": OWNER, "text": text, **fields}
    found = READER.to_event({"message": message}, 1)
    assert isinstance(found, Inbound)
    return found


def admit(folder: Path, inbound: Inbound) -> Inbound:
    config = Config.model_validate({"channels": {"telegram": {"allowFrom": ["42"]}}})
    access = AccessControl(
        lambda: config,
        folder,
        FakeClock(),
        find_entry=lambda _key: {},
        is_command=has_control_command,
    )
    decision = access.check(inbound, ROUTE)
    assert isinstance(decision, AccessGranted)
    return decision.inbound


@pytest.mark.parametrize("fields", FOREIGN)
@pytest.mark.parametrize("text", ["/send off", "/new", "stop", "/think high hello"])
async def test_foreign_text_of_owner_is_never_a_command(
    tmp_path: Path, fields: dict[str, Any], text: str
) -> None:
    accepted = admit(tmp_path, receive(text, **fields))
    assert accepted.authority == "" and accepted.metadata.is_foreign_text
    async with open_app({"HOME": str(tmp_path)}) as app:
        record = (await app.control.accept(KEY, accepted)).record
        message = app.commands.interpret(KEY, record)
        assert message.execute is None and message.record.inbound == record.inbound


def test_own_text_of_owner_is_a_command(tmp_path: Path) -> None:
    assert admit(tmp_path, receive("/new")).authority == "owner"


def test_envelope_names_origin_of_foreign_text() -> None:
    assert "by the bot Gif" in format_envelope(receive("hi", via_bot=BOT))
    assert "forwarded from Eve" in format_envelope(receive("hi", **FOREIGN[2]))
