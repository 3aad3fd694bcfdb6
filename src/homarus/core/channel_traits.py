"""Facts about a chat service that packages below the channels need.

A channel module declares its own as `TRAITS`; `channels.registry.find_traits` finds them by the
channel's name. Session keys, allowlists, routing and prompts get a ChannelTraits, or the lookup,
from their caller, so that none of them imports a channel.
"""

import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

Dialect: TypeAlias = Literal[
    "markdown", "plain", "telegram", "matrix", "irc", "slack", "whatsapp", "signal", "discord"
]

_PHONE: Final = re.compile(r"\+?[0-9][0-9 ().-]{2,30}")
_NOT_DIGIT: Final = re.compile(r"[^0-9]")


@dataclass(frozen=True, slots=True)
class ChannelTraits:
    """What is true of every account of one chat service.

    `normalize_id` maps the spellings of one id to one text, and what cannot be an id to "".
    `restore_case` maps a lower-case id to the id as the service writes it, where that is known.
    `id_aliases` are prefixes that name the service in a list of ids, besides its own name.
    `group_id_prefixes` are what the id of a group starts with, where that tells it from a person.
    `address_forms` are (start, inner part) of ids that no other service has.
    `has_named_rooms`: people of the service write a group as `#name`.
    `has_topics`: groups have topics; `has_threads`: a message may start a thread; `has_forums`: a
    group may consist of threads alone; `has_roles`: people have roles that access rules may name.
    `target_kinds` are the prefixes of targets that the adapter itself resolves (`user:123`).
    `abilities` are the actions of the `message` tool that the service has besides sending, by their
    names in the config, and `files`. `chat_actions` are those that only operators have, by the
    names of chat_action.py. `message_hints` are sentences for the model that writes there.
    `secret_variables` are the variables of the environment that hold a credential of an account;
    None where that is not known. `block_min_chars` is how long a block of block streaming is at
    least, while more text comes; None: as long as `blockStreamingChunk` says.
    """

    title: str = ""
    dialect: Dialect = "markdown"
    normalize_id: Callable[[str], str] = str
    restore_case: Callable[[str], str] = str
    has_caseless_ids: bool = False
    has_phone_ids: bool = False
    id_aliases: tuple[str, ...] = ()
    group_id_prefixes: tuple[str, ...] = ()
    address_forms: tuple[tuple[str, str], ...] = ()
    has_named_rooms: bool = False
    has_topics: bool = False
    has_threads: bool = False
    has_forums: bool = False
    has_roles: bool = False
    target_kinds: tuple[str, ...] = ()
    has_buttons: bool = False
    abilities: tuple[str, ...] = ()
    chat_actions: tuple[str, ...] = ()
    message_hints: tuple[str, ...] = ()
    secret_variables: tuple[str, ...] | None = None
    block_min_chars: int | None = None

    def canonical_id(self, text: str) -> str:
        """Return the one form of an id that is compared; "" if the service has no such id.

        It is the only normalisation: session keys, routes and allowlists agree on who is who.
        """
        if self.has_phone_ids and _PHONE.fullmatch(text.strip()):
            return "+" + _NOT_DIGIT.sub("", text)
        text = self.normalize_id(text)
        return text.lower() if self.has_caseless_ids else text

    def is_group_id(self, chat: str) -> bool:
        """Return whether the id alone shows that a chat is a group."""
        return chat.startswith(self.group_id_prefixes) if self.group_id_prefixes else False

    def is_own_address(self, text: str) -> bool:
        """Return whether only this service has addresses of this form."""
        return any(text.startswith(start) and inner in text for start, inner in self.address_forms)


UNKNOWN_CHANNEL: Final = ChannelTraits()  # of a name that no service has
FindTraits: TypeAlias = Callable[[str], ChannelTraits]


def no_traits(_channel: str) -> ChannelTraits:
    """Return UNKNOWN_CHANNEL: the lookup of a caller that has no registry of channels."""
    return UNKNOWN_CHANNEL


def channel_title(channel: str, traits: ChannelTraits) -> str:
    """Return a channel's name as people write it."""
    return traits.title or channel[:1].upper() + channel[1:]
