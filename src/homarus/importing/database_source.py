"""Read the databases of an OpenClaw 2026.9 home: sessions, cron jobs, credentials, senders.

Only databases inside the source are read, and an unreadable one is named in the report.
"""

import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import BinaryIO, Final

from homarus.config.openclaw_credentials import (
    decode_object,
    load_agent_profiles,
    load_approved_senders,
    load_shared_profiles,
    table_rows,
)
from homarus.config.paths import OPENCLAW_DATABASE
from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_ACCOUNT
from homarus.importing.report import ImportReport, Kind
from homarus.importing.session_source import (
    FolderReader,
    SourceSession,
    SourceTranscript,
    make_transcript,
)
from homarus.importing.source_home import SourceHome, place_in
from homarus.importing.source_tree import RefusedSourceError, SourceTree
from homarus.store.openclaw_database import OpenClawDatabase, find_databases
from homarus.store.state_paths import is_session_id
from homarus.store.transcript_codec import read_int

_JOBS: Final = "SELECT job_json, state_json FROM cron_jobs ORDER BY store_key, sort_order, job_id"
_VARIABLES: Final = (
    "SELECT name, value, kind FROM secret_store_entries"
    " WHERE scope_kind = 'team' AND deleted_at_ms IS NULL ORDER BY name"
)
_WINDOWS: Final = "SELECT session_id, updated_at FROM session_windows ORDER BY session_id"


def find_agent_databases(home: SourceHome, report: ImportReport) -> dict[str, Path]:
    """Return the database of every agent, apart from those outside the source."""
    found: dict[str, Path] = {}
    for agent, path in find_databases(home.tree.root).items():
        place = place_in(home.tree, os.path.normpath(path))
        try:
            if place is None:
                raise RefusedSourceError("is outside the source")
            found[agent] = home.tree.resolve(place)
        except RefusedSourceError as exc:
            report.note("sessions", str(path), f"skipped: this database {exc}")
    return found


@dataclass(slots=True)
class DatabaseSessions:
    """The sessions in the database of one agent, and its earlier conversations by file name."""

    database: OpenClawDatabase
    agent: str
    sessions: tuple[SourceSession, ...]
    old: dict[str, int] = field(default_factory=dict)  # name → when it was used last

    def read(self, session: SourceSession) -> SourceTranscript:
        """Read a transcript; a session without one is empty. Raises RefusedSourceError."""
        try:
            found = self.database.transcript(session.session_id)
        except StoreError as exc:
            raise RefusedSourceError(f"cannot be read: {exc.message}") from exc
        if found is None:
            return SourceTranscript()
        return make_transcript(_as_file(found.lines), session, found.leaf)

    def open_old(self, name: str) -> BinaryIO:
        """Return an earlier conversation as a transcript file. Raises RefusedSourceError."""
        try:
            found = self.database.transcript(name.removesuffix(".jsonl"))
        except StoreError as exc:
            raise RefusedSourceError(f"cannot be read: {exc.message}") from exc
        if found is None:
            raise RefusedSourceError("has no messages")
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        file.write(_as_file(found.lines).getvalue())
        file.flush()
        at_ns = self.old[name] * 1_000_000
        os.utime(file.fileno(), ns=(at_ns, at_ns))
        return file


def _as_file(lines: Sequence[str]) -> io.BytesIO:
    return io.BytesIO("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))


@contextmanager
def open_database_sessions(
    path: Path, agent: str, report: ImportReport
) -> Iterator[DatabaseSessions | None]:
    """List the sessions of a database while the block lasts; None if it cannot be read."""
    with OpenClawDatabase(path) as database:
        try:
            reader = FolderReader(agent, report)
            for one in database.sessions():
                reader.add_entry(one.key, dict(one.data))
            current = {session.session_id for session in reader.sessions.values()}
            windows = table_rows(database, _WINDOWS)
        except StoreError as exc:
            report.add("sessions", "skipped", str(path), f"skipped: {exc.message}")
            yield None
            return
        old = {
            f"{session_id}.jsonl": max(read_int(at_ms), 0)
            for session_id, at_ms in windows
            if is_session_id(session_id) and session_id not in current
        }
        yield DatabaseSessions(database, agent, tuple(reader.sessions.values()), old)


def read_database_profiles(path: Path, report: ImportReport) -> dict[str, Json]:
    """Return the object that `auth-profiles.json` would have, of an agent's database."""
    found: dict[str, Json] = {}
    with OpenClawDatabase(path) as database, _reported(path, "credentials", report):
        found.update(load_agent_profiles(database))
    return found


@dataclass(frozen=True, slots=True)
class StateDatabaseContent:
    """What the state database of a home has to import."""

    jobs: list[dict[str, Json]] = field(default_factory=list)
    allowed: dict[str, list[str]] = field(default_factory=dict)  # file of senders → senders
    variables: dict[str, str] = field(default_factory=dict)
    profiles: dict[str, Json] = field(default_factory=dict)


def read_state_database(tree: SourceTree, report: ImportReport) -> StateDatabaseContent:
    """Read cron jobs, approved senders and variables."""
    content = StateDatabaseContent()
    try:
        path = tree.resolve(OPENCLAW_DATABASE)
    except RefusedSourceError as exc:
        report.note("cronJobs", OPENCLAW_DATABASE, f"skipped: it {exc}")
        return content
    if not path.is_file():
        return content
    with OpenClawDatabase(path) as database, _reported(path, "cronJobs", report):
        for job, state in table_rows(database, _JOBS):
            content.jobs.append({**decode_object(job), "state": decode_object(state)})
        content.profiles.update(load_shared_profiles(database))
        for (channel, account), senders in load_approved_senders(database).items():
            inner = "" if account == DEFAULT_ACCOUNT else f"-{account}"
            content.allowed[f"{channel}{inner}-allowFrom.json"] = senders
        for name, value, kind in table_rows(database, _VARIABLES):
            if kind == "env":
                content.variables[str(name)] = str(value)
            else:
                text = "not imported: secrets of a secret store are not supported"
                report.add("credentials", "skipped", f"secret {name}", text)
    return content


@contextmanager
def _reported(path: Path, kind: Kind, report: ImportReport) -> Iterator[None]:
    try:
        yield
    except StoreError as exc:
        report.add(kind, "skipped", str(path), f"skipped: {exc.message}")
