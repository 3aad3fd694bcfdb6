"""Row 50, inside one process: the n-th write, or the n-th sync, of one turn fails, for every n.

The turn is the one every message makes: accepted, started with its question, a tool called, its
result saved, the reply saved with the outcome and the outbox record, the record sent. Whatever
fails, a step that was reported as done is there after a restart, a step is there completely or not
at all, and the turn can be finished from what is there.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homarus.core.errors import LeaseLostError, StoreError
from homarus.core.message import Address, Inbound
from homarus.store.base import SessionRecord, TranscriptEntry, TranscriptHeader
from homarus.store.journal import Cursor, OutboxRecord
from homarus.store.sqlite import SqliteStore, check_database, open_store
from tests.crash.shim import Act, Disk

KEY, ROW, SESSION = "agent:main:main", "row-1", "s1"
CHAT = Address("ledger", "chat-1")
MESSAGE = Inbound("m1", CHAT, "ann", "hello", run_id=ROW)
MOST = 200  # more writes than this one turn does not make


def entry(name: str, parent: str | None) -> TranscriptEntry:
    return TranscriptEntry(
        name, parent, "message", 5, {"message": {"role": "user", "content": name}}
    )


class Turn:
    """One turn in six commits; `done` counts those that were reported as committed."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.done = 0

    async def play(self, start: int = 0) -> None:
        """Do each step in order, from one on; the first failure ends it."""
        async with self._store.journal.lease(f"session:{KEY}") as lease:
            if start > 1:  # a later process: it takes over what was running
                async with self._store.transaction() as transaction:
                    transaction.mark_running([ROW], lease, run=ROW)
            if start == 0:
                cursor = Cursor("ledger", {"offset": 1})
                await self._store.journal.accept(KEY, MESSAGE, at_ms=1, cursor=cursor)
                self.done = 1
            if start <= 1:
                async with self._store.transaction() as transaction:
                    transaction.open_transcript(TranscriptHeader(SESSION, "main", 5, "/w"))
                    transaction.put_session(SessionRecord(KEY, "main", SESSION, 5))
                    transaction.append(SESSION, entry("question", None))
                    transaction.mark_running(
                        [ROW], lease, run=ROW, session_id=SESSION, entry="question"
                    )
                self.done = 2
            if start <= 2:
                async with self._store.transaction() as transaction:
                    transaction.append(SESSION, entry("call", "question"))
                    transaction.call_started(ROW, lease, "call-1")
                self.done = 3
            if start <= 3:
                async with self._store.transaction() as transaction:
                    transaction.append(SESSION, entry("result", "call"))
                    transaction.call_ended(ROW, lease, "call-1")
                self.done = 4
            if start <= 4:
                async with self._store.transaction() as transaction:
                    transaction.append(SESSION, entry("reply", "result"))
                    transaction.settle([ROW], lease, "answered", at_ms=9, reply="reply")
                    transaction.enqueue(OutboxRecord("p1", ROW, CHAT, "hi", 9, 10**15))
                self.done = 5
        await self._send()
        self.done = 6

    async def _send(self) -> None:
        async with self._store.journal.lease("chat:1") as lease:
            async with self._store.journal.transaction() as transaction:
                transaction.send_started("p1", lease)
            async with self._store.journal.transaction() as transaction:
                transaction.send_ended("p1", lease, "sent", receipt="r1")


async def found(store: SqliteStore) -> int:
    """Return how many steps are stored; fail when one is stored partially."""
    journal = store.journal
    row, record = await journal.inbox_record(ROW), await journal.outbox_record("p1")
    entries = [one.id for one in await store.entries(SESSION)]
    calls = await journal.open_calls(ROW)
    assert (await journal.cursor("ledger") is not None) == (row is not None)
    if row is None:
        assert (entries, calls, record) == ([], frozenset(), None)
        return 0
    settled = row.state == "answered"
    assert settled == (record is not None) == ("reply" in entries)
    steps = ["question", "call", "result", "reply"]
    assert entries == steps[: len(entries)]
    assert calls == ({"call-1"} if entries == ["question", "call"] else frozenset())
    if not settled:
        assert row.state == ("running" if entries else "accepted")
        assert row.entry == ("question" if entries else "")
        return 1 + len(entries)
    return 6 if record is not None and record.state == "sent" else 5


@asynccontextmanager
async def with_store(state: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(state) as store:
        yield store


async def look_and_finish(state: Path) -> int:
    """Check what a restart finds, then do the rest."""
    check_database(state / "state.sqlite")
    async with with_store(state) as store:
        steps = await found(store)
        if steps < 6:
            turn = Turn(store)
            await (turn.play(steps) if steps < 5 else turn._send())
        assert await found(store) == 6
        return steps


async def play_until_it_fails(
    store: SqliteStore, disk: Disk, act: Act, at: int
) -> tuple[int, bool]:
    disk.fail(act, at)
    turn = Turn(store)
    try:
        await turn.play()
    except LeaseLostError:
        raise
    except StoreError:
        return turn.done, False
    finally:
        disk.mend()
    return turn.done, True


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a directory where a sync is free, if there is one: failures here are injected."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


@pytest.mark.parametrize("act", ["write", "sync"])
async def test_row_50_nth_write_or_sync_fails_and_every_step_is_atomic(
    memory_folder: Path, act: Act
) -> None:
    with Disk() as disk:
        for at in range(1, MOST):
            state, copy = memory_folder / f"{at}", memory_folder / f"{at}-killed"

            async def body(
                store: SqliteStore, at: int = at, state: Path = state, copy: Path = copy
            ) -> int:
                # The files beside the database are another thread's, and not counted here.
                done, passed = await play_until_it_fails(store, disk, act, at)
                shutil.copytree(state, copy)
                return -1 if passed else done

            async with with_store(state) as store:
                done = await body(store)
            if done < 0:
                break
            for place in (state, copy):
                # A step whose commit failed may have reached the disk all the same.
                assert await look_and_finish(place) in {done, done + 1}, (act, at, place.name)
                shutil.rmtree(place)
        else:
            pytest.fail("the turn never passed")
    assert at > (6 if act == "sync" else 12), "that was not a whole turn"
