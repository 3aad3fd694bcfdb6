"""The line in front of a message that says from whom, from where and when it came.

    [Telegram ann +2m Tue 2026-02-17 13:34 CET] Are you there?

A model has no clock and no eyes: what changes from message to message stands here, with the
message, and not in the system prompt, which stays the same. Whoever shows the conversation to a
person takes the line off again. Pure.
"""

import re
from datetime import UTC, datetime, tzinfo
from typing import Final

from homarus.core.message import Inbound
from homarus.core.text import one_line
from homarus.core.value import dataclass

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DATED = re.compile(r"\[[^\[\]\n]{0,200}?\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}[^\[\]\n]{0,60}\] ?")
_KNOWS_TIME = "Current time:"
# How a service is written, where that is not its id with a capital.
_TITLES: Final = {
    "bluebubbles": "BlueBubbles",
    "googlechat": "Google Chat",
    "imessage": "iMessage",
    "irc": "IRC",
    "msteams": "Teams",
    "sms": "SMS",
    "webchat": "WebChat",
    "whatsapp": "WhatsApp",
    "xmpp": "XMPP",
}
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
_OWN_WAYS = frozenset({"boot", "wake", "webchat", "agent"})  # in by the gateway, not by a service
_NOTES, _NOTES_END = "<recent_notes>\n", "\n</recent_notes>\n\n"
_MAX_PART = 80


@dataclass(frozen=True, slots=True)
class Rules:
    """What the line tells of time, and in which zone; without one, this machine's.

    `own_zone` is for what comes in by the gateway: the person's.
    """

    zone: tzinfo | None = None
    own_zone: tzinfo | None = None
    timestamp: bool = True
    elapsed: bool = True


NO_RULES: Final = Rules()


def envelope(
    inbound: Inbound, rules: Rules = NO_RULES, *, previous_ms: int = 0, group: bool = False
) -> str:
    """A message as the model reads it. `previous_ms` is when the one before it was sent.

    In a group the line names the group, and the words begin with who says them.
    """
    address = inbound.address
    if address.channel == "cli":
        return inbound.text
    if address.channel in _OWN_WAYS:
        return stamp(inbound.text, inbound.at_ms, rules.own_zone)
    line = header(
        channel_title(address.channel),
        address.chat if group else inbound.sender,
        at_ms=inbound.at_ms,
        previous_ms=previous_ms,
        rules=rules,
    )
    said = f"{_part(inbound.sender)}: {inbound.text}" if group else inbound.text
    return f"{line} {said}"


def header(
    channel: str,
    sender: str = "",
    *,
    host: str = "",
    ip: str = "",
    at_ms: int = 0,
    previous_ms: int = 0,
    rules: Rules = NO_RULES,
) -> str:
    """The line itself: `[Channel sender host ip +elapsed weekday time]`."""
    parts = [_part(channel) or "Channel", _part(sender), _part(host), _part(ip)]
    if rules.elapsed and at_ms and previous_ms and at_ms >= previous_ms:
        parts.append(f"+{elapsed(at_ms - previous_ms)}")
    if rules.timestamp and at_ms:
        parts.append(timestamp(at_ms, rules.zone))
    return f"[{' '.join(part for part in parts if part)}]"


def channel_title(channel: str) -> str:
    """A service's name as people write it."""
    return _TITLES.get(channel.lower(), channel[:1].upper() + channel[1:])


def timestamp(at_ms: int, zone: tzinfo | None = None) -> str:
    """`Tue 2026-02-17 13:34 CET`; in UTC as ISO writes it."""
    at = datetime.fromtimestamp(at_ms / 1000, zone).astimezone(zone)
    day = _WEEKDAYS[at.weekday()]
    return f"{day} {at:%Y-%m-%dT%H:%MZ}" if zone is UTC else f"{day} {at:%Y-%m-%d %H:%M %Z}"


def elapsed(span_ms: int) -> str:
    """How long ago, in the largest unit that says something: `40s`, `2m`, `3h`, `5d`."""
    seconds = span_ms // 1000
    for unit, size, most in (("s", 1, 60), ("m", 60, 60), ("h", 3_600, 48)):
        if seconds < size * most:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def _part(text: str) -> str:
    """A part that cannot end the line it stands in."""
    return one_line(text.translate(_PLAIN), _MAX_PART).strip()


_PLAIN: Final = str.maketrans({"[": "(", "]": ")", "\r": " ", "\n": " "})


def stamp(text: str, at_ms: int, zone: tzinfo | None = None) -> str:
    """The text with the time in front; one that tells the time already stays as it is.

    Without `zone`, the time of this machine.
    """
    if not text.strip() or _DATED.match(text) or _KNOWS_TIME in text:
        return text
    at = datetime.fromtimestamp(at_ms / 1000, zone).astimezone(zone)
    return f"[{_WEEKDAYS[at.weekday()]} {at:%Y-%m-%d %H:%M %Z}] {text}"


def with_notes(text: str, notes: str) -> str:
    """The first message of a conversation, with the notes of the last days before it."""
    if not notes.strip():
        return text
    kept = notes.strip().replace(_NOTES_END.strip(), "</recent_notes_>")
    return f"{_NOTES}{kept}{_NOTES_END}{text}"


def strip(text: str) -> str:
    """The text as its sender wrote it."""
    if text.startswith(_NOTES) and (end := text.find(_NOTES_END)) >= 0:
        text = text[end + len(_NOTES_END) :]
    while facts := _FACTS.match(text):
        text = text[facts.end() :]
    named = _DATED.match(text) or _NAMED.match(text)
    if named:
        text = text[named.end() :]
    return _MESSAGE_ID.sub("", text)
