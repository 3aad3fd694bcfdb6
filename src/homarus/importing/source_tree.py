"""Read files beneath one folder that belongs to another installation. Nothing here writes.

A link is followed only while it stays inside the folder. Pipes, devices, files above a size and
names with control characters are refused with a reason that can be shown.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from homarus.core.text import one_line

MAX_ENTRIES: Final = 100_000  # of one folder
_MAX_DEPTH: Final = 32
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RefusedSourceError(Exception):
    """A file that is not read; the text is the reason."""


class SourceTree:
    """The files beneath one folder. Paths are relative to it, with `/`."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))

    def open(self, path: str, max_bytes: int) -> BinaryIO:
        """Open a plain file. Raises FileNotFoundError, or RefusedSourceError for any other one."""
        place = self.resolve(path)
        try:
            descriptor = os.open(place, _OPEN)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise RefusedSourceError(exc.strerror or "cannot be read") from exc
        file = os.fdopen(descriptor, "rb")
        status = os.fstat(descriptor)
        reason = ""
        if not stat.S_ISREG(status.st_mode):
            reason = "is not a file"
        elif status.st_size > max_bytes:
            reason = f"is larger than {max_bytes >> 20} MB"
        if reason:
            file.close()
            raise RefusedSourceError(reason)
        return file

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return the bytes of a plain file. Raises as `open` does."""
        with self.open(path, max_bytes) as file:
            try:
                data = file.read(max_bytes + 1)
            except OSError as exc:
                raise RefusedSourceError(exc.strerror or "cannot be read") from exc
        if len(data) > max_bytes:  # it grew
            raise RefusedSourceError(f"is larger than {max_bytes >> 20} MB")
        return data

    def exists(self, path: str) -> bool:
        """Return whether there is an entry of this name, whatever it is."""
        return os.path.lexists(self.root / path)

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder, in SOURCE itself."""
        try:
            return self.resolve(path).is_dir()
        except RefusedSourceError:
            return False

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none if it cannot be read or is outside."""
        try:
            with os.scandir(self.resolve(path)) as entries:
                found = [entry.name for _, entry in zip(range(MAX_ENTRIES), entries, strict=False)]
        except (OSError, RefusedSourceError):
            return []
        return sorted(found)

    def walk(self, path: str, depth: int = 0) -> Iterator[str]:
        """Yield the path of everything beneath a folder that is no folder, in order.

        A linked folder is yielded, not entered: it could lead back.
        """
        for name in self.names(path):
            inner = f"{path}/{name}"
            place = self.root / inner
            if place.is_dir() and not place.is_symlink() and depth < _MAX_DEPTH:
                yield from self.walk(inner, depth + 1)
            else:
                yield inner

    def resolve(self, path: str) -> Path:
        """Return the place behind links. Raises RefusedSourceError if it is outside."""
        if reason := bad_name(path):
            raise RefusedSourceError(reason)
        place = Path(os.path.realpath(self.root / path))
        if not place.is_relative_to(self.root):
            raise RefusedSourceError("is a link that leads out of the folder")
        return place


def bad_name(path: str) -> str:
    """Return why a path is refused by its name alone; "" for a good one."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if not path.isprintable():
        return "its name has control characters"
    return "its name leads out of the folder" if ".." in path.split("/") else ""


def shown(path: str) -> str:
    """Return a path as a line of a report can show it."""
    return one_line(path.encode("utf-8", "replace").decode(), 200)
