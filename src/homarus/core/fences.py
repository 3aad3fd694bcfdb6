"""Find code fences in markdown, so that text is not cut or parsed inside them.

The rules are CommonMark's: a fence opens with three or more backticks or tildes, indented by at
most three spaces, and closes with a line of at least as many of the same and nothing else.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from homarus.core.fast_dataclass import dataclass

_LINE = re.compile(r"^( {0,3})(`{3,}|~{3,})([^\n]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: `text[start:end]`, from its opening line to the end of its last line."""

    start: int
    end: int
    open_line: str
    marker: str
    indent: str

    @property
    def close_line(self) -> str:
        return self.indent + self.marker


def find_fences(text: str) -> list[Fence]:
    """Return every fenced block in order; an unclosed one extends to the end of the text."""
    fences: list[Fence] = []
    opened: re.Match[str] | None = None
    for line in _LINE.finditer(text):
        if opened is None:
            if opens_fence(line[2], line[3]):
                opened = line
        elif closes_fence(opened[2], line[2], line[3]):
            fences.append(_fence(opened, line.start() + len(line[0].rstrip("\r"))))
            opened = None
    if opened is not None:
        fences.append(_fence(opened, len(text)))
    return fences


def split_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield every line, and whether it belongs to a fenced block."""
    opener = ""
    for line in text.split("\n"):
        marker = match_marker(line)
        if opener:
            yield line, True
            if marker and closes_fence(opener, *marker):
                opener = ""
        else:
            opener = marker[0] if marker and opens_fence(*marker) else ""
            yield line, bool(opener)


def match_marker(line: str) -> tuple[str, str] | None:
    """Return the marker and the text after it, if the line could open or close a block."""
    found = _LINE.match(line)
    return (found[2], found[3]) if found else None


def opens_fence(marker: str, after: str) -> bool:
    """Return whether a marker opens a block; more backticks on the line make it inline code."""
    return marker[0] == "~" or "`" not in after


def closes_fence(opener: str, marker: str, after: str) -> bool:
    """Return whether a marker closes the block that `opener` opened."""
    return marker.startswith(opener) and not after.strip()


def fence_at(fences: Sequence[Fence], index: int) -> Fence | None:
    """Return the block that contains `index`, where a cut would split it."""
    last = bisect_right(fences, index, key=lambda fence: fence.start) - 1
    return fences[last] if last >= 0 and fences[last].start < index < fences[last].end else None


def _fence(opened: re.Match[str], end: int) -> Fence:
    return Fence(opened.start(), end, opened[0].rstrip("\r"), opened[2], opened[1])
