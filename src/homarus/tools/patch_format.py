r"""Parse the patch format that begins with `*** Begin Patch`. Pure.

    *** Begin Patch
    *** Update File: notes/a.md
    *** Move to: notes/b.md
    @@ ## Heading
     a line that stays
    -a line that goes
    +a line that comes
    *** Add File: c.txt
    +its only line
    *** Delete File: d.txt
    *** End Patch

A hunk begins with `@@`, and a line that it comes after, if one is named; the first of a file may
lack it. `*** End of File` after its lines says that they are the last ones. A line without a sign
that is empty counts as an empty line that stays: models leave its blank away.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

ChangeKind: TypeAlias = Literal["add", "delete", "update"]

MAX_CHARS: Final = 1_000_000
MAX_FILES: Final = 100
BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
_END_OF_FILE: Final = "*** End of File"
_MOVE: Final = "*** Move to: "
_FILES: Final[dict[str, ChangeKind]] = {
    "*** Add File: ": "add",
    "*** Delete File: ": "delete",
    "*** Update File: ": "update",
}
# The positions of a unified diff, which are not needed here: text after them is a line as usual.
_POSITIONS: Final = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@\s?")
_SHAPE: Final = (
    f"it begins with {BEGIN!r}, has parts '*** Add File: path', '*** Update File: path' or "
    f"'*** Delete File: path', and ends with {END!r}"
)


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines to be found and replaced; each is a sign (blank, `-`, `+`) and its text.

    `anchors` are lines that come before, in this order. `line` is where it is in the patch.
    """

    anchors: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    is_at_end: bool
    line: int

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]


@dataclass(frozen=True, slots=True)
class FilePatch:
    """What a patch does with one file; `content` is that of a new file."""

    kind: ChangeKind
    path: str
    move_to: str = ""
    content: str = ""
    hunks: tuple[Hunk, ...] = ()


def parse_patch(text: str) -> tuple[FilePatch, ...]:
    """Return the changes of a patch. Raises ToolError with the line that is wrong."""
    if len(text) > MAX_CHARS:
        raise ToolError(f"the patch is longer than {MAX_CHARS} characters", fix="split it")
    lines = text.replace("\r\n", "\n").strip("\n \t").split("\n")
    if lines[0].strip() != BEGIN or lines[-1].strip() != END or len(lines) < 2:
        raise ToolError("this is not a patch", fix=_SHAPE)
    parser = _Parser(lines[:-1])
    changes = parser.parse()
    if not changes:
        raise ToolError("the patch has no files", fix=_SHAPE)
    if len(changes) > MAX_FILES:
        raise ToolError(f"the patch has more than {MAX_FILES} files", fix="split it")
    return changes


class _Parser:
    """The lines of a patch, and the next one; the first is `*** Begin Patch`."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines, self._at = lines, 1
        self._next = [len(lines)] * (len(lines) + 1)  # of each line the next that is not empty
        for at in range(len(lines) - 1, -1, -1):
            self._next[at] = at if lines[at] else self._next[at + 1]

    def parse(self) -> tuple[FilePatch, ...]:
        changes: list[FilePatch] = []
        while (line := self._peek(skips_blanks=True)) is not None:
            mark = next((mark for mark in _FILES if line.startswith(mark)), "")
            if not mark:
                raise self._error(f"{one_line(line, 60)!r} is not the start of a file", _SHAPE)
            path = line.removeprefix(mark).strip()
            if not path:
                raise self._error("the path is missing", _SHAPE)
            self._at += 1
            changes.append(self._parse_file(_FILES[mark], path))
        return tuple(changes)

    def _parse_file(self, kind: ChangeKind, path: str) -> FilePatch:
        if kind == "add":
            return FilePatch("add", path, content=self._parse_content())
        if kind == "delete":
            return FilePatch("delete", path)
        move_to = ""
        if (line := self._peek() or "").startswith(_MOVE):
            self._at += 1
            move_to = line.removeprefix(_MOVE).strip()
            if not move_to:
                raise self._error("the path is missing", _SHAPE)
        hunks: list[Hunk] = []
        while not self._is_at_file():
            hunks.append(self._parse_hunk(is_first=not hunks))
        if not hunks and not move_to:
            raise self._error(f"{one_line(path, 60)} has no changes", "give lines with - and +")
        return FilePatch("update", path, move_to, hunks=tuple(hunks))

    def _parse_content(self) -> str:
        lines: list[str] = []
        while not self._is_at_file():
            line = self._lines[self._at]
            if not line.startswith("+"):
                raise self._error(
                    f"{one_line(line, 60)!r} is in a new file", "begin each of its lines with +"
                )
            lines.append(line[1:])
            self._at += 1
        return "".join(f"{line}\n" for line in lines)

    def _parse_hunk(self, *, is_first: bool) -> Hunk:
        start, anchors = self._at + 1, list[str]()
        while (head := self._peek()) is not None and head.startswith("@@"):
            anchor = _POSITIONS.sub("", head[2:].removeprefix(" "), count=1)
            anchors += [anchor] if anchor.strip() else []
            self._at += 1
        if self._at + 1 == start and not is_first:
            raise self._error("a hunk has no @@", "begin each further hunk with @@")
        lines, is_at_end = list[tuple[str, str]](), False
        while not self._is_at_file():
            line = self._lines[self._at]
            if line.startswith("@@"):
                break
            self._at += 1
            if line.rstrip() == _END_OF_FILE:
                is_at_end = True
                break
            sign, text = (line[0], line[1:]) if line else (" ", "")
            if sign not in " +-":
                self._at -= 1
                raise self._error(
                    f"{one_line(line, 60)!r} has no sign", "begin it with a blank, - or +"
                )
            lines.append((sign, text))
        if not any(sign != " " for sign, _ in lines):
            raise self._error("a hunk changes nothing", "give lines with - or +")
        return Hunk(tuple(anchors), tuple(lines), is_at_end, start)

    def _peek(self, *, skips_blanks: bool = False) -> str | None:
        if skips_blanks:
            self._at = self._next[self._at]
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _is_at_file(self) -> bool:
        """Return whether another file begins, or the patch ends; empty lines before are skipped."""
        following = self._next[self._at]
        if following < len(self._lines) and not self._lines[following].startswith(tuple(_FILES)):
            return False
        self._at = following
        return True

    def _error(self, reason: str, fix: str) -> ToolError:
        return ToolError(f"line {self._at + 1} of the patch: {reason}", fix=fix)
