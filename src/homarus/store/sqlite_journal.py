"""The journal in state.sqlite: inbox records, started calls and outbox records (see journal.py)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, TypeVar

import apsw

from homarus.core.message import Inbound, Json
from homarus.core.principal import Principal
from homarus.store import sqlite_journal_sql, sqlite_sql
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
    ACCEPTED,
    PARCELS,
    decode_inbox_record,
    decode_outbox_record,
    new_inbox_record,
    storable_ids,
    to_storable,
)
from homarus.store.query import WhereClause
from homarus.store.transcript_codec import dump_json, load_json

T = TypeVar("T")
WriteStep: TypeAlias = Callable[[apsw.Connection], None]

_CURSOR = "cursor"  # the kind of record that holds a channel's cursor


class SqliteJournalTransaction:
    """Collects the journal writes of a transaction as steps."""

    __slots__ = ()
    who: Principal
    steps: list[WriteStep]

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
                db, self.who, ids, lease, run=run, session_id=session_id, entry=entry
            )
        )

    def check_lease(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)
        self.steps.append(lambda db: sqlite_journal_sql.check_lease(db, self.who, ids, lease))

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
                db, self.who, ids, lease, state=state, at_ms=at_ms, why=why, reply=reply
            )
        )

    def call_started(self, run: str, lease: Lease, call_id: str) -> None:
        call = to_storable(call_id)
        self.steps.append(
            lambda db: sqlite_journal_sql.call_started(db, self.who, run, lease, call)
        )

    def call_ended(self, run: str, lease: Lease, call_id: str) -> None:
        call = to_storable(call_id)
        self.steps.append(lambda db: sqlite_journal_sql.call_ended(db, self.who, run, lease, call))

    def enqueue(self, *parcels: OutboxRecord) -> None:
        self.steps.append(lambda db: sqlite_journal_sql.enqueue(db, self.who, parcels))

    def save_cursor(self, cursor: Cursor) -> None:
        name, data = to_storable(cursor.name), dump_json(cursor.data)
        self.steps.append(lambda db: sqlite_sql.put_record(db, self.who, _CURSOR, name, data))

    def send_started(self, parcel_id: str, lease: Lease) -> None:
        parcel = to_storable(parcel_id)
        self.steps.append(lambda db: sqlite_journal_sql.send_started(db, self.who, parcel, lease))

    def send_ended(
        self,
        parcel_id: str,
        lease: Lease,
        state: OutboxState,
        *,
        receipt: str = "",
        why: str = "",
        not_before_ms: int = 0,
    ) -> None:
        parcel, receipt, why = to_storable(parcel_id), to_storable(receipt), to_storable(why)
        self.steps.append(
            lambda db: sqlite_journal_sql.send_ended(
                db,
                self.who,
                parcel,
                lease,
                state=state,
                receipt=receipt,
                why=why,
                not_before_ms=not_before_ms,
            )
        )


class RunOnWriter(Protocol):
    """Runs a job on the writer thread; what it wrote is on disk when this returns."""

    def __call__(self, job: Callable[[apsw.Connection], T]) -> Awaitable[T]: ...


class SqliteJournal:
    """A Journal on the connections of its store; journal.py says what it guarantees."""

    def __init__(
        self,
        who: Principal,
        read: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]],
        write: RunOnWriter,
        commit: Callable[[], AbstractAsyncContextManager[JournalTransaction]],
        lease: Callable[[str], AbstractAsyncContextManager[Lease]],
    ) -> None:
        self._who, self._scope = who, (who.team, who.user)
        self._read, self._write = read, write
        self.transaction, self.lease = commit, lease

    async def accept(
        self, session: str, inbound: Inbound, *, at_ms: int, cursor: Cursor | None = None
    ) -> Acceptance:
        arrival = new_inbox_record(session, inbound, at_ms)
        read = (to_storable(cursor.name), dump_json(cursor.data)) if cursor else None

        def job(db: apsw.Connection) -> Acceptance:
            if read:
                sqlite_sql.put_record(db, self._who, _CURSOR, *read)
            return sqlite_journal_sql.accept(db, self._who, arrival)

        return await self._write(job)

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        found = self._read(
            "SELECT json FROM records WHERE team = ? AND user = ? AND kind = ? AND id = ?",
            (*self._scope, _CURSOR, to_storable(name)),
        )
        return load_json(found[0][0]) if found else None

    async def inbox_record(self, id: str) -> InboxRecord | None:  # noqa: A002 - the word for it
        found = self._read(sqlite_journal_sql.BY_ID, (*self._scope, to_storable(id)))
        return decode_inbox_record(found[0]) if found else None

    async def inbox_records(
        self, *states: InboxState, session: str | None = None, limit: int | None = None
    ) -> Sequence[InboxRecord]:
        asked = self._asked(states, sqlite_journal_sql.OPEN, sqlite_journal_sql.PARKED)
        if session is not None:
            asked.add("session = ?", to_storable(session))
        order = "place" if limit is None else "place DESC"
        found = self._read(
            f"{ACCEPTED} WHERE {asked} ORDER BY {order} LIMIT ?",
            (*asked.values, -1 if limit is None else max(limit, 0)),
        )
        kept = [decode_inbox_record(row) for row in found]
        return kept if limit is None else kept[::-1]

    async def open_calls(self, run: str) -> frozenset[str]:
        found = self._read(
            "SELECT call_id FROM calls WHERE team = ? AND user = ? AND run = ?",
            (*self._scope, run),
        )
        return frozenset(call_id for (call_id,) in found)

    async def outbox_record(self, id: str) -> OutboxRecord | None:  # noqa: A002 - the word for it
        found = self._read(
            f"{PARCELS} WHERE team = ? AND user = ? AND id = ?",
            (*self._scope, to_storable(id)),
        )
        return decode_outbox_record(found[0]) if found else None

    async def outbox_records(
        self, *states: OutboxState, channel: str | None = None, limit: int | None = None
    ) -> Sequence[OutboxRecord]:
        asked = self._asked(states, sqlite_journal_sql.WAITING, sqlite_journal_sql.STRANDED)
        if channel is not None:
            asked.add("channel = ?", to_storable(channel))
        found = self._read(
            f"{PARCELS} WHERE {asked} ORDER BY place LIMIT ?",
            (*asked.values, -1 if limit is None else max(limit, 0)),
        )
        return [decode_outbox_record(row) for row in found]

    async def retry(self, id: str, *, at_ms: int) -> bool:  # noqa: A002 - the word for it
        return await self._write(
            lambda db: sqlite_journal_sql.retry(db, self._who, to_storable(id), at_ms)
        )

    async def discard(self, id: str, *, at_ms: int, why: str) -> bool:  # noqa: A002 - the word for it
        return await self._write(
            lambda db: sqlite_journal_sql.discard(
                db, self._who, to_storable(id), at_ms, to_storable(why)
            )
        )

    async def prune(self, before_ms: int) -> int:
        return await self._write(lambda db: sqlite_journal_sql.prune(db, self._who, before_ms))

    def _asked(self, states: Sequence[str], *indexed: str) -> WhereClause:
        """Return records of these states, using the index's condition when it covers them."""
        asked = WhereClause()
        asked.add("team = ? AND user = ?")
        asked.values += self._scope
        if states:
            asked.add(f"state IN ({', '.join('?' * len(states))})", *states)
            asked.terms += [one for one in indexed if all(f"'{name}'" in one for name in states)]
        return asked
