"""The facts about Discord that do not depend on an account."""

import re
from typing import Final

from homarus.core.channel_traits import ChannelTraits

_ID: Final = re.compile(r"(?:<(?:@[!&]?|#)([0-9]{1,20})>)|([0-9]{1,20})")


def _normalize_id(text: str) -> str:
    """Return the number of `42` or of a mention, `<@42>`. A name is no id: others can take it."""
    found = _ID.fullmatch(text)
    return (found[1] or found[2]) if found else ""


TRAITS: Final = ChannelTraits(
    title="Discord",
    dialect="discord",
    normalize_id=_normalize_id,
    has_caseless_ids=True,
    has_named_rooms=True,
    has_threads=True,
    has_forums=True,
    has_roles=True,
    target_kinds=("user",),
    has_buttons=True,
    block_min_chars=1_500,
    secret_variables=("DISCORD_BOT_TOKEN",),
    abilities=("deleteMessage", "editMessage", "files", "poll", "reactions"),
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
        "timeout",
        "unpin",
    ),
    message_hints=(
        "On Discord a target is user:ID for a person, and channel:ID for a channel or a thread.",
        "A message has at most 2000 characters; longer ones are split.",
    ),
)
