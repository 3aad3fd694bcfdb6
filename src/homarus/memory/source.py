"""Which files are memory, and their text: what cannot be read as a note is skipped by name."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from homarus.core.value import dataclass

Source: TypeAlias = Literal["memory", "sessions"]

MAX_FILE_BYTES: Final = 32 << 20
_ROOTS: Final = ("MEMORY.md", "memory.md")
_FOLDERS: Final = ("memory", "bank")
_SNIFFED = 8192
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True)
class Note:
    """A file of memory: `path` is its name in results, `owner` and `audience` who may see it."""

    path: str
    file: Path
    source: Source = "memory"
    owner: str = ""
    audience: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """What a note holds, and what it is known by."""

    text: str
    hash: str
    mtime_ns: int
    size: int
    is_exact: bool = True  # false: some bytes were not UTF-8


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not in the index, and why."""

    path: str
    why: str


def find_notes(workspace: Path, extra: Iterable[Path] = ()) -> list[Note | Skipped]:
    """The notes of a workspace in the order of their paths, links and other kinds by name."""
    found: list[Note | Skipped] = []
    seen: set[tuple[int, int]] = set()
    for name in _ROOTS:
        found += _root(workspace / name, name, seen)
    for name in _FOLDERS:
        found += _walk(workspace / name, name)
    for path in extra:
        shown = _shown(path, workspace)
        found += _walk(path, shown) if path.is_dir() else _root(path, shown, seen)
    unique = {one.path: one for one in reversed(found)}
    return [unique[path] for path in sorted(unique)]


def _root(file: Path, shown: str, seen: set[tuple[int, int]]) -> Iterator[Note | Skipped]:
    """One file; on a disk that ignores case both root names may be the same one."""
    try:
        status = file.lstat()
    except OSError:
        return
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    yield _judged(file, shown, status.st_mode)


def _walk(folder: Path, shown: str) -> Iterator[Note | Skipped]:
    if folder.is_symlink():
        yield Skipped(shown, "is a link")
        return
    waiting = [(str(folder), shown)]
    while waiting:
        here, name = waiting.pop()
        try:
            with os.scandir(here) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as exc:
            if name != shown or folder.exists():
                yield Skipped(name, exc.strerror or "cannot be read")
            continue
        for entry in listed:
            path = f"{name}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, path))
            elif entry.name.endswith(".md"):
                yield _entry(entry, path)


def _entry(entry: os.DirEntry[str], path: str) -> Note | Skipped:
    if entry.is_symlink():
        return Skipped(path, "is a link")
    if not entry.is_file(follow_symlinks=False):
        return Skipped(path, "is not a file")
    return _named(Path(entry.path), path)


def _judged(file: Path, shown: str, mode: int) -> Note | Skipped:
    if stat.S_ISLNK(mode):
        return Skipped(shown, "is a link")
    if not stat.S_ISREG(mode):
        return Skipped(shown, "is not a file")
    if file.suffix != ".md":
        return Skipped(shown, "is not Markdown")
    return _named(file, shown)


def _named(file: Path, shown: str) -> Note | Skipped:
    """A name that is not UTF-8 cannot be cited."""
    if shown.isascii():
        return Note(shown, file)
    told = shown.encode("utf-8", "replace").decode()
    return Note(shown, file) if told == shown else Skipped(told, "its name is not UTF-8")


def _shown(path: Path, workspace: Path) -> str:
    try:
        return path.relative_to(workspace).as_posix()
    except ValueError:
        return path.as_posix()


def read_note(note: Note) -> Content | Skipped:
    """The text of a note. Whatever the file is, this neither waits nor raises."""
    try:
        descriptor = os.open(note.file, _OPEN)
    except OSError as exc:
        return Skipped(note.path, exc.strerror or "cannot be read")
    try:
        return _read(note, descriptor)
    except OSError as exc:
        return Skipped(note.path, exc.strerror or "cannot be read")
    finally:
        os.close(descriptor)


def _read(note: Note, descriptor: int) -> Content | Skipped:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return Skipped(note.path, "is not a file")
    if status.st_size > MAX_FILE_BYTES:
        return Skipped(note.path, f"is larger than {MAX_FILE_BYTES >> 20} MB")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        return Skipped(note.path, f"is larger than {MAX_FILE_BYTES >> 20} MB")
    if b"\0" in data[:_SNIFFED]:
        return Skipped(note.path, "is not text")
    text, is_exact = _decoded(data)
    known_by = hashlib.sha256(data).hexdigest()
    return Content(text, known_by, status.st_mtime_ns, len(data), is_exact)


def _decoded(data: bytes) -> tuple[str, bool]:
    try:
        text, is_exact = data.decode("utf-8"), True
    except UnicodeDecodeError:
        text, is_exact = data.decode("utf-8", "replace"), False
    return text.replace("\0", "\ufffd"), is_exact
