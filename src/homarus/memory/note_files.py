"""Find the files of memory and read their text; files that are not notes are skipped by name.

The files are not ours: they grow while they are read, vanish after they were listed, are pipes,
circular links or gigabytes of zeros. None of that raises or blocks here.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.principal import OWNER
from homarus.memory.view import audience_of_path

Source: TypeAlias = Literal["memory", "sessions"]

MAX_FILE_BYTES: Final = 32 << 20
MAX_FILE_LINES: Final = 1_000_000
HARD_LINK: Final = "has a second name (a hard link)"
ROOTS: Final = ("MEMORY.md", "memory.md")
FOLDERS: Final = ("memory", "bank")
_SNIFFED = 8192
# Characters that would break a line of a list of results, or reverse its direction.
_UNPRINTED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True)
class NoteFile:
    """A file of memory: its name in results, its owner and its audience.

    `made` derives the text of a note from a file that is not one itself.
    """

    path: str
    file: Path
    source: Source = "memory"
    owner: str = ""
    audience: str = ""
    made: "DerivedNote | None" = None
    day: str | None = None  # the day it is about, if its name does not say


@dataclass(frozen=True, slots=True)
class NoteContent:
    """The text of a note, and what identifies its version."""

    text: str
    hash: str
    mtime_ns: int
    ctime_ns: int
    size: int
    is_exact: bool = True  # false: some bytes were not UTF-8


class DerivedNote(Protocol):
    """A note whose text is derived from its file."""

    def read(self) -> "NoteContent | SkippedFile":
        """Return its text, with the size and time of the file. Neither blocks nor raises."""
        ...

    def is_same(self, size: int, mtime_ns: int) -> bool:
        """Return whether the text made of a file of this size and time is still good enough."""
        ...


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is not in the index, and why."""

    path: str
    why: str


def find_notes(workspace: Path, extra: Iterable[Path] = ()) -> list[NoteFile | SkippedFile]:
    """Return the notes of a workspace and its skipped files, in the order of their paths."""
    found: list[NoteFile | SkippedFile] = []
    seen: set[tuple[int, int]] = set()
    for name in ROOTS:
        found += _root(workspace / name, name, seen)
    for name in FOLDERS:
        found += _walk(workspace / name, name)
    for path in extra:
        shown = shown_name(path, workspace)
        found += _walk(path, shown) if path.is_dir() else _root(path, shown, seen)
    unique = {one.path: one for one in reversed(found)}
    return [unique[path] for path in sorted(unique)]


def _root(file: Path, shown: str, seen: set[tuple[int, int]]) -> Iterator[NoteFile | SkippedFile]:
    """Return one root file; if the disk ignores case, both root names may be the same file."""
    try:
        status = file.lstat()
    except OSError:
        return
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    yield _judged(file, shown, status.st_mode)


def _walk(folder: Path, shown: str) -> Iterator[NoteFile | SkippedFile]:
    if folder.is_symlink():
        yield SkippedFile(printable(shown), "is a link")
        return
    waiting = [(str(folder), shown)]
    while waiting:
        here, name = waiting.pop()
        try:
            with os.scandir(here) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as exc:
            if name != shown or not isinstance(exc, FileNotFoundError):
                yield SkippedFile(printable(name), exc.strerror or "cannot be read")
            continue
        for entry in listed:
            path = f"{name}/{entry.name}"
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, path))
                elif entry.name.endswith(".md"):
                    yield _entry(entry, path)
            except OSError as exc:  # a file system that does not return the type with the name
                yield SkippedFile(printable(path), exc.strerror or "cannot be read")


def _entry(entry: os.DirEntry[str], path: str) -> NoteFile | SkippedFile:
    if entry.is_symlink():
        return SkippedFile(printable(path), "is a link")
    if not entry.is_file(follow_symlinks=False):
        return SkippedFile(printable(path), "is not a file")
    return _named(Path(entry.path), path)


def _judged(file: Path, shown: str, mode: int) -> NoteFile | SkippedFile:
    if stat.S_ISLNK(mode):
        return SkippedFile(printable(shown), "is a link")
    if not stat.S_ISREG(mode):
        return SkippedFile(printable(shown), "is not a file")
    if file.suffix != ".md":
        return SkippedFile(printable(shown), "is not Markdown")
    return _named(file, shown)


def _named(file: Path, shown: str) -> NoteFile | SkippedFile:
    """Return the note, unless its name is not UTF-8 or breaks a line and cannot be cited."""
    told = printable(shown)
    if told == shown:
        return NoteFile(shown, file, owner=OWNER.user, audience=audience_of_path(shown))
    is_text = shown.encode("utf-8", "replace").decode() == shown
    why = "its name has control characters" if is_text else "its name is not UTF-8"
    return SkippedFile(told, why)


def printable(name: str) -> str:
    """Return a name as it can be shown: on one line, and as UTF-8."""
    if name.isascii() and name.isprintable():
        return name
    return _UNPRINTED.sub("\ufffd", name.encode("utf-8", "replace").decode())


def shown_name(path: Path, workspace: Path) -> str:
    """Return the name of a file or folder in results: relative to the workspace if it is inside."""
    try:
        return path.relative_to(workspace).as_posix()
    except ValueError:
        return path.as_posix()


def read_note(note: NoteFile) -> NoteContent | SkippedFile:
    """Read the text of a note. Whatever the file is, this neither blocks nor raises."""
    if note.made:
        return note.made.read()
    try:
        descriptor = os.open(note.file, _OPEN)
    except OSError as exc:
        return SkippedFile(note.path, exc.strerror or "cannot be read")
    try:
        return _read(note, descriptor)
    except OSError as exc:
        return SkippedFile(note.path, exc.strerror or "cannot be read")
    finally:
        os.close(descriptor)


def _read(note: NoteFile, descriptor: int) -> NoteContent | SkippedFile:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return SkippedFile(note.path, "is not a file")
    if status.st_nlink > 1:  # as `memory_get` refuses it: its other name may be outside
        return SkippedFile(note.path, HARD_LINK)
    data = _read_bytes(descriptor, status.st_size) if status.st_size <= MAX_FILE_BYTES else b""
    if max(status.st_size, len(data)) > MAX_FILE_BYTES:
        return SkippedFile(note.path, f"is larger than {MAX_FILE_BYTES >> 20} MB")
    if b"\0" in data[:_SNIFFED]:
        return SkippedFile(note.path, "is not text")
    if data.count(b"\n") > MAX_FILE_LINES:
        return SkippedFile(note.path, f"has more than {MAX_FILE_LINES:,} lines")
    text, is_exact = _decoded(data)
    return NoteContent(
        text,
        hashlib.sha256(data).hexdigest(),
        status.st_mtime_ns,
        status.st_ctime_ns,
        len(data),
        is_exact,
    )


def _read_bytes(descriptor: int, size: int) -> bytes:
    """Read all bytes, or one more than allowed: a file may grow while it is read."""
    parts: list[bytes] = []
    held = 0
    while held <= MAX_FILE_BYTES:
        part = os.read(descriptor, max(size + 1 - held, 4096))
        if not part:
            break
        parts.append(part)
        held += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decoded(data: bytes) -> tuple[str, bool]:
    try:
        text, is_exact = data.decode("utf-8-sig"), True
    except UnicodeDecodeError:
        text, is_exact = data.decode("utf-8-sig", "replace"), False
    return text.replace("\0", "\ufffd"), is_exact
