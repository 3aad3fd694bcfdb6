"""The facts about Telegram that do not depend on an account."""

import re
from typing import Final

from homarus.core.channel_traits import ChannelTraits

_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")


def _normalize_id(text: str) -> str:
    # A @name is no id: its owner can give it up, and another person can take it.
    return text if _NUMBER.fullmatch(text) else ""


TRAITS: Final = ChannelTraits(
    title="Telegram",
    dialect="telegram",
    normalize_id=_normalize_id,
    id_aliases=("tg",),
    group_id_prefixes=("-",),
    has_topics=True,
    has_buttons=True,
    secret_variables=("TELEGRAM_BOT_TOKEN",),
    abilities=("deleteMessage", "editMessage", "files", "poll", "reactions"),
    chat_actions=(
        "ban",
        "channel-info",
        "kick",
        "member-info",
        "permissions",
        "pin",
        "pins",
        "role-add",
        "role-info",
        "role-remove",
        "sticker-send",
        "thread-create",
        "timeout",
        "unpin",
    ),
    message_hints=(
        "On Telegram a target is a number: people have positive ones, groups negative ones.",
        "A bot writes first only to those who have written to it.",
    ),
)
