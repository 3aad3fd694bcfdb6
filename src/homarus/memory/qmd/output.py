"""Parse the output of qmd strictly, and build results that cite the current files.

qmd shows a piece of a file as it was when it was indexed, under a header like `@@ -3,4 @@`. A
header is used if the file still has those lines there; else the lines are searched for; else the
lines of the file with most words of the query are shown instead.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.memory.qmd.collections import QmdDocument
from homarus.memory.results import SearchResult
from homarus.memory.stems import STOP_WORDS, stemmer

_MAX_STARTS = 20  # positions at which the JSON may start, after lines of warnings
_NOTHING = re.compile(r"no results( found)?\.?", re.IGNORECASE)
_HEADER = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? @@[^\n]*(?:\n|$)")
_WORD = re.compile(r"\w+")
_CUT_MARK = "..."
_BEFORE, _AFTER = 1, 2  # lines shown around the best one, as qmd does
_LEAST_CHARS = 80  # shorter pieces are not shown
MAX_WORDS: Final = 12


class QmdRow(BaseModel):
    """One result of qmd; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    file: str
    score: float = Field(allow_inf_nan=False)
    snippet: str = ""
    line: int | None = None


_ROWS: Final = TypeAdapter(list[QmdRow])


def read_rows(text: str) -> list[QmdRow]:
    """Parse the results that qmd printed. Raises StoreError when they are not a list."""
    stripped = text.strip()
    if _NOTHING.fullmatch(stripped):  # older versions print this although JSON is requested
        return []
    try:
        return _ROWS.validate_python(_document(stripped))
    except ValidationError as exc:
        told = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, told["loc"])) or "the whole"
        raise StoreError(f"qmd printed JSON of another shape ({where}: {told['msg']})") from None


def _document(text: str) -> Any:
    """Return the JSON; lines before it are skipped if it is complete up to the end."""
    for start in _starts(text):
        try:
            return json.loads(text[start:], parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
    first = text.partition("\n")[0]
    shown = f"its first line: {one_line(first, 120)}" if first else "it printed nothing"
    raise StoreError(f"qmd did not print JSON; {shown}")


def _starts(text: str) -> Iterator[int]:
    yield 0
    lines = re.finditer(r"\n(?=\s*[\[{])", text)
    yield from (found.end() for found, _ in zip(lines, range(_MAX_STARTS), strict=False))


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def query_words(question: str) -> list[str]:
    """Return the content words of a query, each once."""
    found = (word for word in _WORD.findall(question) if word.lower() not in STOP_WORDS)
    return list(dict.fromkeys(found))[:MAX_WORDS]


def query_needles(question: str) -> list[str]:
    """Return what to search for in lines: the prefix that each word shares with its stem."""
    needles = []
    for word in (word.lower() for word in query_words(question)):
        stem = "".join(stemmer()(word))
        shared = next((at for at, ch in enumerate(word) if not stem.startswith(ch, at)), len(word))
        needles.append(word[:shared] if shared > 2 else word)
    return needles


@dataclass(frozen=True, slots=True)
class QmdResultBuilder:
    """Builds results from rows, for one query."""

    needles: Sequence[str]
    max_chars: int

    def result(self, row: QmdRow, document: QmdDocument, room: int) -> SearchResult | None:
        """Return the result; None when its file has nothing to show any more."""
        most = min(self.max_chars, room)
        text = document.read() if most >= min(_LEAST_CHARS, self.max_chars) else None
        if text is None:
            return None
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        span = self._span(row, lines)
        if span is None:
            return None
        first, last, snippet = self._cut(lines, *span, most)
        return SearchResult(document.path, first + 1, last + 1, snippet, row.score, document.source)

    def _span(self, row: QmdRow, lines: Sequence[str]) -> tuple[int, int] | None:
        """Return the range of lines to show, from 0, both ends inclusive."""
        shown = _locate(row.snippet, lines)
        if shown and (not self.needles or any(map(self._worth, lines[shown[0] : shown[1] + 1]))):
            return shown
        worth, best = max(((self._worth(line), -at) for at, line in enumerate(lines)))
        if not worth:
            return shown
        return max(0, -best - _BEFORE), min(len(lines) - 1, -best + _AFTER)

    def _worth(self, line: str) -> int:
        lower = line.lower()
        return sum(needle in lower for needle in self.needles)

    def _cut(self, lines: Sequence[str], first: int, last: int, most: int) -> tuple[int, int, str]:
        """Return as many complete lines as fit, with the best line in any case."""
        while first < last and not lines[first].strip():
            first += 1
        while first < last and not lines[last].strip():
            last -= 1
        best = max(range(first, last + 1), key=lambda at: (self._worth(lines[at]), -at))
        while first < last and sum(len(one) + 1 for one in lines[first : last + 1]) - 1 > most:
            if last > best:
                last -= 1
            else:
                first += 1
        text = "\n".join(lines[first : last + 1])
        return first, last, text if len(text) <= most else self._around(text, most)

    def _around(self, line: str, most: int) -> str:
        """Return a piece of a line that is too long, around a word of the query."""
        lower = line.lower()
        places = [at for needle in self.needles if (at := lower.find(needle)) >= 0]
        middle = min(places, default=0)
        start = max(0, min(middle - most // 2, len(line) - most))
        return line[start : start + most]


def _locate(snippet: str, lines: Sequence[str]) -> tuple[int, int] | None:
    """Return where a snippet is in a file: where its header says, else its first occurrence."""
    header = _HEADER.match(snippet)
    text = snippet[header.end() :] if header else snippet
    wanted = [line.removesuffix("\r") for line in text.split("\n")]
    claimed = int(header[1]) - 1 if header else -1
    while wanted and not wanted[-1].strip():
        wanted.pop()
    while wanted and not wanted[0].strip():
        wanted.pop(0)
        claimed += 1
    if not wanted:
        return None
    for start in (claimed, *_places(wanted, lines)):
        if _stands(wanted, lines, start):
            return start, start + len(wanted) - 1
    return None


def _places(wanted: Sequence[str], lines: Sequence[str]) -> Iterator[int]:
    begins = wanted[0].removesuffix(_CUT_MARK)
    return (at for at, line in enumerate(lines) if line.startswith(begins))


def _stands(wanted: Sequence[str], lines: Sequence[str], start: int) -> bool:
    """Return whether the lines are there; the last may be cut, as qmd marks it."""
    end = start + len(wanted)
    if start < 0 or end > len(lines):
        return False
    *whole, last = wanted
    if list(lines[start : end - 1]) != whole:
        return False
    there = lines[end - 1]
    is_cut = last.endswith(_CUT_MARK) and there.startswith(last.removesuffix(_CUT_MARK))
    return there == last or is_cut
