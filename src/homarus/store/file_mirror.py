"""Mirror sessions, transcripts and sub-agents to files on one thread, so that no turn waits.

A commit marks the files it made stale; a moment later they are written. Reading a session first
checks whether its files changed (two calls of `stat`); only then is anything imported.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import apsw

from homarus.config.paths import is_sqlite_home
from homarus.config.sqlite_errors import TranslateErrors
from homarus.core.errors import CorruptDataError, HomarusError, StoreError
from homarus.store.database_writer import DatabaseWriter
from homarus.store.query import select
from homarus.store.sessions_file import SessionsFiles
from homarus.store.state_paths import FileStamp, StatePaths, stat_stamp
from homarus.store.transcript_file import Repair, TranscriptFiles

if TYPE_CHECKING:  # imported when there are sub-agents
    from homarus.store.subagents_file import SubagentsFile

log = logging.getLogger(__name__)

TRANSCRIPT_DELAY_S = 0.05
INDEX_DELAY_S = 0.2
# sessions.json is written completely, which is slow with many sessions: then it is done less often.
INDEX_SHARE = 0.05
RETRY_S = 5.0
_NEVER = float("inf")
_SUBAGENTS: Final = ("subagents", "runs.json")  # the one file of sub-agents, among what is due
_EXPECTED = (OSError, HomarusError, ValueError)

_Request: TypeAlias = tuple[Callable[[], Exception | None], "Future[Exception | None]"]


class FileMirror:
    """Writes the files of the store in the background; imports what others changed."""

    def __init__(
        self,
        paths: StatePaths,
        db: apsw.Connection,
        writer: DatabaseWriter,
        on_damage: Callable[[Exception], object] = lambda _exc: None,
    ) -> None:
        self._paths, self._db, self._on_damage = paths, db, on_damage
        self._writer = writer
        self._busy = threading.Lock()  # held while it uses the database
        self._damage: Exception | None = None
        self._indexes, self._transcripts = _make_views(paths, db, writer)
        # OpenClaw 2026.9 has no such file: then none is written next to its databases.
        self._runs_path = (
            "" if is_sqlite_home(paths.state) else f"{paths.state}/subagents/runs.json"
        )
        self._subagents: SubagentsFile | None = None
        self._runs_stamp: FileStamp | None = None  # of the file as it was read or written last
        self._wake = threading.Condition()
        # ("transcript" | "index" | "subagents", name) → when
        self._due: dict[tuple[str, str], float] = {}
        self._requests: deque[_Request] = deque()
        self._failed: set[tuple[str, str]] = set()
        self._index_cost_s = 0.0
        self._asleep_until = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="store-mirror", daemon=True)
        self._thread.start()

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Return the files that held unreadable lines, since the store was opened."""
        return tuple(self._transcripts.repairs)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop using the database while the block lasts, and then read everything again.

        The caller must not be the mirror's thread while it works.
        """
        with self._busy:
            try:
                yield
            finally:
                self._transcripts.forget()
                self._indexes.forget()
                if self._subagents:
                    self._subagents.forget()

    def mark_dirty(
        self, transcripts: Iterable[str], agents: Iterable[str], *, has_subagents: bool = False
    ) -> None:
        """Schedule these files: a commit made them stale."""
        now = time.monotonic()
        index_delay_s = max(INDEX_DELAY_S, self._index_cost_s / INDEX_SHARE)
        with self._wake:
            for name in transcripts:
                self._due.setdefault(("transcript", name), now + TRANSCRIPT_DELAY_S)
            for name in agents:
                self._due.setdefault(("index", name), now + index_delay_s)
            if has_subagents and self._runs_path:
                self._due.setdefault(_SUBAGENTS, now + INDEX_DELAY_S)
            if self._due and min(self._due.values()) < self._asleep_until:
                self._wake.notify()  # else its timeout wakes it in time

    def transcript_changed(self, session_id: str) -> bool:
        return self._transcripts.changed(session_id)

    def index_changed(self, agent: str) -> bool:
        return self._indexes.changed(agent)

    def subagents_changed(self) -> bool:
        """Return whether another program wrote the file of sub-agents. Cheap, on any thread."""
        return bool(self._runs_path) and stat_stamp(self._runs_path) != self._runs_stamp

    def import_subagents(self) -> Future[Exception | None]:
        """Import the file of sub-agents that another program wrote."""
        return self._ask(lambda: self._try(_SUBAGENTS))

    def import_transcript(self, session_id: str) -> Future[Exception | None]:
        """Import a transcript that another program wrote; the result is damage that was met."""
        return self._ask(lambda: self._import_transcript(session_id))

    def import_index(self, agent: str) -> Future[Exception | None]:
        """Import a `sessions.json` that another program wrote."""
        return self._ask(lambda: self._take_in_index(agent))

    def import_indexes(self) -> Future[Exception | None]:
        """Import the `sessions.json` of every agent."""
        return self._ask(self._take_in_indexes)

    def import_all(self) -> Future[Exception | None]:
        """Import every `sessions.json` after a start, and schedule what was left unwritten."""
        return self._ask(self._catch_up)

    def flush(self) -> Future[Exception | None]:
        """Write everything that is scheduled, now."""
        return self._ask(lambda: self._work(_NEVER))

    def close(self) -> None:
        """Write everything that is scheduled, then stop. Blocks until it is done."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _ask(self, work: Callable[[], Exception | None]) -> Future[Exception | None]:
        future: Future[Exception | None] = Future()
        with self._wake:
            if self._closing:
                raise self._closed()
            self._requests.append((work, future))
            self._wake.notify()
        return future

    def _closed(self) -> StoreError:
        return StoreError(f"{self._paths.database} is closed")

    def _run(self) -> None:
        requests: list[_Request] = []
        try:
            closing = False
            while not closing:
                with self._wake:
                    while not self._ready():
                        self._asleep_until = min(self._due.values(), default=_NEVER)
                        self._wake.wait(self._wait_s())
                    self._asleep_until = 0.0
                    requests = list(self._requests)
                    self._requests.clear()
                    closing = self._closing
                for request in requests:
                    with self._busy:
                        _answer(request)
                with self._busy:
                    if closing:
                        self._answer_last()
                    self._work(_NEVER if closing else time.monotonic())
                if self._damage and not closing:
                    damage, self._damage = self._damage, None
                    self._on_damage(damage)
        finally:  # every waiting caller gets an answer, whatever happened above
            with self._wake:
                self._closing = True
                requests.extend(self._requests)
            for _, future in requests:
                if not future.done():
                    future.set_exception(self._closed())
            self._transcripts.close()
            self._db.close()

    def _answer_last(self) -> None:
        """Look for stale files before the end: a cancelled turn may have committed unannounced."""
        _answer((self._catch_up, Future()))

    def _ready(self) -> bool:
        return bool(self._closing or self._requests) or self._wait_s() == 0

    def _wait_s(self) -> float | None:
        if not self._due:
            return None
        return max(0.0, min(self._due.values()) - time.monotonic())

    def _work(self, until: float) -> None:
        with self._wake:
            ready = [what for what, due in self._due.items() if due <= until]
            for what in ready:
                del self._due[what]
        for what in ready:
            self._damage = self._try(what) or self._damage

    def _try(self, what: tuple[str, str]) -> Exception | None:
        """Sync one file; log a failure once and retry. Return it if the database is the cause."""
        kind, name = what
        try:
            with TranslateErrors(self._paths.database):
                if kind == "transcript":
                    self._transcripts.sync(name)
                elif what == _SUBAGENTS:
                    self._sync_subagents()
                else:
                    self._sync_index(name)
        except _EXPECTED as exc:
            if what not in self._failed:
                log.warning("the file of %s %s is behind: %s", kind, name, exc)
            self._failed.add(what)
            with self._wake:
                self._due.setdefault(what, time.monotonic() + RETRY_S)
            return exc if isinstance(exc, CorruptDataError | ValueError) else None
        self._failed.discard(what)
        return None

    def _import_transcript(self, session_id: str) -> Exception | None:
        damage = self._try(("transcript", session_id))
        self._transcripts.check(session_id)
        return damage

    def _sync_index(self, agent: str) -> None:
        started = time.perf_counter()
        self._indexes.sync(agent)
        self._index_cost_s = time.perf_counter() - started

    def _sync_subagents(self) -> None:
        if self._subagents is None:
            from homarus.store.subagents_file import SubagentsFile

            self._subagents = SubagentsFile(self._paths, self._db, self._writer)
        try:
            self._subagents.sync()
        finally:  # one that cannot be read is not read again until it changes
            self._runs_stamp = stat_stamp(self._runs_path)

    def _has_subagents(self) -> bool:
        """Return whether there is anything to mirror; else nothing is imported for it."""
        if not self._runs_path:
            return False
        sql = "SELECT 1 FROM records WHERE kind = 'subagent' LIMIT 1"
        return self._runs_stamp != stat_stamp(self._runs_path) or bool(select(self._db, sql, ()))

    def _take_in_index(self, agent: str) -> None:
        try:
            with TranslateErrors(self._paths.database):
                behind = self._indexes.import_changes(agent)
        except OSError as exc:
            log.warning("cannot read the sessions of agent %s: %s", agent, exc)
        else:
            self.mark_dirty((), (agent,) if behind else ())

    def _take_in_indexes(self) -> None:
        for agent in self._indexes.agents():
            self._take_in_index(agent)

    def _catch_up(self) -> None:
        self._take_in_indexes()
        if self._has_subagents():
            self._try(_SUBAGENTS)
        with TranslateErrors(self._paths.database):
            self.mark_dirty(self._transcripts.unwritten(), ())


def _make_views(
    paths: StatePaths, db: apsw.Connection, writer: DatabaseWriter
) -> tuple[SessionsFiles, TranscriptFiles]:
    """Return what reads and writes the sessions and transcripts that OpenClaw has."""
    if not is_sqlite_home(paths.state):
        return SessionsFiles(paths, db, writer), TranscriptFiles(paths, db, writer)
    from homarus.store.openclaw_import import (
        ImportedSessions,
        ImportedTranscripts,
        OpenClawDatabases,
    )

    databases = OpenClawDatabases(paths.state)
    return (
        ImportedSessions(paths, db, writer, databases),
        ImportedTranscripts(paths, db, writer, databases),
    )


def _answer(request: _Request) -> None:
    work, future = request
    if not future.set_running_or_notify_cancel():
        return  # the caller was cancelled and no longer waits
    try:
        result = work()
    except _EXPECTED as exc:
        future.set_exception(exc)
    else:
        future.set_result(result)
