"""`sessions.json`: the owner's sessions in OpenClaw's format, one file per agent.

The file is written in the background, as a new file that replaces the old one. It is read when
its stamp differs from the one we left: keys that are new or newer in it are imported; a key that
is missing in it is deleted here, unless ours changed since we last wrote it.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from homarus.config import json5_document
from homarus.config.paths import SessionStorePath, is_sqlite_home
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.principal import OWNER
from homarus.store import sqlite_sql
from homarus.store.database_writer import DatabaseWriter, Job
from homarus.store.query import select
from homarus.store.session_skills import (
    SKILLS_COLUMN,
    encode_skills,
    join_text,
    split_entry,
)
from homarus.store.sqlite_sql import SessionRow
from homarus.store.state_paths import (
    FileStamp,
    StatePaths,
    is_agent_id,
    is_session_id,
    make_private_dir,
    stat_stamp,
)
from homarus.store.transcript_codec import dump_json, load_json, parse_ms

log = logging.getLogger(__name__)

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_SCOPE = (OWNER.team, OWNER.user)
_UNKNOWN = -1  # before every change


@dataclass(frozen=True, slots=True)
class _SyncedState:
    """The stamp of the file as we left it, and the number of the last change it contains.

    A file that is not known, as after a change of `session.store`, lacks sessions for no reason.
    """

    stamp: FileStamp | None
    change: int
    unreadable: bool = False
    is_known: bool = True


def count_sessions(state: Path, sessions: SessionStorePath | None = None) -> int:
    """Return how many sessions OpenClaw has, in its files or databases. Nothing is written."""
    if is_sqlite_home(state):
        from homarus.store.openclaw_import import count_database_sessions

        return count_database_sessions(state)
    paths = StatePaths(state, sessions)
    files = (Path(paths.index(agent)) for agent in paths.agents())
    found = [parse_index(file.read_text(encoding="utf-8", errors="replace")) for file in files]
    return sum(len(entries) for entries in found if isinstance(entries, dict | list))


class SessionsFiles:
    """The `sessions.json` of every agent."""

    def __init__(self, paths: StatePaths, db: apsw.Connection, writer: DatabaseWriter) -> None:
        self._paths, self._db, self._writer = paths, db, writer
        self._seen: dict[str, _SyncedState] = {}

    def changed(self, agent: str) -> bool:
        """Return whether `sync` may have something to import. Cheap, and safe on any thread."""
        seen = self._seen.get(agent)
        return seen is None or stat_stamp(self._paths.index(agent)) != seen.stamp

    def forget(self) -> None:
        """Drop what is known of files: the database was replaced."""
        self._seen.clear()

    def agents(self) -> list[str]:
        """Return every agent that has sessions, in the database or in a file."""
        found = select(
            self._db, "SELECT DISTINCT agent FROM sessions WHERE team = ? AND user = ?", _SCOPE
        )
        known = {agent for (agent,) in found if is_agent_id(agent)}
        return sorted(known.union(self._paths.agents()))

    def import_changes(self, agent: str) -> bool:
        """Import the file if another program wrote it; return whether it must be written then."""
        path = Path(self._paths.index(agent))
        seen = self._seen.get(agent) or self._stored(agent)
        stamp, is_known = stat_stamp(path), seen.is_known
        if stamp is not None and stamp != seen.stamp:
            entries = _read(path, agent)
            listed = set(entries or ())
            if entries is not None:
                taken = [session_row(key, agent, entry) for key, entry in entries.items()]
                written = seen.change if is_known else _UNKNOWN
                changes = self._writer.submit(merge_rows(agent, taken, written)).result()
                log.log(_level(changes), "took %d sessions from %s", changes, path)
            is_known = is_known or not self._has_more(agent, listed)
            seen = _SyncedState(stamp, seen.change, entries is None, is_known)
            if is_known and (entries is not None or not self._newest(agent)):
                self._remember(agent, stamp, seen.change)
        self._seen[agent] = replace(seen, stamp=stamp)
        # A missing or unreadable file is written again as soon as there is anything to write.
        written = 0 if stamp is None or seen.unreadable else seen.change
        return self._newest(agent) > written or (not is_known and self._has_more(agent, set()))

    def sync(self, agent: str) -> None:
        """Import the file, then write it if it is behind. Raises OSError if that fails."""
        if self.import_changes(agent):
            self._write(agent)

    def _write(self, agent: str) -> None:
        path = Path(self._paths.index(agent))
        newest = self._newest(agent)
        found = self._db.execute(
            f"SELECT key, json, {SKILLS_COLUMN} FROM sessions"  # noqa: S608 - our names
            " WHERE team = ? AND user = ? AND agent = ? AND NOT deleted AND change <= ?"
            " ORDER BY place",
            (*_SCOPE, agent, newest),
        )
        _replace(path, _written(found))
        stamp = stat_stamp(path)
        self._seen[agent] = _SyncedState(stamp, newest)
        self._remember(agent, stamp, newest)

    def _has_more(self, agent: str, listed: set[str]) -> bool:
        """Return whether we have sessions that a file does not list."""
        found = select(
            self._db,
            "SELECT key FROM sessions WHERE team = ? AND user = ? AND agent = ? AND NOT deleted",
            (*_SCOPE, agent),
        )
        return any(key not in listed for (key,) in found)

    def _newest(self, agent: str) -> int:
        found = select(
            self._db,
            "SELECT max(change) FROM sessions WHERE team = ? AND user = ? AND agent = ?",
            (*_SCOPE, agent),
        )
        return found[0][0] or 0

    def _stored(self, agent: str) -> _SyncedState:
        found = select(
            self._db,
            "SELECT file_size, file_mtime_ns, file_inode, change FROM indexes"
            " WHERE team = ? AND user = ? AND agent = ?",
            (*_SCOPE, self._paths.index_key(agent)),
        )
        if not found:
            return _SyncedState(None, 0, is_known=False)
        size, mtime_ns, inode, change = found[0]
        return _SyncedState(None if size is None else FileStamp(size, mtime_ns, inode), change)

    def _remember(self, agent: str, stamp: FileStamp | None, change: int) -> None:
        values = (stamp.size, stamp.mtime_ns, stamp.inode) if stamp else (None, None, None)

        key = self._paths.index_key(agent)

        def note(db: apsw.Connection) -> None:
            # What another file has is no longer known: sessions change without it.
            db.execute(
                "DELETE FROM indexes WHERE team = ? AND user = ? AND agent <> ?"
                " AND (agent = ? OR agent GLOB ? || '@*')",
                (*_SCOPE, key, agent, agent),
            )
            db.execute(
                "INSERT OR REPLACE INTO indexes VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*_SCOPE, key, *values, change),
            )
            db.execute(
                "DELETE FROM sessions"
                " WHERE team = ? AND user = ? AND agent = ? AND change <= ? AND deleted",
                (*_SCOPE, agent, change),
            )

        self._writer.run_deferred(f"index {agent}", note)


def _level(changes: int) -> int:
    return logging.INFO if changes else logging.DEBUG


def merge_rows(agent: str, taken: list[SessionRow], written: int) -> Job[int]:
    """Return a job that merges a file's sessions into ours and returns how many changed."""

    def merge(db: apsw.Connection) -> int:
        found = select(
            db,
            f"SELECT key, updated_ms, change, deleted, json, {SKILLS_COLUMN} FROM sessions"  # noqa: S608 - our names
            " WHERE team = ? AND user = ? AND agent = ?",
            (*_SCOPE, agent),
        )
        ours = {key: tuple(rest) for key, *rest in found}
        changes = 0
        for row in taken:
            if _takes(row, ours.pop(row.key, None), written):
                sqlite_sql.write_session(db, OWNER, row, max(written, 0))
                changes += 1
        for key, (_, change, deleted, *_) in ours.items():
            if change <= written and not deleted:  # the file had it, and another program removed it
                db.execute(
                    "DELETE FROM sessions WHERE team = ? AND user = ? AND key = ?", (*_SCOPE, key)
                )
                sqlite_sql.write_skills(db, OWNER, key, "")
                changes += 1
        return changes

    return merge


def import_file(path: Path, agent: str, db: apsw.Connection) -> None:
    """Import a `sessions.json` into a database that is being repaired. Raises OSError."""
    entries = _read(path, agent)
    if entries:
        merge_rows(agent, [session_row(key, agent, entry) for key, entry in entries.items()], 0)(db)


def _takes(
    theirs: SessionRow, ours: tuple[int, int, int, str, str | None] | None, written: int
) -> bool:
    if ours is None:
        return True
    updated_ms, change, deleted, text, skills = ours
    if theirs.updated_ms != updated_ms:
        return theirs.updated_ms > updated_ms
    is_same = text == theirs.json and (skills or "") == theirs.skills
    return change <= written and not deleted and not is_same


def session_row(key: str, agent: str, entry: Mapping[str, Json]) -> SessionRow:
    """Return the row of an entry."""
    session_id = entry.get("sessionId")
    rest, skills = split_entry(entry)
    return SessionRow(
        key,
        agent,
        session_id if isinstance(session_id, str) and is_session_id(session_id) else "",
        parse_ms(entry.get("updatedAt")),
        dump_json(rest, pretty=True),
        encode_skills(skills),
    )


def _read(path: Path, agent: str) -> dict[str, dict[str, Json]] | None:
    """Return the sessions of a file by key; copy an unreadable file and return None."""
    data = path.read_bytes()
    value = parse_index(data.decode("utf-8", "replace"))
    if isinstance(value, list):
        _keep_copy(path, data, "bak")
        value = convert_array(value, agent)
    if not isinstance(value, dict):
        if data.strip(b"\0 \r\n\t"):
            copy = _keep_copy(path, data, "corrupt")
            log.warning("%s is not readable; it was copied to %s", path, copy.name)
        return None
    odd = {key: entry for key, entry in value.items() if not isinstance(entry, dict)}
    if odd:
        copy = _keep_copy(path, data, "corrupt")
        log.warning("%s: %d entries are no sessions; copy in %s", path, len(odd), copy.name)
    return {key: entry for key, entry in value.items() if isinstance(entry, dict)}


def parse_index(text: str) -> Json:
    """Return the value of a `sessions.json`: a map or an array; None if it cannot be read."""
    try:
        return load_json(text)
    except ValueError:
        try:
            return json5_document.to_plain(json5_document.parse_json5(text))
        except ConfigError:
            return None


def convert_array(items: list[Json], agent: str) -> dict[str, Json]:
    """Convert an index that is an array of `{id, name, created_at, updated_at}`."""
    sessions: dict[str, Json] = {}
    for item in items:
        if not isinstance(item, dict) or not is_session_id(item.get("id")):
            continue
        name = item.get("name")
        sessions[f"agent:{agent}:{item['id'].lower()}"] = {
            "sessionId": item["id"],
            "updatedAt": parse_ms(item.get("updated_at")) or parse_ms(item.get("created_at")),
            **({"displayName": name} if isinstance(name, str) and name else {}),
        }
    return sessions


def _keep_copy(path: Path, data: bytes, kind: str) -> Path:
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace(":", "-")
    copy = path.with_name(f"{path.name}.{kind}.{at.replace('+00-00', 'Z')}")
    with os.fdopen(os.open(copy, _CREATE, 0o600), "wb") as file:
        file.write(data)
    return copy


def _written(found: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
    """Yield the file's text row by row, so that thousands of sessions are never in memory at once.

    A row's text is already indented; one level more puts it inside the map. No string in JSON
    holds a bare line break, so this is safe.
    """
    before = "{"
    for key, text, skills in found:
        indented = join_text(text, skills).replace("\n", "\n  ")
        yield f"{before}\n  {dump_json(key)}: {indented}".encode()
        before = ","
    yield b"{}\n" if before == "{" else b"\n}\n"


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    """Replace the file atomically."""
    make_private_dir(path.parent)
    made = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(made, _CREATE, 0o600), "wb") as file:
            file.writelines(pieces)
        made.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            made.unlink()
        raise
