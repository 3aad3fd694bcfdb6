from pathlib import Path

import apsw
import pytest

from homarus.core.errors import Conflict, Corrupt, DiskFull, InUse, StoreError
from homarus.store.failure import Translated, store_error


@pytest.mark.parametrize(
    ("raised", "expected", "said"),
    [
        (apsw.FullError, DiskFull, "no room"),
        (apsw.CorruptError, Corrupt, "damaged"),
        (apsw.NotADBError, Corrupt, "damaged"),
        (apsw.BusyError, InUse, "holds"),
        (apsw.LockedError, InUse, "holds"),
        (apsw.ReadOnlyError, StoreError, "cannot write"),
        (apsw.CantOpenError, StoreError, "cannot write"),
        (apsw.ConstraintError, Conflict, "x"),
        (apsw.IOError, StoreError, "x"),
    ],
)
def test_sqlite_errors_become_store_errors(
    raised: type[apsw.Error], expected: type[StoreError], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.sqlite"
    error = store_error(raised("x"), path)
    assert type(error) is expected
    assert said in error.message and str(path) in error.message
    assert error.fix or expected is Conflict


def test_failed_write_without_free_space_is_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.store.failure._room", lambda _path: 0)
    assert isinstance(store_error(apsw.IOError("x"), tmp_path / "a"), DiskFull)


def test_other_errors_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Translated(tmp_path):
        raise KeyError("a")
    with pytest.raises(DiskFull), Translated(tmp_path):
        raise apsw.FullError("x")
