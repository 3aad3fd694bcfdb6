"""The journal in PostgreSQL, with the same guarantees for many processes (see journal.py).

    async with open_journal("postgresql://…") as journal:
        await journal.accept(session, inbound, at_ms=now_ms)

A lease is an advisory lock of one connection: when that connection is lost, the server gives the
lease to the next process, with a larger token. Writes of the first are refused then, as in every
journal, by the token in the row.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import psycopg
from psycopg import AsyncConnection, errors, sql
from psycopg.pq import TransactionStatus

from homarus.core.errors import ConflictError, DiskFullError, LeaseLostError, StoreError
from homarus.core.lanes import Lanes
from homarus.core.message import Inbound, Json
from homarus.core.principal import OWNER, Principal
from homarus.store import postgres_sql
from homarus.store.approval_codec import ApprovalResolution, decode_approval
from homarus.store.approvals import ApprovalRecord, ApprovalState
from homarus.store.chat_records import ChatRecord, ChatRecordKind
from homarus.store.journal import (
    Acceptance,
    Cursor,
    InboxRecord,
    InboxState,
    JournalTransaction,
    Lease,
    OutboxRecord,
    OutboxState,
    SettledState,
)
from homarus.store.journal_codec import (
    decode_chat_record,
    decode_inbox_record,
    decode_outbox_record,
    decode_trace,
    encode_body,
    encode_chat_records,
    encode_tries,
    new_inbox_record,
    run_range,
    storable_ids,
    to_storable,
)
from homarus.store.postgres_sql import Db, Row, values_of
from homarus.store.traces import BacklogCount, DeliveryAttempt, TraceRecord
from homarus.store.transcript_codec import dump_json, load_json

CONNECTIONS: Final = 4
POLL_S: Final = 0.1  # how often a lease that another process holds is polled

_Step: TypeAlias = Callable[[Db], Awaitable[None]]


@asynccontextmanager
async def open_journal(uri: str, *, schema: str = "homarus") -> AsyncIterator["PostgresJournal"]:
    """Connect, and create the tables in this schema if there are none."""
    engine = _PostgresEngine(uri, schema)
    try:
        async with engine.connection() as db:
            await postgres_sql.migrate(db, schema)
        yield PostgresJournal(engine, OWNER)
    finally:
        await engine.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Translate PostgreSQL's errors into store errors."""
    try:
        yield
    except errors.DiskFull as exc:
        raise DiskFullError(
            "PostgreSQL has no room to write", fix="free some disk space on its server"
        ) from exc
    except (errors.IntegrityError, errors.DeadlockDetected, errors.SerializationFailure) as exc:
        raise ConflictError(
            f"PostgreSQL: {exc}", fix="load it again, then repeat the change"
        ) from exc
    except psycopg.Error as exc:
        raise StoreError(f"PostgreSQL: {exc}", fix="check the server and its address") from exc


@dataclass(slots=True)
class _PostgresEngine:
    """What all scopes of one open journal share: the connections and the leases held."""

    uri: str
    schema: str
    idle: list[Db] = field(default_factory=list)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS))
    lanes: Lanes = field(default_factory=Lanes)
    lease_connection: Db | None = None  # holds the locks
    lease_connection_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    held: dict[int, Db] = field(default_factory=dict)  # by token
    closed: bool = False

    async def connect(self) -> Db:
        db: Db = await AsyncConnection.connect(self.uri, autocommit=True)
        try:
            path = sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema))
            await db.execute(path)
        except BaseException:
            await db.close()
            raise
        return db

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Db]:
        """Yield a connection for exclusive use."""
        with _translated():
            async with self.slots:
                if self.closed:
                    raise StoreError("the journal is closed")
                db = self.idle.pop() if self.idle else await self.connect()
                try:
                    yield db
                finally:
                    await self._put_back(db)

    async def _put_back(self, db: Db) -> None:
        if db.closed:  # the server is gone: the other connections are dead too
            await self._close_idle()
        elif self.closed or db.info.transaction_status != TransactionStatus.IDLE:
            await db.close()
        else:
            self.idle.append(db)

    async def _close_idle(self) -> None:
        while self.idle:
            await self.idle.pop().close()

    async def acquire_lease(self, key: str) -> tuple[Db, int]:
        """Wait for a lock; return its holder and a token larger than any before."""
        while True:
            db = await self._get_lease_connection()
            try:
                cursor = await db.execute(
                    "SELECT CASE WHEN pg_try_advisory_lock(hashtextextended(%s, 0))"
                    " THEN nextval('tokens') END",
                    (key,),
                )
                row = await cursor.fetchone()
            except BaseException:  # the server may have granted it all the same
                await self.release_lease(db, key)
                raise
            if row and row[0] is not None:
                return db, int(row[0])
            await asyncio.sleep(POLL_S)

    async def release_lease(self, db: Db, key: str) -> None:
        try:
            await db.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", (key,))
        except psycopg.OperationalError:
            if not db.closed:  # else the server has released it already
                raise

    async def _get_lease_connection(self) -> Db:
        async with self.lease_connection_lock:
            if self.closed:
                raise StoreError("the journal is closed")
            if self.lease_connection is None or self.lease_connection.closed:
                self.lease_connection = await self.connect()
            return self.lease_connection

    def check(self, lease: Lease) -> None:
        """Raise LeaseLostError when the connection that holds the lease is gone."""
        db = self.held.get(lease.token)
        if db is not None and db.closed:
            raise LeaseLostError(f"the connection that held {lease.name} is lost")

    async def close(self) -> None:
        self.closed = True
        await self._close_idle()
        if self.lease_connection:
            await self.lease_connection.close()


class _PostgresTransaction:
    """The steps of one transaction, and the leases they need."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal
        self.steps: list[_Step] = []
        self.leases: list[Lease] = []

    def _add(self, step: _Step, *leases: Lease) -> None:
        self.steps.append(step)
        self.leases += leases

    def accept(self, session: str, inbound: Inbound, *, at_ms: int) -> None:
        new_record = new_inbox_record(session, inbound, at_ms)
        self._add(lambda db: postgres_sql.accept_new(db, self._principal, new_record))

    def mark_running(
        self,
        ids: Sequence[str],
        lease: Lease,
        *,
        run: str,
        session_id: str = "",
        entry: str = "",
    ) -> None:
        ids = storable_ids(ids)
        self._add(
            lambda db: postgres_sql.mark_running(
                db, self._principal, ids, lease, run=run, session_id=session_id, entry=entry
            ),
            lease,
        )

    def check_lease(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)
        self._add(lambda db: postgres_sql.check_lease(db, self._principal, ids, lease), lease)

    def cancel_attempt(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)
        self._add(lambda db: postgres_sql.cancel_attempt(db, self._principal, ids, lease), lease)

    def suspend(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)
        self._add(lambda db: postgres_sql.suspend(db, self._principal, ids, lease), lease)

    def add_approval(self, record: ApprovalRecord) -> None:
        self._add(lambda db: postgres_sql.add_approval(db, self._principal, record))

    def use_approval(self, id: str, digest: str, *, at_ms: int) -> None:  # noqa: A002 - the word for it
        self._add(lambda db: postgres_sql.use_approval(db, self._principal, id, digest, at_ms))

    def cancel_approvals(self, runs: Sequence[str], *, at_ms: int) -> None:
        runs = storable_ids(runs)
        self._add(lambda db: postgres_sql.cancel_approvals(db, self._principal, runs, at_ms))

    def settle(
        self,
        ids: Sequence[str],
        lease: Lease,
        state: SettledState,
        *,
        at_ms: int,
        why: str = "",
        reply: str = "",
    ) -> None:
        ids, why = storable_ids(ids), to_storable(why)
        self._add(
            lambda db: postgres_sql.settle(
                db, self._principal, ids, lease, state=state, at_ms=at_ms, why=why, reply=reply
            ),
            lease,
        )

    def call_started(self, run: str, lease: Lease, call_id: str) -> None:
        call = to_storable(call_id)
        self._add(
            lambda db: postgres_sql.call_started(db, self._principal, run, lease, call), lease
        )

    def call_ended(self, run: str, lease: Lease, call_id: str) -> None:
        call = to_storable(call_id)
        self._add(lambda db: postgres_sql.call_ended(db, self._principal, run, lease, call), lease)

    def enqueue(self, *records: OutboxRecord) -> None:
        self._add(lambda db: postgres_sql.enqueue(db, self._principal, records))

    def save_cursor(self, cursor: Cursor) -> None:
        name, data = to_storable(cursor.name), dump_json(cursor.data)
        self._add(lambda db: postgres_sql.put_cursor(db, self._principal, name, data))

    def put_chat_records(self, *records: ChatRecord) -> None:
        rows = encode_chat_records(records)
        self._add(lambda db: postgres_sql.put_chat_records(db, self._principal, rows))

    def send_started(self, record_id: str, lease: Lease, *, at_ms: int = 0) -> None:
        record = to_storable(record_id)
        self._add(
            lambda db: postgres_sql.send_started(db, self._principal, record, lease, at_ms), lease
        )

    def send_ended(
        self,
        record_id: str,
        lease: Lease,
        state: OutboxState,
        *,
        receipt: str = "",
        thread: str = "",
        why: str = "",
        not_before_ms: int = 0,
        tries: Sequence[DeliveryAttempt] = (),
    ) -> None:
        record, receipt, why = to_storable(record_id), to_storable(receipt), to_storable(why)
        encoded = encode_tries(tries)
        self._add(
            lambda db: postgres_sql.send_ended(
                db,
                self._principal,
                record,
                lease,
                state=state,
                receipt=receipt,
                thread=to_storable(thread),
                why=why,
                not_before_ms=not_before_ms,
                tries=encoded,
            ),
            lease,
        )

    def add_trace(self, record: TraceRecord) -> None:
        row = (
            to_storable(record.run), record.attempt, to_storable(record.session), record.at_ms,
            dump_json(record.data),
        )  # fmt: skip
        self._add(lambda db: postgres_sql.add_trace(db, self._principal, row))


class PostgresJournal:
    """A Journal; journal.py says what it guarantees."""

    def __init__(self, engine: _PostgresEngine, principal: Principal) -> None:
        self._engine, self._principal = engine, principal

    def scoped(self, principal: Principal) -> "PostgresJournal":
        return PostgresJournal(self._engine, principal)

    async def accept(
        self,
        session: str,
        inbound: Inbound,
        *,
        at_ms: int,
        cursor: Cursor | None = None,
        chat_records: Sequence[ChatRecord] = (),
    ) -> Acceptance:
        new_record = new_inbox_record(session, inbound, at_ms)
        rows = encode_chat_records(chat_records)
        async with self._engine.connection() as db, db.transaction():
            if cursor:
                name = to_storable(cursor.name)
                await postgres_sql.put_cursor(db, self._principal, name, dump_json(cursor.data))
            await postgres_sql.put_chat_records(db, self._principal, rows)
            return await postgres_sql.accept(db, self._principal, new_record)

    async def set_message(self, id: str, inbound: Inbound) -> bool:  # noqa: A002 - the word for it
        body = encode_body(inbound)
        async with self._engine.connection() as db, db.transaction():
            return await postgres_sql.set_message(db, self._principal, to_storable(id), body)

    async def chat_records(
        self, kind: ChatRecordKind, chat: str | None = None
    ) -> Sequence[ChatRecord]:
        query = sql.SQL(postgres_sql.SELECT_OWN_CHAT_RECORDS) + sql.Composed([])
        if chat is not None:
            query += sql.SQL(" AND chat = %(chat)s")
        query += sql.SQL(" ORDER BY place")
        rows = await self._read(query, kind=kind, chat=to_storable(chat or ""))
        return [decode_chat_record(row) for row in rows]

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        rows = await self._read(
            "SELECT json FROM cursors"
            " WHERE team = %(team)s AND member = %(member)s AND name = %(name)s",
            name=to_storable(name),
        )
        return load_json(rows[0][0]) if rows else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[JournalTransaction]:
        transaction = _PostgresTransaction(self._principal)
        yield transaction
        if not transaction.steps:
            return
        async with self._engine.connection() as db, db.transaction():
            for lease in transaction.leases:
                self._engine.check(lease)
            for step in transaction.steps:
                await step(db)

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Lease]:
        key = dump_json([self._engine.schema, self._principal.team, self._principal.user, name])
        # The lane separates tasks of this process, which are one holder to the server.
        async with self._engine.lanes.enter(key):
            with _translated():
                db, token = await self._engine.acquire_lease(key)
            self._engine.held[token] = db
            try:
                yield Lease(name, token)
            finally:
                del self._engine.held[token]
                with _translated():
                    await self._engine.release_lease(db, key)

    async def inbox_record(self, id: str) -> InboxRecord | None:  # noqa: A002 - the word for it
        rows = await self._read(
            f"{postgres_sql.SELECT_OWN_INBOX} AND id = %(id)s", id=to_storable(id)
        )
        return decode_inbox_record(rows[0]) if rows else None

    async def inbox_records(
        self, *states: InboxState, session: str | None = None, limit: int | None = None
    ) -> Sequence[InboxRecord]:
        query = sql.SQL(postgres_sql.SELECT_OWN_INBOX) + _state_condition(states)
        if session is not None:
            query += sql.SQL(" AND session = %(session)s")
        query += sql.SQL(" ORDER BY place DESC LIMIT %(limit)s")
        rows = await self._read(query, session=to_storable(session or ""), limit=_sql_limit(limit))
        return [decode_inbox_record(row) for row in reversed(rows)]

    async def open_calls(self, run: str) -> frozenset[str]:
        rows = await self._read(
            "SELECT call_id FROM calls"
            " WHERE team = %(team)s AND member = %(member)s AND run = %(run)s",
            run=run,
        )
        return frozenset(call_id for (call_id,) in rows)

    async def outbox_record(self, id: str) -> OutboxRecord | None:  # noqa: A002 - the word for it
        rows = await self._read(
            f"{postgres_sql.SELECT_OWN_OUTBOX} AND id = %(id)s", id=to_storable(id)
        )
        return decode_outbox_record(rows[0]) if rows else None

    async def outbox_records(
        self,
        *states: OutboxState,
        channel: str | None = None,
        run: str | None = None,
        limit: int | None = None,
    ) -> Sequence[OutboxRecord]:
        query = sql.SQL(postgres_sql.SELECT_OWN_OUTBOX) + _state_condition(states)
        if channel is not None:
            query += sql.SQL(" AND channel = %(channel)s")
        if run is not None:
            query += sql.SQL(' AND id COLLATE "C" >= %(first)s AND id COLLATE "C" < %(end)s')
        query += sql.SQL(" ORDER BY place LIMIT %(limit)s")
        first, end = run_range(run or "")
        values = {"channel": to_storable(channel or ""), "first": first, "end": end}
        rows = await self._read(query, **values, limit=_sql_limit(limit))
        return [decode_outbox_record(row) for row in rows]

    async def traces(
        self, *, run: str | None = None, session: str | None = None, limit: int | None = None
    ) -> Sequence[TraceRecord]:
        query = sql.SQL(postgres_sql.SELECT_OWN_TRACES) + sql.Composed([])
        if run is not None:
            query += sql.SQL(" AND run = %(run)s")
        if session is not None:
            query += sql.SQL(" AND session = %(session)s")
        query += sql.SQL(" ORDER BY place DESC LIMIT %(limit)s")
        values = {"run": to_storable(run or ""), "session": to_storable(session or "")}
        rows = await self._read(query, **values, limit=_sql_limit(limit))
        return [decode_trace(row) for row in reversed(rows)]

    async def backlog(self) -> Sequence[BacklogCount]:
        async with self._engine.connection() as db:
            rows = await postgres_sql.count_backlog(db, self._principal)
        return [BacklogCount(*row) for row in rows]

    async def approval(self, id: str) -> ApprovalRecord | None:  # noqa: A002 - the word for it
        rows = await self._read(
            f"{postgres_sql.SELECT_OWN_APPROVALS} AND id = %(id)s", id=to_storable(id)
        )
        return decode_approval(rows[0]) if rows else None

    async def approvals(
        self, *states: ApprovalState, session: str | None = None, limit: int | None = None
    ) -> Sequence[ApprovalRecord]:
        query = sql.SQL(postgres_sql.SELECT_OWN_APPROVALS) + _state_condition(states)
        if session is not None:
            query += sql.SQL(" AND session = %(session)s")
        query += sql.SQL(" ORDER BY place DESC LIMIT %(limit)s")
        rows = await self._read(query, session=to_storable(session or ""), limit=_sql_limit(limit))
        return [decode_approval(row) for row in reversed(rows)]

    async def find_approval(self, run: str, call_id: str) -> ApprovalRecord | None:
        rows = await self._read(
            f"{postgres_sql.SELECT_OWN_APPROVALS} AND run = %(run)s AND call_id = %(call)s"
            " ORDER BY place DESC LIMIT 1",
            run=to_storable(run),
            call=to_storable(call_id),
        )
        return decode_approval(rows[0]) if rows else None

    async def resolve_approval(
        self,
        id: str,  # noqa: A002 - the word for it
        state: ApprovalState,
        *,
        decision: str = "",
        by: str = "",
        at_ms: int,
        outbox: Sequence[OutboxRecord] = (),
    ) -> ApprovalRecord | None:
        resolution = ApprovalResolution(to_storable(id), state, decision, by, at_ms)
        async with self._engine.connection() as db, db.transaction():
            return await postgres_sql.resolve_approval(db, self._principal, resolution, outbox)

    async def retry(self, id: str, *, at_ms: int) -> bool:  # noqa: A002 - the word for it
        async with self._engine.connection() as db, db.transaction():
            return await postgres_sql.retry(db, self._principal, to_storable(id), at_ms)

    async def discard(self, id: str, *, at_ms: int, why: str) -> bool:  # noqa: A002 - the word for it
        async with self._engine.connection() as db, db.transaction():
            return await postgres_sql.discard(
                db, self._principal, to_storable(id), at_ms, to_storable(why)
            )

    async def shift_times(self, step_ms: int) -> None:
        async with self._engine.connection() as db, db.transaction():
            await postgres_sql.shift_times(db, self._principal, step_ms)

    async def prune(self, before_ms: int, *, approvals_before_ms: int = 0) -> int:
        async with self._engine.connection() as db, db.transaction():
            return await postgres_sql.prune(db, self._principal, before_ms, approvals_before_ms)

    async def _read(self, query: str | sql.Composed, **values: object) -> list[Row]:
        async with self._engine.connection() as db:
            cursor = await db.execute(query, values_of(self._principal, **values))
            return await cursor.fetchall()


def _state_condition(states: Sequence[str]) -> sql.Composed:
    """Return a condition with literal states, which lets the server use a partial index."""
    if not states:
        return sql.Composed([])
    listed = sql.SQL(", ").join(sql.Literal(state) for state in states)
    return sql.SQL(" AND state IN ({})").format(listed)


def _sql_limit(limit: int | None) -> int | None:
    return None if limit is None else max(limit, 0)
