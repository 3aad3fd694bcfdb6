"""Find folders that contain a file of a name: skills by SKILL.md, hooks by HOOK.md.

A root contains a folder for each of them; such folders may be grouped in folders of further
levels, and a root may itself be one. A link that leads out of its root is not followed: who may
write into one root must not be able to have another file read.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.file_stamp import FileStamp
from homarus.core.message import Json
from homarus.skills.frontmatter import MAX_FRONTMATTER_CHARS, FrontmatterError, read_frontmatter

_MAX_HEAD_BYTES: Final = MAX_FRONTMATTER_CHARS * 4 + 16
_END: Final = re.compile(rb"\n---[ \t]*(?=\r?\n|\Z)")
_SKIPPED: Final = frozenset({"node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class SearchKind:
    """What is searched for: the file that marks a folder, and the words of problems.

    `levels` is how deep the folders may be below a root.
    """

    noun: str
    file_name: str
    extra_dirs_key: str
    max_folders_fix: str
    levels: int = 2


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that marks a folder, and its version."""

    path: str
    stamp: FileStamp


class FolderSearch:
    """Finds the files of one root, in the order of their names.

    `on_problem` gets a path, what is wrong with it and what helps.
    """

    def __init__(
        self,
        kind: SearchKind,
        root: Path,
        max_folders: int,
        on_problem: Callable[[Path, str, str], None],
        *,
        must_exist: bool = False,
    ) -> None:
        self._kind, self._root, self._max, self._on_problem = kind, root, max_folders, on_problem
        self._must_exist = must_exist
        self._folder, self._real = str(root), os.path.realpath(root)
        self._seen, self._is_full = 0, False

    def files(self) -> Iterator[FoundFile]:
        if self._must_exist and not Path(self._real).is_dir():
            fix = f"create it, or remove it from {self._kind.extra_dirs_key}"
            self._on_problem(self._root, "there is no such folder", fix)
            return
        own = self._file(self._folder)
        if own is not None:
            yield own
            return
        yield from self._below(self._folder, self._kind.levels)

    def _below(self, folder: str, levels: int) -> Iterator[FoundFile]:
        for name, is_link in self._folders(folder):
            if self._is_full or self._seen >= self._max:
                self._end_early()
                return
            self._seen += 1
            path = f"{folder}/{name}"
            if is_link and not self._is_inside(path):
                continue
            file = self._file(path)
            if file is not None:
                yield file
            elif levels > 1 and not is_link:
                yield from self._below(path, levels - 1)

    def _end_early(self) -> None:
        if self._is_full:
            return
        self._is_full = True
        message = f"it has more than {self._max} folders: the rest is not looked at"
        self._on_problem(self._root, message, self._kind.max_folders_fix)

    def _folders(self, folder: str) -> list[tuple[str, bool]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(
                    (entry.name, entry.is_symlink())
                    for entry in entries
                    if not entry.name.startswith(".")
                    and entry.name not in _SKIPPED
                    and (entry.is_dir(follow_symlinks=False) or entry.is_symlink())
                )
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as exc:
            self._on_problem(Path(folder), f"the folder cannot be read: {exc.strerror}", "")
            return []

    def _file(self, folder: str) -> FoundFile | None:
        """Return the file of a folder; None when there is none that may be read."""
        path = f"{folder}/{self._kind.file_name}"
        try:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                if not self._is_inside(path):
                    return None
                found = Path(path).stat()
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            self._on_problem(Path(path), "it is not a file", "")
            return None
        return FoundFile(path, FileStamp(found.st_size, found.st_mtime_ns, found.st_ino))

    def _is_inside(self, path: str) -> bool:
        target = Path(os.path.realpath(path))
        if target.is_relative_to(self._real):
            return True
        if target.exists():
            kind = self._kind
            self._on_problem(
                Path(path),
                f"it is a link that leads out of {self._root}",
                f"put the {kind.noun} there, or name {target.parent} in {kind.extra_dirs_key}",
            )
        return False


def load_frontmatter(file: FoundFile, max_bytes: int) -> dict[str, Json]:
    """Return the frontmatter of a file. Raises FrontmatterError, or OSError."""
    if file.stamp.size > max_bytes:
        raise FrontmatterError(f"it has {file.stamp.size} bytes; at most {max_bytes} are read")
    return read_frontmatter(_read_head(file))


def _read_head(file: FoundFile) -> str:
    """Return the text up to the end of the frontmatter; the instructions below are not decoded.

    Raises FrontmatterError for text that is not UTF-8.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(os.path.realpath(file.path), flags)
    try:
        if os.fstat(handle).st_ino != file.stamp.inode:  # a link may lead elsewhere by now
            raise FrontmatterError("it was replaced while it was read")
        data = os.read(handle, _MAX_HEAD_BYTES)
    finally:
        os.close(handle)
    end = _END.search(data, 3)
    if end is None:  # there is no frontmatter, or one that is too long
        return data.decode(errors="replace")
    try:
        return data[: end.end()].decode()
    except UnicodeDecodeError:
        raise FrontmatterError("its frontmatter is not UTF-8") from None
