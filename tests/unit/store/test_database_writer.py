import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from homarus.core import faults
from homarus.core.errors import ConflictError, DiskFullError, StoreError
from homarus.store.database_writer import DatabaseWriter


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "state.sqlite"
    with closing(apsw.Connection(str(path))) as db:
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text)")
    return path


@pytest.fixture
def writer(database: Path) -> Iterator[DatabaseWriter]:
    writer = DatabaseWriter(apsw.Connection(str(database)), database)
    yield writer
    writer.close()


def rows(path: Path) -> list[int]:
    return [row[0] for row in apsw.Connection(str(path)).execute("SELECT n FROM t ORDER BY n")]


def insert(n: int, text: str = "") -> "Insert":
    return Insert(n, text)


class Insert:
    def __init__(self, n: int, text: str) -> None:
        self.n, self.text = n, text

    def __call__(self, db: apsw.Connection) -> int:
        db.execute("INSERT INTO t VALUES (?, ?)", (self.n, self.text))
        return self.n


class Gate:
    """A job that holds the writer until it is let go, so that others gather behind it."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, db: apsw.Connection) -> None:
        self.reached.set()
        assert self.opened.wait(10)


async def test_writer_job_is_on_disk_when_it_returns(
    writer: DatabaseWriter, database: Path
) -> None:
    assert await writer.run(insert(1)) == 1
    assert rows(database) == [1]


async def test_writer_queued_jobs_share_commit_and_wake_loop_once(
    writer: DatabaseWriter, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    wakes = 0
    real = loop.call_soon_threadsafe

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal wakes
        wakes += 1
        return real(*args, **kwargs)  # type: ignore[arg-type] # passed on as they came

    gate = Gate()
    held = writer.submit(gate)
    gate.reached.wait(10)
    async with asyncio.TaskGroup() as group:
        jobs = [group.create_task(writer.run(insert(n))) for n in range(100)]
        await asyncio.sleep(0)
        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        gate.opened.set()
    monkeypatch.undo()
    held.result()
    assert [job.result() for job in jobs] == list(range(100))
    assert wakes == 1
    assert rows(database) == list(range(100))


def test_writer_failing_job_rolls_back_only_its_writes(
    writer: DatabaseWriter, database: Path
) -> None:
    def half(db: apsw.Connection) -> None:
        db.execute("INSERT INTO t VALUES (50, '')")
        raise ConflictError("no")

    def broken(db: apsw.Connection) -> None:
        db.execute("INSERT INTO t VALUES (60, '')")
        db.execute("INSERT INTO t VALUES (?, '')", (object(),))

    gate = Gate()
    writer.submit(gate)
    gate.reached.wait(10)
    jobs = [
        writer.submit(job) for job in (insert(1), half, insert(2), insert(1), broken, insert(3))
    ]
    gate.opened.set()
    errors = [type(job.exception(10)) for job in jobs]
    assert errors == [type(None), ConflictError, type(None), ConflictError, TypeError, type(None)]
    assert rows(database) == [1, 2, 3]


def test_writer_failing_commit_fails_every_job(writer: DatabaseWriter, database: Path) -> None:
    def pretend(db: apsw.Connection) -> None:
        db.set_commit_hook(lambda: True)  # turns the next COMMIT into a failure

    def mend(db: apsw.Connection) -> None:
        db.set_commit_hook(None)

    gate = Gate()
    writer.submit(gate)
    gate.reached.wait(10)
    jobs = [writer.submit(job) for job in (insert(1), pretend, insert(2))]
    gate.opened.set()
    assert all(isinstance(job.exception(10), StoreError) for job in jobs)
    assert rows(database) == []
    writer.submit(mend).result(10)
    writer.submit(insert(3)).result(10)
    assert rows(database) == [3]


def test_writer_full_disk_raises_and_recovers(writer: DatabaseWriter, database: Path) -> None:
    def limit(db: apsw.Connection) -> None:
        db.execute("PRAGMA max_page_count = 3").fetchall()

    def lift(db: apsw.Connection) -> None:
        db.execute("PRAGMA max_page_count = 100000").fetchall()

    writer.submit(insert(1)).result(10)
    writer.submit(limit).result(10)
    with pytest.raises(DiskFullError, match="no room"):
        writer.submit(insert(2, "x" * 100_000)).result(10)
    assert rows(database) == [1]
    writer.submit(lift).result(10)
    writer.submit(insert(2, "x" * 100_000)).result(10)
    assert rows(database) == [1, 2]


def test_writer_later_joins_batch_and_last_of_a_name_runs(
    writer: DatabaseWriter, database: Path
) -> None:
    writer.run_deferred("a", insert(1))
    writer.run_deferred("a", insert(2))
    writer.run_deferred("b", lambda db: db.execute("INSERT INTO nowhere VALUES (1)"))
    writer.submit(insert(3)).result(10)
    assert rows(database) == [2, 3]


def test_writer_close_finishes_jobs_then_refuses(writer: DatabaseWriter, database: Path) -> None:
    gate = Gate()
    writer.submit(gate)
    gate.reached.wait(10)
    jobs = [writer.submit(insert(n)) for n in range(300)]
    writer.run_deferred("a", insert(1000))
    gate.opened.set()
    writer.close()
    writer.close()
    assert [job.result(0) for job in jobs] == list(range(300))
    assert rows(database) == [*range(300), 1000]
    with pytest.raises(StoreError, match="closed"):
        writer.submit(insert(5))


async def test_writer_cancelled_wait_ends_when_outcome_is_known(
    writer: DatabaseWriter, database: Path
) -> None:
    def fail(db: apsw.Connection) -> None:
        raise ConflictError("no")

    for job in (insert(1), fail):
        gate = Gate()
        writer.submit(gate)
        gate.reached.wait(10)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(writer.run(job))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            gate.opened.set()
        assert task.cancelled()
        assert rows(database) == [1]


async def test_writer_wait_cancelled_after_answer_ends_at_once(
    writer: DatabaseWriter, database: Path
) -> None:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(writer.run(insert(1)))
        await asyncio.sleep(0)
        for n in (2, 3):  # the loop stands still: the answer to the first lies before it
            writer.submit(insert(n)).result()
        waiting.cancel()
    assert rows(database) == [1, 2, 3]


def test_writer_closed_loop_is_ignored(writer: DatabaseWriter, database: Path) -> None:
    gate = Gate()
    writer.submit(gate)
    gate.reached.wait(10)
    loop = asyncio.new_event_loop()
    waiting = writer.run(insert(1))
    task = loop.create_task(waiting)
    loop.call_soon(loop.stop)
    loop.run_forever()  # one turn: it waits now
    loop.close()
    gate.opened.set()
    writer.submit(insert(2)).result(10)
    assert rows(database) == [1, 2]
    waiting.close()
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined] # left behind on purpose


def test_writer_dead_thread_leaves_no_waiter(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    writer = DatabaseWriter(apsw.Connection(str(database)), database)

    def bug(db: apsw.Connection) -> None:
        raise LookupError("a bug nobody expected")

    with pytest.raises(StoreError, match="closed"):
        writer.submit(bug).result(10)
    writer.close()
    with pytest.raises(StoreError, match="closed"):
        writer.submit(insert(1))
    assert len(died) == 1


def inject(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(faults, "_faults", faults.parse_faults(text))


def submit_together(writer: DatabaseWriter, *jobs: Insert) -> list[BaseException | None]:
    gate = Gate()
    writer.submit(gate)
    gate.reached.wait(10)
    waiting = [writer.submit(job) for job in jobs]
    gate.opened.set()
    return [one.exception(10) for one in waiting]


def test_writer_no_space_at_commit_fails_batch_and_recovers(
    writer: DatabaseWriter, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(monkeypatch, "store.commit:enospc:2")
    errors = submit_together(writer, insert(1), insert(2), insert(3))
    assert [type(error) for error in errors] == [DiskFullError] * 3
    assert len({id(error) for error in errors}) == 3  # each raises its own
    assert rows(database) == []
    assert writer.submit(insert(4)).result(10) == 4
    assert rows(database) == [4]
    assert not writer.broken.done()


@pytest.mark.parametrize(
    ("fault", "kept"),
    [("store.commit:eio:2", []), ("store.sync:eio:2", [1, 2]), ("store.sync:enospc:2", [1, 2])],
)
def test_writer_disk_failure_at_commit_breaks_writer(
    writer: DatabaseWriter,
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    kept: list[int],
) -> None:
    inject(monkeypatch, fault)
    errors = submit_together(writer, insert(1), insert(2))
    assert all(type(error) is StoreError for error in errors), errors
    assert "not written any more" in str(writer.broken.result(10))
    with pytest.raises(StoreError, match="not written any more") as caught:
        writer.submit(insert(3))
    assert "start homarus again" in caught.value.fix
    writer.close()
    assert rows(database) == kept


def test_writer_jobs_behind_broken_commit_are_refused(
    writer: DatabaseWriter, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(monkeypatch, "store.commit:eio:2")
    gate = Gate()
    writer.submit(gate)
    gate.reached.wait(10)
    waiting = [writer.submit(insert(n)) for n in range(300)]  # more than one batch
    gate.opened.set()
    assert all(type(one.exception(10)) is StoreError for one in waiting)
    assert rows(database) == []


class Disk(apsw.VFS):
    """The real one, until it is told to fail its next flush."""

    fails = False

    def __init__(self, name: str) -> None:
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "File":  # noqa: N802 - SQLite's name
        return File(self, name, flags)


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self.disk = disk

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        if self.disk.fails:
            raise apsw.IOError("flush failed")
        super().xSync(flags)


def test_writer_failed_fsync_is_never_retried(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk("failing")
    other = apsw.Connection(str(database))  # while it is open, closing the first flushes nothing
    other.execute("SELECT n FROM t").fetchall()
    db = apsw.Connection(str(database), vfs="failing")
    db.execute("PRAGMA synchronous = FULL")
    writer = DatabaseWriter(db, database)
    writer.submit(insert(1)).result(10)
    disk.fails = True
    errors = submit_together(writer, insert(2), insert(3))
    assert [type(error) for error in errors] == [StoreError] * 2
    assert "flush failed" in str(writer.broken.result(10))
    disk.fails = False
    with pytest.raises(StoreError, match="not written any more"):
        writer.submit(insert(4))
    writer.close()
    other.close()
    assert rows(database)[:1] == [1] and 4 not in rows(database)


def test_writer_bug_in_commit_breaks_writer(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    inject(monkeypatch, "store.commit:raise")
    writer = DatabaseWriter(apsw.Connection(str(database)), database)
    with pytest.raises(StoreError, match="broke off"):
        writer.submit(insert(1)).result(10)
    assert "broke off" in str(writer.broken.result(10))
    writer.close()
    assert rows(database) == []
    assert len(died) == 1
