from pathlib import Path

import apsw
import pytest

from homarus.config.sqlite_errors import TranslateErrors, to_store_error
from homarus.core.errors import (
    ConflictError,
    CorruptDataError,
    DiskFullError,
    StateInUseError,
    StoreError,
)


@pytest.mark.parametrize(
    ("raised", "expected", "said"),
    [
        (apsw.FullError, DiskFullError, "no room"),
        (apsw.CorruptError, CorruptDataError, "damaged"),
        (apsw.NotADBError, CorruptDataError, "damaged"),
        (apsw.BusyError, StateInUseError, "holds"),
        (apsw.LockedError, StateInUseError, "holds"),
        (apsw.ReadOnlyError, StoreError, "cannot write"),
        (apsw.CantOpenError, StoreError, "cannot write"),
        (apsw.ConstraintError, ConflictError, "x"),
        (apsw.IOError, StoreError, "x"),
    ],
)
def test_sqlite_errors_become_store_errors(
    raised: type[apsw.Error], expected: type[StoreError], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.sqlite"
    error = to_store_error(raised("x"), path)
    assert type(error) is expected
    assert said in error.message and str(path) in error.message
    assert error.fix or expected is ConflictError


def test_failed_write_without_free_space_is_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.config.sqlite_errors._room", lambda _path: 0)
    assert isinstance(to_store_error(apsw.IOError("x"), tmp_path / "a"), DiskFullError)


def test_other_errors_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(KeyError), TranslateErrors(tmp_path):
        raise KeyError("a")
    with pytest.raises(DiskFullError), TranslateErrors(tmp_path):
        raise apsw.FullError("x")
