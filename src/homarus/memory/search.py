"""The ranking: candidates in, lines or passages out. Pure; every constant is in ADR 14.

A line is scored by the question's words in it and around it (an answer follows its question, so
lines before count most), by who says it, by the day it is of, by what kind of line it is, and by
vectors where there are any. The score is a log-odds, fitted on conversations: so a line's worth for
its length is the score less the logarithm of its length, and a passage's is the sum of its lines.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date
from functools import cache
from typing import Final, Literal, TypeAlias

from homarus.core.value import dataclass
from homarus.memory.flags import FIRST_PERSON, HEADING, QUESTION, TIME
from homarus.memory.question import Question

Mode: TypeAlias = Literal["lines", "passages"]

REACH: Final = 6  # lines to either side that count
_WINDOW = 2 * REACH + 1
_MASK = (1 << _WINDOW) - 1
_SELF = 1 << REACH
_NEAR: Final = {-2: 0.5, -1: 1.0, 0: 1.0, 1: 0.3}
_AROUND: Final = 3
_SATURATION: Final = 1.2
_SHORT_CHARS: Final = 20


@dataclass(frozen=True, slots=True)
class Weights:
    """What each ingredient counts."""

    near: float
    around: float
    wide: float
    rare: float
    speaker: float
    first_of_two: float
    day: float
    question: float
    first_person: float
    time: float
    length: float
    heading: float = -3.0
    vector: float = 0.0
    vector_beside: float = 0.0
    vector_around: float = 0.0

    def towards(self, other: "Weights", share: float) -> "Weights":
        """Weights between these and others: 0 is these, 1 is the others."""
        pairs = [(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)]
        return Weights(*(mine + share * (theirs - mine) for mine, theirs in pairs))


LEXICAL: Final = Weights(
    near=5.6, around=4.7, wide=4.8, rare=0.14, speaker=2.7, first_of_two=1.0, day=4.5,
    question=-0.8, first_person=0.6, time=2.1, length=-0.5,
)  # fmt: skip
WITH_VECTORS: Final = Weights(
    near=4.7, around=3.6, wide=3.8, rare=0.09, speaker=2.5, first_of_two=0.9, day=4.4,
    question=-0.65, first_person=0.6, time=2.1, length=-0.2,
    vector=4.4, vector_beside=1.7, vector_around=3.6,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """A candidate, as the index has it."""

    id: int
    note: int
    line: int
    start: int
    speaker: str
    flags: int
    section: int
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """The note a line is of."""

    path: str
    source: str
    day: date | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the question: how rare it is, and the lines that have it, a bit each."""

    stem: str
    idf: float
    bits: bytearray
    base: int

    def around(self, at: int) -> int:
        """Which of the lines around one have the word: the line itself is the middle bit."""
        low = at - self.base - REACH
        first = low >> 3
        return int.from_bytes(self.bits[first : first + 3], "little") >> (low & 7) & _MASK


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates, and what is known about the lines around them."""

    terms: Sequence[Term]
    lines: Mapping[int, Line]
    notes: Mapping[int, Found]
    sections: Mapping[int, int]  # a heading, and the one above it
    cosines: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A line and its worth."""

    score: float
    line: Line


def rank(question: Question, pool: Pool, weights: Weights) -> list[Ranked]:
    """Every candidate, best first. Equal ones stay in the order of the notes.

    None when nothing speaks for any of them: no word, no day, no person, no vector.
    """
    if not (pool.terms or pool.cosines or question.speakers or question.moments.spans):
        return []
    total = sum(term.idf for term in pool.terms) or 1.0
    tables = _tables(weights.near, weights.around, weights.wide)
    headed = {0: 0}
    days = {note: question.moments.score(found.day) for note, found in pool.notes.items()}
    order = sorted(pool.lines)
    under = [_under(pool.lines[at].section, pool, headed) for at in order]
    words, own = [0.0] * len(order), [0.0] * len(order)
    for number, term in enumerate(pool.terms):
        told = [bits >> number & 1 for bits in under]
        _count(term, order, tables, told, (words, own))
    ranked: list[Ranked] = []
    for at, around, inside in zip(order, words, own, strict=True):
        line = pool.lines[at]
        score = around / total + weights.rare * inside + weights.day * days[line.note]
        score += _kind(line, question, weights) + _person(line, question, weights)
        if pool.cosines:
            score += _meaning(at, pool.cosines, weights)
        ranked.append(Ranked(score, line))
    ranked.sort(key=lambda one: -one.score)
    return ranked


def _count(
    term: Term,
    order: Sequence[int],
    tables: tuple[Sequence[float], Sequence[float]],
    told: Sequence[int],
    sums: tuple[list[float], list[float]],
) -> None:
    """Add what one word counts for each line. The inmost loop: `Term.around`, written out."""
    plain, headed = tables
    words, own = sums
    bits, idf, back = term.bits, term.idf, term.base + REACH
    read = int.from_bytes
    for place, at in enumerate(order):
        low = at - back
        first = low >> 3
        pattern = read(bits[first : first + 3], "little") >> (low & 7) & _MASK
        if told[place]:
            words[place] += idf * headed[pattern]
        elif pattern:
            words[place] += idf * plain[pattern]
        if pattern & _SELF:
            own[place] += idf


def _under(section: int, pool: Pool, headed: dict[int, int]) -> int:
    """Which words of the question are in the headings above a line, a bit each."""
    known = headed.get(section)
    if known is not None:
        return known
    found = _under(pool.sections.get(section, 0), pool, headed)
    for number, term in enumerate(pool.terms):
        if term.around(section) >> REACH & 1:
            found |= 1 << number
    headed[section] = found
    return found


def _kind(line: Line, question: Question, weights: Weights) -> float:
    flags = line.flags
    score = weights.length * _log_length(len(line.text))
    if flags & QUESTION:
        score += weights.question
    if flags & FIRST_PERSON:
        score += weights.first_person
    if flags & TIME and question.asks_when:
        score += weights.time
    if flags & HEADING:
        score += weights.heading
    return score


@cache
def _log_length(chars: int) -> float:
    return math.log(max(chars, _SHORT_CHARS) / 100)


def _person(line: Line, question: Question, weights: Weights) -> float:
    """Whom the question is about says it; in a line that nobody says, is named in it."""
    if not question.speakers:
        return 0.0
    weight = weights.speaker if len(question.speakers) == 1 else weights.first_of_two
    if line.speaker:
        return weight if line.speaker in question.speakers[0] else 0.0
    return weight if question.names[0] in line.text.lower() else 0.0


def _meaning(at: int, cosines: Mapping[int, float], weights: Weights) -> float:
    get = cosines.get
    around = [near for near in map(get, range(at - _AROUND, at + _AROUND + 1)) if near is not None]
    if not around:
        return 0.0
    beside = (get(at - 1, 0.0) + get(at + 1, 0.0)) / 2
    mean = sum(around) / len(around)
    own = get(at, 0.0)
    return weights.vector * own + weights.vector_beside * beside + weights.vector_around * mean


@cache
def _tables(near: float, around: float, wide: float) -> tuple[list[float], list[float]]:
    """What each pattern of a word around a line counts; the second: a heading has it too."""
    plain: list[float] = []
    headed: list[float] = []
    close = sum(1 << REACH + away for away in range(-_AROUND, _AROUND + 1))
    for pattern in range(1 << _WINDOW):
        beside = sum(share for away, share in _NEAR.items() if pattern >> REACH + away & 1)
        few, many = (pattern & close).bit_count(), pattern.bit_count()
        for table, more in ((plain, 0.0), (headed, 1.0)):
            table.append(
                near * _filled(beside + more / 2)
                + around * _filled(few + more)
                + wide * _filled(many + more)
            )
    return plain, headed


def _filled(number: float) -> float:
    return number / (number + _SATURATION)
