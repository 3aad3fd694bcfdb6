"""The facts about Slack that do not depend on an account."""

import re
from typing import Final

from homarus.core.channel_traits import ChannelTraits

# People (U, W), bots (B), channels (C), private channels and group chats (G), direct chats (D).
_ID: Final = re.compile(r"[BCDGUW][A-Z0-9]{1,40}")


def _normalize_id(text: str) -> str:
    # A name is no id: its owner can change it, and another person can take it.
    return text if _ID.fullmatch(text) else ""


TRAITS: Final = ChannelTraits(
    title="Slack",
    dialect="slack",
    normalize_id=_normalize_id,
    restore_case=str.upper,
    group_id_prefixes=("C", "G"),
    has_named_rooms=True,
    has_threads=True,
    has_buttons=True,
    block_min_chars=1_500,
    target_kinds=("channel", "user"),
    secret_variables=("SLACK_APP_TOKEN", "SLACK_BOT_TOKEN", "SLACK_USER_TOKEN"),
    abilities=("deleteMessage", "editMessage", "files", "reactions"),
    chat_actions=(
        "channel-info",
        "channel-list",
        "kick",
        "member-info",
        "permissions",
        "pin",
        "pins",
        "reactions",
        "read",
        "search",
        "thread-create",
        "thread-list",
        "unpin",
    ),
    message_hints=(
        "On Slack a target is channel:C…, user:U…, or #name; a person is mentioned as <@U…>.",
        "The bot writes only to channels that it was invited to.",
    ),
)
