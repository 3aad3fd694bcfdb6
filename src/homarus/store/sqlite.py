"""The store in a directory: `state.sqlite` is the record, the files next to it are its view.

    async with open_store(state_dir) as store:
        async with store.transaction() as transaction:
            transaction.put_session(record)

Writes go through one thread (database_writer.py), files through another (file_mirror.py). A read
of one row runs on the event loop: readers of a write-ahead log never wait.

A damaged database is repaired (repair.py) when it is opened, or by the first call that meets the
damage, which is then made again.
"""

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import field
from datetime import date, datetime
from datetime import time as day_time
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import apsw

from homarus.config.paths import SessionStorePath, is_sqlite_home
from homarus.config.sqlite_errors import TranslateErrors
from homarus.core.errors import CorruptDataError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.lanes import Lanes
from homarus.core.message import Json
from homarus.core.principal import OWNER, Principal
from homarus.store import sqlite_audit, sqlite_slots, sqlite_usage
from homarus.store.audit import AuditAnchor, AuditCheck, AuditEntry
from homarus.store.base import (
    SessionRecord,
    SessionRevision,
    Transaction,
    TranscriptEntry,
    TranscriptHeader,
    UsageRecord,
)
from homarus.store.clock_rebase import rebase_at_start
from homarus.store.database_writer import DatabaseWriter
from homarus.store.file_mirror import FileMirror
from homarus.store.journal import Lease
from homarus.store.lock import StateLock, lock_holder_pid
from homarus.store.query import WhereClause, select
from homarus.store.schema import BUSY_MS, MIGRATIONS, check_version, configure, migrate
from homarus.store.session_skills import (
    SKILLS_COLUMN,
    join_entry,
)
from homarus.store.slots import SlotRecord, SlotState
from homarus.store.sqlite_journal import (
    SqliteJournal,
    repairing,
)
from homarus.store.sqlite_transaction import SUBAGENT_KIND, SqliteTransaction
from homarus.store.state_paths import (
    REPAIRED,
    FileStamp,
    StatePaths,
    is_agent_id,
    stat_stamp,
)
from homarus.store.transcript_codec import (
    decode_entry,
    decode_header,
    dump_json,
    load_json,
)
from homarus.store.transcript_file import Repair
from homarus.store.usage import UsageField, UsageFilter, UsageTotal

log = logging.getLogger(__name__)

# A read of more entries than this leaves the event loop.
_QUICK_ENTRIES = 200
_EPOCH_SIZE = 1 << 32
_RUNS_FILE = "subagents/runs.json"
_RECHECK_S = 60.0  # how long a check that found nothing holds

_Read = TypeVar("_Read")
_T = TypeVar("_T")


def open_store(
    state: Path,
    *,
    mirror: bool = True,
    read_only: bool = False,
    sessions: SessionStorePath | None = None,
) -> "SqliteStore":
    """Open or create the store of a directory. Raises StateInUseError when a process holds it.

    `sessions` is `session.store` of the config.
    `mirror=False` does not read or write `sessions.json` and the transcript files. `read_only`
    reads what another process may be writing: it takes no lock and creates nothing. Tables of an
    older version are migrated first, and files that another program changed are imported, unless
    a process holds the store.
    """
    paths = StatePaths(state, sessions)
    if read_only and _is_readable(paths):
        if mirror and _has_changed_files(paths):
            with suppress(StoreError):  # another process, or a folder that cannot be written
                return _open_to_write(paths, mirror=mirror)
        return SqliteStore(_SqliteEngine.to_read(paths), OWNER)
    return _open_to_write(paths, mirror=mirror)


def _open_to_write(paths: StatePaths, *, mirror: bool) -> "SqliteStore":
    lock = StateLock(paths.state)
    try:
        return SqliteStore(_SqliteEngine.to_write(paths, lock, mirror=mirror), OWNER)
    except BaseException:
        lock.release()
        raise


def _is_readable(paths: StatePaths) -> bool:
    path = paths.database
    if not path.exists():
        return not paths.agents() and not is_sqlite_home(paths.state)
    with TranslateErrors(path), ExitStack() as opened:
        return check_version(_reader(path, opened), path) in {0, len(MIGRATIONS)}


def _has_changed_files(paths: StatePaths) -> bool:
    """Return whether another program wrote sessions, and no process of ours holds the store."""
    path = paths.database
    current: dict[str, FileStamp | None] = {a: stat_stamp(paths.index(a)) for a in paths.agents()}
    if is_sqlite_home(paths.state):
        from homarus.store.openclaw_import import database_stamps

        current |= database_stamps(paths.state)
    else:
        current[_RUNS_FILE] = stat_stamp(paths.state / _RUNS_FILE)
    if not any(current.values()) or lock_holder_pid(paths.state):
        return False
    with TranslateErrors(path), ExitStack() as opened:
        rows = select(_reader(path, opened), _STAMPS, (OWNER.team, OWNER.user))
    stamps = {agent: FileStamp(*stamp) if stamp[0] is not None else None for agent, *stamp in rows}
    runs_stamp = current.pop(_RUNS_FILE, None)
    is_changed = runs_stamp is not None and runs_stamp != stamps.get(_RUNS_FILE)
    return is_changed or any(
        stamp != stamps.get(paths.index_key(agent)) for agent, stamp in current.items()
    )


def check_database(path: Path) -> None:
    """Read a complete database. Raises CorruptDataError when it is damaged."""
    with TranslateErrors(path), ExitStack() as opened:
        rows = select(_reader(path, opened), "PRAGMA quick_check(3)")
        if rows != [("ok",)]:
            problems = "; ".join(str(row[0]) for row in rows)
            raise CorruptDataError(f"{path} is damaged: {problems}", fix="restore it from a backup")


@dataclass(slots=True)
class _SqliteEngine:
    """What all scopes of one open store share."""

    paths: StatePaths
    quick: apsw.Connection  # for a row, on the event loop
    bulk: apsw.Connection  # for many, on a thread
    lock: StateLock | None = None
    writer: DatabaseWriter | None = None
    mirror: FileMirror | None = None
    epoch: int = 0
    tokens: int = 0
    closed: bool = False
    sound_at_s: float | None = None  # when a check found no damage, or a repair ended
    repaired_at_s: float = -_RECHECK_S
    bulk_lock: threading.Lock = field(default_factory=threading.Lock)
    repair_lock: threading.Lock = field(default_factory=threading.Lock)
    leases: Lanes = field(default_factory=Lanes)

    @classmethod
    def to_write(cls, paths: StatePaths, lock: StateLock, *, mirror: bool) -> Self:
        path = paths.database
        with TranslateErrors(path):
            writing, quick, bulk, mirroring, epoch = _open_or_repair(paths)
        writer = DatabaseWriter(writing, path)
        engine = cls(paths, quick, bulk, lock, writer, epoch=epoch)
        if mirror:
            engine.mirror = FileMirror(paths, mirroring, writer, engine.repair)
        else:
            mirroring.close()
        return engine

    @classmethod
    def to_read(cls, paths: StatePaths) -> Self:
        path = paths.database
        with TranslateErrors(path), ExitStack() as opened:
            if path.exists() and check_version(quick := _reader(path, opened), path):
                bulk = _reader(path, opened)
            else:  # nothing was ever stored: an empty database in memory
                quick = bulk = _connect(Path(":memory:"), opened)
                migrate(quick, path)
            opened.pop_all()
        return cls(paths, quick, bulk)

    def repair(self, failure: Exception) -> bool:
        """Repair the database if it is damaged; return whether the failed call may be repeated.

        Blocks. To be called from any thread but the writer's.
        """
        from homarus.store.damage import find_bad_rows, find_damage

        if self.writer is None or self.closed:
            return False
        with self.repair_lock:
            now_s = time.monotonic()
            if self.sound_at_s is not None and now_s - self.sound_at_s < _RECHECK_S:
                return now_s - self.repaired_at_s < _RECHECK_S
            with ExitStack() as opened:
                db = _reader(self.paths.database, opened)
                reason = find_damage(db, None) or find_bad_rows(db)
            if reason:
                self._repair(reason, failure)
                self.repaired_at_s = time.monotonic()
            self.sound_at_s = time.monotonic()
            return bool(reason)

    def _repair(self, reason: str, failure: Exception) -> None:
        from homarus.store.repair import repair_open

        log.error("the database is damaged, it is repaired now: %s", failure)
        assert self.writer is not None  # noqa: S101 - checked by the caller
        with self.mirror.paused() if self.mirror else nullcontext():
            self.writer.submit_exclusive(lambda db: repair_open(self.paths, reason, db)).result()

    def next_token(self) -> int:
        """Return a token larger than any before it, also across restarts."""
        self.tokens += 1
        return self.epoch * _EPOCH_SIZE + self.tokens

    def close(self) -> None:
        """Write what is queued, then close the connections. Blocks."""
        if self.closed:
            return
        self.closed = True
        if self.mirror:
            self.mirror.close()
        if self.writer:
            self.writer.close()
        with self.bulk_lock:
            self.bulk.close()
        self.quick.close()
        if self.lock:
            self.lock.release()


_Connections: TypeAlias = tuple[
    apsw.Connection, apsw.Connection, apsw.Connection, apsw.Connection, int
]


def _open_or_repair(paths: StatePaths) -> _Connections:
    """Open the connections of a store and return them with the epoch of this start."""
    from homarus.store.damage import DAMAGE, has_unknown_format

    if (paths.state / REPAIRED).exists():
        from homarus.store.repair import finish_repair

        finish_repair(paths)
    _make_private(paths.database)
    try:
        return _open_connections(paths.database)
    except DAMAGE as exc:
        reason = str(exc)
    except apsw.ReadOnlyError as exc:
        if not has_unknown_format(paths.database):
            raise
        reason = str(exc)
    from homarus.store.repair import repair_offline

    repair_offline(paths, reason)
    return _open_connections(paths.database)


def _open_connections(path: Path) -> _Connections:
    from homarus.store.damage import find_damage

    with ExitStack() as opened:
        writing = _connect(path, opened)
        configure(writing)
        if damage := find_damage(writing):
            raise CorruptDataError(damage)
        migrate(writing, path)
        epoch = _next_epoch(writing)
        quick, bulk, mirroring = (_reader(path, opened) for _ in range(3))
        opened.pop_all()  # success: the user of a connection closes it
    return writing, quick, bulk, mirroring, epoch


def _connect(path: Path, opened: ExitStack) -> apsw.Connection:
    db = apsw.Connection(str(path))
    opened.callback(db.close)
    return db


def _reader(path: Path, opened: ExitStack) -> apsw.Connection:
    db = _connect(path, opened)
    db.set_busy_timeout(BUSY_MS)
    db.execute("PRAGMA query_only = ON")
    return db


def _make_private(path: Path) -> None:
    """Create the file before SQLite does, which gives its side files the mode of this one."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as exc:
        raise StoreError(
            f"cannot write {path}: {exc.strerror}", fix="check its owner and permissions"
        ) from exc


def _next_epoch(db: apsw.Connection) -> int:
    with db:
        if step_ms := rebase_at_start(db):
            log.warning("the clock was set by %d s since the last start", step_ms // 1000)
        rows = select(db, "UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value")
    return int(rows[0][0])


class SqliteStore:
    """A Store in one directory. Created by `open_store`; base.py says what it guarantees."""

    def __init__(self, engine: _SqliteEngine, principal: Principal) -> None:
        self._engine, self._principal = engine, principal
        self._scope = (principal.team, principal.user)
        # Files have no place for a team: only the owner's sessions are mirrored.
        self._mirror = engine.mirror if principal == OWNER else None
        self._journal = SqliteJournal(
            principal, self._read, self._write, self.transaction, self.lease, repair=self._repair
        )

    async def __aenter__(self) -> Self:
        await self._import_files()
        return self

    @repairing
    async def _import_files(self) -> None:
        if self._mirror:
            await asyncio.wrap_future(self._mirror.import_all())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Return the transcript files that held unreadable lines, since the store was opened."""
        return self._mirror.repairs if self._mirror else ()

    @property
    def journal(self) -> SqliteJournal:
        return self._journal

    def scoped(self, principal: Principal) -> "SqliteStore":
        return SqliteStore(self._engine, principal)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        paths = self._engine.paths if self._mirror else None
        transaction = SqliteTransaction(self._principal, paths)
        yield transaction
        if not transaction.steps:
            return
        try:
            await self._write(transaction.run)
        finally:  # a cancelled wait does not undo the commit
            if self._mirror:
                self._mirror.mark_dirty(
                    transaction.transcripts,
                    transaction.agents,
                    has_subagents=transaction.has_subagents,
                )

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Lease]:
        # One process holds the folder, so a lane in memory is enough; the token outlives it.
        async with self._engine.leases.enter(dump_json([*self._scope, name])):
            yield Lease(name, self._engine.next_token())

    @repairing
    async def session(self, key: str) -> SessionRecord | None:
        await self._refresh_index(key)
        record = self._session(key)
        if record and await self._refresh_transcript(record.session_id):
            record = self._session(key)
        return record

    @repairing
    async def revision(self, key: str) -> SessionRevision | None:
        await self._refresh_index(key)
        revision = self._revision(key)
        if revision and await self._refresh_transcript(revision.session_id):
            revision = self._revision(key)
        return revision

    @repairing
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
        if self._mirror:
            await asyncio.wrap_future(self._mirror.import_indexes())
        clause = WhereClause()
        clause.add("team = ? AND user = ? AND NOT deleted AND updated_ms >= ?")
        clause.values += [*self._scope, since_ms]
        if agent is not None:
            clause.add("agent = ?", agent)
        if session_id is not None:
            clause.add("session_id = ?", session_id)
        clause.search(search)
        for name, value in (where or {}).items():
            clause.add("json_extract(json, ?) = ?", f"$.{name}", value)
        columns = _BARE_SESSION if bare else _SESSION
        sql = f"{columns} WHERE {clause} ORDER BY updated_ms DESC, place DESC LIMIT ?"
        values = (*clause.values, -1 if limit is None else limit)
        if not search and not where:
            return [_record(row) for row in self._read(sql, values)]
        # Reading the JSON of every row is slow.
        return await asyncio.to_thread(
            self._bulk, lambda db: [_record(row) for row in select(db, sql, values)]
        )

    @repairing
    async def count_sessions(self, *, agent: str | None = None) -> int:
        rows = self._read(
            "SELECT count(*) FROM sessions"
            " WHERE team = ? AND user = ? AND NOT deleted AND (?3 IS NULL OR agent = ?3)",
            (*self._scope, agent),
        )
        return int(rows[0][0])

    @repairing
    async def usage_records(
        self, *, since_ms: int = 0, session: str | None = None
    ) -> Sequence[UsageRecord]:
        return await asyncio.to_thread(
            self._bulk,
            lambda db: sqlite_usage.usage_records(db, self._principal, since_ms, session),
        )

    @repairing
    async def usage_totals(
        self, by: Sequence[UsageField] = (), wanted: UsageFilter | None = None
    ) -> Sequence[UsageTotal]:
        chosen = wanted or UsageFilter()
        await self._import_changed_transcripts(chosen)
        return await asyncio.to_thread(
            self._bulk,
            lambda db: sqlite_usage.usage_totals(db, self._principal, by, chosen),
        )

    async def prune_usage(self, before_ms: int) -> int:
        pruned = 0
        while count := await self._write(
            lambda db: sqlite_usage.prune_usage(db, self._principal, before_ms)
        ):
            pruned += count
        return pruned

    @repairing
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
        wanted = {"agent": agent, "tool": tool, "kind": kind}
        return await asyncio.to_thread(
            self._bulk,
            lambda db: sqlite_audit.audit_entries(
                db,
                self._principal,
                since_ms=since_ms,
                before_seq=before_seq,
                limit=limit,
                **wanted,
            ),
        )

    async def audit_anchor(self, seq: int = 0) -> AuditAnchor:
        self._check_open()
        with TranslateErrors(self._engine.paths.database):
            return sqlite_audit.audit_anchor(self._engine.quick, self._principal, seq)

    async def check_audit(self, **anchors: AuditAnchor) -> AuditCheck:
        found = await asyncio.to_thread(
            self._bulk, lambda db: [sqlite_audit.check_audit(db, self._principal, anchors)]
        )
        return found[0]

    @repairing
    async def header(self, session_id: str) -> TranscriptHeader | None:
        await self._refresh_transcript(session_id)
        rows = self._read(
            "SELECT header, agent FROM transcripts WHERE team = ? AND user = ? AND session_id = ?",
            (*self._scope, session_id),
        )
        return decode_header(rows[0][0], session_id, rows[0][1]) if rows else None

    @repairing
    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None, newest: bool = False
    ) -> Sequence[TranscriptEntry]:
        await self._refresh_transcript(session_id)
        rows = self._read(
            "SELECT last_seq FROM transcripts WHERE team = ? AND user = ? AND session_id = ?",
            (*self._scope, session_id),
        )
        last = rows[0][0] if rows else 0
        if limit is not None and newest:
            after = max(after, last - limit)
        count = last - after if limit is None else min(limit, last - after)
        if count <= 0:
            return []
        if count <= _QUICK_ENTRIES:
            return self._entries(self._engine.quick, session_id, after, count)
        return await asyncio.to_thread(
            self._bulk, lambda db: self._entries(db, session_id, after, count)
        )

    @repairing
    async def leaf(self, session_id: str) -> str | None:
        await self._refresh_transcript(session_id)
        rows = self._read(
            "SELECT leaf FROM transcripts WHERE team = ? AND user = ? AND session_id = ?",
            (*self._scope, session_id),
        )
        return rows[0][0] if rows else None

    @repairing
    async def record(self, kind: str, id: str) -> Mapping[str, Json] | None:  # noqa: A002 - the word for it
        rows = self._read(
            "SELECT json FROM records WHERE team = ? AND user = ? AND kind = ? AND id = ?",
            (*self._scope, kind, id),
        )
        return load_json(rows[0][0]) if rows else None

    @repairing
    async def records(self, kind: str) -> Mapping[str, Mapping[str, Json]]:
        if kind == SUBAGENT_KIND and self._mirror and self._mirror.subagents_changed():
            await asyncio.wrap_future(self._mirror.import_subagents())
        rows = self._read(
            "SELECT id, json FROM records WHERE team = ? AND user = ? AND kind = ? ORDER BY id",
            (*self._scope, kind),
        )
        return {record_id: load_json(text) for record_id, text in rows}

    @repairing
    async def slot(self, job: str, slot_ms: int) -> SlotRecord | None:
        found = self._slots(job=job, slot_ms=slot_ms)
        return found[0] if found else None

    @repairing
    async def slots(
        self, *states: SlotState, job: str | None = None, limit: int | None = None
    ) -> Sequence[SlotRecord]:
        return self._slots(*states, job=job, limit=limit)

    def _slots(self, *states: SlotState, **wanted: Any) -> list[SlotRecord]:
        self._check_open()
        with TranslateErrors(self._engine.paths.database):
            return sqlite_slots.slots(self._engine.quick, self._principal, states, **wanted)

    def probe_disk(self) -> Future[None]:
        if self._engine.writer is None:
            raise StoreError(f"{self._engine.paths.database} was opened for reading only")
        value = str(time.time_ns())

        def write(db: apsw.Connection) -> None:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('probe', ?)", (value,))

        return self._engine.writer.submit(write)

    async def wait_for_disk_failure(self) -> StoreError:
        """Wait until the disk fails so that nothing more can be written, and return the reason.

        The server must end then: only the next start can find out what is on disk.
        """
        writer = self._engine.writer
        broken: Future[StoreError] = writer.broken if writer else Future()
        return await asyncio.wrap_future(broken)

    async def flush(self) -> None:
        """Update the files now; they are a moment behind otherwise."""
        if self._mirror:
            await asyncio.wrap_future(self._mirror.flush())

    async def close(self) -> None:
        await asyncio.to_thread(self._engine.close)

    async def _write(self, job: Callable[[apsw.Connection], _T]) -> _T:
        if self._engine.writer is None:
            raise StoreError(f"{self._engine.paths.database} was opened for reading only")
        try:
            return await self._engine.writer.run(job)
        except (CorruptDataError, UnicodeDecodeError) as exc:
            if not await self._repair(exc):
                raise
            return await self._engine.writer.run(job)

    async def _repair(self, failure: Exception) -> bool:
        return await asyncio.to_thread(self._engine.repair, failure)

    def _read(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        self._check_open()
        with TranslateErrors(self._engine.paths.database):
            return select(self._engine.quick, sql, values)

    def _session(self, key: str) -> SessionRecord | None:
        rows = self._read(
            f"{_SESSION} WHERE team = ? AND user = ? AND key = ? AND NOT deleted",
            (*self._scope, key),
        )
        return _record(rows[0]) if rows else None

    def _revision(self, key: str) -> SessionRevision | None:
        rows = self._read(
            "SELECT version, session_id,"  # a join would take five times as long
            " (SELECT leaf FROM transcripts WHERE (team, user, session_id)"
            " = (sessions.team, sessions.user, sessions.session_id))"
            " FROM sessions WHERE team = ? AND user = ? AND key = ? AND NOT deleted",
            (*self._scope, key),
        )
        return SessionRevision(*rows[0]) if rows else None

    def _bulk(self, read: Callable[[apsw.Connection], list[_Read]]) -> list[_Read]:
        """Run a long read on a thread of its own."""
        with self._engine.bulk_lock, _no_collector(), TranslateErrors(self._engine.paths.database):
            self._check_open()
            return read(self._engine.bulk)

    def _entries(
        self, db: apsw.Connection, session_id: str, after: int, count: int
    ) -> list[TranscriptEntry]:
        with TranslateErrors(self._engine.paths.database):
            rows = select(
                db,
                "SELECT json, seq, id, parent, type, at_ms FROM entries"
                " WHERE team = ? AND user = ? AND session_id = ? AND seq > ?"
                " ORDER BY seq LIMIT ?",
                (*self._scope, session_id, after, count),
            )
            return [decode_entry(row) for row in rows]

    def _check_open(self) -> None:
        if self._engine.closed:
            raise StoreError(f"{self._engine.paths.database} is closed")

    async def _refresh_index(self, key: str) -> None:
        agent = key.split(":", 2)[1] if key.startswith("agent:") else ""
        if self._mirror and is_agent_id(agent) and self._mirror.index_changed(agent):
            await asyncio.wrap_future(self._mirror.import_index(agent))

    async def _import_changed_transcripts(self, wanted: UsageFilter) -> None:
        """Import what other programs wrote in the sessions that were used since the first day."""
        if not self._mirror:
            return
        since_ms = 0
        if wanted.first_day:
            first = datetime.combine(date.fromisoformat(wanted.first_day), day_time())
            since_ms = round(first.astimezone().timestamp() * 1000)
        agent = wanted.agent or None
        for record in await self.sessions(agent=agent, since_ms=since_ms, bare=True):
            if wanted.session in {"", record.key}:
                await self._refresh_transcript(record.session_id)

    async def _refresh_transcript(self, session_id: str) -> bool:
        """Import a file that changed, and return whether it did."""
        if not self._mirror or not self._mirror.transcript_changed(session_id):
            return False
        damage = await asyncio.wrap_future(self._mirror.import_transcript(session_id))
        if damage and await self._repair(damage):
            await asyncio.wrap_future(self._mirror.import_transcript(session_id))
        return True


@contextmanager
def _no_collector() -> Iterator[None]:
    """Suspend garbage collection: scanning 100,000 new objects costs a third of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


_STAMPS = (
    "SELECT agent, file_size, file_mtime_ns, file_inode FROM indexes WHERE team = ? AND user = ?"
)
_SESSION = (
    f"SELECT key, agent, session_id, updated_ms, json, version, {SKILLS_COLUMN} FROM sessions"  # noqa: S608 - our names
)
_BARE_SESSION = "SELECT key, agent, session_id, updated_ms, '{}', version, NULL FROM sessions"


def _record(row: tuple[Any, ...]) -> SessionRecord:
    key, agent, session_id, updated_ms, text, version, skills = row
    data = join_entry(text, skills)
    return SessionRecord(key, agent, session_id, updated_ms, data, version)
