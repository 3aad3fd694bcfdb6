"""Add sessions of a source to the store: each with its transcript, in one transaction.

Nothing here is replaced, and nothing of the source is lost:

- a transcript that is here completely is left as it is, also if it was continued here;
- one that was continued only in the source gets the new entries;
- one that was continued in both, or another conversation with the same id, is added next to ours
  under the id `<id>-imported`;
- a session whose key is in use here gets the key `agent:<agent>:imported:<session id>`.

A run after a crash finds each session either complete or missing, so it adds what is missing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Json
from homarus.importing.report import ImportReport, Outcome
from homarus.importing.session_source import SourceRecord, SourceSession, SourceTranscript
from homarus.store.base import (
    SessionRecord,
    Store,
    Transaction,
    TranscriptEntry,
    TranscriptHeader,
    UsageRecord,
)
from homarus.store.state_paths import StatePaths
from homarus.store.usage import transcript_usage

_MAX_COPIES: Final = 100
_MAX_ID_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class _Placement:
    """The session id that a transcript gets, and the entries to add to it."""

    session_id: str
    missing: Sequence[TranscriptEntry]
    is_new: bool
    is_copy: bool = False


@dataclass(slots=True)
class SessionImporter:
    """Imports sessions into an open store; with `is_dry_run` only into the report."""

    store: Store
    paths: StatePaths
    report: ImportReport
    is_dry_run: bool

    async def add(self, session: SourceSession, transcript: SourceTranscript) -> None:
        """Import a session. Raises StoreError if the store fails."""
        self.report.damaged_lines += transcript.damaged
        if transcript.damaged:
            name = session.file or session.session_id
            text = f"damaged lines that were left out: {transcript.damaged}"
            self.report.note("sessions", name, text)
        if not transcript.entries:
            await self._add_records(session, transcript, None)
            return
        place = await self._place(session.session_id, transcript.entries)
        if place is None:
            text = f"skipped: more than {_MAX_COPIES} conversations have this id"
            for key in session.records:
                self.report.add("sessions", "skipped", key, text)
            return
        if place.is_new:
            await self._add_records(session, transcript, place)
        elif place.missing:
            await self._extend(session, transcript, place)
        else:
            for _ in session.records:
                self.report.add("sessions", "present")

    async def _place(
        self, session_id: str, entries: Sequence[TranscriptEntry]
    ) -> _Placement | None:
        theirs = {entry.id for entry in entries}
        for number in range(_MAX_COPIES):
            candidate = session_id
            if number:
                mark = "imported" if number == 1 else f"imported-{number}"
                candidate = f"{session_id[:_MAX_ID_CHARS]}-{mark}"
            ours = await self._entry_ids(candidate)
            if ours is None:
                return _Placement(candidate, entries, is_new=True, is_copy=number > 0)
            missing = [entry for entry in entries if entry.id not in ours]
            if not missing or ours <= theirs:
                return _Placement(candidate, missing, is_new=False, is_copy=number > 0)
        return None

    async def _entry_ids(self, session_id: str) -> set[str] | None:
        """Return the ids of a transcript's entries here; None if there is no transcript."""
        if await self.store.header(session_id) is None:
            return None
        return {entry.id for entry in await self.store.entries(session_id)}

    async def _extend(
        self, session: SourceSession, transcript: SourceTranscript, place: _Placement
    ) -> None:
        """Append what the source has in addition."""
        if not self.is_dry_run:
            async with self.store.transaction() as transaction:
                transaction.append(place.session_id, *place.missing)
                key = min(session.records, default="")
                transaction.add_usage(*_usage(session, place, key))
                if transcript.leaf:
                    transaction.set_leaf(place.session_id, transcript.leaf)
            fault_point("import.item")
        self.report.messages += _count_messages(place)
        for _ in session.records:
            self.report.add("sessions", "updated")

    async def _add_records(
        self, session: SourceSession, transcript: SourceTranscript, place: _Placement | None
    ) -> None:
        """Add the transcript and every record of a session in one transaction."""
        planned: list[tuple[Outcome, str, str]] = []
        puts: list[SessionRecord] = []
        for record in session.records.values():
            outcome, key, text = await self._decide(record, session, place)
            if any(put.key == key for put in puts):
                outcome = "present"  # two records of one conversation, whose keys are in use
            planned.append((outcome, record.key, text))
            if outcome in {"imported", "keptBeside"}:
                puts.append(self._record(record, key, session, place, transcript))
        if not self.is_dry_run and (puts or place):
            async with self.store.transaction() as transaction:
                if place:
                    _append(transaction, session, transcript, place)
                    key = puts[0].key if puts else ""
                    transaction.add_usage(*_usage(session, place, key))
                for put in puts:
                    transaction.put_session(put, if_version=0)
            fault_point("import.item")
        self.report.messages += _count_messages(place) if place else 0
        for outcome, item, text in planned:
            self.report.add("sessions", outcome, item, text)

    async def _decide(
        self, record: SourceRecord, session: SourceSession, place: _Placement | None
    ) -> tuple[Outcome, str, str]:
        """Return what becomes of a record, the key it gets, and a note."""
        existing = await self.store.session(record.key)
        if existing is None:
            return "imported", record.key, ""
        session_id = place.session_id if place else session.session_id
        if existing.session_id == session_id:
            return ("updated" if place else "present"), record.key, ""
        if place is None:
            text = "not imported: it has no messages, and its key is in use here"
            return "conflicts", record.key, text
        key = f"agent:{record.agent}:imported:{session_id.lower()}"
        if await self.store.session(key) is not None:
            return "conflicts", record.key, f"not imported: {record.key} and {key} are in use here"
        reason = "was continued here" if place.is_copy else "is in use here"
        return "keptBeside", key, f"imported as {key}: {record.key} {reason}"

    def _record(
        self,
        record: SourceRecord,
        key: str,
        session: SourceSession,
        place: _Placement | None,
        transcript: SourceTranscript,
    ) -> SessionRecord:
        session_id = place.session_id if place else session.session_id
        data: dict[str, Json] = dict(record.data)
        if key != record.key and not data.get("displayName"):
            data["displayName"] = record.key
        if session.file and session_id == session.session_id:
            # The store falls back to the default name unless it belongs to this session.
            data["sessionFile"] = f"{self.paths.sessions_dir(record.agent)}/{session.file}"
        last_ms = max((entry.at_ms for entry in transcript.entries), default=0)
        return SessionRecord(key, record.agent, session_id, record.updated_ms or last_ms, data)


def _append(
    transaction: Transaction,
    session: SourceSession,
    transcript: SourceTranscript,
    place: _Placement,
) -> None:
    header = transcript.header or TranscriptHeader(place.session_id, session.agent, 0)
    transaction.open_transcript(
        replace(header, session_id=place.session_id, agent=session.agent, version=3)
    )
    transaction.append(place.session_id, *place.missing)
    if transcript.leaf:
        transaction.set_leaf(place.session_id, transcript.leaf)


def _usage(session: SourceSession, place: _Placement, key: str) -> Iterator[UsageRecord]:
    """Return what the added answers used: no call here made them."""
    return transcript_usage(
        place.missing, agent=session.agent, session=key, session_id=place.session_id
    )


def _count_messages(place: _Placement) -> int:
    return sum(entry.type == "message" for entry in place.missing)
