"""The journal in state.sqlite: inbox records, started calls and outbox records (see journal.py)."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import apsw

from homarus.core.errors import CorruptDataError
from homarus.core.message import Inbound, Json
from homarus.core.principal import Principal
from homarus.store import sqlite_journal_sql, sqlite_sql
from homarus.store.approval_codec import SELECT_APPROVALS, ApprovalResolution, decode_approval
from homarus.store.approvals import ApprovalRecord, ApprovalState
from homarus.store.chat_records import ChatRecord, ChatRecordKind
from homarus.store.clock_rebase import shift_times
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
    SELECT_CHAT_RECORDS,
    SELECT_INBOX,
    SELECT_OUTBOX,
    SELECT_TRACES,
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
from homarus.store.query import WhereClause
from homarus.store.traces import BacklogCount, DeliveryAttempt, TraceRecord
from homarus.store.transcript_codec import dump_json, load_json

T = TypeVar("T")
MethodT = TypeVar("MethodT", bound=Callable[..., Coroutine[Any, Any, object]])
WriteStep: TypeAlias = Callable[[apsw.Connection], None]

_CURSOR = "cursor"  # the kind of record that holds a channel's cursor


def repairing(method: MethodT) -> MethodT:
    """Wrap a method that reads: when a row is damaged, repair the database and read again."""

    @wraps(method)
    async def read(self: Any, *args: Any, **options: Any) -> object:
        try:
            return await method(self, *args, **options)
        except UnicodeEncodeError:  # the caller's value, not a row
            raise
        except (CorruptDataError, ValueError, TypeError, LookupError) as exc:
            if not (self._repair and await self._repair(exc)):
                raise
            return await method(self, *args, **options)

    return cast("MethodT", read)


class SqliteJournalTransaction:
    """Collects the journal writes of a transaction as steps."""

    __slots__ = ()
    principal: Principal
    steps: list[WriteStep]

    def accept(self, session: str, inbound: Inbound, *, at_ms: int) -> None:
        new_record = new_inbox_record(session, inbound, at_ms)
        self.steps.append(lambda db: sqlite_journal_sql.accept_new(db, self.principal, new_record))

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
        self.steps.append(
            lambda db: sqlite_journal_sql.mark_running(
                db, self.principal, ids, lease, run=run, session_id=session_id, entry=entry
            )
        )

    def check_lease(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)
        self.steps.append(lambda db: sqlite_journal_sql.check_lease(db, self.principal, ids, lease))

    def cancel_attempt(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)
        self.steps.append(
            lambda db: sqlite_journal_sql.cancel_attempt(db, self.principal, ids, lease)
        )

    def suspend(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)
        self.steps.append(lambda db: sqlite_journal_sql.suspend(db, self.principal, ids, lease))

    def add_approval(self, record: ApprovalRecord) -> None:
        self.steps.append(lambda db: sqlite_journal_sql.add_approval(db, self.principal, record))

    def use_approval(self, id: str, digest: str, *, at_ms: int) -> None:  # noqa: A002 - the word for it
        self.steps.append(
            lambda db: sqlite_journal_sql.use_approval(db, self.principal, id, digest, at_ms)
        )

    def cancel_approvals(self, runs: Sequence[str], *, at_ms: int) -> None:
        runs = storable_ids(runs)
        self.steps.append(
            lambda db: sqlite_journal_sql.cancel_approvals(db, self.principal, runs, at_ms)
        )

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
        self.steps.append(
            lambda db: sqlite_journal_sql.settle(
                db, self.principal, ids, lease, state=state, at_ms=at_ms, why=why, reply=reply
            )
        )

    def call_started(self, run: str, lease: Lease, call_id: str) -> None:
        call = to_storable(call_id)
        self.steps.append(
            lambda db: sqlite_journal_sql.call_started(db, self.principal, run, lease, call)
        )

    def call_ended(self, run: str, lease: Lease, call_id: str) -> None:
        call = to_storable(call_id)
        self.steps.append(
            lambda db: sqlite_journal_sql.call_ended(db, self.principal, run, lease, call)
        )

    def enqueue(self, *records: OutboxRecord) -> None:
        self.steps.append(lambda db: sqlite_journal_sql.enqueue(db, self.principal, records))

    def save_cursor(self, cursor: Cursor) -> None:
        name, data = to_storable(cursor.name), dump_json(cursor.data)
        self.steps.append(lambda db: sqlite_sql.put_record(db, self.principal, _CURSOR, name, data))

    def put_chat_records(self, *records: ChatRecord) -> None:
        rows = encode_chat_records(records)
        self.steps.append(lambda db: sqlite_journal_sql.put_chat_records(db, self.principal, rows))

    def send_started(self, record_id: str, lease: Lease, *, at_ms: int = 0) -> None:
        record = to_storable(record_id)
        self.steps.append(
            lambda db: sqlite_journal_sql.send_started(db, self.principal, record, lease, at_ms)
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
        self.steps.append(
            lambda db: sqlite_journal_sql.send_ended(
                db,
                self.principal,
                record,
                lease,
                state=state,
                receipt=receipt,
                thread=to_storable(thread),
                why=why,
                not_before_ms=not_before_ms,
                tries=encoded,
            )
        )

    def add_trace(self, record: TraceRecord) -> None:
        row = (
            to_storable(record.run), record.attempt, to_storable(record.session), record.at_ms,
            dump_json(record.data),
        )  # fmt: skip
        self.steps.append(lambda db: sqlite_journal_sql.add_trace(db, self.principal, row))


class RunOnWriter(Protocol):
    """Runs a job on the writer thread; what it wrote is on disk when this returns."""

    def __call__(self, job: Callable[[apsw.Connection], T]) -> Awaitable[T]: ...


class SqliteJournal:
    """A Journal on the connections of its store; journal.py says what it guarantees."""

    def __init__(
        self,
        principal: Principal,
        read: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]],
        write: RunOnWriter,
        commit: Callable[[], AbstractAsyncContextManager[JournalTransaction]],
        lease: Callable[[str], AbstractAsyncContextManager[Lease]],
        *,
        repair: Callable[[Exception], Awaitable[bool]] | None = None,
    ) -> None:
        self._repair = repair
        self._principal, self._scope = principal, (principal.team, principal.user)
        self._read, self._write = read, write
        self.transaction, self.lease = commit, lease

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
        read = (to_storable(cursor.name), dump_json(cursor.data)) if cursor else None
        rows = encode_chat_records(chat_records)

        def job(db: apsw.Connection) -> Acceptance:
            if read:
                sqlite_sql.put_record(db, self._principal, _CURSOR, *read)
            sqlite_journal_sql.put_chat_records(db, self._principal, rows)
            return sqlite_journal_sql.accept(db, self._principal, new_record)

        return await self._write(job)

    async def set_message(self, id: str, inbound: Inbound) -> bool:  # noqa: A002 - the word for it
        body = encode_body(inbound)
        return await self._write(
            lambda db: sqlite_journal_sql.set_message(db, self._principal, to_storable(id), body)
        )

    @repairing
    async def chat_records(
        self, kind: ChatRecordKind, chat: str | None = None
    ) -> Sequence[ChatRecord]:
        clause = self._state_clause(())
        clause.add("kind = ?", kind)
        if chat is not None:
            clause.add("chat = ?", to_storable(chat))
        rows = self._read(
            f"{SELECT_CHAT_RECORDS} WHERE {clause} ORDER BY place", tuple(clause.values)
        )
        return [decode_chat_record(row) for row in rows]

    @repairing
    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        rows = self._read(
            "SELECT json FROM records WHERE team = ? AND user = ? AND kind = ? AND id = ?",
            (*self._scope, _CURSOR, to_storable(name)),
        )
        return load_json(rows[0][0]) if rows else None

    @repairing
    async def inbox_record(self, id: str) -> InboxRecord | None:  # noqa: A002 - the word for it
        rows = self._read(sqlite_journal_sql.BY_ID, (*self._scope, to_storable(id)))
        return decode_inbox_record(rows[0]) if rows else None

    @repairing
    async def inbox_records(
        self, *states: InboxState, session: str | None = None, limit: int | None = None
    ) -> Sequence[InboxRecord]:
        clause = self._state_clause(
            states,
            sqlite_journal_sql.OPEN,
            sqlite_journal_sql.PARKED,
            sqlite_journal_sql.SUSPENDED,
        )
        if session is not None:
            clause.add("session = ?", to_storable(session))
        order = "place" if limit is None else "place DESC"
        rows = self._read(
            f"{SELECT_INBOX} WHERE {clause} ORDER BY {order} LIMIT ?",
            (*clause.values, -1 if limit is None else max(limit, 0)),
        )
        records = [decode_inbox_record(row) for row in rows]
        return records if limit is None else records[::-1]

    @repairing
    async def open_calls(self, run: str) -> frozenset[str]:
        rows = self._read(
            "SELECT call_id FROM calls WHERE team = ? AND user = ? AND run = ?",
            (*self._scope, run),
        )
        return frozenset(call_id for (call_id,) in rows)

    @repairing
    async def outbox_record(self, id: str) -> OutboxRecord | None:  # noqa: A002 - the word for it
        rows = self._read(
            f"{SELECT_OUTBOX} WHERE team = ? AND user = ? AND id = ?",
            (*self._scope, to_storable(id)),
        )
        return decode_outbox_record(rows[0]) if rows else None

    @repairing
    async def outbox_records(
        self,
        *states: OutboxState,
        channel: str | None = None,
        run: str | None = None,
        limit: int | None = None,
    ) -> Sequence[OutboxRecord]:
        clause = self._state_clause(states, sqlite_journal_sql.WAITING, sqlite_journal_sql.STRANDED)
        if channel is not None:
            clause.add("channel = ?", to_storable(channel))
        if run is not None:
            clause.add("id >= ? AND id < ?", *run_range(run))
        rows = self._read(
            f"{SELECT_OUTBOX} WHERE {clause} ORDER BY place LIMIT ?",
            (*clause.values, -1 if limit is None else max(limit, 0)),
        )
        return [decode_outbox_record(row) for row in rows]

    @repairing
    async def traces(
        self, *, run: str | None = None, session: str | None = None, limit: int | None = None
    ) -> Sequence[TraceRecord]:
        clause = self._state_clause(())
        if run is not None:
            clause.add("run = ?", to_storable(run))
        if session is not None:
            clause.add("session = ?", to_storable(session))
        rows = self._read(
            f"{SELECT_TRACES} WHERE {clause} ORDER BY place DESC LIMIT ?",
            (*clause.values, -1 if limit is None else max(limit, 0)),
        )
        return [decode_trace(row) for row in reversed(rows)]

    @repairing
    async def backlog(self) -> Sequence[BacklogCount]:
        counts = list[BacklogCount]()
        for kind, table, column, condition in sqlite_journal_sql.BACKLOG:
            rows = self._read(
                f"SELECT state, count(*), min({column}) FROM {table}"  # noqa: S608 - our names
                f" WHERE team = ? AND user = ? AND {condition} GROUP BY state ORDER BY state",
                self._scope,
            )
            counts += [BacklogCount(kind, *row) for row in rows]
        return counts

    @repairing
    async def approval(self, id: str) -> ApprovalRecord | None:  # noqa: A002 - the word for it
        rows = self._read(
            f"{SELECT_APPROVALS} WHERE team = ? AND user = ? AND id = ?",
            (*self._scope, to_storable(id)),
        )
        return decode_approval(rows[0]) if rows else None

    @repairing
    async def approvals(
        self, *states: ApprovalState, session: str | None = None, limit: int | None = None
    ) -> Sequence[ApprovalRecord]:
        clause = self._state_clause(states, sqlite_journal_sql.PENDING)
        if session is not None:
            clause.add("session = ?", to_storable(session))
        rows = self._read(
            f"{SELECT_APPROVALS} WHERE {clause} ORDER BY place DESC LIMIT ?",
            (*clause.values, -1 if limit is None else max(limit, 0)),
        )
        return [decode_approval(row) for row in reversed(rows)]

    @repairing
    async def find_approval(self, run: str, call_id: str) -> ApprovalRecord | None:
        rows = self._read(
            f"{SELECT_APPROVALS} WHERE team = ? AND user = ? AND run = ? AND call_id = ?"
            " ORDER BY place DESC LIMIT 1",
            (*self._scope, to_storable(run), to_storable(call_id)),
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
        return await self._write(
            lambda db: sqlite_journal_sql.resolve_approval(db, self._principal, resolution, outbox)
        )

    async def retry(self, id: str, *, at_ms: int) -> bool:  # noqa: A002 - the word for it
        return await self._write(
            lambda db: sqlite_journal_sql.retry(db, self._principal, to_storable(id), at_ms)
        )

    async def discard(self, id: str, *, at_ms: int, why: str) -> bool:  # noqa: A002 - the word for it
        return await self._write(
            lambda db: sqlite_journal_sql.discard(
                db, self._principal, to_storable(id), at_ms, to_storable(why)
            )
        )

    async def shift_times(self, step_ms: int) -> None:
        await self._write(lambda db: shift_times(db, step_ms, self._principal))

    async def prune(self, before_ms: int, *, approvals_before_ms: int = 0) -> int:
        times = (before_ms, approvals_before_ms)
        return await self._write(lambda db: sqlite_journal_sql.prune(db, self._principal, *times))

    def _state_clause(self, states: Sequence[str], *indexed: str) -> WhereClause:
        """Return records of these states, using the index's condition when it covers them."""
        clause = WhereClause()
        clause.add("team = ? AND user = ?")
        clause.values += self._scope
        if states:
            clause.add(f"state IN ({', '.join('?' * len(states))})", *states)
            clause.terms += [one for one in indexed if all(f"'{name}'" in one for name in states)]
        return clause
