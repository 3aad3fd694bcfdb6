"""The folders of sandboxes on disk: their names, locks and records.

    <workspaceRoot>/<name>              the workspace, which commands see as /workspace
    <state>/sandboxes/.data/<name>/     what no command sees: tmp (their /tmp), lock, sandbox.json

A command holds a shared lock on `lock` as long as it runs; a sandbox is removed only under the
exclusive lock. The name of a sandbox is made of `a-z0-9-` and ends in a hash of what it belongs to,
so that no session key leads out of the folder, and two keys never share a sandbox.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from homarus.core.atomic_file import temporary_name, write_synced
from homarus.core.errors import SandboxError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import FILE_MODE, FOLDER_MODE, make_private_dir
from homarus.policy.sandbox_settings import SandboxScope
from homarus.tools.sandbox.loader import FOLDER

DATA_FOLDER: Final = ".data"
RECORD_FILE: Final = "sandbox.json"
_TRASH: Final = ".removed-"
_MAX_PATH: Final = 800  # characters, of up to four bytes; the kernel takes 4096 bytes
_MAX_READABLE: Final = 40
_HASH_CHARS: Final = 10
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,60}[a-z0-9])?")
_UPDATE_MS: Final = 60_000  # how old the time of the last use may become on disk
_LOCK_TRIES, _LOCK_PAUSE_S = 50, 0.002
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """What is saved of a sandbox. `key` is the session that made it."""

    name: str
    key: str
    agent_id: str
    scope: str
    backend: str
    created_ms: int
    used_ms: int
    path: Path  # of its workspace


def make_sandbox_name(scope: SandboxScope, agent_id: str, session_key: str) -> str:
    """Return the name of the sandbox that a session uses.

    >>> make_sandbox_name("session", "main", "agent:main:telegram:group:-100")
    'main-telegram-group-100-a806dfe1ed'
    """
    owner = {"session": session_key, "agent": f"agent:{agent_id}"}.get(scope, "shared")
    readable = owner.removeprefix("agent:") if scope == "session" else owner
    plain = re.sub(r"[^a-z0-9]+", "-", readable.lower()).strip("-")[:_MAX_READABLE].strip("-")
    digest = hashlib.sha256(f"{scope}\0{owner}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain or 'sandbox'}-{digest[:_HASH_CHARS]}"


def data_root(state: Path) -> Path:
    """Return the folder with the records of all sandboxes."""
    return state / FOLDER / DATA_FOLDER


class SandboxFolders:
    """The folders of one sandbox."""

    def __init__(self, data: Path, workspace: Path) -> None:
        self.data, self.workspace = data, workspace
        self.tmp, self._lock = data / "tmp", data / "lock"

    @property
    def name(self) -> str:
        return self.data.name

    def acquire(self, *, has_workspace: bool = True) -> int:
        """Create the folders, and return a descriptor with a shared lock on the sandbox.

        Without `has_workspace` another folder is the workspace. Raises SandboxError.
        """
        try:
            while (fd := self._open_lock()) is None:
                make_private_dir(self.tmp)
        except OSError as exc:
            raise self._failure(exc) from exc
        try:
            make_private_dir(self.tmp)  # another first use may have made the lock's folder only
            if has_workspace:
                make_private_dir(self.workspace)
                if self.workspace.is_symlink():
                    raise SandboxError(
                        f"{self.workspace} is a link, not the folder of a sandbox",
                        fix="remove the link",
                    )
                restore_rights(self.workspace)
            restore_rights(self.tmp)
        except OSError as exc:
            os.close(fd)
            raise self._failure(exc) from exc
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _failure(self, exc: OSError) -> SandboxError:
        return SandboxError(
            f"the folders of the sandbox {self.name} cannot be made: {exc.strerror or exc}",
            fix=f"check {exc.filename or self.data.parent}",
        )

    def _open_lock(self) -> int | None:
        """Return the locked descriptor; None when the sandbox was removed meanwhile."""
        try:
            fd = os.open(self._lock, _LOCK, FILE_MODE)
        except FileNotFoundError:
            return None
        try:
            # It never waits for long: the lock may be held by a task of this event loop.
            if not _try_lock(fd, fcntl.LOCK_SH, _LOCK_TRIES):
                raise SandboxError(
                    f"the sandbox {self.name} is being removed", fix="run the command again"
                )
            if self._is_current(fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def _is_current(self, fd: int) -> bool:
        """Return whether an open lock file is the one of the sandbox: it may have been removed."""
        try:
            return os.path.samestat(os.fstat(fd), self._lock.stat())
        except FileNotFoundError:
            return False

    def acquire_exclusive(self) -> int | None:
        """Return a descriptor with the exclusive lock; None while a command runs."""
        fd = os.open(self._lock, _LOCK, FILE_MODE)
        try:
            if _try_lock(fd, fcntl.LOCK_EX) and self._is_current(fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def is_live(self) -> bool:
        """Return whether a command runs in the sandbox."""
        try:
            fd = self.acquire_exclusive()
        except OSError:
            return False
        if fd is None:
            return True
        os.close(fd)
        return False

    def save(self, record: SandboxRecord) -> None:
        """Save the record, unless the saved one is the same and not much older."""
        before = load_record(self.data)
        if before is not None:
            is_recent = record.used_ms - before.used_ms < _UPDATE_MS
            is_same = (before.backend, before.path, before.key) == (
                record.backend, record.path, record.key,
            )  # fmt: skip
            if is_recent and is_same:
                return
        created_ms = before.created_ms if before else record.created_ms
        values = {
            "name": record.name,
            "key": record.key,
            "agent": record.agent_id,
            "scope": record.scope,
            "backend": record.backend,
            "createdAtMs": created_ms,
            "usedAtMs": record.used_ms,
            "path": str(record.path),
        }
        temporary = self.data / temporary_name()
        write_synced(temporary, json.dumps(values).encode())
        temporary.replace(self.data / RECORD_FILE)

    def move_to_trash(self) -> list[Path]:
        """Rename the folders, whose exclusive lock the caller has, so that nothing finds them."""
        moved: list[Path] = []
        own_root = self.workspace.parent
        for folder, parent in ((self.workspace, own_root), (self.data, self.data.parent)):
            target = parent / f"{_TRASH}{secrets.token_hex(8)}"
            with suppress(FileNotFoundError):
                folder.rename(target)
                moved.append(target)
        return moved


def restore_rights(folder: Path) -> None:
    """Give a folder its owner's rights again, if a command took them: no other could start."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & FOLDER_MODE != FOLDER_MODE:
        folder.chmod(mode | FOLDER_MODE)


def _try_lock(fd: int, operation: int, tries: int = 1) -> bool:
    for attempt in range(tries):
        with suppress(BlockingIOError):
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
            return True
        if attempt + 1 < tries:
            time.sleep(_LOCK_PAUSE_S)
    return False


def load_record(data: Path) -> SandboxRecord | None:
    """Return the record in the folder of a sandbox; None for a folder without a valid one."""
    try:
        value = json.loads((data / RECORD_FILE).read_bytes())
        record = SandboxRecord(
            str(value["name"]),
            str(value["key"]),
            str(value["agent"]),
            str(value["scope"]),
            str(value["backend"]),
            int(value["createdAtMs"]),
            int(value["usedAtMs"]),
            Path(str(value["path"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_valid = record.name == data.name == record.path.name and _NAME.fullmatch(record.name)
    return record if is_valid and record.path.is_absolute() else None


def data_folders(state: Path) -> Iterator[Path]:
    """Yield the folders in which sandboxes have their records, by name."""
    try:
        entries = sorted(data_root(state).iterdir())
    except OSError:
        return
    for entry in entries:
        if _NAME.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink():
            yield entry


def find_trash(root: Path) -> list[Path]:
    """Return the removed folders that a crash left."""
    try:
        return [entry for entry in root.iterdir() if entry.name.startswith(_TRASH)]
    except OSError:
        return []


def remove_tree(path: Path) -> None:
    """Remove a folder, also one that its commands made unreadable, or very deep. Raises OSError."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with suppress(OSError, RecursionError):
        shutil.rmtree(path)
        return
    _remove_deep(path)


def _remove_deep(top: Path) -> None:
    """Remove a folder; links are not followed.

    A folder whose path becomes long is moved to the top first: the kernel has a limit for it.
    """
    top.chmod(FOLDER_MODE)
    todo, emptied = [top], list[Path]()
    while todo:
        folder = todo.pop()
        with os.scandir(folder) as found:
            entries = list(found)  # before any is moved to a folder that is read
        for entry in entries:
            path = Path(entry)
            if not entry.is_dir(follow_symlinks=False):
                path.unlink()
                continue
            path.chmod(FOLDER_MODE)  # a folder that is moved must be writable itself
            if len(entry.path) > _MAX_PATH:
                path = path.rename(top / f"{_TRASH}{secrets.token_hex(8)}")
            todo.append(path)
        emptied.append(folder)
    for folder in reversed(emptied):  # each after those that were in it
        folder.rmdir()
