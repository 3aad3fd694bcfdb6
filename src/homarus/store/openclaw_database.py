"""Read the session store of OpenClaw 2026.9: one SQLite database per agent. Nothing is written.

with OpenClawDatabase(path) as database:
for session in database.sessions():
transcript = database.transcript(session.session_id)
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import apsw

from homarus.config.approvals_file import DENY_ALL
from homarus.config.openclaw_snapshot import DATABASE_NAME, READ_FLAGS, OpenClawSnapshot
from homarus.config.paths import OPENCLAW_DATABASE
from homarus.config.paths import is_sqlite_home as is_sqlite_home  # noqa: PLC0414 - a part of this module's interface
from homarus.core.errors import CorruptDataError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.store.query import select
from homarus.store.state_paths import is_agent_id, is_session_id, stat_stamp
from homarus.store.transcript_codec import load_json, read_int
from homarus.store.zstd import decompress

MAX_ARCHIVE_BYTES: Final = 64 << 20  # OpenClaw extracts no longer transcript
_MAX_EVENT_BYTES: Final = 4 << 20
_COLD_NAME: Final = re.compile(r"[a-f0-9]{64}\.jsonl\.zst")
# What OpenClaw computes for itself, many kilobytes per session.
_COMPUTED: Final = frozenset({"skillsSnapshot", "systemPromptReport", "contextBudgetStatus"})
_COLUMNS: Final = {
    "session_nodes": {"session_key", "current_session_id", "entry_json", "updated_at"},
    "transcript_events": {"session_id", "seq", "event_json"},
}


@dataclass(frozen=True, slots=True)
class OpenClawSession:
    """A session: `data` is its entry as `sessions.json` has it, without what is computed."""

    key: str
    session_id: str
    updated_ms: int
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class OpenClawTranscript:
    """The lines of a transcript as a transcript file has them, the header first.

    `leaf` is the id of the entry that the next one follows; "" if OpenClaw has not recorded it.
    """

    lines: Sequence[str]
    leaf: str = ""


def find_databases(state: Path) -> dict[str, Path]:
    """Return the session database of every agent that has one.

    An agent may have it in a folder of its own; OpenClaw lists those in its state database.
    """
    found: dict[str, Path] = {}
    with suppress(OSError):
        for entry in sorted(os.scandir(state / "agents"), key=lambda entry: entry.name):
            found[entry.name] = Path(entry.path) / "agent" / DATABASE_NAME
    if is_sqlite_home(state):
        with suppress(StoreError), OpenClawDatabase(state / OPENCLAW_DATABASE) as database:
            for agent, path in database.listed_databases():
                if stat_stamp(state / path):  # it names another place if the home was moved
                    found[agent] = state / path
    return {agent: path for agent, path in found.items() if is_agent_id(agent) and stat_stamp(path)}


def read_exec_approvals(state: Path) -> Mapping[str, Json]:
    """Return OpenClaw's rules for commands; if they cannot be read, rules that deny all."""
    try:
        with OpenClawDatabase(state / OPENCLAW_DATABASE) as database:
            rows = database.rows("SELECT raw_json FROM exec_approvals_config")
            found = [load_json(text) for (text,) in rows]
    except (StoreError, TypeError, ValueError):
        return DENY_ALL
    if not all(isinstance(each, dict) for each in found) or len(found) > 1:
        return DENY_ALL
    return found[0] if found else {}


class OpenClawDatabase(OpenClawSnapshot):
    """The sessions in one database, for use on one thread. Reading raises StoreError."""

    def sessions(self) -> list[OpenClawSession]:
        """Return every session, the one used last first; unreadable ones are left out."""
        rows = self._read(lambda db: _session_rows(db, self.path))
        return [session for row in rows if (session := _decode_session(row))]

    def transcript(self, session_id: str) -> OpenClawTranscript | None:
        """Return a transcript, also one that OpenClaw has extracted; None if there is none."""
        events, leaf, cold = self._read(lambda db: _transcript_rows(db, self.path, session_id))
        if not events and cold:
            return self._read_cold(session_id, *cold)
        lines = [line for text, packed in events if (line := self._decode_event(text, packed))]
        return OpenClawTranscript(lines, leaf) if lines else None

    def _decode_event(self, text: Any, packed: Any) -> str:
        if isinstance(text, str):
            return text.replace("\n", " ")  # a line break in JSON is never part of a string
        try:
            return decompress(packed, _MAX_EVENT_BYTES).decode().replace("\n", " ")
        except (TypeError, ValueError) as exc:
            raise self._damaged(f"an event cannot be decompressed: {exc}") from None

    def _read_cold(
        self, session_id: str, storage: str, name: Any, digest: str, blob: bytes | None
    ) -> OpenClawTranscript:
        """Return a transcript that OpenClaw has moved out of the database, and compressed."""
        folder = self.path.parent
        folder = folder.parent / "sessions" if folder.name == "agent" else folder
        if storage == "sqlite":
            data = blob or b""
        else:
            if not isinstance(name, str) or not _COLD_NAME.fullmatch(name):
                raise self._damaged(f"{name!r} is no name of an archive")
            try:
                data = _read_file(folder / "cold" / name)
            except OSError as exc:
                raise StoreError(
                    f"{folder / 'cold' / name} cannot be read: {exc.strerror}",
                    fix="restore it from a backup: it is the only copy of that conversation",
                ) from exc
        if hashlib.sha256(data).hexdigest() != digest:
            raise self._damaged(f"the archive of session {session_id} was changed")
        lines: list[str] = []
        leaf: Any = ""
        try:
            for text in decompress(data, MAX_ARCHIVE_BYTES).decode().splitlines():
                record = load_json(text)
                row = record.get("row")
                if record.get("kind") == "event":
                    lines.append(row["event_json"].replace("\n", " "))
                elif record.get("kind") == "index" and not row.get("needs_rebuild"):
                    leaf = row.get("leaf_event_id")
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise self._damaged(f"the archive of session {session_id}: {exc!r}") from None
        return OpenClawTranscript(lines, leaf if isinstance(leaf, str) else "")

    def _damaged(self, reason: str) -> CorruptDataError:
        return CorruptDataError(f"{self.path} is damaged: {reason}", fix="run `openclaw doctor`")


def _read_file(path: Path) -> bytes:
    with os.fdopen(os.open(path, READ_FLAGS), "rb") as file:
        return file.read(MAX_ARCHIVE_BYTES + 1)


def _check_schema(db: apsw.Connection, path: Path) -> None:
    for table, wanted in _COLUMNS.items():
        if missing := wanted - _columns(db, table):
            version = select(db, "PRAGMA user_version")[0][0]
            raise StoreError(
                f"{path} has an unknown format (version {version}): "
                f"{table} has no {', '.join(sorted(missing))}",
                fix="a newer version of this program may know it",
            )


def _columns(db: apsw.Connection, table: str) -> set[str]:
    return {name for (name,) in select(db, "SELECT name FROM pragma_table_info(?)", (table,))}


def _session_rows(db: apsw.Connection, path: Path) -> list[tuple[Any, ...]]:
    _check_schema(db, path)
    return select(
        db,
        "SELECT session_key, current_session_id, updated_at, entry_json FROM session_nodes"
        " ORDER BY updated_at DESC, session_key",
    )


def _decode_session(row: tuple[Any, ...]) -> OpenClawSession | None:
    key, session_id, updated_ms, text = row
    try:
        data = load_json(text)
    except (TypeError, ValueError):
        return None
    if not isinstance(data, dict) or not isinstance(key, str) or not is_session_id(session_id):
        return None
    kept = {name: value for name, value in data.items() if name not in _COMPUTED}
    updated_ms = read_int(updated_ms)
    entry = {**kept, "sessionId": session_id, "updatedAt": updated_ms}
    return OpenClawSession(key, session_id, updated_ms, entry)


_Events = list[tuple[Any, Any]]
_PACKED: Final = (
    "SELECT event_json, event_zstd FROM transcript_events WHERE session_id = ? ORDER BY seq"
)
_LEAF: Final = (
    "SELECT leaf_event_id FROM session_transcript_index_state"
    " WHERE session_id = ? AND NOT needs_rebuild"
)
_COLD: Final = (
    "SELECT storage, archive_name, archive_sha256, archive_blob"
    " FROM session_transcript_cold_archives WHERE session_id = ?"
)


def _transcript_rows(
    db: apsw.Connection, path: Path, session_id: str
) -> tuple[_Events, str, tuple[Any, ...]]:
    """Return the events of a session, its leaf, and where its archive is."""
    _check_schema(db, path)
    is_packed = "event_zstd" in _columns(db, "transcript_events")
    sql = _PACKED if is_packed else _PACKED.replace(" event_zstd", " NULL")
    events = [(text, packed) for text, packed in select(db, sql, (session_id,))]
    leaf: tuple[Any, ...] = ()
    cold: tuple[Any, ...] = ()
    if _columns(db, "session_transcript_index_state"):
        leaf = next(iter(select(db, _LEAF, (session_id,))), ())
    if _columns(db, "session_transcript_cold_archives"):
        cold = next(iter(select(db, _COLD, (session_id,))), ())
    return events, leaf[0] if leaf and isinstance(leaf[0], str) else "", cold
