"""Turn ranked lines into results: verbatim lines of a file within the limits of a response."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.memory import hybrid_scoring
from homarus.memory.chunking import NoteChunk
from homarus.memory.hybrid_scoring import Hit
from homarus.memory.ranker import CandidateLine, NoteInfo, RankedLine

MAX_RESULTS: Final = 6
MAX_LINE_CHARS: Final = 1_400  # of a result in the mode `lines`
MAX_PASSAGE_CHARS: Final = 1_400  # six of them are 8,400
MAX_CHARS: Final = 1_500  # of a result, whatever the caller asks for
_MERGE_BACK = 2  # a line joins its neighbour if that is one of the last so many results
_AGAIN = 0.7  # log-odds that a second passage of the same note loses
_EPSILON = 1e-9
_MAX_MATCHES = 40  # of one word in one line
_MIN_CHARS = 80  # of a last result that is cut to fit


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """The limits of a response: number, size and minimum score of results."""

    max_results: int = MAX_RESULTS
    max_chars: int = MAX_LINE_CHARS
    budget_chars: int | None = None
    min_score: float | None = None

    @property
    def chars(self) -> int:
        return max(1, min(self.max_chars, MAX_CHARS))

    @property
    def budget(self) -> float:
        return math.inf if self.budget_chars is None else self.budget_chars

    def takes(self, score: float) -> bool:
        return self.min_score is None or score >= self.min_score


Scale: TypeAlias = Callable[[float], float]  # maps a log-odds to a score from 0 to 1


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A search result; `snippet` is verbatim text of those lines of the file."""

    path: str
    start_line: int
    end_line: int
    snippet: str
    score: float
    source: str = "memory"

    @property
    def citation(self) -> str:
        last = f"-L{self.end_line}" if self.end_line != self.start_line else ""
        return f"{self.path}#L{self.start_line}{last}"


def centre(text: str, words: Collection[str], max_chars: int) -> str:
    """Return as much of a text as fits, around the matched words."""
    if len(text) <= max_chars:
        return text
    low = text.lower() if len(text.lower()) == len(text) else text
    found = [(one.start(), word) for word in words for one in _matches(word, low)]
    best, span = 0, (0, 0)
    for start, _ in sorted(found):
        inside = [(at, word) for at, word in found if start <= at <= start + max_chars - len(word)]
        if len({word for _, word in inside}) > best:
            best = len({word for _, word in inside})
            span = (start, max(at + len(word) for at, word in inside))
    first = (span[0] + span[1] - max_chars) // 2 if best else 0
    first = max(0, min(first, len(text) - max_chars))
    return text[first : first + max_chars]


def _matches(word: str, low: str) -> Iterator[re.Match[str]]:
    return islice(re.finditer(re.escape(word), low), _MAX_MATCHES) if word else iter(())


@dataclass(slots=True)
class _AdjacentLines:
    """Adjacent lines that become one result."""

    lines: list[CandidateLine]
    score: float
    chars: int
    cut: str = ""

    def takes(self, line: CandidateLine, max_chars: float) -> bool:
        """Add the line at one end if it is adjacent and fits."""
        if self.cut or self.chars + 1 + len(line.text) > max_chars:
            return False
        if _follows(self.lines[-1], line):
            self.lines.append(line)
        elif _follows(line, self.lines[0]):
            self.lines.insert(0, line)
        else:
            return False
        self.chars += 1 + len(line.text)
        return True


def _follows(one: CandidateLine, other: CandidateLine) -> bool:
    if other.id != one.id + 1 or other.note != one.note:
        return False
    if other.line == one.line:
        return other.start == one.start + len(one.text)
    return other.line == one.line + 1 and not other.start


def show_lines(
    ranked: Sequence[RankedLine],
    notes: Mapping[int, NoteInfo],
    room: ResultLimits,
    scale: Scale,
    words: Collection[str] = (),
) -> list[SearchResult]:
    """Return the best lines with neighbours joined, up to the limits."""
    runs: list[_AdjacentLines] = []
    left = room.budget
    for one in ranked:
        line, chars = one.line, len(one.line.text)
        if left <= 0 or not room.takes(scale(one.score)):
            break
        joins = 1 + chars <= left
        if joins and any(run.takes(line, room.chars) for run in runs[-_MERGE_BACK:]):
            left -= 1 + chars
            continue
        if len(runs) == room.max_results:
            break
        max_chars = int(min(room.chars, left))
        if chars > max_chars and runs and max_chars < min(_MIN_CHARS, room.chars):
            break
        shown = centre(line.text, words, max_chars)
        runs.append(
            _AdjacentLines([line], scale(one.score), len(shown), shown if chars > max_chars else "")
        )
        left -= len(shown)
    return [_result(run, notes[run.lines[0].note]) for run in runs]


def _result(run: _AdjacentLines, found: NoteInfo) -> SearchResult:
    parts = [run.cut or run.lines[0].text]
    for before, line in zip(run.lines, run.lines[1:], strict=False):
        parts.append(line.text if line.line == before.line else f"\n{line.text}")
    first, last = run.lines[0].line, run.lines[-1].line
    return SearchResult(found.path, first, last, "".join(parts), run.score, found.source)


@dataclass(frozen=True, slots=True)
class Passage:
    """A candidate passage: a chunk, the weights of its lines, and the best line."""

    found: NoteInfo
    chunk: NoteChunk
    worth: Mapping[int, float]
    best: str = ""


def show_passages(
    passages: Iterable[Passage], room: ResultLimits, scale: Scale
) -> list[SearchResult]:
    """Return the best passages; lines already shown, and further passages of a note, count less."""
    waiting = list(passages)
    shown: set[tuple[str, int]] = set()
    seen: Counter[str] = Counter()
    results: list[SearchResult] = []
    left = room.budget
    while waiting and len(results) < room.max_results and left > 0:
        scores = [_value(one, shown) - _AGAIN * seen[one.found.path] for one in waiting]
        best = max(range(len(waiting)), key=scores.__getitem__)
        passage = waiting.pop(best)
        score, max_chars = scale(scores[best]), int(min(room.chars, left))
        if not room.takes(score) or (results and max_chars < min(_MIN_CHARS, room.chars)):
            break
        result = _cut(passage, score, max_chars)
        results.append(result)
        left -= len(result.snippet)
        seen[result.path] += 1
        shown |= {(result.path, line) for line in range(result.start_line, result.end_line + 1)}
    return results


def _value(passage: Passage, shown: set[tuple[str, int]]) -> float:
    path = passage.found.path
    new = sum(worth for line, worth in passage.worth.items() if (path, line) not in shown)
    return math.log(new + _EPSILON)


def _cut(passage: Passage, score: float, max_chars: int) -> SearchResult:
    """Return the chunk, or of a long one the consecutive lines of most weight."""
    lines = passage.chunk.text.split("\n")
    start = passage.chunk.start_line
    if len(lines) != passage.chunk.end_line - start + 1:
        # Pieces of one long line are no lines: show the matching piece, cite the full range.
        text = next((one for one in lines if passage.best in one), lines[0])
        text, found = centre(text, (passage.best,), max_chars), passage.found
        return SearchResult(found.path, start, passage.chunk.end_line, text, score, found.source)
    worth = [passage.worth.get(start + number, 0.0) for number in range(len(lines))]
    first, last = _window(lines, worth, max_chars)
    text = "\n".join(lines[first : last + 1])
    if not text:  # no line weighs more than an empty one
        first = last = next((at for at, line in enumerate(lines) if line), first)
        text = lines[first]
    if len(text) > max_chars:  # a single line: around the match
        at = max(0, text.find(passage.best))
        at = max(0, min(at - (max_chars - len(passage.best)) // 2, len(text) - max_chars))
        text = text[at : at + max_chars]
    found = passage.found
    return SearchResult(found.path, start + first, start + last, text, score, found.source)


def _window(lines: Sequence[str], worth: Sequence[float], max_chars: int) -> tuple[int, int]:
    sizes = [len(line) + 1 for line in lines]
    best, span = -1.0, (0, 0)
    first = chars = 0
    total = 0.0
    for last, size in enumerate(sizes):
        chars += size
        total += worth[last]
        while chars - 1 > max_chars and first < last:
            chars -= sizes[first]
            total -= worth[first]
            first += 1
        if total > best + _EPSILON or (
            total > best - _EPSILON and last - first > span[1] - span[0]
        ):
            best, span = total, (first, last)
    return span


def diversify_results(found: Sequence[SearchResult], balance: float) -> list[SearchResult]:
    """Return the same results in a less repetitive order."""
    hits = [
        Hit(str(at), one.path, one.start_line, one.end_line, one.snippet, score=one.score)
        for at, one in enumerate(found)
    ]
    return [found[int(hit.id)] for hit in hybrid_scoring.diversify_hits(hits, balance)]


def limit_results(found: Iterable[SearchResult], room: ResultLimits) -> list[SearchResult]:
    """Return as many complete results as fit."""
    selected: list[SearchResult] = []
    left = room.budget
    for one in found:
        if len(selected) == room.max_results or len(one.snippet) > left:
            break
        selected.append(one)
        left -= len(one.snippet)
    return selected
