"""The in-memory journal of the memory store (see store/journal.py)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from typing import Protocol, TypeVar

from homarus.core.errors import ConflictError, LeaseLostError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound, Json
from homarus.store.approval_codec import (
    ApprovalResolution,
    decode_approval,
    encode_approval,
    unusable_approval,
)
from homarus.store.approvals import ApprovalRecord, ApprovalState
from homarus.store.chat_records import MAX_CHAT_RECORDS, ChatRecord, ChatRecordKind, ChatRow
from homarus.store.journal import (
    UNSETTLED,
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
    decode_chat_record,
    decode_trace,
    encode_body,
    encode_chat_records,
    new_inbox_record,
    new_outbox_record,
    run_range,
    storable_ids,
    to_storable,
)
from homarus.store.traces import (
    BacklogCount,
    DeliveryAttempt,
    TraceRecord,
    decode_attempts,
    encode_attempts,
)
from homarus.store.transcript_codec import dump_json, load_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _StoredMessage:
    record: InboxRecord
    digest: str
    token: int = 0

    @property
    def name(self) -> tuple[str, str, str]:
        return self.record.channel, self.record.account, self.record.message_id


@dataclass(frozen=True, slots=True)
class _StoredOutboxRecord:
    record: OutboxRecord
    token: int = 0


@dataclass(slots=True)
class MemoryJournalRows:
    """The journal of one principal, in the order of insertion."""

    messages: dict[str, _StoredMessage] = field(default_factory=dict)
    calls: frozenset[tuple[str, str]] = frozenset()
    outbox: dict[str, _StoredOutboxRecord] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)
    approvals: dict[str, ApprovalRecord] = field(default_factory=dict)
    traces: dict[tuple[str, int], TraceRecord] = field(default_factory=dict)
    chat_records: dict[tuple[str, str, str], ChatRecord] = field(default_factory=dict)
    last_place: int = 0

    def copy(self) -> "MemoryJournalRows":
        return replace(
            self,
            messages=dict(self.messages),
            outbox=dict(self.outbox),
            cursors=dict(self.cursors),
            approvals=dict(self.approvals),
            traces=dict(self.traces),
            chat_records=dict(self.chat_records),
        )

    def next_place(self) -> int:
        self.last_place += 1
        return self.last_place

    def accept(self, new_record: NewInboxRecord) -> Acceptance:
        if inserted := self._insert(new_record):
            return Acceptance("new", inserted)
        for other in new_record.as_conflict():
            if existing := self._count(other):
                return Acceptance("duplicate", existing)
            if inserted := self._insert(other):
                return Acceptance("conflict", inserted)
        raise ConflictError(f"there is no room beside message {new_record.record.message_id}")

    def accept_new(self, new_record: NewInboxRecord) -> None:
        if not self._insert(new_record):
            raise ConflictError(f"message {new_record.record.message_id} was accepted before")

    def _insert(self, new_record: NewInboxRecord) -> InboxRecord | None:
        stored = replace(
            new_record.record, inbound=decode_body(new_record.body), place=self.last_place + 1
        )
        new = _StoredMessage(stored, new_record.digest)
        names = {message.name for message in self.messages.values()}
        if new.record.id in self.messages or new.name in names:
            return None
        self.messages[new.record.id] = new
        self.next_place()
        return new.record

    def _count(self, new_record: NewInboxRecord) -> InboxRecord | None:
        wanted = _StoredMessage(new_record.record, new_record.digest)
        for message in self.messages.values():
            if message.name == wanted.name and message.digest == wanted.digest:
                record = replace(message.record, duplicates=message.record.duplicates + 1)
                self.messages[record.id] = replace(message, record=record)
                return record
        return None

    def get_open(self, record_id: str, lease: Lease) -> _StoredMessage:
        """Return a record that may be started under this lease."""
        message = self.messages.get(record_id)
        if message is None or message.record.state not in UNSETTLED or message.token > lease.token:
            raise LeaseLostError(f"message {record_id} is not ours to work on under {lease.name}")
        return message

    def get_running(self, record_id: str, lease: Lease) -> _StoredMessage:
        """Return a record that was started under this lease."""
        message = self.get_open(record_id, lease)
        if message.record.state != "running" or message.token != lease.token:
            raise LeaseLostError(f"message {record_id} is not worked on under {lease.name}")
        return message

    def check_run(self, run: str, lease: Lease) -> None:
        rows = (m for m in self.messages.values() if m.record.run == run and m.token == lease.token)
        if all(message.record.state != "running" for message in rows):
            raise LeaseLostError(f"run {run} is not going on under {lease.name}")

    def delete_calls(self, run: str) -> None:
        """Delete the calls of a run, unless one of its messages may be retried."""
        rows = (message.record for message in self.messages.values() if message.record.run == run)
        if all(record.state not in {*UNSETTLED, "parked"} for record in rows):
            self.calls = frozenset(call for call in self.calls if call[0] != run)

    def get_sendable(
        self, record_id: str, lease: Lease, *states: OutboxState
    ) -> _StoredOutboxRecord:
        """Return an outbox record that may be sent under this lease."""
        stored = self.outbox.get(record_id)
        if stored is None or stored.record.state not in states or stored.token > lease.token:
            raise LeaseLostError(f"parcel {record_id} is not ours to send under {lease.name}")
        return stored

    def retry(self, item_id: str, at_ms: int) -> bool:
        message, stored = self.messages.get(item_id), self.outbox.get(item_id)
        if message and message.record.state == "parked":
            row = replace(
                message.record, state="accepted", reply="", why="", attempts=0, settled_ms=0
            )
            self.messages[item_id] = replace(message, record=row, token=message.token + 1)
            return True
        if stored and stored.record.state in {"unknown", "dead"}:
            expires, posted = stored.record.expires_ms, stored.record.at_ms
            record = replace(
                stored.record,
                state="pending",
                why="",
                attempts=0,
                not_before_ms=0,
                expires_ms=max(expires, at_ms + expires - posted) if expires > posted else expires,
            )
            self.outbox[item_id] = _StoredOutboxRecord(record, stored.token + 1)
            return True
        return False

    def discard(self, item_id: str, at_ms: int, why: str) -> bool:
        message, stored = self.messages.get(item_id), self.outbox.get(item_id)
        if message and message.record.state == "parked":
            record = replace(
                message.record, state="reported", settled_ms=at_ms, why=why, inbound=None
            )
            self.messages[item_id] = replace(message, record=record)
            self.delete_calls(record.run)
            return True
        if stored and stored.record.state in {"unknown", "dead"}:
            del self.outbox[item_id]
            return True
        return False

    def shift_times(self, step_ms: int) -> None:
        for id_, one in self.outbox.items():
            if one.record.state in {"pending", "sending"}:
                shifted = replace(
                    one.record,
                    expires_ms=one.record.expires_ms + max(step_ms, 0),
                    not_before_ms=max(0, one.record.not_before_ms + min(step_ms, 0)),
                )
                self.outbox[id_] = replace(one, record=shifted)

    def resolve_approval(
        self, resolution: ApprovalResolution, outbox: Sequence[OutboxRecord]
    ) -> ApprovalRecord | None:
        record = self.approvals.get(resolution.id)
        resolved = resolution.apply(record) if record else None
        if resolved:
            self.approvals[resolved.id] = resolved
            self.enqueue(outbox)
        return resolved

    def enqueue(self, records: Sequence[OutboxRecord]) -> None:
        for record in map(new_outbox_record, records):
            if record.id not in self.outbox:
                placed = replace(record, place=self.next_place())
                self.outbox[record.id] = _StoredOutboxRecord(placed)

    def set_message(self, record_id: str, body: str) -> bool:
        message = self.messages.get(record_id)
        if message is None or message.record.state != "accepted":
            return False
        record = replace(message.record, inbound=decode_body(body))
        self.messages[record_id] = replace(message, record=record)
        return True

    def put_chat_records(self, rows: Sequence[ChatRow]) -> None:
        for kind, chat, record_id, at_ms, text in rows:
            self.chat_records.pop((kind, chat, record_id), None)
            if text is not None:
                record = decode_chat_record((kind, chat, record_id, at_ms, text))
                self.chat_records[kind, chat, record_id] = record

    def prune_chat_records(self, before_ms: int) -> None:
        kept = [each for each in self.chat_records.items() if each[1].at_ms >= before_ms]
        self.chat_records = dict(kept[-MAX_CHAT_RECORDS:])

    def prune(self, before_ms: int, approvals_before_ms: int) -> int:
        done = {"answered", "silent", "reported"}
        old = [
            id_
            for id_, message in self.messages.items()
            if message.record.state in done and message.record.settled_ms < before_ms
        ]
        stored = [
            id_
            for id_, one in self.outbox.items()
            if one.record.state == "sent" and one.record.at_ms < before_ms
        ]
        approvals = [
            id_
            for id_, approval in self.approvals.items()
            if approval.state != "pending" and approval.resolved_ms < approvals_before_ms
        ]
        for name, trace in list(self.traces.items()):
            if trace.at_ms >= before_ms:
                break
            del self.traces[name]
        self.prune_chat_records(before_ms)
        for id_ in approvals:
            del self.approvals[id_]
        for id_ in old:
            del self.messages[id_]
        for id_ in stored:
            del self.outbox[id_]
        return len(old) + len(stored) + len(approvals)


class MemoryJournalTransaction:
    """Collects the journal writes of a transaction as steps."""

    def __init__(self, add: Callable[[Callable[[MemoryJournalRows], None]], None]) -> None:
        self._add = add

    def accept(self, session: str, inbound: Inbound, *, at_ms: int) -> None:
        new_record = new_inbox_record(session, inbound, at_ms)
        self._add(lambda rows: rows.accept_new(new_record))

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
            for record_id in ids:
                message = rows.get_open(record_id, lease)
                again = message.record.state == "running" and message.token == lease.token
                record = replace(
                    message.record,
                    state="running",
                    run=run,
                    session_id=session_id or message.record.session_id,
                    entry=entry or message.record.entry,
                    attempts=message.record.attempts + (not again),
                )
                rows.messages[record_id] = replace(message, record=record, token=lease.token)

        self._add(step)

    def check_lease(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)

        def step(rows: MemoryJournalRows) -> None:
            for record_id in ids:
                rows.get_running(record_id, lease)

        self._add(step)

    def cancel_attempt(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)

        def step(rows: MemoryJournalRows) -> None:
            for record_id in ids:
                message = rows.messages.get(record_id)
                if message and message.record.state == "running" and message.token == lease.token:
                    attempts = max(message.record.attempts - 1, 0)
                    record = replace(message.record, attempts=attempts)
                    rows.messages[record_id] = replace(message, record=record)

        self._add(step)

    def suspend(self, ids: Sequence[str], lease: Lease) -> None:
        ids = storable_ids(ids)

        def step(rows: MemoryJournalRows) -> None:
            for record_id in ids:
                message = rows.get_running(record_id, lease)
                attempts = max(message.record.attempts - 1, 0)
                record = replace(message.record, state="suspended", attempts=attempts)
                rows.messages[record_id] = replace(message, record=record)

        self._add(step)

    def add_approval(self, record: ApprovalRecord) -> None:
        stored = decode_approval(encode_approval(record))

        def step(rows: MemoryJournalRows) -> None:
            if stored.id in rows.approvals:
                raise ConflictError(f"approval {stored.id} exists already")
            rows.approvals[stored.id] = stored

        self._add(step)

    def use_approval(self, id: str, digest: str, *, at_ms: int) -> None:  # noqa: A002 - the word for it
        def step(rows: MemoryJournalRows) -> None:
            record = rows.approvals.get(id)
            if record is None or not record.is_usable(digest, at_ms):
                raise unusable_approval(id)
            rows.approvals[id] = replace(record, used_ms=at_ms)

        self._add(step)

    def cancel_approvals(self, runs: Sequence[str], *, at_ms: int) -> None:
        def step(rows: MemoryJournalRows) -> None:
            for record in list(rows.approvals.values()):
                if record.run in runs and record.state == "pending":
                    cancelled = replace(record, state="cancelled", resolved_ms=at_ms)
                    rows.approvals[record.id] = cancelled

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
            for record_id in ids:
                message = rows.get_open(record_id, lease)
                if message.record.state == "running":
                    rows.get_running(record_id, lease)
                record = replace(
                    message.record,
                    state=state,
                    settled_ms=at_ms,
                    why=why,
                    reply=reply,
                    inbound=message.record.inbound if state == "parked" else None,
                )
                rows.messages[record_id] = replace(message, record=record, token=lease.token)
            for record_id in ids:
                rows.delete_calls(rows.messages[record_id].record.run)

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

    def enqueue(self, *records: OutboxRecord) -> None:
        self._add(lambda rows: rows.enqueue(records))

    def save_cursor(self, cursor: Cursor) -> None:
        def step(rows: MemoryJournalRows) -> None:
            rows.cursors[to_storable(cursor.name)] = dump_json(cursor.data)

        self._add(step)

    def put_chat_records(self, *records: ChatRecord) -> None:
        rows = encode_chat_records(records)
        self._add(lambda stored: stored.put_chat_records(rows))

    def add_trace(self, record: TraceRecord) -> None:
        texts = to_storable(record.run), to_storable(record.session)
        stored = decode_trace((*texts, record.attempt, record.at_ms, dump_json(record.data)))

        def step(rows: MemoryJournalRows) -> None:
            rows.traces[stored.run, stored.attempt] = stored

        self._add(step)

    def send_started(self, record_id: str, lease: Lease, *, at_ms: int = 0) -> None:
        record_id = to_storable(record_id)

        def step(rows: MemoryJournalRows) -> None:
            stored = rows.get_sendable(record_id, lease, "pending", "sending")
            attempts = stored.record.attempts + 1
            record = replace(stored.record, state="sending", attempts=attempts, started_ms=at_ms)
            rows.outbox[record_id] = _StoredOutboxRecord(record, lease.token)

        self._add(step)

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
        record_id = to_storable(record_id)
        kept = decode_attempts(encode_attempts(tries))

        def step(rows: MemoryJournalRows) -> None:
            stored = rows.get_sendable(record_id, lease, "sending")
            if stored.token != lease.token:
                raise LeaseLostError(f"parcel {record_id} is not being sent under {lease.name}")
            address = stored.record.address
            if thread:
                address = replace(address, thread=to_storable(thread))
            record = replace(
                stored.record,
                address=address,
                state=state,
                receipt=to_storable(receipt),
                why=to_storable(why),
                not_before_ms=not_before_ms,
                tries=kept or stored.record.tries,
            )
            rows.outbox[record_id] = replace(stored, record=record)

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
        self,
        session: str,
        inbound: Inbound,
        *,
        at_ms: int,
        cursor: Cursor | None = None,
        chat_records: Sequence[ChatRecord] = (),
    ) -> Acceptance:
        new_record = new_inbox_record(session, inbound, at_ms)
        remembered = encode_chat_records(chat_records)

        def change(rows: MemoryJournalRows) -> Acceptance:
            if cursor:
                rows.cursors[to_storable(cursor.name)] = dump_json(cursor.data)
            rows.put_chat_records(remembered)
            return rows.accept(new_record)

        return self._change(change)

    async def set_message(self, id: str, inbound: Inbound) -> bool:  # noqa: A002 - the word for it
        body = encode_body(inbound)
        return self._change(lambda rows: rows.set_message(to_storable(id), body))

    async def chat_records(
        self, kind: ChatRecordKind, chat: str | None = None
    ) -> Sequence[ChatRecord]:
        wanted = None if chat is None else to_storable(chat)
        found = self._read().chat_records.values()
        return [each for each in found if each.kind == kind and wanted in {None, each.chat}]

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        text = self._read().cursors.get(to_storable(name))
        return None if text is None else load_json(text)

    async def inbox_record(self, id: str) -> InboxRecord | None:  # noqa: A002 - the word for it
        message = self._read().messages.get(to_storable(id))
        return message.record if message else None

    async def inbox_records(
        self, *states: InboxState, session: str | None = None, limit: int | None = None
    ) -> Sequence[InboxRecord]:
        wanted = None if session is None else to_storable(session)
        stored = [
            message.record
            for message in self._read().messages.values()
            if (not states or message.record.state in states)
            and wanted in {None, message.record.session}
        ]
        return stored if limit is None else stored[max(0, len(stored) - max(limit, 0)) :]

    async def open_calls(self, run: str) -> frozenset[str]:
        return frozenset(call_id for of, call_id in self._read().calls if of == run)

    async def outbox_record(self, id: str) -> OutboxRecord | None:  # noqa: A002 - the word for it
        stored = self._read().outbox.get(to_storable(id))
        return stored.record if stored else None

    async def outbox_records(
        self,
        *states: OutboxState,
        channel: str | None = None,
        run: str | None = None,
        limit: int | None = None,
    ) -> Sequence[OutboxRecord]:
        wanted = None if channel is None else to_storable(channel)
        first, end = run_range(run or "")
        stored = [
            stored.record
            for stored in self._read().outbox.values()
            if (not states or stored.record.state in states)
            and wanted in {None, stored.record.address.channel}
            and (run is None or first <= stored.record.id < end)
        ]
        return stored if limit is None else stored[: max(limit, 0)]

    async def traces(
        self, *, run: str | None = None, session: str | None = None, limit: int | None = None
    ) -> Sequence[TraceRecord]:
        found = [
            trace
            for trace in self._read().traces.values()
            if run in (None, trace.run) and session in (None, trace.session)
        ]
        return found if limit is None else found[max(0, len(found) - max(limit, 0)) :]

    async def backlog(self) -> Sequence[BacklogCount]:
        rows, times = self._read(), dict[tuple[str, str], list[int]]()
        for message in rows.messages.values():
            if message.record.state in {*UNSETTLED, "parked"}:
                times.setdefault(("inbox", message.record.state), []).append(message.record.at_ms)
        for stored in rows.outbox.values():
            if stored.record.state != "sent":
                times.setdefault(("outbox", stored.record.state), []).append(stored.record.at_ms)
        for approval in rows.approvals.values():
            if approval.state == "pending":
                times.setdefault(("approvals", "pending"), []).append(approval.created_ms)
        return [BacklogCount(*name, len(some), min(some)) for name, some in sorted(times.items())]

    async def approval(self, id: str) -> ApprovalRecord | None:  # noqa: A002 - the word for it
        return self._read().approvals.get(to_storable(id))

    async def approvals(
        self, *states: ApprovalState, session: str | None = None, limit: int | None = None
    ) -> Sequence[ApprovalRecord]:
        found = [
            record
            for record in self._read().approvals.values()
            if (not states or record.state in states) and session in (None, record.session)
        ]
        return found if limit is None else found[max(0, len(found) - max(limit, 0)) :]

    async def find_approval(self, run: str, call_id: str) -> ApprovalRecord | None:
        wanted = (to_storable(run), to_storable(call_id))
        found = [
            record
            for record in self._read().approvals.values()
            if (record.run, record.call_id) == wanted
        ]
        return found[-1] if found else None

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
        return self._change(lambda rows: rows.resolve_approval(resolution, outbox))

    async def retry(self, id: str, *, at_ms: int) -> bool:  # noqa: A002 - the word for it
        return self._change(lambda rows: rows.retry(to_storable(id), at_ms))

    async def discard(self, id: str, *, at_ms: int, why: str) -> bool:  # noqa: A002 - the word for it
        return self._change(lambda rows: rows.discard(to_storable(id), at_ms, to_storable(why)))

    async def shift_times(self, step_ms: int) -> None:
        self._change(lambda rows: rows.shift_times(step_ms))

    async def prune(self, before_ms: int, *, approvals_before_ms: int = 0) -> int:
        return self._change(lambda rows: rows.prune(before_ms, approvals_before_ms))
