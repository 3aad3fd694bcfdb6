"""A Store in memory, for tests and for runs that must leave nothing on disk."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import field, replace
from types import TracebackType
from typing import Literal, Self, TypeVar

from homarus.core.errors import ConflictError, NotFoundError
from homarus.core.fast_dataclass import dataclass
from homarus.core.lanes import Lanes
from homarus.core.message import Json
from homarus.core.principal import OWNER, Principal
from homarus.store.audit import (
    AuditAnchor,
    AuditCheck,
    AuditEntry,
    AuditRow,
    check_audit_rows,
    make_audit_row,
)
from homarus.store.base import (
    SEARCHED,
    SessionRecord,
    SessionRevision,
    Transaction,
    TranscriptEntry,
    TranscriptHeader,
    UsageRecord,
)
from homarus.store.journal import Lease
from homarus.store.slots import SlotRecord, SlotState, claimed_slot, unclaimed_slot
from homarus.store.transcript_codec import dump_json, load_json
from homarus.store.usage import UsageField, UsageFilter, UsageTotal, sum_usage
from homarus.testing.memory_journal import (
    MemoryJournal,
    MemoryJournalRows,
    MemoryJournalTransaction,
)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Transcript:
    header: TranscriptHeader
    leaf: str | None = None
    entries: list[TranscriptEntry] = field(default_factory=list)


@dataclass(slots=True)
class _Rows:
    """Everything one principal has stored."""

    sessions: dict[str, SessionRecord] = field(default_factory=dict)
    transcripts: dict[str, _Transcript] = field(default_factory=dict)
    records: dict[tuple[str, str], Mapping[str, Json]] = field(default_factory=dict)
    journal: MemoryJournalRows = field(default_factory=MemoryJournalRows)
    usage: list[UsageRecord] = field(default_factory=list)
    counted: list[UsageRecord] = field(default_factory=list)  # those that were pruned too
    audit: list[AuditRow] = field(default_factory=list)
    slots: list[SlotRecord] = field(default_factory=list)

    def copy(self) -> "_Rows":
        transcripts = {
            session_id: replace(transcript, entries=list(transcript.entries))
            for session_id, transcript in self.transcripts.items()
        }
        return _Rows(
            dict(self.sessions), transcripts, dict(self.records), self.journal.copy(),
            [*self.usage], [*self.counted], [*self.audit], [*self.slots],
        )  # fmt: skip

    def transcript(self, session_id: str) -> _Transcript:
        if session_id not in self.transcripts:
            raise NotFoundError(f"there is no transcript {session_id}", fix="open it first")
        return self.transcripts[session_id]


class _MemoryTransaction(MemoryJournalTransaction):
    """Steps that run when the block ends, on a copy of the rows, which then replaces them."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal
        self._steps: list[Callable[[_Rows], None]] = []
        super().__init__(lambda step: self._steps.append(lambda rows: step(rows.journal)))

    def run(self, rows: _Rows) -> None:
        for step in self._steps:
            step(rows)

    def put_session(
        self,
        record: SessionRecord,
        *,
        if_version: int | None = None,
        has_same_skills: bool = False,
    ) -> None:
        data = {**record.data, "sessionId": record.session_id, "updatedAt": record.updated_ms}
        copied = replace(record, data=_deep_copy(data))

        def step(rows: _Rows) -> None:
            stored = rows.sessions.get(record.key)
            version = stored.version if stored else 0
            if if_version is not None and version != if_version:
                raise ConflictError(
                    f"session {record.key} is at version {version}, not {if_version}"
                )
            rows.sessions[record.key] = replace(copied, version=version + 1)

        self._steps.append(step)

    def delete_session(self, key: str) -> None:
        self._steps.append(lambda rows: _drop(rows.sessions, key))

    def open_transcript(self, header: TranscriptHeader) -> None:
        def step(rows: _Rows) -> None:
            rows.transcripts.setdefault(header.session_id, _Transcript(header))

        self._steps.append(step)

    def append(self, session_id: str, *entries: TranscriptEntry) -> None:
        stored = [replace(entry, data=_deep_copy(entry.data)) for entry in entries]

        def step(rows: _Rows) -> None:
            transcript = rows.transcript(session_id)
            ids = {entry.id for entry in transcript.entries}
            for entry in stored:
                if entry.id in ids:
                    raise ConflictError(f"session {session_id} already has an entry {entry.id}")
                ids.add(entry.id)
                transcript.entries.append(replace(entry, seq=len(transcript.entries) + 1))
                transcript.leaf = entry.id

        self._steps.append(step)

    def set_leaf(self, session_id: str, entry_id: str | None) -> None:
        def step(rows: _Rows) -> None:
            transcript = rows.transcript(session_id)
            if entry_id is not None and all(one.id != entry_id for one in transcript.entries):
                raise NotFoundError(f"session {session_id} has no entry {entry_id}")
            transcript.leaf = entry_id

        self._steps.append(step)

    def archive(self, session_id: str, reason: Literal["reset", "deleted"], at_ms: int) -> None:
        """Do nothing: there is no file to archive."""

    def add_usage(self, *calls: UsageRecord) -> None:
        def step(rows: _Rows) -> None:
            for call in calls:
                current = rows.sessions.get(call.session)
                session_id = call.session_id or (current.session_id if current else "")
                rows.usage.append(replace(call, session_id=session_id))
                rows.counted.append(rows.usage[-1])

        self._steps.append(step)

    def add_audit(self, *entries: AuditEntry) -> None:
        def step(rows: _Rows) -> None:
            for entry in entries:
                last = rows.audit[-1] if rows.audit else None
                anchor = AuditAnchor(last.seq, last.hash) if last else AuditAnchor()
                rows.audit.append(make_audit_row(self._principal, entry, anchor))

        self._steps.append(step)

    def put_record(self, kind: str, id: str, data: Mapping[str, Json]) -> None:  # noqa: A002 - the word for it
        stored = _deep_copy(data)

        def step(rows: _Rows) -> None:
            rows.records[kind, id] = stored

        self._steps.append(step)

    def delete_record(self, kind: str, id: str) -> None:  # noqa: A002 - the word for it
        self._steps.append(lambda rows: _drop(rows.records, (kind, id)))

    def claim_slot(self, record: SlotRecord) -> None:
        def step(rows: _Rows) -> None:
            if _find_slot(rows, record.job, record.slot_ms) is not None:
                raise claimed_slot(record)
            place = max((one.place for one in rows.slots), default=0) + 1
            rows.slots.append(replace(record, place=place))

        self._steps.append(step)

    def end_slot(self, record: SlotRecord) -> None:
        def step(rows: _Rows) -> None:
            index = _find_slot(rows, record.job, record.slot_ms)
            if index is None or not rows.slots[index].is_running:
                raise unclaimed_slot(record)
            rows.slots[index] = replace(record, place=rows.slots[index].place)

        self._steps.append(step)

    def prune_slots(self, max_per_job: int, before_ms: int, jobs: Collection[str]) -> None:
        def step(rows: _Rows) -> None:
            seen: dict[str, int] = {}
            kept = list[SlotRecord]()
            for one in reversed(rows.slots):
                number = seen[one.job] = seen.get(one.job, 0) + 1
                is_old = one.ended_ms < before_ms and (number > 1 or one.job not in jobs)
                if one.is_running or (number <= max_per_job and not is_old):
                    kept.append(one)
            rows.slots = kept[::-1]

        self._steps.append(step)


def _find_slot(rows: _Rows, job: str, slot_ms: int) -> int | None:
    found = (i for i, one in enumerate(rows.slots) if (one.job, one.slot_ms) == (job, slot_ms))
    return next(found, None)


def _matches(record: SessionRecord, search: str) -> bool:
    texts: list[Json] = [record.key, record.session_id]
    for path in SEARCHED:
        found: Json = record.data
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        texts.append(found)
    return any(isinstance(text, str) and search.lower() in text.lower() for text in texts)


def _deep_copy(data: Mapping[str, Json]) -> dict[str, Json]:
    """Return a deep copy, as if the value had been on disk."""
    copied: dict[str, Json] = load_json(dump_json(data))
    return copied


def _drop(rows: dict[K, V], key: K) -> None:
    rows.pop(key, None)


@dataclass(slots=True)
class _SharedState:
    rows: dict[Principal, _Rows] = field(default_factory=dict)
    lanes: Lanes = field(default_factory=Lanes)
    token: int = 0


class MemoryStore:
    """A Store in memory; it guarantees what store/base.py says, except for durability."""

    def __init__(self, shared: _SharedState | None = None, principal: Principal = OWNER) -> None:
        self._shared, self._principal = shared or _SharedState(), principal
        self._shared.rows.setdefault(principal, _Rows())
        self._journal = MemoryJournal(
            lambda: self._rows.journal, self._change_journal, self.transaction, self.lease
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _rows(self) -> _Rows:
        return self._shared.rows[self._principal]

    @property
    def journal(self) -> MemoryJournal:
        return self._journal

    def _change_journal(self, change: Callable[[MemoryJournalRows], V]) -> V:
        rows = self._rows.journal.copy()
        value = change(rows)
        self._shared.rows[self._principal] = replace(self._rows, journal=rows)
        return value

    def scoped(self, principal: Principal) -> "MemoryStore":
        return MemoryStore(self._shared, principal)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        transaction = _MemoryTransaction(self._principal)
        yield transaction
        rows = self._rows.copy()
        transaction.run(rows)
        self._shared.rows[self._principal] = rows

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Lease]:
        async with self._shared.lanes.enter(f"{self._principal} {name}"):
            self._shared.token += 1
            yield Lease(name, self._shared.token)

    async def session(self, key: str) -> SessionRecord | None:
        return self._rows.sessions.get(key)

    async def revision(self, key: str) -> SessionRevision | None:
        record = self._rows.sessions.get(key)
        if record is None:
            return None
        return SessionRevision(
            record.version, record.session_id, await self.leaf(record.session_id)
        )

    async def sessions(
        self,
        *,
        agent: str | None = None,
        since_ms: int = 0,
        limit: int | None = None,
        session_id: str | None = None,
        search: str = "",
        where: Mapping[str, str] | None = None,
        bare: bool = False,
    ) -> Sequence[SessionRecord]:
        matching = [
            record
            for record in reversed(self._rows.sessions.values())
            if agent in {None, record.agent}
            and record.updated_ms >= since_ms
            and session_id in {None, record.session_id}
            and _matches(record, search)
            and all(record.data.get(name) == value for name, value in (where or {}).items())
        ]
        if bare:
            matching = [replace(record, data={}) for record in matching]
        return sorted(matching, key=lambda record: -record.updated_ms)[:limit]

    async def count_sessions(self, *, agent: str | None = None) -> int:
        return len(await self.sessions(agent=agent))

    async def usage_records(
        self, *, since_ms: int = 0, session: str | None = None
    ) -> Sequence[UsageRecord]:
        return [
            call
            for call in self._rows.usage
            if call.at_ms >= since_ms and session in {None, call.session}
        ]

    async def usage_totals(
        self, by: Sequence[UsageField] = (), wanted: UsageFilter | None = None
    ) -> Sequence[UsageTotal]:
        return sum_usage(self._rows.counted, tuple(by), wanted or UsageFilter())

    async def prune_usage(self, before_ms: int) -> int:
        kept = [call for call in self._rows.usage if call.at_ms >= before_ms]
        pruned, self._rows.usage = len(self._rows.usage) - len(kept), kept
        return pruned

    async def audit_entries(
        self,
        *,
        since_ms: int = 0,
        agent: str | None = None,
        tool: str | None = None,
        kind: str | None = None,
        before_seq: int | None = None,
        limit: int | None = None,
    ) -> Sequence[AuditEntry]:
        matching = [
            row.to_entry()
            for row in self._rows.audit
            if row.at_ms >= since_ms
            and agent in {None, row.agent}
            and tool in {None, row.tool}
            and kind in {None, row.kind}
            and (before_seq is None or row.seq < before_seq)
        ]
        return matching if limit is None else matching[max(0, len(matching) - limit) :]

    async def audit_anchor(self, seq: int = 0) -> AuditAnchor:
        rows = self._rows.audit[seq - 1 : seq] if seq else self._rows.audit[-1:]
        return AuditAnchor(rows[0].seq, rows[0].hash) if rows else AuditAnchor()

    async def check_audit(self, **anchors: AuditAnchor) -> AuditCheck:
        return check_audit_rows(self._principal, self._rows.audit, anchors)

    async def header(self, session_id: str) -> TranscriptHeader | None:
        transcript = self._rows.transcripts.get(session_id)
        return transcript.header if transcript else None

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None, newest: bool = False
    ) -> Sequence[TranscriptEntry]:
        transcript = self._rows.transcripts.get(session_id)
        matching = transcript.entries[after:] if transcript else []
        start = max(0, len(matching) - limit) if newest and limit is not None else 0
        return matching[start:][:limit]

    async def leaf(self, session_id: str) -> str | None:
        transcript = self._rows.transcripts.get(session_id)
        return transcript.leaf if transcript else None

    async def record(self, kind: str, id: str) -> Mapping[str, Json] | None:  # noqa: A002 - the word for it
        return self._rows.records.get((kind, id))

    async def records(self, kind: str) -> Mapping[str, Mapping[str, Json]]:
        matching = self._rows.records
        return {name[1]: matching[name] for name in sorted(matching) if name[0] == kind}

    async def slot(self, job: str, slot_ms: int) -> SlotRecord | None:
        index = _find_slot(self._rows, job, slot_ms)
        return None if index is None else self._rows.slots[index]

    async def slots(
        self, *states: SlotState, job: str | None = None, limit: int | None = None
    ) -> Sequence[SlotRecord]:
        matching = [
            one
            for one in self._rows.slots
            if job in {None, one.job} and (not states or one.state in states)
        ]
        return matching if limit is None else matching[max(0, len(matching) - limit) :]

    def probe_disk(self) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(None)
        return done

    async def close(self) -> None:
        """Do nothing: no resource is open."""
