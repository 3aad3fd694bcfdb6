"""A second look, for questions whose answer stands in several places.

What two people share, or all of something, is told in lines that have little in common with the
question and more with each other. So the names in the first hits are looked for, and lines that
have them come a little earlier; never before what is shown first anyway.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from homarus.memory.question import Question
from homarus.memory.search import LEXICAL, Pool, Ranked, rank
from homarus.memory.words import stemmer, stop_stems

KEPT_CHARS: Final = 1_500  # of the first hits, which stay where they are
FIRST_HITS: Final = 8
MOST_NAMES: Final = 8
WEIGHT: Final = 1.0
_FADES_OVER: Final = 8.0  # how far below the best a line has nothing of it any more
_TELLS_FROM: Final = 0.7  # of the weight: enough for a line that nothing else speaks for
_LEAST_CHARS: Final = 3

_PLURAL = r"(?!(?:is|was|does|has|this)\b)\w{3,}s\b"
_BETWEEN = r"(?:(?!(?:is|was|are|does|did|has)\b)\w+\s+){0,2}?"
_MANY = re.compile(
    rf"\b(?:what|which)\s+{_BETWEEN}{_PLURAL}|\b(?:how many|all|both|list|welche|alle|beide)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<=[\w,;:'’)] )[^\W\d_a-z][\w'’-]+")  # not the first word of a sentence


def asks_for_many(question: Question) -> bool:
    """Whether several lines may be the answer: two people, or all of something."""
    return len(question.speakers) > 1 or bool(_MANY.search(question.text))


def look_again(
    question: Question,
    pool: Pool,
    order: Callable[[Pool], list[Ranked]],
    gather: Callable[[Question], Pool],
) -> list[Ranked]:
    """The ranking (`order`) with what the names in its first hits lead to.

    `gather` finds candidates for another question.
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


def _raised(one: Ranked, bonus: float) -> Ranked:
    is_told = one.is_told or bonus >= _TELLS_FROM * WEIGHT
    return Ranked(one.score + bonus, one.line, is_told)


def _kept(ranked: Sequence[Ranked]) -> int:
    """How many of the first are shown whatever a second look finds."""
    chars = 0
    for number, one in enumerate(ranked):
        chars += len(one.line.text)
        if chars > KEPT_CHARS:
            return number
    return len(ranked)


def _names(ranked: Sequence[Ranked], question: Question) -> tuple[str, ...]:
    """Stems of the names in some lines, the most frequent first; not those of the question."""
    stem = stemmer()
    known = {*question.terms, *stop_stems(), *stem(" ".join(question.names))}
    found = Counter[str]()
    for one in ranked:
        said = one.line.text.split(":", 1)[-1]  # who says it is not what is said
        names = " ".join(name[0] for name in _NAME.finditer(said))
        found.update(part for part in stem(names) if len(part) >= _LEAST_CHARS)
    return tuple(part for part, _ in found.most_common() if part not in known)[:MOST_NAMES]
