"""What the prompt says of the current chat's service: owners, capabilities, buttons, hints."""

from itertools import permutations
from typing import Any

import pytest

from homarus.agent.prompt.chat_context import session_chat_context
from homarus.agent.prompt.chat_surface import ChatSurface, resolve_surface
from homarus.channels.irc.adapter import IrcChannel
from homarus.channels.matrix.adapter import MatrixChannel
from homarus.channels.registry import find_traits
from homarus.channels.telegram.adapter import TelegramChannel
from homarus.config.schema import Config
from homarus.core.message import Address, Inbound
from homarus.sessions.session import SessionRepository
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore


def surface(
    channel: str = "telegram",
    *,
    owners: tuple[str, ...] = (),
    group: bool = False,
    account: str = "default",
    **section: Any,
) -> ChatSurface:
    """Return the surface of a chat on a service with these settings."""
    tree = {"channels": {"telegram": section, "irc": section, "matrix": section}}
    config = Config.model_validate({**tree, "commands": {"ownerAllowFrom": list(owners)}})
    address = Address(channel, "1", account)
    return resolve_surface(config, address, find_traits=find_traits, group=group)


def test_owners_are_ids_of_the_chat_service() -> None:
    owners = ("telegram:42", "tg:42", "7", "discord:9", "@ann", "*", " ")
    assert surface(owners=owners).owners == ("42", "7")
    assert surface(owners=owners, group=True).owners == ("42", "7")
    assert surface("irc", owners=("Ann", "irc:bob")).owners == ("ann", "bob")


def test_owners_on_page_and_terminal_are_all_as_configured() -> None:
    for channel in ("webchat", "cli", ""):
        found = surface(channel, owners=("telegram:42", "*", "+15550001", "telegram:42"))
        assert found == ChatSurface(channel, owners=("+15550001", "telegram:42"))


def test_owners_without_list_are_allowed_ids_in_direct_chats() -> None:
    allowed: dict[str, Any] = {"allowFrom": [7, "telegram:42", "*"]}
    assert surface(**allowed).owners == ("42", "7")
    assert surface(**allowed, group=True).owners == ()
    assert surface(owners=("8",), **allowed).owners == ("8",)


def test_owners_and_capabilities_have_one_order() -> None:
    words = ["inlineButtons", "b", "a"]
    found = {
        surface(owners=tuple(ids), capabilities=list(named))
        for ids in permutations(("3", "1", "2"))
        for named in permutations(words)
    }
    assert len(found) == 1 and found.pop().owners == ("1", "2", "3")


@pytest.mark.parametrize(
    ("features", "direct", "in_group"),
    [
        (None, "on", "on"),
        ({"inlineButtons": "off"}, "off", "off"),
        ({"inlineButtons": "dm"}, "on", "off"),
        ({"inlineButtons": "group"}, "off", "on"),
        (["inlineButtons"], "on", "on"),
        ([], "off", "off"),
        ({"inlineButtons": 5}, "off", "off"),
    ],
)
def test_buttons_follow_configured_scope(features: Any, direct: str, in_group: str) -> None:
    section = {} if features is None else {"capabilities": features}
    for group, expected in ((False, direct), (True, in_group)):
        found = surface(group=group, **section)
        assert found.buttons == expected
        assert ("inlineButtons" in found.capabilities) == (expected == "on")


def test_buttons_of_account_override_those_of_channel() -> None:
    accounts = {"work": {"capabilities": {"inlineButtons": "off"}}}
    assert surface(account="work", accounts=accounts).buttons == "off"


def test_capabilities_omit_actions_that_are_off() -> None:
    assert "reactions" in surface().capabilities
    assert "reactions" not in surface(actions={"reactions": False}).capabilities
    assert surface("irc").capabilities == () and surface("irc").buttons == ""
    assert surface("irc").hints and surface("matrix").hints and surface().hints


@pytest.mark.parametrize(
    ("channel", "adapter"),
    [("telegram", TelegramChannel), ("irc", IrcChannel), ("matrix", MatrixChannel)],
)
def test_abilities_of_traits_equal_those_of_adapter(channel: str, adapter: type) -> None:
    methods = {"deleteMessage": "delete", "editMessage": "edit", "files": "fetch",
               "poll": "check_poll", "reactions": "react"}  # fmt: skip
    expected = tuple(name for name, method in methods.items() if hasattr(adapter, method))
    assert find_traits(channel).abilities == expected


async def test_chat_context_has_surface_of_current_message() -> None:
    config = Config.model_validate({"channels": {"telegram": {}}})
    session = await SessionRepository(MemoryStore(), FakeClock()).load("agent:main:main", "main")
    await session.update(lastChannel="telegram", lastTo="telegram:42")

    def channel(*inbounds: Inbound) -> str:
        chat = session_chat_context(config, session, inbounds, find_traits=find_traits)
        return chat.surface.channel

    assert channel() == "telegram"  # no message: the session's last chat
    assert channel(Inbound("1", Address("webchat", "k"), "p", "hi")) == "webchat"
    assert channel(Inbound("1", Address("telegram", "42"), "42", "hi")) == "telegram"
    assert channel(Inbound("1", Address("agent", ""), "p", "hi")) == "telegram"
