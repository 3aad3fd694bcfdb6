"""The file of an index: open it, seal it with a checksum, verify it, replace it if damaged.

SQLite notices damage only where it reads it, and a changed byte in a word, a number or a list of
lines goes unnoticed: the result is wrong, or empty. Therefore a database has a *seal* next to it
(`<agent>.sqlite-seal`): its size and the checksum of every byte, written when a sync is done and
the WAL is empty, and deleted before the next commit, since only committed pages move from the WAL
into the file. The file is compared with its seal when it is opened, and when its size or time
changed meanwhile: 15 ms for 56 MB. Without a seal (the process was killed after a commit) SQLite
checks its own structure.

The file is next to OpenClaw's index of the same notes, which has other tables and is never opened
for writing: `main.homarus.sqlite` next to `main.sqlite`. Earlier versions wrote theirs in its
place; such a file is recognised by its tables or its seal and moved to its own name.

A file that is damaged, deleted or not ours raises CorruptDataError. It held nothing that the notes
do not.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from homarus.config.sqlite_errors import TranslateErrors, to_store_error
from homarus.core.errors import CorruptDataError, StoreError
from homarus.core.private_files import create_private, make_private_dir, open_private
from homarus.memory import schema
from homarus.store.query import select

BUSY_MS: Final = 30_000
_BLOCK_BYTES = 1 << 20
_PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -16000")

_OWN: Final = ".homarus"
_COMPANIONS: Final = ("-vectors", "-vectors-wal", "-vectors-shm", "-seal", "-wal", "-shm", "")

_Identity = tuple[int, int, int, int]


class Database:
    """One connection to an index, used by one thread at a time."""

    def __init__(self, path: Path, busy_ms: int = BUSY_MS) -> None:
        self.path = path
        self.rebuilt = ""  # why it was rebuilt, until a sync reports it
        self.opened = 0
        self._busy_ms = busy_ms
        self._is_sealed = False
        self._seen: _Identity | None = None
        with translate_os_errors(path):
            adopt_former_index(path)
        self.db = self._open()

    def close(self) -> None:
        if not self._is_sealed:
            self.seal()
        self.db.close()

    def _open(self) -> apsw.Connection:
        """Open or create it; an unreadable one is replaced."""
        try:
            return self._connect()
        except CorruptDataError as exc:
            self._put_away(f"the index was damaged ({exc.message})")
        return self._connect()

    def reopen(self, exc: CorruptDataError) -> None:
        """Reopen it; replace it by an empty one if it is damaged."""
        self.db.close()
        if isinstance(exc, _FileReplacedError):
            self.db = self._open()
            return
        self._put_away(f"the index was damaged ({exc.message})")
        self.db = self._connect()

    def _put_away(self, why: str) -> None:
        self.rebuilt = why
        self._seen = None
        with translate_os_errors(self.path):
            for suffix in ("", "-wal", "-shm", "-seal"):
                beside(self.path, suffix).unlink(missing_ok=True)

    def _connect(self) -> apsw.Connection:
        with translate_os_errors(self.path), TranslateErrors(self.path), self._suspicious():
            make_private_dir(self.path.parent)
            self._judge_seal()
            create_private(self.path)
            db = apsw.Connection(str(self.path))
            try:
                self.path.chmod(0o600)
                db.set_busy_timeout(self._busy_ms)
                for pragma in _PRAGMAS:
                    select(db, f"PRAGMA {pragma}")
                self._judge_structure(db)
                self._make(db)
                self._seen = self._identity()
                self.opened += 1
            except BaseException:
                db.close()
                raise
        return db

    def _make(self, db: apsw.Connection) -> None:
        if schema.has_tables(db):
            return
        with _transaction(db):
            if not schema.has_tables(db):  # another process was faster
                schema.create_tables(db)

    def check_unchanged(self) -> None:
        """Check that the file is the same and unchanged. Costs a stat. Raises CorruptDataError."""
        now = self._identity()
        if now == self._seen:
            return
        if now is None:
            raise CorruptDataError(f"{self.path} is gone")
        if self._seen is None or now[:2] != self._seen[:2]:
            raise _FileReplacedError(f"{self.path} was made anew by another process")
        with translate_os_errors(self.path):
            self._judge_seal()
        self._seen = now

    def _identity(self) -> _Identity | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Read one generation: everything inside is one snapshot."""
        with TranslateErrors(self.path), self._suspicious():
            self.check_unchanged()
            self.db.execute("BEGIN")
            try:
                yield self.db
            finally:
                if self.db.in_transaction:
                    self.db.execute("COMMIT")

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Write in one transaction that locks at its start: two writers wait for each other."""
        with TranslateErrors(self.path), self._suspicious(), _transaction(self.db):
            yield self.db
            self._break_seal()

    # The seal is written and deleted by the holder of the write lock.

    def seal(self) -> None:
        """Write the seal. Postponed while a reader uses the WAL."""
        self.db.set_busy_timeout(0)
        try:
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            with _transaction(self.db):
                if self._log_bytes() == 0:
                    self._write_seal(_sum(self.path))
        except (apsw.Error, OSError):
            return  # the commit is durable; the next sync writes the seal
        finally:
            self.db.set_busy_timeout(self._busy_ms)
            self._seen = self._identity()

    def _write_seal(self, told: str) -> None:
        place = beside(self.path, "-seal")
        draft = beside(self.path, f"-seal.{os.getpid()}")
        with open_private(draft, "w") as file:
            file.write(told)
        draft.replace(place)
        self._is_sealed = True

    def _break_seal(self) -> None:
        self._is_sealed = False
        with translate_os_errors(self.path):
            beside(self.path, "-seal").unlink(missing_ok=True)

    def _read_seal(self) -> str:
        try:
            return beside(self.path, "-seal").read_text(encoding="ascii", errors="replace")
        except OSError:
            return ""

    def _log_bytes(self) -> int:
        try:
            return beside(self.path, "-wal").stat().st_size
        except OSError:
            return 0

    @contextmanager
    def _suspicious(self) -> Iterator[None]:
        """Return whether invalid text, an invalid day or a missing column is damage and not a bug.

        It is a bug when every byte is as we left it; then nothing is discarded.
        """
        try:
            yield
        except (ValueError, apsw.SQLError, apsw.ConstraintError, apsw.MismatchError) as exc:
            told = self._read_seal()
            if told and not self._log_bytes() and _sum(self.path) == told:
                raise
            raise CorruptDataError(f"{self.path} is damaged: {exc}") from exc

    def _judge_seal(self) -> None:
        told = self._read_seal()
        self._is_sealed = bool(told)
        if not told or _sum(self.path) == told:
            return
        if self._read_seal() == told:  # no other process wrote meanwhile
            raise CorruptDataError(f"{self.path} is not as it was left")

    def _judge_structure(self, db: apsw.Connection) -> None:
        """Check what is possible without a seal: the pages, and the references to lines."""
        if self._is_sealed:
            return
        told = str(select(db, "PRAGMA quick_check(1)")[0][0])
        if told != "ok":
            raise CorruptDataError(f"{self.path} is damaged: {told.splitlines()[-1]}")
        if schema.has_tables(db) and not schema.is_sound(db):
            raise CorruptDataError(f"{self.path} has other lines than notes")


class _FileReplacedError(CorruptDataError):
    """Another file has this name: it is not ours to replace."""


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to another: its name with a suffix."""
    return path.with_name(path.name + suffix)


def own_index_path(shared: Path) -> Path:
    """Return the path of our index next to that of OpenClaw."""
    return shared.with_name(f"{shared.stem}{_OWN}{shared.suffix}")


def adopt_former_index(path: Path) -> None:
    """Move an index that an earlier version made in OpenClaw's place to its own path."""
    former = path.with_name(f"{path.stem.removesuffix(_OWN)}{path.suffix}")
    if former == path or path.exists() or not former.is_file() or not _is_own(former):
        return
    for suffix in _COMPANIONS:
        with suppress(FileNotFoundError):  # not every companion exists
            beside(former, suffix).rename(beside(path, suffix))


def _is_own(file: Path) -> bool:
    """Return whether a file is an index of ours, without changing anything next to it."""
    if any(beside(file, suffix).exists() for suffix in ("-seal", "-vectors")):
        return True
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        db = apsw.Connection(f"{file.absolute().as_uri()}?immutable=1", flags=flags)
    except apsw.Error:
        return False
    with closing(db), suppress(apsw.Error):
        return bool(select(db, "SELECT 1 FROM sqlite_schema WHERE name = 'postings'"))
    return False


def _sum(path: Path) -> str:
    """Return the size and checksum of a file; those of an empty one if it is missing."""
    size = crc = 0
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                size += len(block)
                crc = zlib.crc32(block, crc)
    except FileNotFoundError:
        pass
    return f"{size} {crc:08x}\n"


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Translate OSErrors into StoreErrors."""
    try:
        yield
    except PermissionError as exc:
        raise StoreError(
            f"cannot write {path}: {exc.strerror}",
            fix="check the owner and permissions of the folder",
        ) from exc
    except OSError as exc:
        raise to_store_error(exc, path) from exc


@contextmanager
def _transaction(db: apsw.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite itself ends it when the disk is full
            db.execute("ROLLBACK")
        raise
