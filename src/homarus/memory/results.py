"""Results as they are shown: exact lines of a file, no more of them than there is room for."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from homarus.core.value import dataclass
from homarus.memory.chunk import Chunk
from homarus.memory.search import Found, Line, Ranked

MAX_RESULTS: Final = 6
MAX_LINE_CHARS: Final = 1_400  # of a result in the mode of lines
MAX_PASSAGE_CHARS: Final = 1_400  # six of them are 8,400
_MERGE_BACK = 2  # a line joins its neighbour when that is one of the last so many results
_AGAIN = 0.7  # what a second passage of one note is worth less, as a log-odds
_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Result:
    """`snippet` is text of those lines of the file, word for word."""

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


@dataclass(slots=True)
class _Run:
    """Neighbouring lines, on their way to be one result."""

    lines: list[Line]
    score: float
    chars: int

    def takes(self, line: Line, most: int) -> bool:
        """Put the line at one end, if it is the next one there and there is room."""
        if self.chars + 1 + len(line.text) > most:
            return False
        if _follows(self.lines[-1], line):
            self.lines.append(line)
        elif _follows(line, self.lines[0]):
            self.lines.insert(0, line)
        else:
            return False
        self.chars += 1 + len(line.text)
        return True


def _follows(one: Line, other: Line) -> bool:
    if other.id != one.id + 1 or other.note != one.note:
        return False
    if other.line == one.line:
        return other.start == one.start + len(one.text)
    return other.line == one.line + 1 and not other.start


def show_lines(
    ranked: Sequence[Ranked],
    notes: Mapping[int, Found],
    *,
    max_results: int = MAX_RESULTS,
    max_chars: int = MAX_LINE_CHARS,
    budget_chars: int | None = None,
) -> list[Result]:
    """The best lines, neighbours joined, until there are enough of them."""
    runs: list[_Run] = []
    left = math.inf if budget_chars is None else budget_chars
    for one in ranked:
        if left <= 0:
            break
        if any(run.takes(one.line, max_chars) for run in runs[-_MERGE_BACK:]):
            left -= 1 + len(one.line.text)
            continue
        if len(runs) == max_results:
            break
        runs.append(_Run([one.line], one.score, len(one.line.text)))
        left -= len(one.line.text)
    return [_result(run, notes[run.lines[0].note]) for run in runs]


def _result(run: _Run, found: Found) -> Result:
    parts = [run.lines[0].text]
    for before, line in zip(run.lines, run.lines[1:], strict=False):
        parts.append(line.text if line.line == before.line else f"\n{line.text}")
    first, last = run.lines[0].line, run.lines[-1].line
    return Result(found.path, first, last, "".join(parts), run.score, found.source)


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a note that may be shown, what its lines are worth, and the best of them."""

    found: Found
    chunk: Chunk
    worth: Mapping[int, float]
    best: str = ""


def show_passages(
    passages: Iterable[Passage],
    *,
    max_results: int = MAX_RESULTS,
    max_chars: int = MAX_PASSAGE_CHARS,
    budget_chars: int | None = None,
) -> list[Result]:
    """The best passages; what one has shown, and its note, count less for the next."""
    waiting = list(passages)
    shown: set[tuple[str, int]] = set()
    seen: Counter[str] = Counter()
    results: list[Result] = []
    left = math.inf if budget_chars is None else budget_chars
    while waiting and len(results) < max_results and left > 0:
        scores = [_value(one, shown) - _AGAIN * seen[one.found.path] for one in waiting]
        best = max(range(len(waiting)), key=scores.__getitem__)
        passage = waiting.pop(best)
        result = _cut(passage, scores[best], max_chars)
        results.append(result)
        left -= len(result.snippet)
        seen[result.path] += 1
        shown |= {(result.path, line) for line in range(result.start_line, result.end_line + 1)}
    return results


def _value(passage: Passage, shown: set[tuple[str, int]]) -> float:
    path = passage.found.path
    new = sum(worth for line, worth in passage.worth.items() if (path, line) not in shown)
    return math.log(new + _LEAST)


def _cut(passage: Passage, score: float, most: int) -> Result:
    """The whole chunk, or of a long one those lines in a row that are worth most."""
    lines = passage.chunk.text.split("\n")
    start = passage.chunk.start_line
    worth = [passage.worth.get(start + number, 0.0) for number in range(len(lines))]
    first, last = _window(lines, worth, most)
    text = "\n".join(lines[first : last + 1])
    if len(text) > most:  # one line: around what was found in it
        at = max(0, text.find(passage.best))
        at = max(0, min(at - (most - len(passage.best)) // 2, len(text) - most))
        text = text[at : at + most]
    found = passage.found
    return Result(found.path, start + first, start + last, text, score, found.source)


def _window(lines: Sequence[str], worth: Sequence[float], most: int) -> tuple[int, int]:
    sizes = [len(line) + 1 for line in lines]
    best, span = -1.0, (0, 0)
    first = chars = 0
    total = 0.0
    for last, size in enumerate(sizes):
        chars += size
        total += worth[last]
        while chars - 1 > most and first < last:
            chars -= sizes[first]
            total -= worth[first]
            first += 1
        if total > best + _LEAST or (total > best - _LEAST and last - first > span[1] - span[0]):
            best, span = total, (first, last)
    return span
