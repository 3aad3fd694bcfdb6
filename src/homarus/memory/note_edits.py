r"""Change the text of a note: append lines, insert lines, replace a text. Pure.

    append_lines(b"# 2026-04-15\n", ["- Ann moved."], session="my-api refactor")

A daily note has a section for each session that writes to it, under `## Session: <name>`. Every
byte that a change does not concern stays as it is. A change that was made before is not made again.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.tools.text_edit import replace_once

_MARK: Final = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s+|$)")
_SESSION: Final = re.compile(r"##\s+Session:\s*(.*)")
_HEADING: Final = re.compile(r"#{1,2}\s")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class NoteChange:
    """A note after a change, and the lines that the text has in it."""

    data: bytes
    start_line: int
    end_line: int
    is_new: bool = True  # False when the note had the text already


def words_of(line: str) -> str:
    """Return a line as it is compared: without its list marker, with normalised white space."""
    plain = unicodedata.normalize("NFC", line)
    return " ".join((_MARK.sub("", plain, count=1) if _MARK.match(plain) else plain).split())


def append_lines(
    before: bytes, items: Sequence[str], session: str = "", *, is_daily: bool = False
) -> NoteChange:
    """Append the items that the note does not have.

    Those of a `session` go to the end of its section, which is added when it is missing; other
    items of a daily note, before the sections of sessions. An item `## Session: <name>` that comes
    first names the section.
    """
    named = _SESSION.match(items[0])
    if named and named[1] and is_daily and len(items) > 1:
        session, items = named[1].strip(), items[1:]
    lines = _lines(before)
    known = _first_numbers(lines)
    new = dict[str, str]()  # the first item with these words
    for item in items:
        if words_of(item) not in known:
            new.setdefault(words_of(item), item)
    added = list(new.values())
    if not added:
        at = [known[words_of(item)] for item in items]
        return NoteChange(before, min(at), max(at), is_new=False)
    head, put = len(lines), [*added]
    if is_daily:
        head, put = _place(lines, session, added)
    data = _joined(lines[:head], [item.encode() for item in put], lines[head:], before)
    first = head + put.index(added[0]) + 1
    return NoteChange(data, first, first + len(added) - 1)


def insert_lines(before: bytes, items: Sequence[str], line: int, name: str) -> NoteChange:
    """Insert the items, so that the first of them is at this line, from 1."""
    lines = _lines(before)
    if line > len(lines) + 1:
        count = f"{len(lines)} line{'' if len(lines) == 1 else 's'}"
        raise ToolError(f"{name} has {count}: nothing can be inserted at line {line}")
    last = line + len(items) - 1
    if [words_of(_text(one)) for one in lines[line - 1 : last]] == [*map(words_of, items)]:
        return NoteChange(before, line, last, is_new=False)
    put = [item.encode() for item in items]
    return NoteChange(_joined(lines[: line - 1], put, lines[line - 1 :], before), line, last)


def replace_text(before: bytes, old: str, new: str, name: str) -> NoteChange:
    """Replace the only occurrence of a text; "" removes it, and a line that has nothing else.

    Nothing changes when the new text is there, and the old one at most as a part of it.
    """
    text = before.decode("utf-8", "surrogateescape")
    others = text.replace(new, "\0") if new and old in new else text
    if new and new in text and old not in others:
        start = text[: text.index(new)].count("\n") + 1
        return NoteChange(before, start, start + new.count("\n"), is_new=False)
    edit = replace_once(text, old, new, name=name)
    changed = edit.text
    if not new:
        lines = changed.split("\n")
        rest = lines[edit.line - 1] if edit.line <= len(lines) else ""
        if edit.line < len(lines) and not _MARK.sub("", rest, count=1).strip():
            del lines[edit.line - 1]
        changed = "\n".join(lines)
    data = changed.encode("utf-8", "surrogateescape")
    return NoteChange(data, edit.line, edit.line + new.count("\n"))


def _place(lines: Sequence[bytes], session: str, added: list[str]) -> tuple[int, list[str]]:
    """Return before which line of a daily note the items go, and with which lines around them."""
    titles = [_SESSION.match(_text(line)) for line in lines]
    if not session:
        first = next((at for at, title in enumerate(titles) if title), len(lines))
        return (first, [*added, ""]) if first < len(lines) else (first, added)
    wanted = words_of(session)
    for at, title in enumerate(titles):
        if title and words_of(title[1]) == wanted:
            end = at + 1
            while end < len(lines) and not _HEADING.match(_text(lines[end])):
                end += 1
            while not lines[end - 1].strip():  # blank lines stay before the next heading
                end -= 1
            return end, added
    blank = [""] if lines and lines[-1].strip() else []
    return len(lines), [*blank, f"## Session: {session}", *added]


def _joined(
    head: Sequence[bytes], put: Sequence[bytes], rest: Sequence[bytes], before: bytes
) -> bytes:
    """Return the note with new lines; the last line keeps whether it has a newline at its end."""
    if not head and rest and before.startswith(_BOM):
        put, rest = [_BOM + put[0], *put[1:]], [rest[0].removeprefix(_BOM), *rest[1:]]
    end = b"" if rest and not before.endswith(b"\n") else b"\n"
    return b"\n".join([*head, *put, *rest]) + end


def _lines(data: bytes) -> list[bytes]:
    """Return the lines without their newlines; what follows the last newline is a line too."""
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _text(line: bytes) -> str:
    return line.decode("utf-8-sig", "replace").rstrip("\r")


def _first_numbers(lines: Sequence[bytes]) -> dict[str, int]:
    """Return the first line number of each line."""
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        found.setdefault(words_of(_text(line)), number)
    return found
