"""The envelope that a user message has in a transcript, and its removal.

`sessions.envelope` adds it, as OpenClaw does; what displays a session or searches in it removes
it.
"""

import re
from typing import Final

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DATED: Final = re.compile(
    r"\[[^\[\]\n]{0,400}?\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}[^\[\]\n]{0,60}\] ?"
)
NOTES: Final = "<recent_notes>\n"
NOTES_END: Final = "\n</recent_notes>\n\n"
BEFORE: Final = "[Chat messages since your last reply - for context]"
CURRENT: Final = "[Current message - respond to this]"
# A header that names its channel and has no date.
_CHANNELS = (
    "WebChat", "WhatsApp", "Telegram", "Signal", "Slack", "Discord", "Google Chat", "iMessage",
    "Teams", "Matrix", "Zalo", "BlueBubbles", "IRC", "XMPP", "SMS",
)  # fmt: skip
_NAMED = re.compile(rf"\[(?:{'|'.join(_CHANNELS)})(?: [^\[\]\n]{{0,400}})?\] ?")
_STAMPED = re.compile(rf"\[(?:{'|'.join(WEEKDAYS)}) \d{{4}}-")  # a time without a channel
# What OpenClaw puts before that: metadata of the message, as JSON in a fence.
_FACTS = re.compile(
    r"(?:Conversation info|Sender) \(untrusted metadata\):\n```json\n[^`]{0,4000}\n```\s*"
)
_MESSAGE_ID = re.compile(r"\n?[ \t]{0,8}\[message_id: [^\[\]\n]{1,200}\][ \t]{0,8}(?=\n|\Z)")
# How a line can start for a reader, and the starts of the lines that we add.
LINE: Final = r"(?:\A|(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]))[ \t\u200b-\u200f\u2060\ufeff]*"
OURS: Final = (
    r"(?:[\[\uff3b]\s*(?:Chat messages since|Current message|Replying to|/Replying|Forwarded"
    rf"|media (?:attached|missing)|message_id:|(?:{'|'.join(_CHANNELS)})\b"
    r"|[^\[\]\n]{0,100}?\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2})|System:)"
)
# Slow to compile and not always needed, so that `re` compiles it on first use.
_ESCAPED = rf"({LINE})\\(\\*{OURS})"
_ATTACHED = re.compile(r"\n\[(?:media (?:attached|missing):|Replying to) ")


def strip_envelope(text: str) -> str:
    """Return the text as its sender wrote it."""
    if text.startswith(NOTES) and (end := text.find(NOTES_END)) >= 0:
        text = text[end + len(NOTES_END) :]
    while facts := _FACTS.match(text):
        text = text[facts.end() :]
    if text.startswith(BEFORE) and (at := text.find(f"\n\n{CURRENT}\n")) >= 0:
        text = text[at + len(CURRENT) + 3 :]
    named = DATED.match(text) or _NAMED.match(text)
    if named:
        has_channel = not _STAMPED.match(text)
        text = text[named.end() :]
        text = _without_attachments(text) if has_channel else text
    return _MESSAGE_ID.sub("", text)


def _without_attachments(text: str) -> str:
    """Return a channel message without its media and quote lines, and unescaped."""
    attached = _ATTACHED.search(text)
    body = text[: attached.start()] if attached else text
    return re.sub(_ESCAPED, r"\1\2", body, flags=re.IGNORECASE)
