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
    abilities=("deleteMessage", "editMessage", "files", "reactions"),
    message_hints=("On Matrix a target is a room (!id:server, #name:server) or @person:server.",),
    address_forms=(("@", ":"), ("!", ""), ("#", ":")),
)
