"""A transaction of the SQLite store: its writes in order, and the files that they make stale."""

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Final, Literal

import apsw

from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Json
from homarus.core.principal import Principal
from homarus.store import sqlite_audit, sqlite_slots, sqlite_sql, sqlite_usage
from homarus.store.audit import AuditEntry
from homarus.store.base import SessionRecord, TranscriptEntry, TranscriptHeader, UsageRecord
from homarus.store.session_skills import encode_skills, split_entry
from homarus.store.slots import SlotRecord
from homarus.store.sqlite_journal import SqliteJournalTransaction, WriteStep
from homarus.store.state_paths import StatePaths, is_agent_id, is_session_id
from homarus.store.transcript_codec import archive_suffix, dump_json, encode_entry, encode_header

SUBAGENT_KIND: Final = "subagent"  # of records that have a file (subagents_file.py)


@dataclass(slots=True)
class SqliteTransaction(SqliteJournalTransaction):
    """The steps of one transaction, and the files they make stale."""

    principal: Principal
    paths: StatePaths | None  # None: this principal has no files
    steps: list[WriteStep] = field(default_factory=list)
    transcripts: set[str] = field(default_factory=set)
    agents: set[str] = field(default_factory=set)
    has_subagents: bool = False

    def put_session(
        self,
        record: SessionRecord,
        *,
        if_version: int | None = None,
        has_same_skills: bool = False,
    ) -> None:
        _check_ids(record.session_id, record.agent)
        data, skills = split_entry(record.data)
        data |= {"sessionId": record.session_id, "updatedAt": record.updated_ms}
        if self.paths is not None:
            given = record.data.get("sessionFile")
            data["sessionFile"] = self.paths.transcript(record.agent, record.session_id, given)
        row = sqlite_sql.SessionRow(
            record.key,
            record.agent,
            record.session_id,
            record.updated_ms,
            dump_json(data, pretty=True),
            None if has_same_skills else encode_skills(skills),
        )

        def step(db: apsw.Connection) -> None:
            written, is_kept = row, row.skills is None and skills is not None
            # A row that an earlier version wrote has the list in its text.
            if is_kept and not sqlite_sql.has_skills(db, self.principal, row.key):
                written = replace(row, skills=encode_skills(skills))
            sqlite_sql.put_session(db, self.principal, written, if_version)

        self.steps.append(step)
        self.agents.add(record.agent)

    def delete_session(self, key: str) -> None:
        def step(db: apsw.Connection) -> None:
            self.agents.update(sqlite_sql.delete_session(db, self.principal, key))

        self.steps.append(step)

    def open_transcript(self, header: TranscriptHeader) -> None:
        _check_ids(header.session_id, header.agent)
        line = encode_header(header)
        self.steps.append(
            lambda db: sqlite_sql.open_transcript(
                db, self.principal, header.session_id, header.agent, line
            )
        )

    def append(self, session_id: str, *entries: TranscriptEntry) -> None:
        if not entries:
            return
        lines = [(entry, encode_entry(entry)) for entry in entries]
        self.steps.append(lambda db: sqlite_sql.append(db, self.principal, session_id, lines))
        self.transcripts.add(session_id)

    def set_leaf(self, session_id: str, entry_id: str | None) -> None:
        self.steps.append(lambda db: sqlite_sql.set_leaf(db, self.principal, session_id, entry_id))

    def archive(self, session_id: str, reason: Literal["reset", "deleted"], at_ms: int) -> None:
        suffix = archive_suffix(reason, at_ms)
        self.steps.append(lambda db: sqlite_sql.archive(db, self.principal, session_id, suffix))
        self.transcripts.add(session_id)

    def add_usage(self, *calls: UsageRecord) -> None:
        if calls:
            self.steps.append(lambda db: sqlite_usage.add_usage(db, self.principal, calls))

    def add_audit(self, *entries: AuditEntry) -> None:
        if entries:
            self.steps.append(lambda db: sqlite_audit.add_audit(db, self.principal, entries))

    def put_record(self, kind: str, id: str, data: Mapping[str, Json]) -> None:  # noqa: A002 - the word for it
        text = dump_json(data)
        self.steps.append(lambda db: sqlite_sql.put_record(db, self.principal, kind, id, text))
        self.has_subagents |= kind == SUBAGENT_KIND

    def delete_record(self, kind: str, id: str) -> None:  # noqa: A002 - the word for it
        self.steps.append(lambda db: sqlite_sql.delete_record(db, self.principal, kind, id))
        self.has_subagents |= kind == SUBAGENT_KIND

    def claim_slot(self, record: SlotRecord) -> None:
        self.steps.append(lambda db: sqlite_slots.claim_slot(db, self.principal, record))

    def end_slot(self, record: SlotRecord) -> None:
        self.steps.append(lambda db: sqlite_slots.end_slot(db, self.principal, record))

    def prune_slots(self, max_per_job: int, before_ms: int, jobs: Collection[str]) -> None:
        self.steps.append(
            lambda db: sqlite_slots.prune_slots(db, self.principal, max_per_job, before_ms, jobs)
        )

    def run(self, db: apsw.Connection) -> None:
        for step in self.steps:
            step(db)


def _check_ids(session_id: str, agent: str) -> None:
    if not is_session_id(session_id):
        raise StoreError(f"{session_id!r} is not a session id")
    if not is_agent_id(agent):
        raise StoreError(f"{agent!r} is not an agent id", fix="use a-z, 0-9, - and _")
