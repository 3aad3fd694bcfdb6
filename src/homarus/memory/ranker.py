"""Rank candidates into lines or passages. Pure; every constant is explained in ADR 14.

A line is scored by the query's words in it and around it (an answer follows its question, so lines
before count most), by related words, by its speaker, its date and its kind, and by vectors where
there are any. The score is a log-odds, fitted on conversations: the value of a line for its length
is the score less the logarithm of its length, and that of a passage is the sum over its lines.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date
from functools import cache
from typing import Final, Literal, NamedTuple, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.memory.flags import FIRST_PERSON, HEADING, QUESTION, TIME
from homarus.memory.query import ParsedQuery, fold

ResultMode: TypeAlias = Literal["lines", "passages"]

REACH: Final = 6  # lines on either side that count
_WINDOW = 2 * REACH + 1
_MASK = (1 << _WINDOW) - 1
_SELF = 1 << REACH
_NEAR: Final = {-2: 0.5, -1: 1.0, 0: 1.0, 1: 0.3}
_AROUND: Final = 3
_CLOSE = sum(1 << REACH + away for away in range(-_AROUND, _AROUND + 1))
_SATURATION: Final = 1.2
_SHORT_CHARS: Final = 20
_RUN_LINES = 24
_TINY = 1e-6
_ABSENT: Final = 0.5  # share of the words that no line has, in the scale of scores
MIN_COSINE: Final = 0.3  # of a line without any other evidence
_RECENT_DAYS: Final = 30.0  # the half-life of recency, when a question asks for recent notes


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """The weight of each feature."""

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
    related: float
    related_around: float
    phrase: float = 0.2
    quoted: float = 30.0  # a quoted phrase ranks before everything else
    recent: float = 0.5
    heading: float = -3.0
    vector: float = 0.0
    vector_beside: float = 0.0
    vector_around: float = 0.0
    slope: float = 1.0  # of the logistic in `score_to_probability`
    offset: float = 0.0

    def towards(self, other: "RankingWeights", share: float) -> "RankingWeights":
        """Interpolate between these weights (0) and others (1)."""
        pairs = [(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)]
        return RankingWeights(*(mine + share * (theirs - mine) for mine, theirs in pairs))


LEXICAL: Final = RankingWeights(
    near=7.8, around=3.0, wide=4.0, rare=0.13, speaker=2.7, first_of_two=1.05, day=5.5,
    question=-0.8, first_person=0.65, time=2.4, length=-0.75, related=0.25, related_around=2.0,
    slope=0.56, offset=6.9,
)  # fmt: skip
WITH_VECTORS: Final = RankingWeights(
    near=7.2, around=1.7, wide=3.3, rare=0.07, speaker=2.45, first_of_two=1.0, day=5.3,
    question=-0.65, first_person=0.65, time=2.4, length=-0.3, related=0.18, related_around=1.2,
    vector=4.4, vector_beside=0.45, vector_around=5.4, slope=0.64, offset=4.2,
)  # fmt: skip


class CandidateLine(NamedTuple):
    """A candidate line of the index. A tuple, because hundreds are made for every query."""

    id: int
    note: int
    line: int
    start: int
    speaker: str
    flags: int
    section: int
    text: str


@dataclass(frozen=True, slots=True)
class NoteInfo:
    """The note of a line."""

    path: str
    source: str
    day: date | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word of the query: how rare it is, and the lines that have it, one bit each.

    `related` are the lines that have a related word instead.
    """

    stem: str
    idf: float
    bits: bytearray
    related_idf: float = 0.0
    related: bytearray | None = None

    def around(self, at: int) -> int:
        """Return which of the lines around one have the word; the line itself is the middle bit."""
        low = at - REACH
        first = low >> 3
        return int.from_bytes(self.bits[first : first + 3], "little") >> (low & 7) & _MASK


@dataclass(frozen=True, slots=True)
class CandidatePool:
    """The candidates, and what is known about the lines around them."""

    terms: Sequence[QueryTerm]
    lines: Mapping[int, CandidateLine]
    notes: Mapping[int, NoteInfo]
    sections: Mapping[int, int]  # heading → the heading above it
    cosines: Mapping[int, float]
    missing: float = 0.0  # the rarity of all query words that no line has


class RankedLine(NamedTuple):
    """A line, its score, and whether anything but its kind speaks for it."""

    score: float
    line: CandidateLine
    is_told: bool = True


class _LineSpan(NamedTuple):
    """Consecutive candidates: their positions in the order, and where their bits are.

    The bits are those of the lines and of `REACH` more before and after, the first one's lowest.
    """

    start: int
    end: int
    first: int
    last: int
    shift: int
    mask: int


def max_score(question: ParsedQuery, pool: CandidatePool, weights: RankingWeights) -> float:
    """Return the score of a line with every word of the query, in it and all around it.

    Words are weighed among those that some line has: half the share of the others is added here.
    """
    score = 0.0
    if question.terms:
        score += weights.near * _filled(sum(_NEAR.values()))
        score += weights.around * _filled(2 * _AROUND + 1) + weights.wide * _filled(_WINDOW)
        known = sum(term.idf for term in pool.terms)
        if known:
            score *= 1 + _ABSENT * pool.missing / (known + pool.missing)
        score += weights.rare * known
    if question.speakers:
        score += weights.speaker if len(question.speakers) == 1 else weights.first_of_two
    if question.times.spans:
        score += weights.day
    return score + weights.quoted * len(question.phrases)


def score_to_probability(short: float, weights: RankingWeights) -> float:
    """Return the probability that a line is the answer, by its distance from the maximum score.

    The scale is the same for all queries, so that one minimum score can hold for them.
    """
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, weights.offset - weights.slope * short))))


def rank(
    question: ParsedQuery, pool: CandidatePool, weights: RankingWeights, half_life_days: float = 0.0
) -> list[RankedLine]:
    """Return every candidate, best first; equal ones in the order of the notes.

    `is_told` says that there is evidence: a word in the line or near it, a related word, a phrase,
    the date, the person, a near vector. Lines without it are no answer. A half-life lowers the
    probability of old lines.
    """
    asked = pool.terms or question.phrases or question.speakers or question.times.spans
    if not (asked or pool.cosines):
        return []
    total = sum(term.idf for term in pool.terms) or 1.0
    order = sorted(pool.lines)
    words, own = _count_words(pool, order, weights, total)
    days = _days(question, pool, weights, half_life_days)
    ranked: list[RankedLine] = []
    pair = sum(sorted(term.idf for term in pool.terms)[:2]) - _TINY  # of a line with two words
    kinds: dict[int, float] = {}
    for at, around, inside in zip(order, words, own, strict=True):
        line = pool.lines[at]
        kind = kinds.get(line.flags)
        if kind is None:
            kind = kinds[line.flags] = _kind(line.flags, question, weights)
        told = _person(line, question, weights) if question.speakers else 0.0
        if question.phrases or (inside >= pair and question.pairs):
            told += _phrased(line, question, weights)
        day, aged = days[line.note]
        score = around / total + weights.rare * inside + day + aged + told + kind
        score += weights.length * _log_length(len(line.text))
        is_told = bool(around or told or day)
        if pool.cosines:
            score += _meaning(at, pool.cosines, weights)
            is_told = is_told or pool.cosines.get(at, 0.0) >= MIN_COSINE
        if line.flags & HEADING:  # a heading alone is an answer only if it has the very word
            is_told = inside > 0
        ranked.append(RankedLine(score, line, is_told))
    ranked.sort(key=lambda one: -one.score)
    return ranked


def _count_words(
    pool: CandidatePool, order: Sequence[int], weights: RankingWeights, total: float
) -> tuple[list[float], list[float]]:
    """Return for each line the score of the words in and around it, and the rarity of its own."""
    words, own = [0.0] * len(order), [0.0] * len(order)
    tables = _tables(weights.near, weights.around, weights.wide)
    headed = {0: 0}
    under = [_under(pool.lines[at].section, pool, headed) for at in order if pool.sections]
    is_headed = any(headed.values())
    runs = list(_runs(order))
    for number, term in enumerate(pool.terms):
        if is_headed:
            has = [bits >> number & 1 for bits in under]
            _count_headed(term, order, tables, has, words)
        _count(term, runs, tables[0], (words, own))
        if term.related is not None:
            inside = (
                term.related_idf * weights.related * total
            )  # the sum is divided by the total later
            _count_related(
                term.related, runs, (inside, term.related_idf * weights.related_around), words
            )
    return words, own


def _runs(order: Sequence[int]) -> Iterator[_LineSpan]:
    """Return runs of consecutive lines, so that the bits of a word are read once for each run."""
    start = 0
    for place in range(1, len(order) + 1):
        whole = place == len(order) or order[place] != order[place - 1] + 1
        if whole or place - start == _RUN_LINES:
            low, number = order[start] - REACH, place - start + 2 * REACH
            yield _LineSpan(
                start, place, low >> 3, (low + number >> 3) + 1, low & 7, (1 << number) - 1
            )
            start = place


def _count(
    term: QueryTerm,
    runs: Iterable[_LineSpan],
    table: Sequence[float],
    sums: tuple[list[float], list[float]],
) -> None:
    """Add the score of one word to each line."""
    words, own = sums
    idf = term.idf
    bits, read = term.bits, int.from_bytes
    for start, end, first, last, shift, mask in runs:
        held = read(bits[first:last], "little") >> shift & mask
        place = start
        while held and place < end:  # the innermost loop
            pattern = held & _MASK
            if pattern:
                words[place] += idf * table[pattern]
                if pattern & _SELF:
                    own[place] += idf
            held >>= 1
            place += 1


def _count_headed(
    term: QueryTerm,
    order: Sequence[int],
    tables: tuple[Sequence[float], Sequence[float]],
    told: Sequence[int],
    words: list[float],
) -> None:
    """Add what a word counts more where a heading above the line has it."""
    plain, headed = tables
    for place, at in enumerate(order):
        if told[place]:
            pattern = term.around(at)
            words[place] += term.idf * (headed[pattern] - plain[pattern])


def _count_related(
    bits: bytearray, runs: Iterable[_LineSpan], worth: tuple[float, float], words: list[float]
) -> None:
    """Add the score of related words: in the line, and around it."""
    inside, around = worth
    table = [around * _filled(few) for few in range(2 * _AROUND + 2)]
    read = int.from_bytes
    for start, end, first, last, shift, mask in runs:
        held = read(bits[first:last], "little") >> shift & mask
        place = start
        while held and place < end:
            pattern = held & _CLOSE
            if pattern:
                words[place] += table[pattern.bit_count()]
                if pattern & _SELF:
                    words[place] += inside
            held >>= 1
            place += 1


def _days(
    question: ParsedQuery, pool: CandidatePool, weights: RankingWeights, half_life_days: float
) -> dict[int, tuple[float, float]]:
    """Return the score of each note's date: whether the query asks for it, and its age."""
    newest = None
    if question.asks_recent or half_life_days:
        newest = max((found.day for found in pool.notes.values() if found.day), default=None)
    counted: dict[int, tuple[float, float]] = {}
    for note in {line.note for line in pool.lines.values()}:
        day = pool.notes[note].day
        age = (newest - day).days if newest and day else 0
        aged = 0.0
        if question.asks_recent:
            aged += weights.recent * 0.5 ** (age / _RECENT_DAYS)
        if half_life_days:
            aged -= math.log(2) * age / half_life_days
        counted[note] = (weights.day * question.times.score(day), aged)
    return counted


def _phrased(line: CandidateLine, question: ParsedQuery, weights: RankingWeights) -> float:
    """Score words in the order of the query; quoted phrases decide."""
    score = 0.0
    if question.phrases:
        text = fold(line.text)
        score = weights.quoted * sum(phrase in text for phrase in question.phrases)
    if question.pairs:
        text = line.text.lower()
        beside = sum([pair in text for pair in question.pairs])
        score += weights.phrase * beside / len(question.pairs)
    return score


def _under(section: int, pool: CandidatePool, headed: dict[int, int]) -> int:
    """Return which query words are in the headings above a line, one bit each."""
    known = headed.get(section)
    if known is not None:
        return known
    found = _under(pool.sections.get(section, 0), pool, headed)
    for number, term in enumerate(pool.terms):
        if term.around(section) >> REACH & 1:
            found |= 1 << number
    headed[section] = found
    return found


def _kind(flags: int, question: ParsedQuery, weights: RankingWeights) -> float:
    score = 0.0
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


def _person(line: CandidateLine, question: ParsedQuery, weights: RankingWeights) -> float:
    """Score a line that the person in question speaks, or that names them if it has no speaker."""
    weight = weights.speaker if len(question.speakers) == 1 else weights.first_of_two
    if line.speaker:
        return weight if line.speaker in question.speakers[0] else 0.0
    return weight if question.names[0] in line.text.lower() else 0.0


def _meaning(at: int, cosines: Mapping[int, float], weights: RankingWeights) -> float:
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
    """Return the score of each pattern of a word around a line, without and with a heading."""
    plain: list[float] = []
    headed: list[float] = []
    for pattern in range(1 << _WINDOW):
        beside = sum(share for away, share in _NEAR.items() if pattern >> REACH + away & 1)
        few, many = (pattern & _CLOSE).bit_count(), pattern.bit_count()
        for table, more in ((plain, 0.0), (headed, 1.0)):
            table.append(
                near * _filled(beside + more / 2)
                + around * _filled(few + more)
                + wide * _filled(many + more)
            )
    return plain, headed


def _filled(number: float) -> float:
    return number / (number + _SATURATION)
