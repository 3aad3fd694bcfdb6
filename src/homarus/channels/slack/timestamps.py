"""Slack's timestamps, `1700000000.000100`: the ids of messages within their conversation."""

import re
from typing import Final

from homarus.core.errors import SendError
from homarus.core.message import Address

_TS: Final = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}", re.ASCII)


def parse_ts(message_id: str, chat: str = "") -> str:
    """Return the timestamp in any of our ids for a message of this chat; else ""."""
    head, colon, ts = message_id.partition(":")
    if not colon:
        ts = head
    elif chat and head != chat:
        return ""
    return ts if _TS.fullmatch(ts) else ""


def require_ts(message_id: str, to: Address) -> str:
    """Return the timestamp of a message. Raises SendError for an id that has none."""
    chat, colon, _ = message_id.partition(":")
    # A direct chat is known by its own id and by that of the person.
    is_other = colon and to.chat.startswith(("C", "G")) and chat != to.chat
    if is_other or not (ts := parse_ts(message_id)):
        raise SendError(f"{message_id!r} is no message of this chat", retryable=False)
    return ts


def ts_to_ms(ts: str) -> int:
    """Return the time of a message; 0 for an invalid timestamp."""
    return int(float(ts) * 1000) if _TS.fullmatch(ts) else 0


def ts_from_ms(at_ms: int) -> str:
    """Return the timestamp of an instant."""
    return f"{max(0, at_ms) // 1000}.{max(0, at_ms) % 1000:03}000"


def is_ts(text: str) -> bool:
    """Return whether a text is a timestamp."""
    return _TS.fullmatch(text) is not None
