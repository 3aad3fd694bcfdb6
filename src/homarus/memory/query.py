"""Parse a query for the ranking: content stems, names, dates."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import pairwise
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.memory.stems import STOP_WORDS, content_stems, stemmer, stop_stems
from homarus.memory.time_expressions import TimeExpressions, parse_time_expressions

MIN_SPEAKER_LINES: Final = 3  # lines; a key such as `Wifi: …` is no speaker

_WORD = re.compile(r"[^\W_][\w'’-]*")
_ASKS_WHEN = re.compile(
    r"\b(?:when|how long|what (?:day|date|month|year|time)|wann|cuándo|quand)\b"
)
_ASKS_RECENT = re.compile(
    r"\b(?:latest|newest|most recent(?:ly)?|last time|recently|lately|current(?:ly)?|right now"
    r"|these days|nowadays|at the moment|zuletzt|neueste[nrs]?|derzeit|aktuell)\b"
)
_QUOTED = re.compile(r'"([^"\n]+)"|“([^”\n]+)”|„([^“”\n]+)[“”]|«([^»\n]+)»|「([^」\n]+)」')
_MAX_TERMS = 24
_MAX_PHRASES = 8


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed query; `speakers` are those of the notes that it names, in its order.

    `phrases` are in quotation marks, `pairs` are adjacent words; both are folded.
    """

    text: str
    terms: tuple[str, ...]
    speakers: tuple[frozenset[str], ...]
    names: tuple[str, ...]
    times: TimeExpressions
    asks_when: bool
    asks_recent: bool = False
    phrases: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()


def fold(text: str) -> str:
    """Return a text as phrases are compared: lowercase, one space between words."""
    return " ".join(text.casefold().split())


def parse_query(
    text: str, speakers: Mapping[str, frozenset[str]], years: Iterable[int], now: date | None = None
) -> ParsedQuery:
    """Parse a query; `speakers` as `speakers_by_word` returns them."""
    moments = parse_time_expressions(text, years, now)
    words = [word[0].lower() for word in _WORD.finditer(moments.rest)]
    bare = [word.removesuffix("'s").removesuffix("’s") for word in words]
    names = [word for word in dict.fromkeys(bare) if word in speakers and word not in STOP_WORDS]
    stem = stemmer()
    hidden = {part for name in names for part in stem(name)}
    stems = dict.fromkeys(content_stems(moments.rest))
    terms = [part for part in stems if part not in hidden] or list(stems)
    if not terms:  # only stop words, or a date: better those than nothing
        terms = [part for part in dict.fromkeys(stem(text)) if part not in stop_stems()]
    return ParsedQuery(
        text,
        tuple(terms[:_MAX_TERMS]),
        tuple(speakers[name] for name in names),
        tuple(names),
        moments,
        bool(_ASKS_WHEN.search(text.lower())),
        bool(_ASKS_RECENT.search(text.lower())),
        _phrases(text),
        tuple(_pairs(words, {*names} | STOP_WORDS)),
    )


def _phrases(text: str) -> tuple[str, ...]:
    """Return the quoted phrases that contain a word."""
    found = (fold(next(filter(None, one.groups()))) for one in _QUOTED.finditer(text))
    return tuple(dict.fromkeys(one for one in found if _WORD.search(one)))[:_MAX_PHRASES]


def _pairs(words: list[str], silent: set[str]) -> Iterator[str]:
    """Return the adjacent pairs of content words."""
    for one, other in pairwise(words):
        if one not in silent and other not in silent:
            yield f"{one} {other}"


def speakers_by_word(spoken: Mapping[str, int]) -> dict[str, frozenset[str]]:
    """Return the speakers that a word may mean: by their full name, and by its first word."""
    found: dict[str, set[str]] = {}
    for name, lines in spoken.items():
        if lines >= MIN_SPEAKER_LINES:
            found.setdefault(name, set()).add(name)
            found.setdefault(name.split()[0], set()).add(name)
    return {word: frozenset(names) for word, names in found.items()}
