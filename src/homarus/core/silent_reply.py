"""Recognise the tokens with which a model declines to reply: `NO_REPLY` and `HEARTBEAT_OK`.

A token counts at the edge of a reply, with a little markup around it. Linear in the text.
"""

import re
from functools import lru_cache

from homarus.core.fast_dataclass import dataclass

SILENT_WORD = "NO_REPLY"
ACK_WORD = "HEARTBEAT_OK"
ACK_MAX_CHARS = 30

DECORATION = " \t\r\n*_`~\"'.!"
_MARKUP = re.compile(r"<[^<>]{0,80}>|&nbsp;")
_LIGHT = "*`~_"
_MAX_TOKENS = 4  # at the edges of one reply
_BLANK_LINE = re.compile(r"\s*(?:#{1,6}(?:\s.*)?|[-*+]\s*(?:\[[ xX]?\]\s*)?)?")


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
    return word.startswith(bare) or ACK_WORD.startswith(bare)


def strip_heartbeat_ack(
    text: str | None, *, heartbeat: bool, max_chars: int = ACK_MAX_CHARS
) -> HeartbeatAck:
    """Remove `HEARTBEAT_OK` from the edges of a reply.

    In a heartbeat's reply, a rest of at most `max_chars` characters is not sent either.
    """
    reply = (text or "").strip()
    if ACK_WORD not in reply:
        return HeartbeatAck(reply, found=False, skip=not reply)
    rest = _without_ack(reply, is_whole_word=not heartbeat)
    if rest is None:
        bare = _MARKUP.sub(" ", reply).strip().strip(_LIGHT)
        rest = _without_ack(bare, is_whole_word=not heartbeat)
        if rest and not heartbeat:  # a reply keeps its markup
            rest = None
    if rest is None:
        return HeartbeatAck(reply, found=False, skip=False)
    skip = not rest.strip(DECORATION) or (heartbeat and len(rest) <= max_chars)
    return HeartbeatAck("" if skip else rest, found=True, skip=skip)


def is_blank_checklist(text: str | None) -> bool:
    """Return whether a HEARTBEAT.md has only headings, blank lines and empty boxes."""
    return text is not None and all(_BLANK_LINE.fullmatch(line) for line in text.split("\n"))


def _without_ack(reply: str, *, is_whole_word: bool) -> str | None:
    """Return the text without the token at its edges; None when it is at neither.

    With `is_whole_word`, the token must end at a word boundary: `HEARTBEAT_OKAY` only counts in a
    heartbeat's reply.
    """
    rest = reply
    for _ in range(_MAX_TOKENS):
        found = _ack_edges(is_whole_word=is_whole_word).search(rest)
        if not found:
            break
        rest = (rest[: found.start()] + rest[found.end() :]).strip()
    return None if rest == reply else rest


@lru_cache(4)
def _edges(word: str) -> re.Pattern[str]:
    name = re.escape(word)
    return re.compile(rf"\A\s*{name}(?!\w)|(?<!\w){name}\W*\Z")


@lru_cache(2)
def _ack_edges(*, is_whole_word: bool) -> re.Pattern[str]:
    after = r"(?!\w)" if is_whole_word else ""
    return re.compile(rf"\A{ACK_WORD}{after}|(?<!\w){ACK_WORD}[^\w\s]{{0,4}}\Z")
