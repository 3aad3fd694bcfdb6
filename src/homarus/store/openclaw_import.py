"""Import sessions from the databases of OpenClaw 2026.9, in a state directory that it uses.

OpenClaw refuses to start next to session files of its earlier versions, so that none are written
there: what is said here is in `state.sqlite` alone, and OpenClaw's files are never changed.

Of a session that both programs changed, the newer entry counts. Its transcript has what was said
in both, in the order in which it became known here.
"""

import hashlib
import io
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import apsw

from homarus.config.openclaw_snapshot import DatabaseStamp
from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.principal import OWNER
from homarus.store import sqlite_sql
from homarus.store.base import TranscriptEntry
from homarus.store.database_writer import DatabaseWriter
from homarus.store.openclaw_database import (
    OpenClawDatabase,
    OpenClawSession,
    OpenClawTranscript,
    find_databases,
)
from homarus.store.query import select
from homarus.store.sessions_file import SessionsFiles, merge_rows, session_row
from homarus.store.state_paths import FileStamp, StatePaths, is_agent_id
from homarus.store.transcript_file import FileView, TranscriptFiles
from homarus.store.transcript_scan import scan_transcript

log = logging.getLogger(__name__)

_SCOPE: Final = (OWNER.team, OWNER.user)
_KEPT_STAMPS: Final = 256
_ENTRY_IDS: Final = "SELECT id FROM entries WHERE team = ? AND user = ? AND session_id = ?"
_LEAF: Final = "SELECT leaf FROM transcripts WHERE team = ? AND user = ? AND session_id = ?"


def count_database_sessions(state: Path) -> int:
    """Return how many sessions OpenClaw has in its databases. Raises StoreError."""
    total = 0
    for path in find_databases(state).values():
        with OpenClawDatabase(path) as database:
            total += len(database.sessions())
    return total


def database_stamps(state: Path) -> dict[str, FileStamp]:
    """Return the stamp of every agent's database."""
    return {agent: _fold(DatabaseStamp.of(path)) for agent, path in find_databases(state).items()}


class OpenClawDatabases:
    """The databases of all agents, as they were found when the store was opened."""

    def __init__(self, state: Path) -> None:
        self._paths = find_databases(state)
        self._open: dict[str, OpenClawDatabase] = {}

    @property
    def agents(self) -> list[str]:
        return list(self._paths)

    def __contains__(self, agent: str) -> bool:
        return agent in self._paths

    def stamp(self, agent: str) -> FileStamp:
        """Return the stamp of a database. Cheap, and safe on any thread."""
        return _fold(DatabaseStamp.of(self._paths[agent]))

    def get(self, agent: str) -> OpenClawDatabase:
        """Return the open database, for one thread."""
        if agent not in self._open:
            self._open[agent] = OpenClawDatabase(self._paths[agent])
        return self._open[agent]

    def close(self) -> None:
        for database in self._open.values():
            database.close()
        self._open.clear()


class ImportedSessions(SessionsFiles):
    """The sessions of every agent, read from OpenClaw's databases and never written there."""

    def __init__(
        self,
        paths: StatePaths,
        db: apsw.Connection,
        writer: DatabaseWriter,
        databases: OpenClawDatabases,
    ) -> None:
        super().__init__(paths, db, writer)
        self._databases = databases
        self._stamps: dict[str, FileStamp] = {}

    def changed(self, agent: str) -> bool:
        if agent not in self._databases:
            return super().changed(agent)
        return self._databases.stamp(agent) != self._stamps.get(agent)

    def forget(self) -> None:
        super().forget()
        self._stamps.clear()

    def agents(self) -> list[str]:
        return sorted({*super().agents(), *self._databases.agents})

    def import_changes(self, agent: str) -> bool:
        if agent not in self._databases:
            super().import_changes(agent)  # files of an earlier version that were not migrated yet
            return False
        stamp = self._databases.stamp(agent)
        if stamp not in (self._stamps.get(agent), self._stored(agent).stamp):
            database = self._databases.get(agent)
            rows = [session_row(each.key, agent, each.data) for each in _read_sessions(database)]
            # What was imported has the change number 0, what was changed here a larger one.
            changes = self._writer.submit(merge_rows(agent, rows, 0)).result()
            log.log(
                logging.INFO if changes else logging.DEBUG,
                "took %d sessions from %s", changes, database.path,
            )  # fmt: skip
            self._remember(agent, stamp, 0)
        self._stamps[agent] = stamp
        return False

    def sync(self, agent: str) -> None:
        self.import_changes(agent)


class ImportedTranscripts(TranscriptFiles):
    """Transcripts, read from OpenClaw's databases and never written there."""

    def __init__(
        self,
        paths: StatePaths,
        db: apsw.Connection,
        writer: DatabaseWriter,
        databases: OpenClawDatabases,
    ) -> None:
        super().__init__(paths, db, writer)
        self._databases = databases
        self._read: dict[str, tuple[str, FileStamp]] = {}  # by session id: agent and stamp
        self._failures: dict[str, StoreError] = {}

    def changed(self, session_id: str) -> bool:
        agent, stamp = self._read.get(session_id, ("", None))
        return stamp is None or self._databases.stamp(agent) != stamp

    def forget(self) -> None:
        super().forget()
        self._read.clear()

    def close(self) -> None:
        self._databases.close()

    def check(self, session_id: str) -> None:
        if failure := self._failures.get(session_id):
            raise failure

    def unwritten(self) -> list[str]:
        return []

    def sync(self, session_id: str) -> None:
        found = self._find(session_id)
        if found is None:
            return
        agent, known, marker = found
        if agent not in self._databases:
            super().sync(session_id)
            return
        stamp = self._databases.stamp(agent)
        if stamp != known:
            try:
                self._import(session_id, agent, stamp, marker)
            except StoreError as exc:
                # Not a CorruptDataError: that is for damage of our own database.
                self._failures[session_id] = StoreError(exc.message, fix=exc.fix)
                raise self._failures[session_id] from exc
        self._failures.pop(session_id, None)
        self._read.pop(session_id, None)
        self._read[session_id] = (agent, stamp)
        while len(self._read) > _KEPT_STAMPS:
            del self._read[next(iter(self._read))]

    def _pass(self, view: FileView) -> bool:
        """Import a file of an earlier version of OpenClaw; nothing is appended to it."""
        if view.path.exists():
            self._take_in(view)
        return True

    def _put_aside(self, view: FileView) -> None:
        """Leave an archived transcript where OpenClaw has it."""

    def _find(self, session_id: str) -> tuple[str, FileStamp | None, bytes] | None:
        """Return the agent of a transcript, and what was known of its database at the import."""
        rows = select(
            self._db,
            "SELECT agent, file_size, file_mtime_ns, file_inode, file_tail FROM transcripts"
            " WHERE team = ? AND user = ? AND session_id = ?",
            (*_SCOPE, session_id),
        )
        if rows:
            agent, size, mtime_ns, inode, tail = rows[0]
            stamp = None if size is None else FileStamp(size, mtime_ns, inode)
            return (agent, stamp, tail or b"") if is_agent_id(agent) else None
        rows = select(
            self._db,
            "SELECT agent FROM sessions WHERE team = ? AND user = ? AND session_id = ? LIMIT 1",
            (*_SCOPE, session_id),
        )
        return (rows[0][0], None, b"") if rows else None

    def _import(self, session_id: str, agent: str, stamp: FileStamp, marker: bytes) -> None:
        database = self._databases.get(agent)
        theirs = database.transcript(session_id)
        if theirs is None:
            return
        digest = _digest(theirs)
        changes = 0
        if digest != marker:
            scan = scan_transcript(io.BytesIO("".join(f"{e}\n" for e in theirs.lines).encode()))
            entries = [(found.entry, found.text) for found in scan.found]
            job = _TranscriptImport(session_id, agent, scan.header, entries, theirs.leaf)
            changes = self._writer.submit(job.run).result()
        values = (stamp.size, stamp.mtime_ns, stamp.inode, digest, *_SCOPE, session_id)
        self._writer.run_deferred(
            f"transcript {session_id}",
            lambda db: db.execute(
                "UPDATE transcripts SET file_size = ?, file_mtime_ns = ?, file_inode = ?,"
                " file_tail = ? WHERE team = ? AND user = ? AND session_id = ?",
                values,
            ),
        )
        if changes:
            log.info("took %d entries of %s from %s", changes, session_id, database.path)


@dataclass(frozen=True, slots=True)
class _TranscriptImport:
    """Adds to a transcript what OpenClaw has of it. Entries of ours stay."""

    session_id: str
    agent: str
    header: str
    found: Sequence[tuple[TranscriptEntry, str]]
    leaf: str

    def run(self, db: apsw.Connection) -> int:
        scope = (*_SCOPE, self.session_id)
        sqlite_sql.open_transcript(db, OWNER, self.session_id, self.agent, self.header)
        known = {id_ for (id_,) in select(db, _ENTRY_IDS, scope)}
        ((our_leaf,),) = select(db, _LEAF, scope)
        theirs = {entry.id for entry, _ in self.found}
        is_continued = not known <= theirs
        found = _follow(our_leaf, self.found, known) if is_continued else self.found
        changes = sqlite_sql.import_entries(db, OWNER, self.session_id, found, 0).changes
        is_newer = bool(theirs - known)
        leaf = self.leaf if self.leaf in theirs else self.found[-1][0].id if self.found else None
        if leaf and leaf != our_leaf and (is_newer or not is_continued):
            sqlite_sql.set_leaf(db, OWNER, self.session_id, leaf)
            if not changes:
                sqlite_sql.touch_sessions(db, OWNER, self.session_id)
        return changes


def _follow(
    leaf: str | None, found: Sequence[tuple[TranscriptEntry, str]], known: Iterable[str]
) -> list[tuple[TranscriptEntry, str]]:
    """Return entries of which the first new one follows what was said here."""
    entries, ids = list(found), set(known)
    for index, (entry, text) in enumerate(entries):
        if entry.id not in ids and (entry.parent is None or entry.parent in ids):
            entries[index] = (replace(entry, parent=leaf), text)
            break
    return entries


def _read_sessions(database: OpenClawDatabase) -> list[OpenClawSession]:
    try:
        return database.sessions()
    except StoreError as exc:
        raise OSError(str(exc)) from exc


def _digest(transcript: OpenClawTranscript) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for line in (transcript.leaf, *transcript.lines):
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return digest.digest()


def _fold(stamp: DatabaseStamp) -> FileStamp:
    """Return one stamp for a database and its log."""
    file = stamp.file or FileStamp(0, 0, 0)
    if stamp.log is None:
        return file
    text = f"{file.inode} {stamp.log.size} {stamp.log.mtime_ns} {stamp.log.inode}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
    return FileStamp(file.size, file.mtime_ns, number)
