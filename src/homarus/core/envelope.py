"""The envelope that a user message has in a transcript, and its removal.

`sessions.envelope` adds it, as OpenClaw does; what displays a session or searches in it removes
it.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DATED: Final = re.compile(
    r"\[[^\[\]\n]{0,400}?\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}[^\[\]\n]{0,60}\] ?"
)
NOTES: Final = "<recent_notes>\n"
NOTES_END: Final = "\n</recent_notes>\n\n"
BEFORE: Final = "[Chat messages since your last reply - for context]"
UNTRUSTED: Final = "<<<EXTERNAL_UNTRUSTED_CONTENT id="
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
_BREAK = re.compile(r"([\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")
# The starts of lines that we add, as a reader sees them, and those of a header of any service; not
# those of merged messages, which have them in their text (`sessions.queue_policy`). Slow to compile
# and only needed with channels: `re` compiles it at the first text.
_OURS: Final = (
    r"\[\s*(?:Chat messages since|Current message|Replying to|/Replying|Forwarded"
    rf"|media (?:attached|missing|not described)|message_id:|(?:{'|'.join(_CHANNELS)})\b"
    r"|[^\[\]]{0,100}?\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"
    r"|(?!Queued messages |Queue overflow\])[^\W\d_][^\[\]]{1,400}\](?![(\[:]))"
    r"|System\s*:"
)
_SENDER: Final = r"[^\s\-*#>|:()][^:()]{0,160}?\s?\([^()]{1,160}\)\s*:"  # as `Ann (42):`
# Characters without a shape of their own, which may stand before the first visible one.
_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_UNSEEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Mn", "Zs", "Zl", "Zp"})
_ATTACHED = re.compile(r"\n\[(?:media (?:attached|missing|not described):|Replying to) ")


def strip_envelope(text: str) -> str:
    """Return the text as its sender wrote it."""
    if UNTRUSTED in text:
        from homarus.core.media_text import strip_media_text

        text = strip_media_text(text)
    if text.startswith(NOTES) and (end := text.find(NOTES_END)) >= 0:
        text = text[end + len(NOTES_END) :]
    while facts := _FACTS.match(text):
        text = text[facts.end() :]
    if text.startswith(BEFORE) and (at := text.find(f"\n\n{CURRENT}\n")) >= 0:
        text = text[at + len(CURRENT) + 3 :]
    if UNTRUSTED in text:
        from homarus.core.untrusted import unwrap_untrusted

        text = unwrap_untrusted(text)
    named = DATED.match(text) or _NAMED.match(text)
    if named:
        has_channel = not _STAMPED.match(text)
        text = text[named.end() :]
        text = _without_attachments(text) if has_channel else text
    return _MESSAGE_ID.sub("", text)


def escape_header_lines(text: str, *, senders: bool = False) -> str:
    r"""Put a `\` before the lines that look like a header of ours.

    With `senders`, also before those that start like a message of a group, as `Ann (42):`. The
    first line is the sender's own and may.
    """
    return _map_lines(text, lambda line, at: f"{line[:at]}\\{line[at:]}", senders=senders)


def _without_attachments(text: str) -> str:
    """Return a channel message without its media and quote lines, and unescaped."""
    attached = _ATTACHED.search(text)
    body = text[: attached.start()] if attached else text
    return _map_lines(body, _unescape, senders=True)


def _unescape(line: str, at: int) -> str:
    return f"{line[:at]}{line[at + 1 :]}" if line[at] == "\\" else line


def _map_lines(text: str, change: Callable[[str, int], str], *, senders: bool) -> str:
    """Return the text with its header lines changed; `change` gets where each starts visibly."""
    if ":" not in text and "[" not in text and text.isascii():
        return text
    parts = _BREAK.split(text)
    for number in range(0, len(parts), 2):
        line = parts[number]
        at = next((index for index, ch in enumerate(line) if _is_seen(ch)), -1)
        if at >= 0 and _is_header(line[at:], sender=senders and number > 0):
            parts[number] = change(line, at)
    return "".join(parts)


def _is_header(line: str, *, sender: bool) -> bool:
    seen = line.lstrip("\\")
    if not seen.isascii():
        seen = unicodedata.normalize("NFKC", "".join(ch for ch in seen if not _is_joined(ch)))
    if re.match(_OURS, seen, flags=re.IGNORECASE):
        return True
    return sender and re.match(_SENDER, seen) is not None


def _is_seen(ch: str) -> bool:
    if ch.isascii():
        return ch > " " and ch != "\x7f"
    return ch not in _UNSEEN and unicodedata.category(ch) not in _UNSEEN_CATEGORIES


def _is_joined(ch: str) -> bool:
    """Return whether a character inside a word is invisible."""
    return ch in _UNSEEN or unicodedata.category(ch) in {"Cf", "Cs"}
