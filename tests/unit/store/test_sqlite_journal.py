"""What is true of the journal in state.sqlite alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from homarus.core import faults
from homarus.core.errors import DiskFullError, StateInUseError, StoreError
from homarus.core.message import Address, Inbound
from homarus.core.principal import OWNER
from homarus.store import schema
from homarus.store.journal import OPEN
from homarus.store.sqlite import SqliteStore, open_store
from homarus.store.sqlite_journal import SqliteJournal

CHAT = Address("telegram", "42")


def says(text: str, message_id: str = "m1") -> Inbound:
    return Inbound(message_id, CHAT, "ann", text)


def change(state: Path, sql: str, *values: Any) -> None:
    with apsw.Connection(str(state / "state.sqlite")) as db:
        db.execute(sql, values)
    db.close()


def downgrade(state: Path) -> None:
    """As if an older version had made it."""
    for table in ("accepted", "calls", "parcels", "spent"):
        change(state, f"DROP TABLE {table}")
    change(state, "UPDATE meta SET value = 2 WHERE key = 'schema'")


async def test_journal_database_without_tables_is_migrated(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store, store.transaction() as transaction:
        transaction.put_record("job", "1", {"a": 1})
    downgrade(tmp_path)
    async with with_store(tmp_path) as store:
        assert await store.record("job", "1") == {"a": 1}
        assert (await store.journal.accept("s", says("hi"), at_ms=1)).kind == "new"


@asynccontextmanager
async def with_store(state: Path, **options: Any) -> AsyncIterator[SqliteStore]:
    async with open_store(state, **options) as store:
        yield store


async def test_read_only_open_migrates_older_database_unless_in_use(
    tmp_path: Path,
) -> None:
    async def nothing(store: SqliteStore) -> None:
        assert list(await store.journal.inbox_records()) == []

    async def look(store: SqliteStore) -> None:
        with pytest.raises(StateInUseError):
            open_store(tmp_path, read_only=True)

    async with with_store(tmp_path) as store:
        await nothing(store)
    downgrade(tmp_path)
    async with with_store(tmp_path, read_only=True) as store:
        await nothing(store)
    async with with_store(tmp_path, read_only=True) as store:
        await nothing(store)
    async with with_store(tmp_path) as store:
        change(tmp_path, "UPDATE meta SET value = 2 WHERE key = 'schema'")
        await look(store)
        change(tmp_path, "UPDATE meta SET value = ? WHERE key = 'schema'", len(schema.MIGRATIONS))


async def test_read_only_open_sees_accepted_messages_and_cannot_write(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store, open_store(tmp_path, read_only=True) as looking:
        row = (await store.journal.accept("s", says("hi"), at_ms=1)).record
        assert list(await looking.journal.inbox_records(*OPEN)) == [row]
        with pytest.raises(StoreError, match="reading only"):
            await looking.journal.accept("s", says("ho", "m2"), at_ms=1)
        with pytest.raises(StoreError, match="reading only"):
            await looking.journal.retry(row.id, at_ms=1)


async def test_journal_unreadable_body_hides_no_other_record(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        for n in range(3):
            await store.journal.accept("s", says(str(n), f"m{n}"), at_ms=n)
        change(tmp_path, "UPDATE accepted SET body = '{\"id' WHERE message_id = 'm1'")
        found = await store.journal.inbox_records(*OPEN)
        assert [row.inbound and row.inbound.text for row in found] == ["0", None, "2"]


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        (lambda journal: journal.inbox_records(*OPEN), "accepted_open"),
        (lambda journal: journal.inbox_records("running"), "accepted_open"),
        (lambda journal: journal.inbox_records("accepted", session="s", limit=5), "accepted_open"),
        (lambda journal: journal.inbox_records("parked"), "accepted_parked"),
        (lambda journal: journal.outbox_records("pending"), "parcels_waiting"),
        (
            lambda journal: journal.outbox_records("sending", "pending", channel="x"),
            "parcels_waiting",
        ),
        (lambda journal: journal.outbox_records("unknown", "dead"), "parcels_stranded"),
        (lambda journal: journal.inbox_record("x"), "sqlite_autoindex_accepted_1"),
        (lambda journal: journal.outbox_record("x"), "sqlite_autoindex_parcels_1"),
    ],
)
def test_journal_queries_use_partial_indexes(asked: Any, index: str) -> None:
    db = apsw.Connection(":memory:")
    schema.migrate(db, Path("state.sqlite"))
    plans: list[str] = []

    def read(sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        plans.extend(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values))
        return []

    never: Any = None
    asyncio.run(asked(SqliteJournal(OWNER, read, never, never, never)))
    db.close()
    assert any(index in plan for plan in plans), plans
    assert not any(plan.startswith("SCAN") for plan in plans), plans


async def test_journal_full_disk_refuses_message_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_store(tmp_path) as store:
        monkeypatch.setattr(faults, "_faults", faults.parse_faults("store.commit:enospc"))
        with pytest.raises(DiskFullError):
            await store.journal.accept("s", says("hi"), at_ms=1)
        assert list(await store.journal.inbox_records()) == []
        assert (await store.journal.accept("s", says("hi"), at_ms=2)).kind == "new"


async def test_journal_disk_failure_stops_accepting_and_restart_knows_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_store(tmp_path) as store:
        monkeypatch.setattr(faults, "_faults", faults.parse_faults("store.sync:eio"))
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            broken = group.create_task(store.wait_for_disk_failure())
            await asyncio.sleep(0)
            assert not broken.done()
            with pytest.raises(StoreError, match="not written any more"):
                await store.journal.accept("s", says("hi"), at_ms=1)
        assert "start homarus again" in broken.result().fix
        assert (await store.wait_for_disk_failure()).fix
        with pytest.raises(StoreError, match="not written any more"):
            await store.journal.accept("s", says("ho", "m2"), at_ms=1)
        async with asyncio.timeout(30):
            with pytest.raises(StoreError, match="not written any more"):
                async with store.transaction() as transaction:
                    transaction.put_record("job", "1", {})
    async with with_store(tmp_path) as store:
        assert (await store.journal.accept("s", says("hi"), at_ms=1)).kind == "duplicate"
        assert (await store.journal.accept("s", says("ho", "m2"), at_ms=1)).kind == "new"
        waiting = asyncio.timeout(0)
        with pytest.raises(TimeoutError):
            async with waiting:
                await store.wait_for_disk_failure()
