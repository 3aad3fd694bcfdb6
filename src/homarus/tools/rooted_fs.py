"""File access beneath one root, component by component.

`RootedFs(root)` never passes a path to the system: it opens the root, then each directory in the
one before it, following links itself as long as they stay inside. There is no moment between a
check and an open that another program could use. Refused: paths that leave the root, absolute
links, files with a second name (that name may be outside), and everything that is not a plain file
or directory. With a `WorkspaceAccess`, files that its conversation does not see are not there, and
those that it may not write are read-only, under every name that leads to them.

Every failure is a ToolError with a text for the model.
"""

import errno
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from homarus.core.atomic_file import temporary_name
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import FILE_MODE
from homarus.core.text import fold_name
from homarus.policy.workspace_access import (
    FULL_ACCESS,
    PROTECTED,
    TRASH,
    FileAccess,
    WorkspaceAccess,
)
from homarus.tools.folder import DirEntry, EntryKind, Folder, open_folder
from homarus.tools.pathname import MAX_DEPTH, PRIVATE, check_name, format_path, split_path

MAX_LINKS = 40
MAX_OPENS = 20
MAX_ENTRIES = 100_000
_REPLACING = threading.Lock()


class FileChangedError(ToolError):
    """The file was modified between reading it and writing it."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A plain file, open for reading, and its path from the root."""

    file: BinaryIO
    stat: os.stat_result
    path: str


@dataclass(frozen=True, slots=True)
class FileWrite:
    """The result of a write."""

    path: str
    created: bool


@dataclass(frozen=True, slots=True)
class FileTarget:
    """Where a write would go, from the root, and the file that is there now."""

    path: str
    stat: os.stat_result | None


@dataclass(frozen=True, slots=True)
class DirListing:
    """The first entries of a directory by name, and how many more there are."""

    entries: tuple[DirEntry, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """An entry found on a walk; `path` is from the root."""

    path: str
    kind: EntryKind


@dataclass(frozen=True, slots=True)
class OpenDir:
    """An open directory beneath the root."""

    folder: Folder
    path: str


@dataclass(frozen=True, slots=True)
class _ResolvedPath:
    """An open directory and the name in it that a path means; no name: the directory itself."""

    folder: Folder
    name: str
    path: str


class _MissingFolderError(FileNotFoundError):
    """A folder on the way is missing; `parts` are all names from the root."""

    def __init__(self, parts: Sequence[str]) -> None:
        super().__init__(errno.ENOENT, os.strerror(errno.ENOENT), parts[-1])
        self.parts = parts


class RootedFs:
    """The files and directories beneath one root.

    Without `links`, no link is followed. With `hard_links`, files may have a second name. `names`
    are other absolute paths that mean the root, as in a sandbox where it is `/workspace`.
    """

    def __init__(
        self,
        root: Path,
        open_root: Callable[[Path], Folder] = open_folder,
        *,
        links: bool = True,
        hard_links: bool = False,
        access: FileAccess = FULL_ACCESS,
        names: tuple[Path, ...] = (),
    ) -> None:
        self.root, self._names = root, names
        self._open_root, self._links, self._hard_links = open_root, links, hard_links
        self._access = _AccessCheck(root, access)

    @contextmanager
    def open_read(self, path: str) -> Iterator[OpenFile]:
        """Open a plain file."""
        with _translate_errors(path), self._resolve(path) as target:
            if not target.name:
                raise ToolError(
                    f"{format_path(path)} is a folder", fix="use ls to see what is in it"
                )
            fd, status = self._open_plain(target, path)
            with os.fdopen(fd, "rb") as file:
                yield OpenFile(file, status, target.path)

    def _open_plain(self, target: _ResolvedPath, path: str) -> tuple[int, os.stat_result]:
        """Open a plain file that is still the one of that name after it was checked.

        A file outside may have a second name here just long enough to be opened: when the name is
        removed, the open file has one again, which is the one outside.
        """
        for _ in range(MAX_OPENS):
            _check_plain(target.folder.stat(target.name), path, hard_links=self._hard_links)
            fd = target.folder.open_read(target.name)
            try:
                status = os.fstat(fd)
                _check_plain(status, path, hard_links=self._hard_links)
                now = target.folder.stat(target.name)
                _check_plain(now, path, hard_links=self._hard_links)
                if os.path.samestat(status, now):
                    return fd, status
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # replaced just now, by a writer perhaps
        raise FileChangedError(f"{format_path(path)} is replaced again and again")

    def write_atomic(
        self,
        path: str,
        data: bytes,
        *,
        seen: os.stat_result | None = None,
        new: bool = False,
        like: os.stat_result | None = None,
    ) -> FileWrite:
        """Replace or create a file atomically; missing directories are created.

        With `seen`, the file must still be the one that was read; keep it open until here. With
        `new`, there must be none. Otherwise FileChangedError is raised. A new file gets the mode
        and the owner of `like`.
        """
        with _translate_errors(path), self._resolve(path.rstrip("/"), writing=True) as target:
            before = self._check_writable(target, path)
            kept = before or like
            _replace(target, data, kept, lambda: _check_same(target, seen, path, new=new))
        return FileWrite(target.path, created=before is None)

    def check_write(self, path: str) -> FileTarget:
        """Return what a write would replace, and create nothing. Raises as the write would."""
        with _translate_errors(path):
            try:
                with self._resolve(path.rstrip("/"), writing=True, creating=False) as target:
                    return FileTarget(target.path, self._check_writable(target, path))
            except _MissingFolderError as exc:
                self._access.check_write(exc.parts, path)
                return FileTarget("/".join(exc.parts), None)

    def _check_writable(self, target: _ResolvedPath, path: str) -> os.stat_result | None:
        """Return the status of the file that a write replaces; None for a new one."""
        if not target.name or path.endswith("/"):
            raise ToolError(f"{format_path(path)} is a folder", fix="name a file in it")
        self._access.check_write(target.path.split("/"), path)
        before = _stat(target)
        if before:
            _check_plain(before, path)
            if not before.st_mode & 0o222:
                raise ToolError(f"{format_path(path)} is read-only")
        return before

    def remove(self, path: str, *, seen: os.stat_result) -> None:
        """Remove a plain file that is still the one that was read, else FileChangedError."""
        with (
            _translate_errors(path),
            self._resolve(path, writing=True, creating=False) as target,
            _REPLACING,
        ):
            self._check_writable(target, path)
            _check_same(target, seen, path, new=False)
            target.folder.remove(target.name)
            target.folder.sync()

    def move_to_trash(self, path: str, batch: str) -> str:
        """Move a file, folder or link to the trash of this root, and return its path there.

        It is `TRASH`, a folder for each `batch`, and the path from the root, so that the batch
        can be put back as it is. A link is moved itself, not what it leads to.
        """
        with (
            _translate_errors(path),
            self._resolve(path.rstrip("/"), writing=True, creating=False, last=False) as source,
        ):
            parts = source.path.split("/")
            if not source.name:
                raise ToolDeniedError(f"{format_path(path)} is the workspace itself, or above it")
            if fold_name(parts[0]) == TRASH:
                raise ToolDeniedError(f"{format_path(path)} is in the trash", fix="leave it there")
            self._access.check_remove(parts, path)
            source.folder.stat(source.name)
            _check_removable(source, path)
            with ExitStack() as closing:
                folder = self._open()
                closing.callback(folder.close)
                for name in (TRASH, batch, *parts[:-1]):
                    with suppress(FileExistsError):
                        folder.mkdir(name)
                    folder = folder.enter(name)
                    closing.callback(folder.close)
                source.folder.move(source.name, folder, source.name)
                folder.sync()
            source.folder.sync()
            return "/".join((TRASH, batch, *parts))

    def stat(self, path: str) -> os.stat_result:
        """Return the status of an entry, following links inside the root."""
        with _translate_errors(path), self._resolve(path) as target:
            return target.folder.stat(target.name) if target.name else target.folder.stat_self()

    def listdir(self, path: str, limit: int) -> DirListing:
        """Return the entries of a directory, in order of name."""
        with _translate_errors(path), self.open_dir(path) as directory:
            entries = self._access.visible(directory.path, _sorted(directory.folder, MAX_ENTRIES))
            return DirListing(tuple(entries[:limit]), max(0, len(entries) - limit))

    def walk(
        self, path: str, *, skip: Collection[str] = (), max_entries: int = MAX_ENTRIES
    ) -> Iterator[WalkEntry]:
        """Yield everything beneath a directory by name, or the one file; links are not followed.

        Directories named in `skip`, unreadable ones, and the gateway's state are left out.
        """
        with _translate_errors(path), self._resolve(path) as target:
            if target.name and not stat.S_ISDIR(target.folder.stat(target.name).st_mode):
                yield WalkEntry(target.path, "file")
                return
        with _translate_errors(path), self.open_dir(path) as directory:
            yield from _walk(directory, {*skip, *PRIVATE}, max_entries, self._access)

    @contextmanager
    def open_dir(self, path: str) -> Iterator[OpenDir]:
        """Open a directory; while open, it stays the same whatever happens to its path."""
        with ExitStack() as closing:
            with _translate_errors(path):
                target = closing.enter_context(self._resolve(path))
                folder = target.folder
                if target.name:
                    folder = folder.enter(target.name)
                    closing.callback(folder.close)
            yield OpenDir(folder, target.path)

    @contextmanager
    def _resolve(
        self, path: str, *, writing: bool = False, creating: bool = True, last: bool = True
    ) -> Iterator[_ResolvedPath]:
        """Resolve a path. Without `creating`, a missing folder raises _MissingFolderError.

        Without `last`, a link is not followed if it is the last name.
        """
        home = Path.home() if path.startswith("~") else self.root
        roots = (self.root, Path(os.path.realpath(self.root)), *self._names)
        parts = split_path(path, roots, home)
        with ExitStack() as closing:
            steps = _PathWalk(
                self._open(),
                closing,
                path,
                self._access,
                writing=writing,
                creating=creating,
                links=self._links,
            )
            yield steps.resolve(parts, last=last)

    def _open(self) -> Folder:
        try:
            return self._open_root(self.root)
        except OSError as exc:
            raise ToolError(
                f"the workspace {self.root} cannot be opened: {exc.strerror}",
                fix="run: homarus setup",
            ) from exc


class _AccessCheck:
    """Applies the access of a conversation to resolved paths.

    A protected name may be a link to another file of the workspace: that file is protected too.
    """

    def __init__(self, root: Path, access: FileAccess) -> None:
        self._root, self._access = root, access
        is_workspace = isinstance(access, WorkspaceAccess)
        self._links: dict[tuple[str, ...], str] | None = None if is_workspace else {}

    def check_visible(self, parts: Sequence[str]) -> None:
        """Raise FileNotFoundError for a file that the conversation does not see."""
        if not self._access.is_full and not self._access.shows(self._canonical(parts)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parts[-1])

    def check_write(self, parts: Sequence[str], path: str, *, folder: bool = False) -> None:
        """Raise ToolDeniedError for a file or folder that the conversation may not write."""
        if self._access.is_full:
            return
        may = self._access.can_create_folder if folder else self._access.can_write
        if not may(self._canonical(parts)):
            raise ToolDeniedError(
                f"{format_path(path)} is not written from this conversation",
                fix="only the agent's owner changes it, in a conversation of their own",
            )

    def check_remove(self, parts: Sequence[str], path: str) -> None:
        """Raise ToolDeniedError for an entry that may not be removed, by itself or by its content.

        A protected name that is a link protects what it leads to, also in a folder.
        """
        if self._access.is_full:
            return
        self.check_write(parts, path)
        folded = tuple(map(fold_name, parts))
        for target in self._links or ():
            if target[: len(folded)] == folded:
                self.check_write(target, path)

    def visible(self, folder: str, entries: Sequence[DirEntry]) -> list[DirEntry]:
        """Return the entries of a directory that the conversation sees."""
        if self._access.is_full:
            return list(entries)
        base = [] if folder in ("", ".") else folder.rstrip("/").split("/")
        return [
            entry for entry in entries if self._access.shows(self._canonical([*base, entry.name]))
        ]

    def _canonical(self, parts: Sequence[str]) -> Sequence[str]:
        """Return the protected name of a file that a link with that name leads to."""
        if self._links is None:
            self._links = protected_links(self._root)
        for target, name in self._links.items():
            if tuple(map(fold_name, parts[: len(target)])) == target:
                return (name, *parts[len(target) :])
        return parts


def protected_links(root: Path) -> dict[tuple[str, ...], str]:
    """Return the targets in the workspace of links with protected names: folded parts → name."""
    found: dict[tuple[str, ...], str] = {}
    real = os.path.realpath(root)
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if fold_name(entry.name) in PROTECTED and entry.is_symlink():
                inner = os.path.relpath(os.path.realpath(entry.path), real)
                found[tuple(map(fold_name, Path(inner).parts))] = entry.name
    return found


class _PathWalk:
    """A walk from the root to a name.

    It holds every directory on the way, so `..` only returns to one of them.
    """

    def __init__(
        self,
        root: Folder,
        closing: ExitStack,
        path: str,
        access: _AccessCheck,
        *,
        writing: bool,
        creating: bool,
        links: bool,
    ) -> None:
        self._stack = [root]
        self._names: list[str] = []
        self._path, self._access = path, access
        self._writing, self._links, self._creating = writing, links, creating
        closing.callback(self._close)

    def resolve(self, parts: tuple[str, ...], *, last: bool = True) -> _ResolvedPath:
        """Follow the components to the last, resolving each link explicitly.

        Without `last`, the last one is not followed if it is a link.
        """
        todo = list(reversed(parts))
        links = 0
        while todo:
            name = todo.pop()
            if name == "..":
                self._back()
            elif name and (target := self._link(name)) is not None and (todo or last):
                links += 1
                if links > MAX_LINKS:
                    raise ToolError(f"{format_path(self._path)}: too many links on the way")
                todo.extend(reversed(self._expand(name, target)))
            elif todo:
                try:
                    self._enter(name)
                except FileNotFoundError:
                    if not self._writing:
                        raise
                    raise self._missing((name, *reversed(todo))) from None
            elif name:
                if not self._writing:
                    self._access.check_visible((*self._names, name))
                return _ResolvedPath(self._stack[-1], name, "/".join((*self._names, name)))
        return _ResolvedPath(self._stack[-1], "", "/".join(self._names) or ".")

    def _missing(self, names: Sequence[str]) -> _MissingFolderError:
        """Check the names from a missing folder on as if it were created."""
        parts = [*self._names, *(name for name in names if name)]
        if ".." in parts:
            raise ToolError(f"{format_path(self._path)}: .. after a folder that does not exist")
        for at in range(len(self._names), len(parts)):
            check_name(parts[at], writing=True)
            if at < len(parts) - 1:
                self._access.check_write(parts[: at + 1], self._path, folder=True)
        return _MissingFolderError(parts)

    def _link(self, name: str) -> str | None:
        check_name(name, writing=self._writing)
        try:
            return self._stack[-1].read_link(name)
        except FileNotFoundError:
            return None

    def _expand(self, name: str, target: str) -> list[str]:
        if not self._links:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        if target.startswith("/"):
            raise ToolDeniedError(
                f"{format_path(self._path)}: {format_path(name)} is a link to an absolute path"
            )
        return [part for part in target.split("/") if part not in ("", ".")]

    def _enter(self, name: str) -> None:
        if len(self._stack) > 2 * MAX_DEPTH:
            raise ToolError(f"{format_path(self._path)}: too deep")
        current, parts = self._stack[-1], (*self._names, name)
        if self._writing:
            self._access.check_write(parts, self._path, folder=True)
        else:
            self._access.check_visible(parts)
        try:
            inner = current.enter(name)
        except FileNotFoundError:
            if not self._writing or not self._creating:
                raise
            with suppress(FileExistsError):
                current.mkdir(name)
            inner = current.enter(name)
        self._stack.append(inner)
        self._names.append(name)

    def _back(self) -> None:
        if len(self._stack) == 1:
            raise ToolDeniedError(
                f"{format_path(self._path)} is outside the workspace",
                fix="use a path in the workspace",
            )
        self._stack.pop().close()
        self._names.pop()

    def _close(self) -> None:
        for folder in self._stack:
            folder.close()


def _check_plain(status: os.stat_result, path: str, *, hard_links: bool = False) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{format_path(path)} is a folder", fix="use ls to see what is in it")
    if not stat.S_ISREG(status.st_mode):
        raise ToolDeniedError(f"{format_path(path)} is not a plain file")
    if status.st_nlink > 1 and not hard_links:
        raise ToolDeniedError(
            f"{format_path(path)} has a second name (a hard link), perhaps outside the workspace",
            fix="make a copy, and use that",
        )


def _check_removable(source: _ResolvedPath, path: str) -> None:
    """Refuse a folder that contains the gateway's own state; links in it are not followed."""
    try:
        folder = source.folder.enter(source.name)
    except (NotADirectoryError, OSError) as exc:
        if exc.errno in {errno.ENOTDIR, errno.ELOOP}:
            return
        raise
    try:
        everything = _AccessCheck(Path(), FULL_ACCESS)
        for found in _walk(OpenDir(folder, source.path), (), MAX_ENTRIES, everything):
            if fold_name(found.path.rpartition("/")[2]) in PRIVATE:
                raise ToolDeniedError(
                    f"{format_path(path)} contains the gateway's own state: not for file tools"
                )
    finally:
        folder.close()


def _stat(target: _ResolvedPath) -> os.stat_result | None:
    try:
        return target.folder.stat(target.name)
    except FileNotFoundError:
        return None


def _check_same(
    target: _ResolvedPath, seen: os.stat_result | None, path: str, *, new: bool
) -> None:
    now = _stat(target) if seen or new else None
    if (new and now) or (seen and (not now or _version(now) != _version(seen))):
        raise FileChangedError(
            f"{format_path(path)} was changed by somebody else just now", fix="read it again"
        )


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _replace(
    target: _ResolvedPath, data: bytes, before: os.stat_result | None, check: Callable[[], None]
) -> None:
    """Write a temporary file next to the target, then rename it."""
    temporary = temporary_name()
    fd = target.folder.create(temporary, FILE_MODE)
    try:
        with os.fdopen(fd, "wb") as file:
            if before:
                _keep_mode(file.fileno(), before)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with _REPLACING:  # of two runs that read the same file, one gets the error
            check()
            target.folder.rename(temporary, target.name)
    except BaseException:
        with suppress(OSError):
            target.folder.remove(temporary)
        raise
    target.folder.sync()


def _keep_mode(fd: int, before: os.stat_result) -> None:
    if not hasattr(os, "fchmod"):
        return
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):
            os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, stat.S_IMODE(before.st_mode) & 0o777)


def _walk(
    top: OpenDir, skip: Collection[str], max_entries: int, access: _AccessCheck
) -> Iterator[WalkEntry]:
    """Walk depth first, with one open directory per level."""
    prefix = "" if top.path == "." else f"{top.path}/"
    levels = [_WalkLevel(top.folder, prefix, max_entries, access)]
    seen = 0
    try:
        while seen < max_entries:
            level = levels[-1]
            entry = level.next()
            if entry is None:
                if len(levels) == 1:
                    return
                levels.pop().folder.close()
            elif entry.kind != "folder" or entry.name.casefold() not in skip:
                seen += 1
                yield WalkEntry(level.prefix + entry.name, entry.kind)
                if entry.kind == "folder" and len(levels) < MAX_DEPTH:
                    levels += _inner(level, entry.name, max_entries, access)
    finally:
        for level in levels[1:]:
            level.folder.close()


class _WalkLevel:
    """An open directory on a walk, and the position in it."""

    def __init__(self, folder: Folder, prefix: str, max_entries: int, access: _AccessCheck) -> None:
        self.folder = folder
        self.prefix = prefix
        self._left = access.visible(prefix, _sorted(folder, max_entries))[::-1]

    def next(self) -> DirEntry | None:
        return self._left.pop() if self._left else None


def _inner(
    level: _WalkLevel, name: str, max_entries: int, access: _AccessCheck
) -> list[_WalkLevel]:
    """Return the next level down, or None when it is unreadable or no longer a directory."""
    try:
        folder = level.folder.enter(name)
    except OSError:
        return []
    try:
        return [_WalkLevel(folder, f"{level.prefix}{name}/", max_entries, access)]
    except OSError:
        folder.close()
        return []


def _sorted(folder: Folder, max_entries: int) -> list[DirEntry]:
    return sorted(islice(folder.entries(), max_entries), key=lambda entry: entry.name)


_WORDS = {
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a file stands where a folder is needed",
    errno.EISDIR: "is a folder",
    errno.ELOOP: "a link that is not followed",
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENAMETOOLONG: "the name is too long",
}


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        words = _WORDS.get(exc.errno or 0) or exc.strerror or type(exc).__name__
        raise ToolError(f"{format_path(path)}: {words}") from exc
