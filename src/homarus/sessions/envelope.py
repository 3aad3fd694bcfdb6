"""The line in front of a message that says when, and from where, it came.

A model has no clock: what enters by the gateway is stamped with the time. Whoever shows the
conversation to a person takes the stamp off again. Pure.
"""

import re
from datetime import datetime, tzinfo

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DATED = re.compile(r"\[[^\[\]\n]{0,200}?\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}[^\[\]\n]{0,60}\] ?")
_KNOWS_TIME = "Current time:"
# A header that names its chat service and has no date.
_CHANNELS = (
    "WebChat", "WhatsApp", "Telegram", "Signal", "Slack", "Discord", "Google Chat", "iMessage",
    "Teams", "Matrix", "Zalo", "BlueBubbles",
)  # fmt: skip
_NAMED = re.compile(rf"\[(?:{'|'.join(_CHANNELS)})(?: [^\[\]\n]{{0,200}})?\] ?")
# What the original puts before that: facts about the message, as JSON in a fence.
_FACTS = re.compile(
    r"(?:Conversation info|Sender) \(untrusted metadata\):\n```json\n[^`]{0,4000}\n```\s*"
)
_MESSAGE_ID = re.compile(r"\n?[ \t]{0,8}\[message_id: [^\[\]\n]{1,200}\][ \t]{0,8}(?=\n|\Z)")


def stamp(text: str, at_ms: int, zone: tzinfo | None = None) -> str:
    """The text with the time in front; one that tells the time already stays as it is.

    Without `zone`, the time of this machine.
    """
    if not text.strip() or _DATED.match(text) or _KNOWS_TIME in text:
        return text
    at = datetime.fromtimestamp(at_ms / 1000, zone).astimezone(zone)
    return f"[{_WEEKDAYS[at.weekday()]} {at:%Y-%m-%d %H:%M %Z}] {text}"


def strip(text: str) -> str:
    """The text as its sender wrote it."""
    while facts := _FACTS.match(text):
        text = text[facts.end() :]
    header = _DATED.match(text) or _NAMED.match(text)
    if header:
        text = text[header.end() :]
    return _MESSAGE_ID.sub("", text)
