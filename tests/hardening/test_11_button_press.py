"""A button press is its visible label, as a message of the presser that is never a command.

Its text was written by the agent, perhaps for somebody else, so it has no more authority than the
chat it was posted in: no command, no directive, and not the tools of the presser.
"""

from pathlib import Path
from typing import Any

import pytest

from homarus.agent.commands.catalog import has_control_command
from homarus.agent.prompt.chat_context import session_chat_context
from homarus.channels.access_control import AccessControl, AccessGranted
from homarus.channels.registry import find_traits
from homarus.channels.telegram.inbound import TelegramIdentity, UpdateTranslator
from homarus.config.schema import Config
from homarus.core.channel_event import ButtonPressed
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.message import Address, Inbound, Json
from homarus.process import open_app
from homarus.sessions.envelope import format_envelope
from homarus.sessions.routing import Route
from homarus.sessions.session import SessionRepository
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from homarus.tools.builtin.message import message_tool
from homarus.tools.tool import ToolContext
from tests.unit.tools.test_tool_message import HERE, FakeMessenger

OWNER, GROUP = 42, -100
KEY = "agent:main:telegram:group:-100"
ROUTE = Route("main", "telegram", "default", KEY, "", "")
READER = UpdateTranslator("telegram", "default", TelegramIdentity(9, "our_bot"))
HIDDEN = "/send off"


def press(
    data: str = HIDDEN,
    *,
    keyboard: Json = ([{"text": "Yes, please", "callback_data": HIDDEN}],),
    kind: str = "supergroup",
) -> Inbound | None:
    chat = {"id": GROUP if kind == "supergroup" else OWNER, "type": kind}
    under = {"message_id": 4, "date": 1, "chat": chat, "from": {"id": 9}, "text": "Shall I?"}
    under["reply_markup"] = {"inline_keyboard": list(keyboard)}
    query = {"id": "77", "from": {"id": OWNER, "first_name": "Ann"}, "message": under}
    event = READER.to_event({"callback_query": {**query, "data": data}}, 1)
    return event.to_message() if isinstance(event, ButtonPressed) else None


def admit(folder: Path, inbound: Inbound) -> Inbound:
    tree = {
        "channels": {"telegram": {"allowFrom": [str(OWNER)], "groups": {str(GROUP): {}}}},
        "commands": {"ownerAllowFrom": [str(OWNER)]},
    }
    config = Config.model_validate(tree)
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


def test_press_delivers_visible_label_of_its_chat() -> None:
    found = press()
    assert found is not None
    assert (found.text, found.sender, found.address.chat) == ("Yes, please", "42", "-100")
    assert found.metadata.is_press and "pressed a button" in format_envelope(found, group=True)


@pytest.mark.parametrize(
    "keyboard",
    [
        (),
        ([{"text": "Yes", "callback_data": "other"}],),
        ([{"text": "Yes", "callback_data": HIDDEN}, {"text": "No", "callback_data": HIDDEN}],),
        ([{"text": "", "callback_data": HIDDEN}],),
    ],
)
def test_press_without_one_visible_label_is_not_delivered(keyboard: Json) -> None:
    assert press(keyboard=keyboard) is None


def test_press_of_approval_button_counts_only_under_our_message(tmp_path: Path) -> None:
    data = "approve:4f2a91c0-0000-4000-8000-000000000000:allow-once"
    keyboard = ([{"text": "Allow once", "callback_data": data}],)
    pressed = press(data, keyboard=keyboard)
    assert pressed is not None and pressed.metadata.is_press
    assert pressed.metadata.approval == "4f2a91c0-0000-4000-8000-000000000000 allow-once"
    assert admit(tmp_path, pressed).authority == "owner"  # the decision is the presser's own
    under = {"message_id": 4, "chat": {"id": GROUP, "type": "supergroup"}, "from": {"id": 8}}
    under["reply_markup"] = {"inline_keyboard": list(keyboard)}
    query = {"id": "77", "from": {"id": OWNER}, "message": under, "data": data}
    foreign = READER.to_event({"callback_query": query}, 1)
    assert isinstance(foreign, ButtonPressed) and not foreign.approval
    for wrong in (f"{data} ", data.upper(), data.replace("allow-once", "allow"), "approve::deny"):
        found = press(wrong, keyboard=([{"text": "x", "callback_data": wrong}],))
        assert found is not None and not found.metadata.approval


def test_press_label_hides_nothing() -> None:
    found = press(keyboard=([{"text": f"Yes\u202e\n{'x' * 500}", "callback_data": HIDDEN}],))
    assert found is not None and len(found.text) <= 64
    assert found.text.isprintable() and "\u202e" not in found.text


@pytest.mark.parametrize("label", ["/send off", "/new", "stop", "/elevated full", "/model x hi"])
@pytest.mark.parametrize("kind", ["supergroup", "private"])
async def test_press_of_owner_is_never_a_command(tmp_path: Path, label: str, kind: str) -> None:
    pressed = press("d", keyboard=([{"text": label, "callback_data": "d"}],), kind=kind)
    assert pressed is not None
    accepted = admit(tmp_path, pressed)
    assert accepted.authority == ""
    async with open_app({"HOME": str(tmp_path)}) as app:
        record = (await app.control.accept(KEY, accepted)).record
        message = app.commands.interpret(KEY, record)
        assert message.execute is None and message.record.inbound == record.inbound


async def test_press_has_tools_of_chat_and_not_of_presser() -> None:
    group = {"tools": {"deny": ["exec"]}, "toolsBySender": {str(OWNER): {"allow": ["*"]}}}
    config = Config.model_validate({"channels": {"telegram": {"groups": {str(GROUP): group}}}})
    session = await SessionRepository(MemoryStore(), FakeClock()).load(KEY, "main")
    pressed = press()
    assert pressed is not None

    def rules(inbound: Inbound) -> Any:
        return session_chat_context(config, session, [inbound], find_traits=find_traits).rules

    own = Inbound("2", pressed.address, pressed.sender, "hi")
    assert any("exec" in each.deny for each in rules(pressed))
    assert not any("exec" in each.deny for each in rules(own))


async def test_message_tool_puts_no_button_into_chat_of_owner() -> None:
    messenger = FakeMessenger(Address("telegram", "42"))
    here = Address("telegram", str(GROUP))
    ctx = ToolContext(KEY, "main", Path("/ws"), here=here, messenger=messenger)
    args = {"message": "?", "buttons": [[{"text": "Yes"}]]}
    with pytest.raises(ToolDeniedError, match="gets buttons"):
        await message_tool()(ctx, {**args, "target": "telegram/42"})
    await message_tool()(ctx, args)
    assert [seen[1] for seen in messenger.seen] == [here]


async def test_message_tool_refuses_two_buttons_with_same_data() -> None:
    messenger = FakeMessenger()
    ctx = ToolContext("agent:main:main", "main", Path("/ws"), here=HERE, messenger=messenger)
    rows = [[{"text": "Yes", "callback_data": "x"}], [{"text": "No", "callback_data": "x"}]]
    with pytest.raises(ToolError, match="same callback_data"):
        await message_tool()(ctx, {"message": "?", "buttons": rows})
