"""Append lines to notes, each once.

    written = write_note(spec, "Ann moved to Kiel.", audience=audience)

Lines that the note already has are not written again, so a write can be retried. Concurrent changes
by others are preserved.
"""

import os
import re
import threading
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Final

from homarus.config.log_setup import redact
from homarus.config.timezone import local_date
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.file_lock import wait_for_lock
from homarus.memory.base import NoteWrite
from homarus.memory.notes import locate_note
from homarus.memory.spec import MemorySpec
from homarus.memory.view import PRIVATE, audience_of_path, day_note, folder_of
from homarus.tools.pathname import format_path
from homarus.tools.rooted_fs import FileChangedError, RootedFs

MAX_TEXT_CHARS: Final = 16_000
MAX_FILE_BYTES: Final = 1_000_000
_TRIES = 20
_WAIT_S = 5.0
_WRITING = threading.Lock()
_MARK = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+")
_OWN_FORM = re.compile(r"(?:\s*(?:[-*+]|\d{1,9}[.)])|#{1,6})\s|\s{2,}\S")  # a list item, a heading
_KEY_BLOCK = "-----BEGIN"


def write_note(
    spec: MemorySpec, text: str, path: str = "", day: date | None = None, audience: str = PRIVATE
) -> NoteWrite:
    """Add lines to the daily note, or to the named one, and create it if needed.

    A session that is not private writes in its own folder only: the shared notes, and those of
    other audiences, are written by the agent's owner.
    """
    items = _items(text)
    today = day.isoformat() if day else local_date(spec.timezone, time.time_ns() // 1_000_000)
    name = _target(spec, path, today, audience)
    heading = "" if path else f"# {today}\n\n"
    folder = RootedFs(spec.workspace, links=False)
    with _alone(spec.workspace):
        for _ in range(_TRIES):
            try:
                return _add(folder, name, heading, items)
            except FileChangedError:
                continue
    raise ToolError(f"{format_path(name)} is being changed all the time", fix="try again")


def _target(spec: MemorySpec, path: str, today: str, audience: str) -> str:
    """Return the note to write, if this audience may write there."""
    if not path:
        return day_note(today, audience)
    spot = locate_note(spec, path, writing=True)
    if audience in {PRIVATE, audience_of_path(spot.name)}:
        return spot.name
    raise ToolDeniedError(
        f"{format_path(path)} is not for notes of this conversation",
        fix=f"leave path out, or name a file in {folder_of(audience)}/",
    )


def _items(text: str) -> list[str]:
    """Return the lines to write, one for each item."""
    if len(text) > MAX_TEXT_CHARS:
        raise ToolError(f"{len(text)} characters are too many for a note: {MAX_TEXT_CHARS} fit")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        broken = f"U+{ord(text[exc.start]):04X}"
        raise ToolError(f"the text holds half a character ({broken})") from None
    if _KEY_BLOCK in text and redact(text) != text:
        raise ToolDeniedError("a private key is not for notes", fix="say where it is kept instead")
    lines = (_visible(line).rstrip() for line in text.splitlines())
    items = [
        line if _OWN_FORM.match(line) else f"- {line.strip()}" for line in lines if line.strip()
    ]
    if not any(_words(item) for item in items):
        raise ToolError("there is nothing to note", fix="give the text")
    return items


def _visible(line: str) -> str:
    return "".join(ch for ch in line if ch == "\t" or unicodedata.category(ch) != "Cc")


def _words(line: str) -> str:
    """Return a line as it is compared: without its list marker, with normalised white space."""
    plain = unicodedata.normalize("NFC", line)
    return " ".join((_MARK.sub("", plain, count=1) if _MARK.match(plain) else plain).split())


def _add(folder: RootedFs, name: str, heading: str, items: list[str]) -> NoteWrite:
    try:
        with folder.open_read(name) as opened:
            before = opened.file.read(MAX_FILE_BYTES + 1)
            return _append(folder, name, before, items, seen=opened.stat)
    except ToolError as exc:
        if not isinstance(exc.__cause__, FileNotFoundError):
            raise
    return _append(folder, name, heading.encode(), items, seen=None)


def _append(
    folder: RootedFs, name: str, before: bytes, items: list[str], *, seen: os.stat_result | None
) -> NoteWrite:
    if b"\0" in before:
        raise ToolError(f"{format_path(name)} is not text", fix="name another file")
    gap = "" if before.endswith(b"\n") or not before else "\n"
    known = _lines_by_words(before)
    new = {words: item for item in reversed(items) if (words := _words(item)) not in known}
    if not new:
        at = [known[_words(item)] for item in items]
        return NoteWrite(name, min(at), max(at), added=False)
    added = [item for item in items if new.pop(_words(item), None)]
    data = before + "\n".join([gap + added[0], *added[1:], ""]).encode()
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(
            f"{format_path(name)} is full: {MAX_FILE_BYTES} bytes fit", fix="name another file"
        )
    folder.write_atomic(name, data, seen=seen, new=seen is None)
    first = before.count(b"\n") + len(gap) + 1
    return NoteWrite(name, first, first + len(added) - 1)


def _lines_by_words(data: bytes) -> dict[str, int]:
    """Return the first line number of each line of a file."""
    found: dict[str, int] = {}
    for number, line in enumerate(data.decode("utf-8-sig", "replace").split("\n"), 1):
        found.setdefault(_words(line), number)
    return found


@contextmanager
def _alone(workspace: Path) -> Iterator[None]:
    """Hold the lock of a note, also against other processes.

    After a timeout, or on a disk without locks, the writer continues: a concurrent change is
    detected when the file is replaced.
    """
    with _WRITING:
        try:
            descriptor = os.open(workspace, os.O_RDONLY)
        except OSError as exc:
            raise ToolError(
                f"the workspace {workspace} cannot be opened: {exc.strerror}",
                fix="run: homarus setup",
            ) from exc
        try:
            wait_for_lock(descriptor, _WAIT_S, is_optional=True)
            yield
        finally:
            os.close(descriptor)
