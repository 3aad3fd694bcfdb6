"""The journal in state.sqlite: inbox records, started calls and outbox records (see journal.py)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, TypeVar

import apsw

from homarus.core.message import Inbound, Json
from homarus.core.principal import Principal
from homarus.store import journal_rows, rows
from homarus.store.arrival import (
    ACCEPTED,
    PARCELS,
    arrive,
    read_accepted,
    read_parcel,
    storable,
    storable_ids,
)
from homarus.store.journal import (
    Acceptance,
    Accepted,
    Cursor,
    JournalUnit,
    Lease,
    Parcel,
    ParcelState,
    Settled,
    State,
)
from homarus.store.line import dump, load
from homarus.store.query import Conditions

T = TypeVar("T")
Step: TypeAlias = Callable[[apsw.Connection], None]

_CURSOR = "cursor"  # the kind of record that holds a channel's cursor


class JournalSteps:
    """Collects the journal writes of a transaction as steps."""

    __slots__ = ()
    who: Principal
    steps: list[Step]

    def start(
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
            lambda db: journal_rows.start(
                db, self.who, ids, lease, run=run, session_id=session_id, entry=entry
            )
        )

    def hold(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)
        self.steps.append(lambda db: journal_rows.hold(db, self.who, ids, lease))

    def settle(
        self,
        ids: Sequence[str],
        lease: Lease,
        state: Settled,
        *,
        at_ms: int,
        why: str = "",
        reply: str = "",
    ) -> None:
        ids, why = storable_ids(ids), storable(why)
        self.steps.append(
            lambda db: journal_rows.settle(
                db, self.who, ids, lease, state=state, at_ms=at_ms, why=why, reply=reply
            )
        )

    def call_started(self, run: str, lease: Lease, call_id: str) -> None:
        call = storable(call_id)
        self.steps.append(lambda db: journal_rows.call_started(db, self.who, run, lease, call))

    def call_ended(self, run: str, lease: Lease, call_id: str) -> None:
        call = storable(call_id)
        self.steps.append(lambda db: journal_rows.call_ended(db, self.who, run, lease, call))

    def post(self, *parcels: Parcel) -> None:
        self.steps.append(lambda db: journal_rows.post(db, self.who, parcels))

    def read_to(self, cursor: Cursor) -> None:
        name, data = storable(cursor.name), dump(cursor.data)
        self.steps.append(lambda db: rows.put_record(db, self.who, _CURSOR, name, data))

    def send_started(self, parcel_id: str, lease: Lease) -> None:
        parcel = storable(parcel_id)
        self.steps.append(lambda db: journal_rows.send_started(db, self.who, parcel, lease))

    def send_ended(
        self,
        parcel_id: str,
        lease: Lease,
        state: ParcelState,
        *,
        receipt: str = "",
        why: str = "",
        not_before_ms: int = 0,
    ) -> None:
        parcel, receipt, why = storable(parcel_id), storable(receipt), storable(why)
        self.steps.append(
            lambda db: journal_rows.send_ended(
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


class Write(Protocol):
    """Runs a job on the writer thread; what it wrote is on disk when this returns."""

    def __call__(self, job: Callable[[apsw.Connection], T]) -> Awaitable[T]: ...


class SqliteJournal:
    """A Journal on the connections of its store; journal.py says what it guarantees."""

    def __init__(
        self,
        who: Principal,
        read: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]],
        write: Write,
        commit: Callable[[], AbstractAsyncContextManager[JournalUnit]],
        lease: Callable[[str], AbstractAsyncContextManager[Lease]],
    ) -> None:
        self._who, self._scope = who, (who.team, who.user)
        self._read, self._write = read, write
        self.commit, self.lease = commit, lease

    async def accept(
        self, session: str, inbound: Inbound, *, at_ms: int, cursor: Cursor | None = None
    ) -> Acceptance:
        arrival = arrive(session, inbound, at_ms)
        read = (storable(cursor.name), dump(cursor.data)) if cursor else None

        def job(db: apsw.Connection) -> Acceptance:
            if read:
                rows.put_record(db, self._who, _CURSOR, *read)
            return journal_rows.accept(db, self._who, arrival)

        return await self._write(job)

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        found = self._read(
            "SELECT json FROM records WHERE team = ? AND user = ? AND kind = ? AND id = ?",
            (*self._scope, _CURSOR, storable(name)),
        )
        return load(found[0][0]) if found else None

    async def accepted(self, id: str) -> Accepted | None:  # noqa: A002 - the word for it
        found = self._read(journal_rows.BY_ID, (*self._scope, storable(id)))
        return read_accepted(found[0]) if found else None

    async def rows(
        self, *states: State, session: str | None = None, limit: int | None = None
    ) -> Sequence[Accepted]:
        asked = self._asked(states, journal_rows.OPEN, journal_rows.PARKED)
        if session is not None:
            asked.add("session = ?", storable(session))
        order = "place" if limit is None else "place DESC"
        found = self._read(
            f"{ACCEPTED} WHERE {asked} ORDER BY {order} LIMIT ?",
            (*asked.values, -1 if limit is None else max(limit, 0)),
        )
        kept = [read_accepted(row) for row in found]
        return kept if limit is None else kept[::-1]

    async def calls(self, run: str) -> frozenset[str]:
        found = self._read(
            "SELECT call_id FROM calls WHERE team = ? AND user = ? AND run = ?",
            (*self._scope, run),
        )
        return frozenset(call_id for (call_id,) in found)

    async def parcel(self, id: str) -> Parcel | None:  # noqa: A002 - the word for it
        found = self._read(
            f"{PARCELS} WHERE team = ? AND user = ? AND id = ?",
            (*self._scope, storable(id)),
        )
        return read_parcel(found[0]) if found else None

    async def parcels(
        self, *states: ParcelState, channel: str | None = None, limit: int | None = None
    ) -> Sequence[Parcel]:
        asked = self._asked(states, journal_rows.WAITING, journal_rows.STRANDED)
        if channel is not None:
            asked.add("channel = ?", storable(channel))
        found = self._read(
            f"{PARCELS} WHERE {asked} ORDER BY place LIMIT ?",
            (*asked.values, -1 if limit is None else max(limit, 0)),
        )
        return [read_parcel(row) for row in found]

    async def retry(self, id: str, *, at_ms: int) -> bool:  # noqa: A002 - the word for it
        return await self._write(lambda db: journal_rows.retry(db, self._who, storable(id), at_ms))

    async def discard(self, id: str, *, at_ms: int, why: str) -> bool:  # noqa: A002 - the word for it
        return await self._write(
            lambda db: journal_rows.discard(db, self._who, storable(id), at_ms, storable(why))
        )

    async def prune(self, before_ms: int) -> int:
        return await self._write(lambda db: journal_rows.prune(db, self._who, before_ms))

    def _asked(self, states: Sequence[str], *indexed: str) -> Conditions:
        """Return records of these states, using the index's condition when it covers them."""
        asked = Conditions()
        asked.add("team = ? AND user = ?")
        asked.values += self._scope
        if states:
            asked.add(f"state IN ({', '.join('?' * len(states))})", *states)
            asked.terms += [one for one in indexed if all(f"'{name}'" in one for name in states)]
        return asked
