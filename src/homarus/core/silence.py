"""The words by which a model says that there is nothing to say: `NO_REPLY` and `HEARTBEAT_OK`.

They come in from models and old transcripts; what they mean leaves here as a value. A word counts
where it stands alone, with a little markup around it. Pure, and linear in the text.
"""

import re
from functools import lru_cache

from homarus.core.value import dataclass

SILENT_WORD = "NO_REPLY"
ACK_WORD = "HEARTBEAT_OK"
ACK_MAX_CHARS = 30

DECORATION = " \t\r\n*_`~\"'.!"
_MARKUP = re.compile(r"<[^<>]{0,80}>|&nbsp;")
_LIGHT = "*`~_"
_MOST_WORDS = 4  # at the edges of one reply
_BLANK_LINE = re.compile(r"\s*(?:#{1,6}(?:\s.*)?|[-*+]\s*(?:\[[ xX]?\]\s*)?)?")


@dataclass(frozen=True, slots=True)
class Ack:
    """A reply without its `HEARTBEAT_OK`. `found`: it was there; `skip`: nothing is to be sent."""

    text: str
    found: bool
    skip: bool


def is_silent_text(text: str, word: str = SILENT_WORD) -> bool:
    """Whether a text begins or ends with the word: enough where nobody waits for an answer."""
    return bool(word) and word in text and _edges(word).search(text) is not None


def may_be_silent(text: str) -> bool:
    """Whether a text that is still being written could turn out to be one of the words alone."""
    said = text.strip(DECORATION)
    return SILENT_WORD.startswith(said) or ACK_WORD.startswith(said)


def strip_ack(text: str | None, *, heartbeat: bool, max_chars: int = ACK_MAX_CHARS) -> Ack:
    """Take `HEARTBEAT_OK` off the edges of a reply.

    In a heartbeat's reply, what is left is not sent either when it is no longer than `max_chars`.
    """
    said = (text or "").strip()
    if ACK_WORD not in said:
        return Ack(said, found=False, skip=not said)
    left = _without_ack(said, whole=not heartbeat)
    if left is None:
        bare = _MARKUP.sub(" ", said).strip().strip(_LIGHT)
        left = _without_ack(bare, whole=not heartbeat)
        if left and not heartbeat:  # an answer keeps its markup
            left = None
    if left is None:
        return Ack(said, found=False, skip=False)
    skip = not left.strip(DECORATION) or (heartbeat and len(left) <= max_chars)
    return Ack("" if skip else left, found=True, skip=skip)


def is_blank_checklist(text: str | None) -> bool:
    """Whether a HEARTBEAT.md asks for nothing: headings, blank lines and empty boxes only."""
    return text is not None and all(_BLANK_LINE.fullmatch(line) for line in text.split("\n"))


def _without_ack(said: str, *, whole: bool) -> str | None:
    """The text without the word at its edges; None when it stands at neither.

    `whole`: only as a word of its own. `HEARTBEAT_OKAY` is none, but in a heartbeat's reply it
    means the same.
    """
    left = said
    for _ in range(_MOST_WORDS):
        found = _ack_edges(whole=whole).search(left)
        if not found:
            break
        left = (left[: found.start()] + left[found.end() :]).strip()
    return None if left == said else left


@lru_cache(4)
def _edges(word: str) -> re.Pattern[str]:
    name = re.escape(word)
    return re.compile(rf"\A\s*{name}(?!\w)|(?<!\w){name}\W*\Z")


@lru_cache(2)
def _ack_edges(*, whole: bool) -> re.Pattern[str]:
    after = r"(?!\w)" if whole else ""
    return re.compile(rf"\A{ACK_WORD}{after}|(?<!\w){ACK_WORD}[^\w\s]{{0,4}}\Z")
