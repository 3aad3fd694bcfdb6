r"""Replace one exact, unique occurrence in a text and return a diff. Pure.

A model writes `\n`; the file keeps its line endings and every other byte.
"""

import io
from collections.abc import Iterator
from itertools import islice

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import clip_middle, one_line

CONTEXT_LINES = 3
_COMPARED_LINES = 1000
_COMPARED_CHARS = 100
_SHOWN_MATCHES = 5
_COUNTED = 1000
_MAX_DIFF_CHARS = 100_000
_NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class TextEdit:
    """The new text, the first line that differs, and a unified diff."""

    text: str
    line: int
    diff: str


def replace_once(text: str, old: str, new: str, *, name: str) -> TextEdit:
    """Replace the only occurrence of `old`. Raises ToolError with the reason when it cannot."""
    if not old:
        raise ToolError("oldText is empty", fix="to make or replace a whole file use write")
    at, found = _find(text, old, name)
    put = _with_ending(new, _ending(text, found))
    if put == found:
        raise ToolError(f"{name}: oldText and newText are the same; nothing changed")
    changed = text[:at] + put + text[at + len(found) :]
    before, after = split_lines(text), split_lines(changed)
    same = _common(before, after)
    return TextEdit(changed, same + 1, _diff(before, after, same, name))


def _find(text: str, old: str, name: str) -> tuple[int, str]:
    r"""Return where `old` occurs and its spelling there: its newlines may be `\r\n`."""
    spellings = dict.fromkeys((old, _with_ending(old, "\n"), _with_ending(old, "\r\n")))
    matches = [
        (at, found) for found in spellings for at in islice(_occurrences(text, found), _COUNTED)
    ]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ToolError(f"{name}: oldText is not in the file.{describe_nearest(text, old)}")
    numbers = sorted(text.count("\n", 0, at) + 1 for at, _ in matches[:_SHOWN_MATCHES])
    lines = ", ".join(str(number) for number in numbers)
    more = ", …" if len(matches) > _SHOWN_MATCHES else ""
    raise ToolError(
        f"{name}: oldText stands in the file {len(matches)} times (lines {lines}{more})",
        fix="give more of the text around it, so that it is found once",
    )


def _occurrences(text: str, piece: str) -> Iterator[int]:
    r"""Return every occurrence, overlapping ones too; none starts in the middle of `\r\n`."""
    at = text.find(piece)
    while at >= 0:
        if not (piece.startswith("\n") and text[at - 1 : at] == "\r"):
            yield at
        at = text.find(piece, at + 1)


def split_lines(text: str) -> list[str]:
    r"""Return the lines with their ends, where only `\n` ends a line."""
    return list(io.StringIO(text, newline="\n"))


def _with_ending(text: str, ending: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", ending)


def _ending(text: str, found: str) -> str:
    """Return the line ending of the replaced text, else of most of the file."""
    return dominant_ending(found if "\n" in found else text)


def dominant_ending(text: str) -> str:
    """Return the line ending that most lines have."""
    return "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"


def describe_nearest(text: str, old: str) -> str:
    """Return the lines most similar to the missing one, for the model to compare."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = text.split("\n")
    number = _nearest_line([line.strip() for line in lines], wanted)
    if number is None:
        return ""
    around = range(max(0, number - 1), min(len(lines), number + 2))
    told = "\n".join(f"{each + 1}: {one_line(lines[each], 200)}" for each in around)
    return f" The nearest lines are:\n{told}\nSpaces and quotes must be the same."


def _nearest_line(lines: list[str], wanted: str) -> int | None:
    """Return the line that differs only in blanks, else the most similar of the first thousand."""
    if wanted in lines:
        return lines.index(wanted)
    head = [line[:_COMPARED_CHARS] for line in lines[:_COMPARED_LINES]]
    import difflib

    close = difflib.get_close_matches(wanted[:_COMPARED_CHARS], head, n=1, cutoff=0.6)
    return head.index(close[0]) if close else None


def _common(before: list[str], after: list[str]) -> int:
    """Return how many lines are equal at the start."""
    limit = min(len(before), len(after))
    return next((at for at in range(limit) if before[at] != after[at]), limit)


def _diff(before: list[str], after: list[str], same: int, name: str) -> str:
    """Return one hunk. The position is known, so only the two ends are compared."""
    tail = _common(before[same:][::-1], after[same:][::-1])
    old, new = before[same : len(before) - tail], after[same : len(after) - tail]
    start = max(0, same - CONTEXT_LINES)
    head, foot = before[start:same], before[len(before) - tail :][:CONTEXT_LINES]
    sizes = [len(head) + len(lines) + len(foot) for lines in (old, new)]
    ranges = [f"{start + (size > 0)},{size}" for size in sizes]
    body = [f" {line}" for line in head]
    body += [f"-{line}" for line in old] + [f"+{line}" for line in new]
    body += [f" {line}" for line in foot]
    hunk = "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in body)
    whole = f"--- {name}\n+++ {name}\n@@ -{ranges[0]} +{ranges[1]} @@\n{hunk}"
    return clip_middle(whole, _MAX_DIFF_CHARS)
