"""Read the workspace files, for the prompt and for clients; write them for clients.

Nothing outside the workspace is read: a link that leads out is reported, not followed. A file that
cannot be read, or is not text, becomes one line that says so, and the run continues.
"""

import codecs
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import BinaryIO, Final

from homarus.agent.prompt.injection import EXPECTED, MEMORY, ORDER, WorkspaceFile
from homarus.core.errors import ToolError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.tools.rooted_fs import RootedFs

MAX_BYTES: Final = 4_000_000  # of a file that clients write
# Of a larger file only the ends are read: no prompt includes more.
_MAX_FULL_BYTES, _HEAD_BYTES, _TAIL_BYTES = 1_000_000, 600_000, 300_000
_TRIES = 3  # to read a file that is being changed
_FRESH_NS = 50_000_000  # a change this recent may be followed by one with the same timestamp
_MAX_CACHED = 512
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"),
                (codecs.BOM_UTF16_BE, "utf-16-be"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkspaceFileState:
    """A workspace file as clients see it. `updated_ms` 0: it does not exist."""

    name: str
    path: Path
    size: int = 0
    updated_ms: int = 0
    content: str = ""

    @property
    def missing(self) -> bool:
        return not self.updated_ms


@dataclass(frozen=True, slots=True)
class _CachedFile:
    stamp: tuple[int, ...]
    file: WorkspaceFile
    settled: bool  # it had not just been changed when it was read


class WorkspaceFileReader:
    """Reads the files of the prompt, and caches them until they change."""

    def __init__(self) -> None:
        self._read: dict[str, _CachedFile] = {}

    def load(self, workspace: Path, names: Sequence[str] = ORDER) -> tuple[WorkspaceFile, ...]:
        """Return the existing files of these names, and the missing ones that are expected."""
        try:
            is_folder = S_ISDIR(workspace.stat().st_mode)
        except OSError:
            is_folder = False
        if not is_folder:
            raise unusable_workspace_error(workspace, None)
        folder = str(workspace)  # called for every run: joining Paths costs more than lstat
        found: list[WorkspaceFile] = []
        seen: set[tuple[int, int]] = set()
        for name in names:
            path = f"{folder}/{name}"
            try:
                status = os.lstat(path)
            except OSError:
                if name in EXPECTED:
                    found.append(WorkspaceFile(name, path, missing=True))
                continue
            if name in MEMORY:
                same = _file_id(workspace, name, status)
                if same in seen:
                    continue
                seen.add(same)
            found.append(self._file(workspace, name, path, status))
        return tuple(found)

    def _file(self, workspace: Path, name: str, path: str, status: os.stat_result) -> WorkspaceFile:
        stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        cached = self._read.get(path)
        # The target of a link can change without the link: it is not cached.
        if cached and cached.settled and cached.stamp == stamp and not S_ISLNK(status.st_mode):
            return cached.file
        settled = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _FRESH_NS
        text, chars = read_text(workspace, name)
        if len(self._read) >= _MAX_CACHED:
            self._read.clear()
        file = WorkspaceFile(name, path, text, chars=chars)
        self._read[path] = _CachedFile(stamp, file, settled)
        return file


def _file_id(workspace: Path, name: str, status: os.stat_result) -> tuple[int, int]:
    """Return which file a name leads to: two names may lead to one."""
    if S_ISLNK(status.st_mode):
        with suppress(ToolError):
            status = RootedFs(workspace).stat(name)
    return status.st_dev, status.st_ino


def read_text(workspace: Path, name: str) -> tuple[str, int]:
    """Return a file's text, or a line that says why there is none; and its full length.

    Of a very large file, only the ends are read.
    """
    try:
        with RootedFs(workspace).open_read(name) as opened:
            data, size = _read_content(opened.file)
    except (OSError, ToolError) as exc:
        notice = f"[{one_line(name)} could not be read: {one_line(str(exc), 300)}]"
        return notice, len(notice)
    text = _decoded(data).strip()
    if "\0" in text:
        notice = f"[{one_line(name)} is not text: {size} bytes left out]"
        return notice, len(notice)
    return text, size if size > _MAX_FULL_BYTES else len(text)


def _read_content(file: BinaryIO) -> tuple[bytes, int]:
    """Return the content of a file, read again while another process changes it."""
    data, size = b"", 0
    for _ in range(_TRIES):
        before = os.fstat(file.fileno())
        file.seek(0)
        size = before.st_size
        if size <= _MAX_FULL_BYTES:
            data = file.read(_MAX_FULL_BYTES + 1)
            size = max(size, len(data))
        else:
            data = file.read(_HEAD_BYTES)
            file.seek(size - _TAIL_BYTES)  # from the start: the file may have become shorter
            data += file.read(_TAIL_BYTES)
        after = os.fstat(file.fileno())
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
            break
    return data, size


def _decoded(data: bytes) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    return data.decode("utf-8", "replace")


# --- for clients -------------------------------------------------------------------------------


def list_files(workspace: Path) -> tuple[WorkspaceFileState, ...]:
    """Return the files a client may see, without their content."""
    found = [_stat_file(workspace, name) for name in ORDER]
    memory = [file for file in found if file.name in MEMORY]
    shown = next((file for file in memory if not file.missing), memory[0])
    return tuple(file for file in found if file.name not in MEMORY or file is shown)


def get_file(workspace: Path, name: str) -> WorkspaceFileState:
    """Return one of the files with its text."""
    file = _stat_file(workspace, _check_name(name, ORDER))
    return file if file.missing else replace(file, content=_content(workspace, name))


def _content(workspace: Path, name: str) -> str:
    try:
        with RootedFs(workspace).open_read(name) as opened:
            return opened.file.read(MAX_BYTES).decode(errors="replace")
    except (OSError, ToolError) as exc:
        return f"[{name} could not be read: {exc}]"


def set_file(workspace: Path, name: str, content: str) -> WorkspaceFileState:
    """Replace one of the files atomically."""
    data = content.encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        raise UserError(f"{name}: {len(data)} bytes; a file here holds at most {MAX_BYTES}")
    try:
        RootedFs(workspace).write_atomic(_check_name(name, ORDER), data)
    except ToolError as exc:
        raise UserError(exc.message, fix=exc.fix) from None
    return get_file(workspace, name)


def _check_name(name: str, names: Iterable[str]) -> str:
    if name not in names:
        raise UserError(f"unsupported file {one_line(name)!r}", fix=f"one of {', '.join(names)}")
    return name


def _stat_file(workspace: Path, name: str) -> WorkspaceFileState:
    """Return a file's state; a link out of the workspace counts as missing."""
    try:
        status = RootedFs(workspace).stat(name)
    except ToolError:
        return WorkspaceFileState(name, workspace / name)
    if not S_ISREG(status.st_mode):
        return WorkspaceFileState(name, workspace / name)
    return WorkspaceFileState(
        name, workspace / name, status.st_size, status.st_mtime_ns // 1_000_000
    )


def unusable_workspace_error(workspace: Path, exc: OSError | None) -> UserError:
    """Return the error for a workspace that cannot be used."""
    reason = exc.strerror if exc else "there is no such folder"
    return UserError(
        f"cannot use the workspace {workspace}: {reason}",
        fix="run `homarus setup`, or set agents.defaults.workspace to a folder you can write to",
    )
