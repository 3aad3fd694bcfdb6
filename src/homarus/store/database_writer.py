"""Serialise database writes on one thread, with group commit.

Each job runs in its own savepoint, so a failing job rolls back its own writes only. A commit that
fails fails every job in it. A batch wakes each event loop once.

When the disk fails in a commit, it is unknown what was written: every waiting caller gets the
error, and the writer accepts no more work. Opening the database again shows what was written.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw

from homarus.config.sqlite_errors import to_store_error
from homarus.core.errors import DiskFullError, HomarusError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point

T = TypeVar("T")
Job: TypeAlias = Callable[[apsw.Connection], T]

MAX_BATCH = 128
# What a job may raise: SQLite's errors, ours, and values SQLite cannot hold.
_EXPECTED = (apsw.Error, HomarusError, ValueError, TypeError, OverflowError, MemoryError)


@dataclass(slots=True)
class _Task:
    job: Job[Any]
    loop: asyncio.AbstractEventLoop | None  # None: a thread waits
    future: "asyncio.Future[Any] | Future[Any]"
    late: "asyncio.Future[None] | None" = None  # for a waiter that was cancelled
    is_exclusive: bool = False  # runs alone and without a transaction
    is_settled: bool = False  # the outcome was delivered


@dataclass(frozen=True, slots=True)
class _Outcome:
    task: _Task
    value: Any = None
    error: BaseException | None = None

    def deliver(self) -> None:
        self.task.is_settled = True
        if self.task.future.done():  # the waiter was cancelled
            if self.task.late and not self.task.late.done():
                self.task.late.set_result(None)
        elif self.error is not None:
            self.task.future.set_exception(self.error)
        else:
            self.task.future.set_result(self.value)


class DatabaseWriter:
    """Runs jobs on its connection, in order, in groups.

    `broken` is resolved with the error when it can no longer write, although it was not closed.
    """

    def __init__(self, db: apsw.Connection, path: Path) -> None:
        self._db, self._path = db, path
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._later: dict[str, Job[object]] = {}
        self._lock = threading.Lock()
        self._exclusive: _Task | None = None
        self._closed = False
        self._broken_reason = ""
        self.broken: Future[StoreError] = Future()
        self.broken.set_running_or_notify_cancel()  # no caller may cancel it
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def run(self, job: Job[T]) -> T:
        """Run a job; when this returns, what it wrote is on disk.

        Cancelling does not undo it: the call waits until the outcome is known, so that the next
        read sees it.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        task = _Task(job, loop, future)
        self._put(task)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled() and not task.is_settled:  # else it was settled meanwhile
                task.late = loop.create_future()
                await task.late
            elif not future.cancelled():
                future.exception()  # both at once: mark it as retrieved
            raise

    def submit(self, job: Job[T]) -> Future[T]:
        """Run a job for a thread that has no event loop."""
        future: Future[T] = Future()
        self._put(_Task(job, None, future))
        return future

    def submit_exclusive(self, job: Job[T]) -> Future[T]:
        """Run a job alone and without a transaction; deferred jobs before it are dropped.

        For a repair, which replaces all contents. The caller must not be the writer's thread.
        """
        future: Future[T] = Future()
        self._put(_Task(job, None, future, is_exclusive=True))
        return future

    def run_deferred(self, name: str, job: Job[object]) -> None:
        """Run a job with the next batch; a newer job of the same name replaces it.

        For bookkeeping that may be lost: it costs no commit of its own.
        """
        with self._lock:
            self._later[name] = job

    def close(self) -> None:
        """Finish what was submitted, then stop. Blocks until it is done."""
        with self._lock:
            closed, self._closed = self._closed, True
            if not closed:
                self._tasks.put(None)
        self._thread.join()

    def _put(self, task: _Task) -> None:
        with self._lock:
            if self._closed:
                raise self._refusal()
            self._tasks.put(task)

    def _run(self) -> None:
        batch: list[_Task] = []
        closing = False
        try:
            while not closing and not self._broken_reason:
                batch, closing = self._next_batch()
                if batch and batch[-1].is_exclusive:
                    _settle([self._run_alone(batch[-1])])
                elif batch or self._later:
                    _settle(self._commit(batch))
                batch = []
        finally:  # every waiting caller gets an answer
            if not closing and not self._broken_reason:
                self._broken_reason = "it is closed, its writer broke off"
            self._refuse(batch)
            self._db.close()

    def _next_batch(self) -> tuple[list[_Task], bool]:
        batch: list[_Task] = []
        if self._exclusive:
            batch, self._exclusive = [self._exclusive], None
            return batch, False
        while True:
            task = self._tasks.get()
            if task is None:
                return batch, True
            if task.is_exclusive and batch:
                self._exclusive = task  # after what was submitted before it
                return batch, False
            batch.append(task)
            if task.is_exclusive:
                return batch, False
            if len(batch) >= MAX_BATCH or self._tasks.empty():
                return batch, False

    def _run_alone(self, task: _Task) -> _Outcome:
        with self._lock:
            self._later = {}
        try:
            return _Outcome(task, task.job(self._db))
        except (*_EXPECTED, OSError) as exc:
            return _Outcome(task, error=self._error(exc))

    def _commit(self, batch: Sequence[_Task]) -> list[_Outcome]:
        with self._lock:
            later, self._later = self._later, {}
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for job in later.values():
                self._apply(_Task(job, None, Future()))
            if len(batch) == 1 and not later:  # a single job needs no savepoint
                outcomes = [_Outcome(batch[0], batch[0].job(self._db))]
            else:
                outcomes = [self._apply(task) for task in batch]
        except _EXPECTED as exc:
            return self._roll_back(batch, exc)
        committed = False
        try:
            fault_point("store.commit")
            self._db.execute("COMMIT")
            committed = True
            fault_point("store.sync")
        except (apsw.Error, OSError) as exc:
            full = isinstance(self._error(exc), DiskFullError) and not committed
            if isinstance(exc, apsw.IOError | OSError) and not full:
                self._broken_reason = f"a commit failed: {exc}"
            return self._roll_back(batch, exc)
        return outcomes

    def _roll_back(self, batch: Sequence[_Task], exc: Exception) -> list[_Outcome]:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except apsw.Error as second:
            self._broken_reason = f"a commit could not be taken back: {second}"
        lost = bool(self._broken_reason)
        return [
            _Outcome(task, error=self._refusal() if lost else self._error(exc)) for task in batch
        ]

    def _apply(self, task: _Task) -> _Outcome:
        self._db.execute("SAVEPOINT unit")
        try:
            value = task.job(self._db)
        except _EXPECTED as exc:
            if not self._db.in_transaction:
                raise  # SQLite rolled back the transaction, and the batch with it
            self._db.execute("ROLLBACK TO unit; RELEASE unit")
            return _Outcome(task, error=self._error(exc))
        self._db.execute("RELEASE unit")
        return _Outcome(task, value)

    def _error(self, exc: BaseException) -> BaseException:
        return to_store_error(exc, self._path) if isinstance(exc, apsw.Error | OSError) else exc

    def _refusal(self) -> StoreError:
        if not self._broken_reason:
            return StoreError(f"{self._path} is closed")
        return StoreError(
            f"{self._path} is not written any more: {self._broken_reason}",
            fix="check the disk, then start homarus again",
        )

    def _refuse(self, rest: list[_Task]) -> None:
        with self._lock:
            self._closed = True
        if self._exclusive:
            rest.append(self._exclusive)
        while not self._tasks.empty():
            task = self._tasks.get()
            if task is not None:
                rest.append(task)
        _settle([_Outcome(task, error=self._refusal()) for task in rest])
        if self._broken_reason:
            self.broken.set_result(self._refusal())


def _settle(outcomes: Sequence[_Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        if outcome.task.loop is None:
            outcome.deliver()
        else:
            by_loop.setdefault(outcome.task.loop, []).append(outcome)
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver_all, settled)
        except RuntimeError:  # the loop is closed: it has no waiters
            continue


def _deliver_all(outcomes: Sequence[_Outcome]) -> None:
    for outcome in outcomes:
        outcome.deliver()
