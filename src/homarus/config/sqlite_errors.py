"""Translate errors of SQLite and the disk into store errors that name the file and the fix."""

import errno
import os
from pathlib import Path
from types import TracebackType

import apsw

from homarus.core.errors import (
    ConflictError,
    CorruptDataError,
    DiskFullError,
    StateInUseError,
    StoreError,
)


def to_store_error(exc: apsw.Error | OSError, path: Path) -> StoreError:
    """Return the StoreError for an error of SQLite or of the operating system."""
    match exc:
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return _full(path)
        case apsw.FullError():
            return _full(path)
        case apsw.IOError() if not _room(path):
            return _full(path)
        case apsw.CorruptError() | apsw.NotADBError():
            return CorruptDataError(f"{path} is damaged: {exc}", fix="run `homarus doctor`")
        case apsw.BusyError() | apsw.LockedError():
            return StateInUseError(
                f"another process holds {path}", fix="stop the program that has it open"
            )
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return StoreError(
                f"cannot write {path}: {exc}", fix="check the owner and permissions of the folder"
            )
        case apsw.ConstraintError():
            return ConflictError(f"{path}: {exc}")
        case _:
            return StoreError(f"{path}: {exc}", fix="check the disk, then run `homarus doctor`")


def _full(path: Path) -> DiskFullError:
    return DiskFullError(f"no room to write {path}", fix="free some disk space; it goes on then")


def _room(path: Path) -> int:
    try:
        return os.statvfs(path.parent).f_bavail
    except OSError:
        return 1


class TranslateErrors:
    """`with TranslateErrors(path):` raises store errors instead of SQLite's."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(exc, apsw.Error):
            raise to_store_error(exc, self._path) from exc
