r"""Apply the hunks of a patch to the text of a file. Pure.

Lines are compared exactly, then without the blanks at their ends, then without those on both sides;
lines that stay are kept as the file has them. Every line keeps its ending, new ones get that of the
file, and a last line without one stays without. A hunk that fits in several places is refused:
nothing says which one is meant.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from homarus.core.errors import ToolError
from homarus.core.text import one_line
from homarus.tools.patch_format import Hunk
from homarus.tools.text_edit import describe_nearest, dominant_ending, split_lines

_MAX_COMPARED: Final = 20_000_000  # lines; only a file of equal lines needs that many
_SHOWN_PLACES: Final = 5
_MARK: Final = "\ufeff"  # a byte order mark is no part of the first line


def apply_hunks(text: str, hunks: Sequence[Hunk], *, name: str) -> str:
    """Return the text with all hunks applied. Raises ToolError naming the hunk that does not fit.

    Hunks are in the order of the file: each is searched after the one before it.
    """
    mark, text = (_MARK, text[1:]) if text.startswith(_MARK) else ("", text)
    lines, ending = split_lines(text), dominant_ending(text)
    bare = [_without_ending(line) for line in lines]
    result, done = list[str](), 0
    for number, hunk in enumerate(hunks, 1):
        search = _HunkSearch(bare, f"{name}, hunk {number} of {len(hunks)} ({_describe(hunk)})")
        at = search.find(hunk, done)
        result += lines[done:at]
        for sign, added in hunk.lines:
            if sign == "+":
                result.append(added + ending)
                continue
            if sign == " ":
                result.append(lines[at])
            at += 1
        done = at
    result += lines[done:]
    return mark + _join(result, ending, has_last_ending=not text or text.endswith("\n"))


def _join(lines: Sequence[str], ending: str, *, has_last_ending: bool) -> str:
    """Return the lines as one text; one that was the last without an ending may be another now."""
    whole = [line if line.endswith("\n") else line + ending for line in lines]
    if whole and not has_last_ending:
        whole[-1] = _without_ending(whole[-1])
    return "".join(whole)


def _without_ending(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r") if line.endswith("\n") else line


def _describe(hunk: Hunk) -> str:
    return f"line {hunk.line} of the patch"


class _HunkSearch:
    """The search for the place of one hunk in the lines of a file."""

    def __init__(self, lines: Sequence[str], name: str) -> None:
        self._lines, self._name = lines, name
        self._compared = 0

    def find(self, hunk: Hunk, start: int) -> int:
        """Return the first line of the hunk's place at or after `start`."""
        for anchor in hunk.anchors:
            start = self._find_anchor(anchor, start) + 1
        old = hunk.old
        if not old:
            return start if hunk.anchors and not hunk.is_at_end else len(self._lines)
        if hunk.is_at_end:
            return self._find_at_end(old, start)
        for fold in (str, str.rstrip, str.strip):
            places = list(islice(self._matches(old, start, fold), _SHOWN_PLACES))
            if places and (len(places) == 1 or hunk.anchors):
                return places[0]
            if places:
                shown = ", ".join(str(place + 1) for place in places)
                raise ToolError(
                    f"{self._name}: it fits in several places (lines {shown})",
                    fix="give more lines around it, or @@ and a line that it comes after",
                )
        raise self._missing(old, start)

    def _find_anchor(self, anchor: str, start: int) -> int:
        for fold in (str, str.rstrip, str.strip):
            if (found := next(self._matches([anchor], start, fold), None)) is not None:
                return found
        nearest = describe_nearest("\n".join(self._lines), anchor)
        raise ToolError(f"{self._name}: no line is {one_line(anchor, 100)!r}.{nearest}")

    def _find_at_end(self, old: Sequence[str], start: int) -> int:
        at = len(self._lines) - len(old)
        for fold in (str, str.rstrip, str.strip):
            if at >= start and next(self._matches(old, at, fold), None) == at:
                return at
        raise self._missing(old, start, " at the end of the file")

    def _matches(self, old: Sequence[str], start: int, fold: Callable[[str], str]) -> Iterator[int]:
        """Yield every place of the lines, as `fold` compares them."""
        wanted = [fold(line) for line in old]
        lines = self._lines if fold is str else [fold(line) for line in self._lines]
        for at in range(start, len(lines) - len(wanted) + 1):
            if lines[at] == wanted[0]:
                self._compared += len(wanted)
                if self._compared > _MAX_COMPARED:
                    raise ToolError(
                        f"{self._name}: the file repeats itself too often", fix="use write"
                    )
                if list(lines[at : at + len(wanted)]) == wanted:
                    yield at

    def _missing(self, old: Sequence[str], start: int, where: str = "") -> ToolError:
        after = f" after line {start}" if start and not where else where
        first = next((line for line in old if line.strip()), "")
        nearest = describe_nearest("\n".join(self._lines), self._first_missing(old, start) or first)
        return ToolError(f"{self._name}: its lines are not in the file{after}.{nearest}")

    def _first_missing(self, old: Sequence[str], start: int) -> str:
        """Return the first line of a hunk that the file does not have anywhere."""
        known = {line.strip() for line in self._lines[start:]}
        return next((line for line in old if line.strip() and line.strip() not in known), "")
