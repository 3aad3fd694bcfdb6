"""Recognise the tokens with which a model declines to reply: `NO_REPLY` and `HEARTBEAT_OK`.

`ANNOUNCE_SKIP` does the same for the result of a sub-agent or of another session.
A token counts at the edge of a reply, with a little markup around it. Linear in the text.
"""

import re
from functools import lru_cache

from homarus.core.fast_dataclass import dataclass
from homarus.core.text import utf16_len

SILENT_WORD = "NO_REPLY"
ACK_WORD = "HEARTBEAT_OK"
SKIP_WORD = "ANNOUNCE_SKIP"
ACK_MAX_CHARS = 30

DECORATION = " \t\r\n*_`~\"'.!"
_MARKUP = re.compile(r"<[^<>]{0,80}>|&nbsp;")
_LIGHT = "*`~_"
_ANY_ACK = re.compile(rf"{ACK_WORD}\s*")
_FIRST_ACK = re.compile(rf"{ACK_WORD}(?:(?!\w)|(?={ACK_WORD}))\s*", re.ASCII)
_LAST_ACK = re.compile(rf"{ACK_WORD}(\W*)\Z", re.ASCII)
_MAX_PUNCTUATION = 4
_MAX_ACK_CHARS = len(ACK_WORD) + _MAX_PUNCTUATION
_BLANK_LINE = re.compile(r"\s*(?:#+(?:\s.*)?|[-*+]\s*(?:\[[ xX]?\]\s*)?)?")


@dataclass(frozen=True, slots=True)
class HeartbeatAck:
    """A reply without its `HEARTBEAT_OK`. `found`: it had one; `skip`: nothing is to be sent."""

    text: str
    found: bool
    skip: bool


def is_silent_text(text: str, word: str = SILENT_WORD) -> bool:
    """Return whether a text starts or ends with the token."""
    return bool(word) and word in text and _edges(word).search(text) is not None


def may_be_silent(text: str, word: str = SILENT_WORD) -> bool:
    """Return whether a partly streamed text could become one of the tokens alone."""
    bare = text.strip(DECORATION)
    return any(each.startswith(bare) for each in (word, ACK_WORD, SKIP_WORD))


def strip_heartbeat_ack(
    text: str | None, *, heartbeat: bool, max_chars: int = ACK_MAX_CHARS
) -> HeartbeatAck:
    """Remove `HEARTBEAT_OK` from a reply; a rest of markup and punctuation alone is not sent."""
    found = strip_heartbeat_token(text, heartbeat=heartbeat, max_chars=max_chars)
    if found.found and not found.text.strip(DECORATION):
        return HeartbeatAck("", found=True, skip=True)
    return found


def strip_heartbeat_token(
    text: str | None, *, heartbeat: bool, max_chars: int = ACK_MAX_CHARS
) -> HeartbeatAck:
    """Remove `HEARTBEAT_OK` from the edges of a reply, or from those inside its markup.

    In a heartbeat's reply, a rest of at most `max_chars` characters is not sent either.
    """
    reply = (text or "").strip()
    if ACK_WORD not in reply:
        return HeartbeatAck(reply, found=False, skip=not reply)
    rest = _without_ack(reply, is_whole_word=not heartbeat)
    if not rest:
        bare = _MARKUP.sub(" ", reply).strip(_LIGHT).strip()
        inner = _without_ack(bare, is_whole_word=not heartbeat)
        rest = inner if inner is not None else rest
    if rest is None:
        return HeartbeatAck(reply, found=False, skip=False)
    skip = not rest or (heartbeat and utf16_len(rest) <= max(max_chars, 0))
    return HeartbeatAck("" if skip else rest, found=True, skip=skip)


def is_blank_checklist(text: str | None) -> bool:
    """Return whether a HEARTBEAT.md has only headings, blank lines and empty boxes."""
    return text is not None and all(_BLANK_LINE.fullmatch(line) for line in text.split("\n"))


def _without_ack(reply: str, *, is_whole_word: bool) -> str | None:
    """Return the text without the tokens at its edges; None when there are none.

    At most four characters after the last token are its punctuation, and stay. With
    `is_whole_word`, the first token must end at a word boundary: `HEARTBEAT_OKAY` only counts in a
    heartbeat's reply.
    """
    start, end, tail = 0, len(reply), ""
    searching = True
    first = _FIRST_ACK if is_whole_word else _ANY_ACK
    while searching:
        searching = False
        if found := first.match(reply, start, end):
            start, searching = found.end(), True
        window = reply[max(start, end - _MAX_ACK_CHARS) : end]
        last = _LAST_ACK.search(window)
        if last and utf16_len(last[1] + tail) <= _MAX_PUNCTUATION:
            tail = (last[1] + tail).lstrip()
            end -= len(window) - last.start()
            while end > start and reply[end - 1].isspace():
                end -= 1
            searching = True
    return (reply[start:end] + tail).strip() if (start, end) != (0, len(reply)) else None


@lru_cache(4)
def _edges(word: str) -> re.Pattern[str]:
    name = re.escape(word)
    return re.compile(rf"\A\s*{name}(?!\w)|(?<!\w){name}\W*\Z", re.ASCII)
