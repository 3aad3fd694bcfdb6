"""One open directory and the names directly in it.

On Linux and macOS a directory is a descriptor: every operation names one entry relative to it and
never follows a link, so no change of the path can lead elsewhere. Other systems have no such
calls; there a directory is a real path, links of any kind are refused, and a program that swaps a
directory for a link at the right moment is not defended against.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import FOLDER_MODE

EntryKind: TypeAlias = Literal["file", "folder", "link", "other"]

BY_DESCRIPTOR = (
    {os.open, os.stat, os.mkdir, os.rename, os.unlink, os.readlink} <= os.supports_dir_fd
    and os.scandir in os.supports_fd
    and hasattr(os, "O_NOFOLLOW")
)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# A fifo opened by mistake must not block, a terminal not become our controlling terminal.
_FILE = (
    _NO_FOLLOW
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_READ = os.O_RDONLY | _FILE
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE


@dataclass(frozen=True, slots=True)
class DirEntry:
    """A name in a directory and its kind; links are not followed."""

    name: str
    kind: EntryKind


class Folder(Protocol):
    """An open directory. Names are single components; every failure is an OSError."""

    def enter(self, name: str) -> "Folder":
        """Open a directory in this one; a link raises ENOTDIR or ELOOP."""
        ...

    def read_link(self, name: str) -> str | None:
        """Return where a link points, or None when the name is not a link."""
        ...

    def stat(self, name: str) -> os.stat_result: ...
    def stat_self(self) -> os.stat_result: ...
    def open_read(self, name: str) -> int: ...
    def create(self, name: str, mode: int) -> int: ...
    def mkdir(self, name: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...

    def move(self, name: str, target: "Folder", new: str) -> None:
        """Move an entry, of any kind and without following a link, to another open directory."""
        ...

    def remove(self, name: str) -> None: ...
    def entries(self) -> Iterator[DirEntry]: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


def open_folder(root: Path) -> Folder:
    """Open the directory at a trusted path, by the safest means the system has."""
    return (
        DescriptorFolder(os.open(root, _FOLDER & ~_NO_FOLLOW))
        if BY_DESCRIPTOR
        else open_by_path(root)
    )


def open_by_path(root: Path) -> "PathFolder":
    """Open the portable kind of directory."""
    real = Path(os.path.realpath(root))
    if not real.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(root))
    return PathFolder(real)


class DescriptorFolder:
    """A directory held by a file descriptor."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def enter(self, name: str) -> "DescriptorFolder":
        return DescriptorFolder(os.open(name, _FOLDER, dir_fd=self.fd))

    def read_link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.fd)
        except OSError as exc:
            if exc.errno == errno.EINVAL:
                return None
            raise

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def stat_self(self) -> os.stat_result:
        return os.fstat(self.fd)

    def open_read(self, name: str) -> int:
        return os.open(name, _READ, dir_fd=self.fd)

    def create(self, name: str, mode: int) -> int:
        return os.open(name, _CREATE, mode, dir_fd=self.fd)

    def mkdir(self, name: str) -> None:
        os.mkdir(name, FOLDER_MODE, dir_fd=self.fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def move(self, name: str, target: Folder, new: str) -> None:
        if not isinstance(target, DescriptorFolder):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        os.rename(name, new, src_dir_fd=self.fd, dst_dir_fd=target.fd)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self.fd)

    def entries(self) -> Iterator[DirEntry]:
        with os.scandir(self.fd) as found:
            yield from (DirEntry(each.name, _kind(each)) for each in found)

    def sync(self) -> None:
        os.fsync(self.fd)

    def close(self) -> None:
        os.close(self.fd)


class PathFolder:
    """A directory held by its real path, for systems without descriptor-relative calls."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def enter(self, name: str) -> "PathFolder":
        inner = self._plain(name)
        if not stat.S_ISDIR(inner.lstat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        return PathFolder(inner)

    def read_link(self, name: str) -> str | None:
        self._plain(name)
        return None

    def stat(self, name: str) -> os.stat_result:
        return self._plain(name).lstat()

    def stat_self(self) -> os.stat_result:
        return self.path.lstat()

    def open_read(self, name: str) -> int:
        before = self.stat(name)
        fd = os.open(self._plain(name), _READ)
        if not os.path.samestat(before, os.fstat(fd)):
            os.close(fd)
            raise OSError(errno.ELOOP, "changed while it was opened", name)
        return fd

    def create(self, name: str, mode: int) -> int:
        return os.open(self._plain(name), _CREATE, mode)

    def mkdir(self, name: str) -> None:
        self._plain(name).mkdir(FOLDER_MODE)

    def rename(self, old: str, new: str) -> None:
        self._plain(old).replace(self._plain(new))

    def move(self, name: str, target: Folder, new: str) -> None:
        if not isinstance(target, PathFolder):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        self._plain(name).rename(target.path / new)  # both were checked when they were opened

    def remove(self, name: str) -> None:
        self._plain(name).unlink()

    def entries(self) -> Iterator[DirEntry]:
        with os.scandir(self.path) as found:
            yield from (DirEntry(each.name, _kind(each)) for each in found)

    def sync(self) -> None:
        """Do nothing: a directory cannot be synced on such systems."""

    def close(self) -> None:
        """Do nothing: no descriptor is open."""

    def _plain(self, name: str) -> Path:
        """Return the full path; links, junctions, short names and other aliases are refused."""
        full = self.path / name
        if Path(os.path.realpath(full)) != full:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return full


def _kind(found: os.DirEntry[str]) -> EntryKind:
    if found.is_symlink():
        return "link"
    if found.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if found.is_file(follow_symlinks=False) else "other"
