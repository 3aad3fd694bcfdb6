"""The facts about Matrix that do not depend on an account."""

import re
from typing import Final

from homarus.core.channel_traits import ChannelTraits

_ID: Final = re.compile(r"([@!#][^:\s]+):([^\s]+)")


def _normalize_id(text: str) -> str:
    """Return `@Ann:example.org` for `@Ann:Example.ORG`: only the server's name is caseless."""
    match = _ID.fullmatch(text)
    return f"{match[1]}:{match[2].lower()}" if match else ""


TRAITS: Final = ChannelTraits(
    title="Matrix",
    dialect="matrix",
    normalize_id=_normalize_id,
    secret_variables=("MATRIX_ACCESS_TOKEN", "MATRIX_PASSWORD"),
    abilities=("deleteMessage", "editMessage", "files", "reactions"),
    chat_actions=(
        "ban",
        "channel-info",
        "channel-list",
        "kick",
        "member-info",
        "permissions",
        "pin",
        "pins",
        "reactions",
        "read",
        "role-add",
        "role-info",
        "role-remove",
        "search",
        "sticker-send",
        "thread-create",
        "thread-list",
        "unpin",
    ),
    message_hints=("On Matrix a target is a room (!id:server, #name:server) or @person:server.",),
    address_forms=(("@", ":"), ("!", ""), ("#", ":")),
)
