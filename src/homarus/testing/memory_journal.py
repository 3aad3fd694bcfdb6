"""The in-memory journal of the memory store (see store/journal.py)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from typing import Protocol, TypeVar

from homarus.core.errors import Conflict, LeaseLost
from homarus.core.message import Inbound, Json
from homarus.core.value import dataclass
from homarus.store.arrival import Arrival, arrive, pack, read_body, storable, storable_ids
from homarus.store.journal import (
    OPEN,
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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Message:
    row: Accepted
    digest: str
    token: int = 0

    @property
    def name(self) -> tuple[str, str, str]:
        return self.row.channel, self.row.account, self.row.message_id


@dataclass(frozen=True, slots=True)
class _Sent:
    parcel: Parcel
    token: int = 0


@dataclass(slots=True)
class JournalRows:
    """The journal of one principal, in the order of insertion."""

    messages: dict[str, _Message] = field(default_factory=dict)
    calls: frozenset[tuple[str, str]] = frozenset()
    parcels: dict[str, _Sent] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)
    last_place: int = 0

    def copy(self) -> "JournalRows":
        return replace(
            self,
            messages=dict(self.messages),
            parcels=dict(self.parcels),
            cursors=dict(self.cursors),
        )

    def next_place(self) -> int:
        self.last_place += 1
        return self.last_place

    def accept(self, arrival: Arrival) -> Acceptance:
        if made := self._insert(arrival):
            return Acceptance("new", made)
        for other in arrival.others():
            if known := self._count(other):
                return Acceptance("duplicate", known)
            if made := self._insert(other):
                return Acceptance("conflict", made)
        raise Conflict(f"there is no room beside message {arrival.row.message_id}")

    def _insert(self, arrival: Arrival) -> Accepted | None:
        kept = replace(arrival.row, inbound=read_body(arrival.body), place=self.last_place + 1)
        new = _Message(kept, arrival.digest)
        taken = {message.name for message in self.messages.values()}
        if new.row.id in self.messages or new.name in taken:
            return None
        self.messages[new.row.id] = new
        self.next_place()
        return new.row

    def _count(self, arrival: Arrival) -> Accepted | None:
        asked = _Message(arrival.row, arrival.digest)
        for message in self.messages.values():
            if message.name == asked.name and message.digest == asked.digest:
                row = replace(message.row, duplicates=message.row.duplicates + 1)
                self.messages[row.id] = replace(message, row=row)
                return row
        return None

    def open_row(self, row_id: str, lease: Lease) -> _Message:
        """Return a record that may be started under this lease."""
        message = self.messages.get(row_id)
        if message is None or message.row.state not in OPEN or message.token > lease.token:
            raise LeaseLost(f"message {row_id} is not ours to work on under {lease.name}")
        return message

    def held(self, row_id: str, lease: Lease) -> _Message:
        """Return a record that was started under this lease."""
        message = self.open_row(row_id, lease)
        if message.row.state != "running" or message.token != lease.token:
            raise LeaseLost(f"message {row_id} is not worked on under {lease.name}")
        return message

    def check_run(self, run: str, lease: Lease) -> None:
        rows = (m for m in self.messages.values() if m.row.run == run and m.token == lease.token)
        if all(message.row.state != "running" for message in rows):
            raise LeaseLost(f"run {run} is not going on under {lease.name}")

    def forget_calls(self, run: str) -> None:
        """Delete the calls of a run, unless one of its messages may be retried."""
        rows = (message.row for message in self.messages.values() if message.row.run == run)
        if all(row.state not in {*OPEN, "parked"} for row in rows):
            self.calls = frozenset(call for call in self.calls if call[0] != run)

    def parcel(self, parcel_id: str, lease: Lease, *states: ParcelState) -> _Sent:
        found = self.parcels.get(parcel_id)
        if found is None or found.parcel.state not in states or found.token > lease.token:
            raise LeaseLost(f"parcel {parcel_id} is not ours to send under {lease.name}")
        return found

    def retry(self, item_id: str, at_ms: int) -> bool:
        message, sent = self.messages.get(item_id), self.parcels.get(item_id)
        if message and message.row.state == "parked":
            row = replace(message.row, state="accepted", reply="", why="", attempts=0, settled_ms=0)
            self.messages[item_id] = replace(message, row=row, token=message.token + 1)
            return True
        if sent and sent.parcel.state in {"unknown", "dead"}:
            expires, posted = sent.parcel.expires_ms, sent.parcel.at_ms
            parcel = replace(
                sent.parcel,
                state="pending",
                why="",
                attempts=0,
                not_before_ms=0,
                expires_ms=max(expires, at_ms + expires - posted) if expires > posted else expires,
            )
            self.parcels[item_id] = _Sent(parcel, sent.token + 1)
            return True
        return False

    def discard(self, item_id: str, at_ms: int, why: str) -> bool:
        message, sent = self.messages.get(item_id), self.parcels.get(item_id)
        if message and message.row.state == "parked":
            row = replace(message.row, state="reported", settled_ms=at_ms, why=why, inbound=None)
            self.messages[item_id] = replace(message, row=row)
            self.forget_calls(row.run)
            return True
        if sent and sent.parcel.state in {"unknown", "dead"}:
            del self.parcels[item_id]
            return True
        return False

    def prune(self, before_ms: int) -> int:
        done = {"answered", "silent", "reported"}
        old = [
            id_
            for id_, message in self.messages.items()
            if message.row.state in done and message.row.settled_ms < before_ms
        ]
        sent = [
            id_
            for id_, one in self.parcels.items()
            if one.parcel.state == "sent" and one.parcel.at_ms < before_ms
        ]
        for id_ in old:
            del self.messages[id_]
        for id_ in sent:
            del self.parcels[id_]
        return len(old) + len(sent)


class MemorySteps:
    """Collects the journal writes of a transaction as steps."""

    def __init__(self, add: Callable[[Callable[[JournalRows], None]], None]) -> None:
        self._add = add

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

        def step(rows: JournalRows) -> None:
            for row_id in ids:
                message = rows.open_row(row_id, lease)
                again = message.row.state == "running" and message.token == lease.token
                row = replace(
                    message.row,
                    state="running",
                    run=run,
                    session_id=session_id or message.row.session_id,
                    entry=entry or message.row.entry,
                    attempts=message.row.attempts + (not again),
                )
                rows.messages[row_id] = replace(message, row=row, token=lease.token)

        self._add(step)

    def hold(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)

        def step(rows: JournalRows) -> None:
            for row_id in ids:
                rows.held(row_id, lease)

        self._add(step)

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

        def step(rows: JournalRows) -> None:
            for row_id in ids:
                message = rows.open_row(row_id, lease)
                if message.row.state == "running":
                    rows.held(row_id, lease)
                row = replace(
                    message.row,
                    state=state,
                    settled_ms=at_ms,
                    why=why,
                    reply=reply,
                    inbound=message.row.inbound if state == "parked" else None,
                )
                rows.messages[row_id] = replace(message, row=row, token=lease.token)
            for row_id in ids:
                rows.forget_calls(rows.messages[row_id].row.run)

        self._add(step)

    def call_started(self, run: str, lease: Lease, call_id: str) -> None:
        call = (run, storable(call_id))

        def step(rows: JournalRows) -> None:
            rows.check_run(run, lease)
            rows.calls |= {call}

        self._add(step)

    def call_ended(self, run: str, lease: Lease, call_id: str) -> None:
        call = (run, storable(call_id))

        def step(rows: JournalRows) -> None:
            rows.check_run(run, lease)
            rows.calls -= {call}

        self._add(step)

    def post(self, *parcels: Parcel) -> None:
        def step(rows: JournalRows) -> None:
            for parcel in map(pack, parcels):
                if parcel.id not in rows.parcels:
                    placed = replace(parcel, place=rows.next_place())
                    rows.parcels[parcel.id] = _Sent(placed)

        self._add(step)

    def read_to(self, cursor: Cursor) -> None:
        def step(rows: JournalRows) -> None:
            rows.cursors[storable(cursor.name)] = dump(cursor.data)

        self._add(step)

    def send_started(self, parcel_id: str, lease: Lease) -> None:
        parcel_id = storable(parcel_id)

        def step(rows: JournalRows) -> None:
            sent = rows.parcel(parcel_id, lease, "pending", "sending")
            parcel = replace(sent.parcel, state="sending", attempts=sent.parcel.attempts + 1)
            rows.parcels[parcel_id] = _Sent(parcel, lease.token)

        self._add(step)

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
        parcel_id = storable(parcel_id)

        def step(rows: JournalRows) -> None:
            sent = rows.parcel(parcel_id, lease, "sending")
            if sent.token != lease.token:
                raise LeaseLost(f"parcel {parcel_id} is not being sent under {lease.name}")
            parcel = replace(
                sent.parcel,
                state=state,
                receipt=storable(receipt),
                why=storable(why),
                not_before_ms=not_before_ms,
            )
            rows.parcels[parcel_id] = replace(sent, parcel=parcel)

        self._add(step)


class Change(Protocol):
    """Changes the rows completely or not at all."""

    def __call__(self, change: Callable[[JournalRows], T]) -> T: ...


class MemoryJournal:
    """A Journal in memory; it guarantees what store/journal.py says, except for durability."""

    def __init__(
        self,
        read: Callable[[], JournalRows],
        change: Change,
        commit: Callable[[], AbstractAsyncContextManager[JournalUnit]],
        lease: Callable[[str], AbstractAsyncContextManager[Lease]],
    ) -> None:
        self._read, self._change = read, change
        self.commit, self.lease = commit, lease

    async def accept(
        self, session: str, inbound: Inbound, *, at_ms: int, cursor: Cursor | None = None
    ) -> Acceptance:
        arrival = arrive(session, inbound, at_ms)

        def change(rows: JournalRows) -> Acceptance:
            if cursor:
                rows.cursors[storable(cursor.name)] = dump(cursor.data)
            return rows.accept(arrival)

        return self._change(change)

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        text = self._read().cursors.get(storable(name))
        return None if text is None else load(text)

    async def accepted(self, id: str) -> Accepted | None:  # noqa: A002 - the word for it
        message = self._read().messages.get(storable(id))
        return message.row if message else None

    async def rows(
        self, *states: State, session: str | None = None, limit: int | None = None
    ) -> Sequence[Accepted]:
        wanted = None if session is None else storable(session)
        found = [
            message.row
            for message in self._read().messages.values()
            if (not states or message.row.state in states) and wanted in {None, message.row.session}
        ]
        return found if limit is None else found[max(0, len(found) - max(limit, 0)) :]

    async def calls(self, run: str) -> frozenset[str]:
        return frozenset(call_id for of, call_id in self._read().calls if of == run)

    async def parcel(self, id: str) -> Parcel | None:  # noqa: A002 - the word for it
        sent = self._read().parcels.get(storable(id))
        return sent.parcel if sent else None

    async def parcels(
        self, *states: ParcelState, channel: str | None = None, limit: int | None = None
    ) -> Sequence[Parcel]:
        wanted = None if channel is None else storable(channel)
        found = [
            sent.parcel
            for sent in self._read().parcels.values()
            if (not states or sent.parcel.state in states)
            and wanted in {None, sent.parcel.address.channel}
        ]
        return found if limit is None else found[: max(limit, 0)]

    async def retry(self, id: str, *, at_ms: int) -> bool:  # noqa: A002 - the word for it
        return self._change(lambda rows: rows.retry(storable(id), at_ms))

    async def discard(self, id: str, *, at_ms: int, why: str) -> bool:  # noqa: A002 - the word for it
        return self._change(lambda rows: rows.discard(storable(id), at_ms, storable(why)))

    async def prune(self, before_ms: int) -> int:
        return self._change(lambda rows: rows.prune(before_ms))
