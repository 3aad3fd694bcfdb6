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
def test_sqlites_errors_are_said_in_our_words(
    raised: type[apsw.Error], expected: type[StoreError], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.sqlite"
    error = store_error(raised("x"), path)
    assert type(error) is expected
    assert said in error.message and str(path) in error.message
    assert error.fix or expected is Conflict


def test_a_failed_write_where_there_is_no_room_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.store.failure._room", lambda _path: 0)
    assert isinstance(store_error(apsw.IOError("x"), tmp_path / "a"), DiskFull)


def test_other_errors_pass_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Translated(tmp_path):
        raise KeyError("a")
    with pytest.raises(DiskFull), Translated(tmp_path):
        raise apsw.FullError("x")
