"""A disk that fails on request: a layer between SQLite and its files.

`Disk` counts writes and syncs of every database opened while it is installed, and fails the ones
that `fail` names. The files themselves are real.
"""

import threading
from types import TracebackType
from typing import Literal, Self, TypeAlias

import apsw

Act: TypeAlias = Literal["write", "sync"]
BASE = "unix"


class Disk(apsw.VFS):
    """`with Disk() as disk:`; connections that are opened inside go through it."""

    def __init__(self, name: str = "failing-disk") -> None:
        super().__init__(name, BASE, makedefault=True)
        self.count: dict[Act, int] = {"write": 0, "sync": 0}
        self._at: tuple[Act, int, bool] | None = None
        self._lock = threading.Lock()

    def fail(self, act: Act, at: int, *, on: bool = False) -> None:
        """Fail that write or sync, counted from now; with `on`, every later one too."""
        with self._lock:
            self.count = {"write": 0, "sync": 0}
            self._at = (act, at, on)

    def mend(self) -> None:
        self._at = None

    def passes(self, act: Act) -> None:
        with self._lock:
            self.count[act] += 1
            if self._at is None or self._at[0] != act:
                return
            number = self.count[act]
            if number == self._at[1] or (self._at[2] and number > self._at[1]):
                raise apsw.FullError("on purpose") if act == "write" else apsw.IOError("on purpose")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "File":  # noqa: N802 - SQLite's name
        return File(self, name, flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        apsw.set_default_vfs(BASE)
        self.unregister()


class File(apsw.VFSFile):
    """One of SQLite's files."""

    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__(BASE, name, flags)
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.passes("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.passes("sync")
        super().xSync(flags)
