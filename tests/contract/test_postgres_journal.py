"""What holds for the journal in PostgreSQL alone: other processes, and a server that fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import psycopg
import pytest

from homarus.core.errors import LeaseLostError, StoreError
from homarus.core.message import Address, Inbound
from homarus.store.journal import OPEN, InboxRecord, Journal, Lease
from homarus.store.postgres_journal import PostgresJournal, open_journal
from homarus.store.postgres_sql import MIGRATIONS

pytestmark = pytest.mark.peers

HELLO = Inbound("m1", Address("telegram", "42"), "ann", "hello")


@pytest.fixture
def schema() -> str:
    return f"h{uuid4().hex}"


async def accept(journal: Journal) -> InboxRecord:
    return (await journal.accept("s", HELLO, at_ms=1)).record


@asynccontextmanager
async def two_processes(
    uri: str, schema: str
) -> AsyncIterator[tuple[PostgresJournal, PostgresJournal]]:
    """Open the same tables twice, by connections of their own, as two processes would."""
    async with (
        open_journal(uri, schema=schema) as one,
        open_journal(uri, schema=schema) as other,
        asyncio.timeout(60),
    ):
        yield one, other


def end_connections(uri: str) -> None:
    """End all connections, as a restart of the server does."""
    with psycopg.connect(uri, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


async def test_postgres_concurrent_starts_create_tables_once(
    postgres_uri: str, schema: str
) -> None:
    async def begin() -> int:
        async with open_journal(postgres_uri, schema=schema) as journal:
            return len(await journal.inbox_records())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(begin()) for _ in range(5)]
    assert [task.result() for task in tasks] == [0] * 5


def test_postgres_newer_schema_is_refused(postgres_uri: str, schema: str) -> None:
    async def begin() -> None:
        async with open_journal(postgres_uri, schema=schema):
            pass

    asyncio.run(begin())
    with psycopg.connect(postgres_uri, autocommit=True) as db:
        db.execute(f"UPDATE {schema}.meta SET value = 99 WHERE key = 'schema'")
    with pytest.raises(StoreError, match="schema 99, of a newer Homarus") as caught:
        asyncio.run(begin())
    assert str(len(MIGRATIONS)) in caught.value.message and caught.value.fix == "upgrade homarus"


async def test_postgres_unreachable_server_raises() -> None:
    async def begin() -> None:
        async with open_journal("postgresql://127.0.0.1:1/nowhere"):
            pass

    with pytest.raises(StoreError, match="PostgreSQL") as caught:
        await begin()
    assert "check the server" in caught.value.fix


async def test_postgres_lease_is_held_by_one_process(postgres_uri: str, schema: str) -> None:
    async with two_processes(postgres_uri, schema) as (one, other):
        asked, taken = asyncio.Event(), asyncio.Event()

        async def take() -> int:
            asked.set()
            async with other.lease("session:x") as lease:
                taken.set()
                return lease.token

        async with asyncio.TaskGroup() as group, one.lease("session:x") as first:
            task = group.create_task(take())
            await asked.wait()
            async with other.lease("session:y"), one.lease("session:z"):
                assert not taken.is_set()  # the others continue meanwhile
        assert task.result() > first.token


async def test_postgres_cancelled_waiter_leaves_no_lock(postgres_uri: str, schema: str) -> None:
    async with two_processes(postgres_uri, schema) as (one, other):

        async def take() -> None:
            async with other.lease("session:x"):
                await asyncio.Event().wait()

        for turns in (0, 1, 3, 10, 100):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(take())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
            async with one.lease("session:x"):
                pass


async def test_postgres_lost_connection_loses_lease(postgres_uri: str, schema: str) -> None:
    async with two_processes(postgres_uri, schema) as (one, other):
        row = await accept(one)
        async with one.lease("session:x") as first:
            async with one.transaction() as transaction:
                transaction.mark_running([row.id], first, run=row.id)
            await asyncio.to_thread(end_connections, postgres_uri)
            await wait_until_served(one)
            await wait_until_served(other)
            async with other.lease("session:x") as second:
                assert second.token > first.token
                async with other.transaction() as transaction:
                    transaction.mark_running([row.id], second, run=row.id)
                with pytest.raises(LeaseLostError):
                    async with one.transaction() as transaction:
                        transaction.settle([row.id], first, "answered", at_ms=2)
                async with other.transaction() as transaction:
                    transaction.settle([row.id], second, "answered", at_ms=2)
        (done,) = await one.inbox_records()
        assert (done.state, done.attempts) == ("answered", 2)
        async with one.lease("session:x") as third:  # by a new connection
            assert third.token > second.token


async def wait_until_served(journal: PostgresJournal) -> None:
    """Wait until dead connections have failed once and were replaced."""
    while True:
        try:
            await journal.inbox_records(*OPEN)
        except StoreError:
            continue
        return


async def test_postgres_known_lost_lease_writes_nothing(postgres_uri: str, schema: str) -> None:
    async with open_journal(postgres_uri, schema=schema) as journal, asyncio.timeout(60):
        row = await accept(journal)
        async with journal.lease("session:x") as held:
            await asyncio.to_thread(end_connections, postgres_uri)
            await wait_until_served(journal)
            with pytest.raises(StoreError):  # by the connection that held the first
                async with journal.lease("session:y"):
                    pass
            with pytest.raises(LeaseLostError, match="lost"):
                async with journal.transaction() as transaction:
                    transaction.mark_running([row.id], held, run=row.id)
        assert [found.state for found in await journal.inbox_records()] == ["accepted"]


async def test_postgres_row_is_locked_between_check_and_commit(
    postgres_uri: str, schema: str
) -> None:
    """A transaction that checks a row, and one that starts it again: the second waits."""
    async with two_processes(postgres_uri, schema) as (one, other):
        row = await accept(one)
        for _ in range(20):
            async with one.lease("session:x") as first, one.transaction() as transaction:
                transaction.mark_running([row.id], first, run=row.id)
            async with other.lease("session:x") as second:
                pass
            kept: list[str] = []

            async def work(first: Lease = first, kept: list[str] = kept) -> None:
                try:
                    async with one.transaction() as transaction:
                        transaction.check_lease([row.id], first)
                        transaction.call_started(row.id, first, "c")
                        transaction.call_ended(row.id, first, "c")
                except LeaseLostError:
                    kept.append("late")

            async with asyncio.TaskGroup() as group:
                group.create_task(work())
                async with other.transaction() as transaction:
                    transaction.mark_running([row.id], second, run=row.id)
            assert kept in ([], ["late"])
            assert await one.open_calls(row.id) == frozenset()
            with pytest.raises(LeaseLostError):
                async with one.transaction() as transaction:
                    transaction.check_lease([row.id], first)


async def test_postgres_closed_journal_refuses(postgres_uri: str, schema: str) -> None:
    async with open_journal(postgres_uri, schema=schema) as journal:
        await accept(journal)
    with pytest.raises(StoreError, match="closed"):
        await journal.inbox_records()
    with pytest.raises(StoreError, match="closed"):
        async with journal.lease("x"):
            pass
