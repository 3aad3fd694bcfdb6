"""Relevance feedback for questions with several answers.

What two people share, or a complete list of something, is told in lines that have little in common
with the question and more with each other. Therefore lines with the names in the first hits are
ranked somewhat higher; never above the first results.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from homarus.memory.query import ParsedQuery
from homarus.memory.ranker import LEXICAL, CandidatePool, RankedLine, rank
from homarus.memory.stems import stemmer, stop_stems

FIXED_RANK_CHARS: Final = 1_500  # of the first hits, which keep their ranks
FIRST_HITS: Final = 8
MAX_NAMES: Final = 8
WEIGHT: Final = 1.0
_FADES_OVER: Final = 8.0  # distance below the best score at which the bonus is zero
_MIN_BONUS_SHARE: Final = 0.7  # share of the weight that suffices for a line without other evidence
_MIN_CHARS: Final = 3

_PLURAL = r"(?!(?:is|was|does|has|this)\b)\w{3,}s\b"
_BETWEEN = r"(?:(?!(?:is|was|are|does|did|has)\b)\w+\s+){0,2}?"
_MANY = re.compile(
    rf"\b(?:what|which)\s+{_BETWEEN}{_PLURAL}|\b(?:how many|all|both|list|welche|alle|beide)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<=[\w,;:'’)] )[^\W\d_a-z][\w'’-]+")  # not the first word of a sentence


def expects_many_answers(question: ParsedQuery) -> bool:
    """Return whether several lines may be the answer: two people, or a list of something."""
    return len(question.speakers) > 1 or bool(_MANY.search(question.text))


def rerank_by_feedback(
    question: ParsedQuery,
    pool: CandidatePool,
    order: Callable[[CandidatePool], list[RankedLine]],
    gather: Callable[[ParsedQuery], CandidatePool],
) -> list[RankedLine]:
    """Rank with `order`, then raise lines with the names in the first hits.

    `gather` returns the candidates for another query.
    """
    ranked = order(pool)
    names = _names(ranked[:FIRST_HITS], question)
    if not names:
        return ranked
    other = replace(question, terms=names, phrases=(), pairs=(), asks_when=False)
    found = gather(other)
    lines = {**found.lines, **pool.lines}
    second = rank(other, replace(found, lines=lines), LEXICAL)
    if len(lines) > len(pool.lines):
        ranked = order(replace(pool, lines=lines))
    first = _kept(ranked)
    nearest = second[0].score if second else 0.0
    more = {one.line.id: _bonus(nearest - one.score) for one in second if one.is_told}
    rest = [_raised(one, more.get(one.line.id, 0.0)) for one in ranked[first:]]
    rest.sort(key=lambda one: -one.score)
    return [*ranked[:first], *rest]


def _bonus(below: float) -> float:
    return WEIGHT * max(0.0, 1 - below / _FADES_OVER)


def _raised(one: RankedLine, bonus: float) -> RankedLine:
    is_told = one.is_told or bonus >= _MIN_BONUS_SHARE * WEIGHT
    return RankedLine(one.score + bonus, one.line, is_told)


def _kept(ranked: Sequence[RankedLine]) -> int:
    """Return how many of the first results keep their ranks."""
    chars = 0
    for number, one in enumerate(ranked):
        chars += len(one.line.text)
        if chars > FIXED_RANK_CHARS:
            return number
    return len(ranked)


def _names(ranked: Sequence[RankedLine], question: ParsedQuery) -> tuple[str, ...]:
    """Return the stems of names in some lines, the most frequent first, without the query's own."""
    stem = stemmer()
    known = {*question.terms, *stop_stems(), *stem(" ".join(question.names))}
    found = Counter[str]()
    for one in ranked:
        said = one.line.text.split(":", 1)[-1]  # without the speaker
        names = " ".join(name[0] for name in _NAME.finditer(said))
        found.update(part for part in stem(names) if len(part) >= _MIN_CHARS)
    return tuple(part for part, _ in found.most_common() if part not in known)[:MAX_NAMES]
