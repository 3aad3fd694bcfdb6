"""The in-memory journal of the memory store (see store/journal.py)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from typing import Protocol, TypeVar

from homarus.core.errors import ConflictError, LeaseLostError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound, Json
from homarus.store.journal import (
    OPEN,
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
    NewInboxRecord,
    decode_body,
    new_inbox_record,
    new_outbox_record,
    storable_ids,
    to_storable,
)
from homarus.store.transcript_codec import dump_json, load_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _StoredMessage:
    row: InboxRecord
    digest: str
    token: int = 0

    @property
    def name(self) -> tuple[str, str, str]:
        return self.row.channel, self.row.account, self.row.message_id


@dataclass(frozen=True, slots=True)
class _StoredOutboxRecord:
    parcel: OutboxRecord
    token: int = 0


@dataclass(slots=True)
class MemoryJournalRows:
    """The journal of one principal, in the order of insertion."""

    messages: dict[str, _StoredMessage] = field(default_factory=dict)
    calls: frozenset[tuple[str, str]] = frozenset()
    parcels: dict[str, _StoredOutboxRecord] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)
    last_place: int = 0

    def copy(self) -> "MemoryJournalRows":
        return replace(
            self,
            messages=dict(self.messages),
            parcels=dict(self.parcels),
            cursors=dict(self.cursors),
        )

    def next_place(self) -> int:
        self.last_place += 1
        return self.last_place

    def accept(self, arrival: NewInboxRecord) -> Acceptance:
        if made := self._insert(arrival):
            return Acceptance("new", made)
        for other in arrival.as_conflict():
            if known := self._count(other):
                return Acceptance("duplicate", known)
            if made := self._insert(other):
                return Acceptance("conflict", made)
        raise ConflictError(f"there is no room beside message {arrival.row.message_id}")

    def _insert(self, arrival: NewInboxRecord) -> InboxRecord | None:
        kept = replace(arrival.row, inbound=decode_body(arrival.body), place=self.last_place + 1)
        new = _StoredMessage(kept, arrival.digest)
        taken = {message.name for message in self.messages.values()}
        if new.row.id in self.messages or new.name in taken:
            return None
        self.messages[new.row.id] = new
        self.next_place()
        return new.row

    def _count(self, arrival: NewInboxRecord) -> InboxRecord | None:
        asked = _StoredMessage(arrival.row, arrival.digest)
        for message in self.messages.values():
            if message.name == asked.name and message.digest == asked.digest:
                row = replace(message.row, duplicates=message.row.duplicates + 1)
                self.messages[row.id] = replace(message, row=row)
                return row
        return None

    def open_row(self, row_id: str, lease: Lease) -> _StoredMessage:
        """Return a record that may be started under this lease."""
        message = self.messages.get(row_id)
        if message is None or message.row.state not in OPEN or message.token > lease.token:
            raise LeaseLostError(f"message {row_id} is not ours to work on under {lease.name}")
        return message

    def held(self, row_id: str, lease: Lease) -> _StoredMessage:
        """Return a record that was started under this lease."""
        message = self.open_row(row_id, lease)
        if message.row.state != "running" or message.token != lease.token:
            raise LeaseLostError(f"message {row_id} is not worked on under {lease.name}")
        return message

    def check_run(self, run: str, lease: Lease) -> None:
        rows = (m for m in self.messages.values() if m.row.run == run and m.token == lease.token)
        if all(message.row.state != "running" for message in rows):
            raise LeaseLostError(f"run {run} is not going on under {lease.name}")

    def forget_calls(self, run: str) -> None:
        """Delete the calls of a run, unless one of its messages may be retried."""
        rows = (message.row for message in self.messages.values() if message.row.run == run)
        if all(row.state not in {*OPEN, "parked"} for row in rows):
            self.calls = frozenset(call for call in self.calls if call[0] != run)

    def parcel(self, parcel_id: str, lease: Lease, *states: OutboxState) -> _StoredOutboxRecord:
        found = self.parcels.get(parcel_id)
        if found is None or found.parcel.state not in states or found.token > lease.token:
            raise LeaseLostError(f"parcel {parcel_id} is not ours to send under {lease.name}")
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
            self.parcels[item_id] = _StoredOutboxRecord(parcel, sent.token + 1)
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


class MemoryJournalTransaction:
    """Collects the journal writes of a transaction as steps."""

    def __init__(self, add: Callable[[Callable[[MemoryJournalRows], None]], None]) -> None:
        self._add = add

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

        def step(rows: MemoryJournalRows) -> None:
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

    def check_lease(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)

        def step(rows: MemoryJournalRows) -> None:
            for row_id in ids:
                rows.held(row_id, lease)

        self._add(step)

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

        def step(rows: MemoryJournalRows) -> None:
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
        call = (run, to_storable(call_id))

        def step(rows: MemoryJournalRows) -> None:
            rows.check_run(run, lease)
            rows.calls |= {call}

        self._add(step)

    def call_ended(self, run: str, lease: Lease, call_id: str) -> None:
        call = (run, to_storable(call_id))

        def step(rows: MemoryJournalRows) -> None:
            rows.check_run(run, lease)
            rows.calls -= {call}

        self._add(step)

    def enqueue(self, *parcels: OutboxRecord) -> None:
        def step(rows: MemoryJournalRows) -> None:
            for parcel in map(new_outbox_record, parcels):
                if parcel.id not in rows.parcels:
                    placed = replace(parcel, place=rows.next_place())
                    rows.parcels[parcel.id] = _StoredOutboxRecord(placed)

        self._add(step)

    def save_cursor(self, cursor: Cursor) -> None:
        def step(rows: MemoryJournalRows) -> None:
            rows.cursors[to_storable(cursor.name)] = dump_json(cursor.data)

        self._add(step)

    def send_started(self, parcel_id: str, lease: Lease) -> None:
        parcel_id = to_storable(parcel_id)

        def step(rows: MemoryJournalRows) -> None:
            sent = rows.parcel(parcel_id, lease, "pending", "sending")
            parcel = replace(sent.parcel, state="sending", attempts=sent.parcel.attempts + 1)
            rows.parcels[parcel_id] = _StoredOutboxRecord(parcel, lease.token)

        self._add(step)

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
        parcel_id = to_storable(parcel_id)

        def step(rows: MemoryJournalRows) -> None:
            sent = rows.parcel(parcel_id, lease, "sending")
            if sent.token != lease.token:
                raise LeaseLostError(f"parcel {parcel_id} is not being sent under {lease.name}")
            parcel = replace(
                sent.parcel,
                state=state,
                receipt=to_storable(receipt),
                why=to_storable(why),
                not_before_ms=not_before_ms,
            )
            rows.parcels[parcel_id] = replace(sent, parcel=parcel)

        self._add(step)


class ApplyChange(Protocol):
    """Changes the rows completely or not at all."""

    def __call__(self, change: Callable[[MemoryJournalRows], T]) -> T: ...


class MemoryJournal:
    """A Journal in memory; it guarantees what store/journal.py says, except for durability."""

    def __init__(
        self,
        read: Callable[[], MemoryJournalRows],
        change: ApplyChange,
        commit: Callable[[], AbstractAsyncContextManager[JournalTransaction]],
        lease: Callable[[str], AbstractAsyncContextManager[Lease]],
    ) -> None:
        self._read, self._change = read, change
        self.transaction, self.lease = commit, lease

    async def accept(
        self, session: str, inbound: Inbound, *, at_ms: int, cursor: Cursor | None = None
    ) -> Acceptance:
        arrival = new_inbox_record(session, inbound, at_ms)

        def change(rows: MemoryJournalRows) -> Acceptance:
            if cursor:
                rows.cursors[to_storable(cursor.name)] = dump_json(cursor.data)
            return rows.accept(arrival)

        return self._change(change)

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        text = self._read().cursors.get(to_storable(name))
        return None if text is None else load_json(text)

    async def inbox_record(self, id: str) -> InboxRecord | None:  # noqa: A002 - the word for it
        message = self._read().messages.get(to_storable(id))
        return message.row if message else None

    async def inbox_records(
        self, *states: InboxState, session: str | None = None, limit: int | None = None
    ) -> Sequence[InboxRecord]:
        wanted = None if session is None else to_storable(session)
        found = [
            message.row
            for message in self._read().messages.values()
            if (not states or message.row.state in states) and wanted in {None, message.row.session}
        ]
        return found if limit is None else found[max(0, len(found) - max(limit, 0)) :]

    async def open_calls(self, run: str) -> frozenset[str]:
        return frozenset(call_id for of, call_id in self._read().calls if of == run)

    async def outbox_record(self, id: str) -> OutboxRecord | None:  # noqa: A002 - the word for it
        sent = self._read().parcels.get(to_storable(id))
        return sent.parcel if sent else None

    async def outbox_records(
        self, *states: OutboxState, channel: str | None = None, limit: int | None = None
    ) -> Sequence[OutboxRecord]:
        wanted = None if channel is None else to_storable(channel)
        found = [
            sent.parcel
            for sent in self._read().parcels.values()
            if (not states or sent.parcel.state in states)
            and wanted in {None, sent.parcel.address.channel}
        ]
        return found if limit is None else found[: max(limit, 0)]

    async def retry(self, id: str, *, at_ms: int) -> bool:  # noqa: A002 - the word for it
        return self._change(lambda rows: rows.retry(to_storable(id), at_ms))

    async def discard(self, id: str, *, at_ms: int, why: str) -> bool:  # noqa: A002 - the word for it
        return self._change(lambda rows: rows.discard(to_storable(id), at_ms, to_storable(why)))

    async def prune(self, before_ms: int) -> int:
        return self._change(lambda rows: rows.prune(before_ms))
