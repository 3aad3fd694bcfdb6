"""Read a database of OpenClaw 2026.9 without changing or creating a file.

OpenClaw may be running. A database without a write-ahead log is read in place, as a file that
does not change, and again if it did. One with a write-ahead log is read from a private copy of
both files: SQLite would create and change files next to the log even to read it.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import apsw

from homarus.config.sqlite_errors import TranslateErrors
from homarus.core.errors import StateInUseError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_stamp import FileStamp, stat_stamp

DATABASE_NAME: Final = "openclaw-agent.sqlite"
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.05
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DatabaseStamp:
    """The stamps of a database and its write-ahead log: the same while neither was written."""

    file: FileStamp | None
    log: FileStamp | None

    @classmethod
    def of(cls, path: Path) -> Self:
        log = stat_stamp(f"{path}-wal")
        return cls(stat_stamp(path), log if log and log.size else None)


class OpenClawSnapshot:
    """One database of OpenClaw, for use on one thread. Reading raises StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: apsw.Connection | None = None
        self._stamp: DatabaseStamp | None = None
        self._is_copy = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = self._stamp = None

    def stamp(self) -> DatabaseStamp:
        return DatabaseStamp.of(self.path)

    def listed_databases(self) -> list[tuple[str, str]]:
        """Return the agents of a state database and the paths of their databases."""
        return self._read(
            lambda db: [
                (agent, path)
                for agent, path in db.execute(
                    "SELECT agent_id, path FROM agent_databases ORDER BY last_seen_at"
                )
                if isinstance(agent, str) and isinstance(path, str) and "\0" not in path
            ]
        )

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of any other query."""
        return self._read(lambda db: db.execute(sql, values).fetchall())

    def _read(self, read: Callable[[apsw.Connection], _T]) -> _T:
        """Read from the current state of the database, which OpenClaw may change meanwhile."""
        failure: StoreError | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            stamp, failure = self.stamp(), None
            try:
                with TranslateErrors(self.path):
                    result = read(self._connect(stamp))
            except StoreError as exc:
                failure = exc
                self.close()
                if stamp == self.stamp():
                    raise
                continue
            if self._is_copy or stamp == self.stamp():
                return result
        raise failure or StateInUseError(f"{self.path} is written all the time", fix="try again")

    def _connect(self, stamp: DatabaseStamp) -> apsw.Connection:
        if self._db is None or stamp != self._stamp:
            self.close()
            self._is_copy = stamp.log is not None
            self._db = open_snapshot(self.path, stamp)
            self._db.execute("PRAGMA trusted_schema = OFF")
            self._stamp = stamp
        return self._db


def open_snapshot(path: Path, stamp: DatabaseStamp | None = None) -> apsw.Connection:
    """Open a database of OpenClaw for reading, so that no file next to it is made or changed."""
    stamp = stamp or DatabaseStamp.of(path)
    return _open_copy(path) if stamp.log else _open_in_place(path)


def _open_in_place(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"file:{quote(str(path))}?immutable=1", flags=flags)


def _open_copy(path: Path) -> apsw.Connection:
    """Open a copy of the database with its log. The copy has no name as soon as it is open."""
    folder = Path(tempfile.mkdtemp(prefix="homarus-"))
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        copy = folder / DATABASE_NAME
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            before = DatabaseStamp.of(path)
            try:
                _copy_file(path, copy)
                _copy_file(Path(f"{path}-wal"), Path(f"{copy}-wal"))
            except OSError as exc:
                raise StoreError(
                    f"{path} cannot be copied: {exc.strerror}",
                    fix=f"check its owner, and the free space of {folder.parent}",
                ) from exc
            if before == DatabaseStamp.of(path):
                break
        else:
            raise StateInUseError(f"{path} is written all the time", fix="try again")
        db = apsw.Connection(str(copy))
        with ExitStack() as failed:
            failed.callback(db.close)
            db.execute("PRAGMA synchronous = OFF")
            db.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file that can be unlinked
            db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            failed.pop_all()
        return db


def _copy_file(source: Path, target: Path) -> None:
    try:
        descriptor = os.open(source, READ_FLAGS)
    except FileNotFoundError:
        target.unlink(missing_ok=True)  # the log was deleted meanwhile
        return
    with (
        os.fdopen(descriptor, "rb") as read,
        os.fdopen(os.open(target, _CREATE, 0o600), "wb") as written,
    ):
        shutil.copyfileobj(read, written, 1 << 20)
