"""Write notes: append lines, each once; insert lines; replace a text.

    written = write_note(spec, "Ann moved to Kiel.", audience=audience)

What the note already has is not written again, so a write can be retried. Concurrent changes by
others are preserved. Only files of memory can be written, through no link.
"""

import os
import re
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final

from homarus.config.redaction import redact
from homarus.config.timezone import local_date
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.file_lock import wait_for_lock
from homarus.memory.base import APPEND, NoteWrite, NoteWriteOptions
from homarus.memory.note_edits import (
    NoteChange,
    append_lines,
    insert_lines,
    replace_text,
    words_of,
)
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
_OWN_FORM = re.compile(r"(?:\s*(?:[-*+]|\d{1,9}[.)])|#{1,6})\s|\s{2,}\S")  # a list item, a heading
_KEY_BLOCK = "-----BEGIN"


def write_note(
    spec: MemorySpec,
    text: str,
    path: str = "",
    day: date | None = None,
    audience: str = PRIVATE,
    *,
    options: NoteWriteOptions = APPEND,
) -> NoteWrite:
    """Write into the daily note, or the named one; lines that are appended create it if needed.

    A session that is not private writes in its own folder only: the shared notes, and those of
    other audiences, are written by the agent's owner.
    """
    today = day.isoformat() if day else local_date(spec.timezone, time.time_ns() // 1_000_000)
    name = _target(spec, path, today, audience, options)
    is_daily = name == day_note(today, audience)
    change = _make_change(text, options, format_path(name), is_daily=is_daily)
    heading = f"# {today}\n\n" if is_daily else ""
    folder = RootedFs(spec.workspace, links=False)
    with _alone(spec.workspace):
        for _ in range(_TRIES):
            try:
                return _write(folder, name, change, heading, options)
            except FileChangedError:
                continue
    raise ToolError(f"{format_path(name)} is being changed all the time", fix="try again")


def _make_change(
    text: str, options: NoteWriteOptions, name: str, *, is_daily: bool
) -> Callable[[bytes], NoteChange]:
    """Return the change of a note, after checking what it needs."""
    if options.mode != "replace" and options.old_text:
        raise ToolError("oldText is for mode replace", fix="set mode to replace, or leave it out")
    if options.mode != "insert" and options.line:
        raise ToolError("line is for mode insert", fix="set mode to insert, or leave it out")
    match options.mode:
        case "append":
            session = options.session
            return partial(append_lines, items=_items(text), session=session, is_daily=is_daily)
        case "insert":
            if not options.line:
                raise ToolError("insert needs the line", fix="memory_get shows the lines of a note")
            return partial(insert_lines, items=_items(text), line=options.line, name=name)
        case "replace":
            if not options.old_text:
                raise ToolError("replace needs oldText", fix="give the text that stands there")
            new = "\n".join(_visible(line) for line in _checked(text).split("\n"))
            return partial(replace_text, old=options.old_text, new=new, name=name)


def _target(
    spec: MemorySpec, path: str, today: str, audience: str, options: NoteWriteOptions
) -> str:
    """Return the note to write, if this audience and its access may write there."""
    if not path:
        return day_note(today, audience)
    name = locate_note(spec, path, writing=True).name
    is_daily = name == day_note(today, audience)
    is_own = audience in {PRIVATE, audience_of_path(name)}
    if is_own and (is_daily or options.access.can_write(name.split("/"))):
        return name
    raise ToolDeniedError(
        f"{format_path(path)} is not for notes of this conversation",
        fix=f"leave path out, or name a file in {folder_of(audience)}/",
    )


def _checked(text: str) -> str:
    """Return a text that may be in a note; raises ToolError for any other."""
    if len(text) > MAX_TEXT_CHARS:
        raise ToolError(f"{len(text)} characters are too many for a note: {MAX_TEXT_CHARS} fit")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        broken = f"U+{ord(text[exc.start]):04X}"
        raise ToolError(f"the text holds half a character ({broken})") from None
    if _KEY_BLOCK in text and redact(text) != text:
        raise ToolDeniedError("a private key is not for notes", fix="say where it is kept instead")
    return text


def _items(text: str) -> list[str]:
    """Return the lines to write, one for each item."""
    lines = (_visible(line).rstrip() for line in _checked(text).splitlines())
    items = [
        line if _OWN_FORM.match(line) else f"- {line.strip()}" for line in lines if line.strip()
    ]
    if not any(words_of(item) for item in items):
        raise ToolError("there is nothing to note", fix="give the text")
    return items


def _visible(line: str) -> str:
    return "".join(ch for ch in line if ch == "\t" or unicodedata.category(ch) != "Cc")


def _write(
    folder: RootedFs,
    name: str,
    change: Callable[[bytes], NoteChange],
    heading: str,
    options: NoteWriteOptions,
) -> NoteWrite:
    """Read a note and write its changed form. Raises FileChangedError when another did so, too."""
    try:
        with folder.open_read(name) as opened:
            before, seen = opened.file.read(MAX_FILE_BYTES + 1), opened.stat
            return _replace_file(folder, name, before, change(_as_text(before, name)), seen)
    except ToolError as exc:
        if not isinstance(exc.__cause__, FileNotFoundError):
            raise
    if options.mode != "append":
        raise ToolError(
            f"there is no {format_path(name)} to change", fix="append to it, or name another note"
        )
    return _replace_file(folder, name, b"", change(heading.encode()), None)


def _as_text(before: bytes, name: str) -> bytes:
    if b"\0" in before:
        raise ToolError(f"{format_path(name)} is not text", fix="name another file")
    return before


def _replace_file(
    folder: RootedFs, name: str, before: bytes, change: NoteChange, seen: os.stat_result | None
) -> NoteWrite:
    if not change.is_new:
        return NoteWrite(name, change.start_line, change.end_line, added=False)
    if len(change.data) > MAX_FILE_BYTES and len(change.data) >= len(before):
        raise ToolError(
            f"{format_path(name)} is full: {MAX_FILE_BYTES} bytes fit", fix="name another file"
        )
    folder.write_atomic(name, change.data, seen=seen, new=seen is None)
    return NoteWrite(name, change.start_line, change.end_line)


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
