"""The SQL statements that change state.sqlite. Each runs on the writer thread, in a transaction."""

from collections.abc import Sequence

import apsw

from homarus.core.errors import ConflictError, NotFoundError
from homarus.core.fast_dataclass import dataclass
from homarus.core.principal import Principal
from homarus.store.base import SKILLS_FIELD, TranscriptEntry
from homarus.store.query import select
from homarus.store.sqlite_usage import add_imported_usage


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session record with its JSON text, and that of its list of skills, which is stored apart.

    `skills` is "" for none, and None for the list that is stored.
    """

    key: str
    agent: str
    session_id: str
    updated_ms: int
    json: str
    skills: str | None = ""


def next_change(db: apsw.Connection) -> int:
    """Return the number of the next change of any session."""
    rows = select(db, "UPDATE meta SET value = value + 1 WHERE key = 'change' RETURNING value")
    return int(rows[0][0])


def put_session(
    db: apsw.Connection, principal: Principal, row: SessionRow, if_version: int | None
) -> None:
    """Write a record. Raises ConflictError when its version is not `if_version`."""
    if if_version is not None:
        found = select(
            db,
            "SELECT version FROM sessions WHERE team = ? AND user = ? AND key = ? AND NOT deleted",
            (principal.team, principal.user, row.key),
        )
        version = found[0][0] if found else 0
        if version != if_version:
            raise ConflictError(
                f"session {row.key} is at version {version}, not {if_version}",
                fix="load it again, then repeat the change",
            )
    write_session(db, principal, row, next_change(db))


def write_session(db: apsw.Connection, principal: Principal, row: SessionRow, change: int) -> None:
    """Write a record as change number `change`."""
    if row.skills is not None:
        write_skills(db, principal, row.key, row.skills)
    db.execute(
        "INSERT INTO sessions (team, user, key, agent, session_id, updated_ms, version, change,"
        " json) VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?) ON CONFLICT (team, user, key) DO UPDATE SET"
        " agent = excluded.agent, session_id = excluded.session_id, deleted = 0,"
        " updated_ms = excluded.updated_ms, json = excluded.json, change = excluded.change,"
        # A new record under the key of a deleted one starts again at version 1.
        " version = CASE WHEN deleted THEN 1 ELSE version + 1 END",
        (
            principal.team, principal.user, row.key, row.agent, row.session_id,
            row.updated_ms, change, row.json,
        ),
    )  # fmt: skip


def has_skills(db: apsw.Connection, principal: Principal, key: str) -> bool:
    """Return whether the list of skills of a session is stored apart from its row."""
    found = select(
        db,
        "SELECT 1 FROM records WHERE team = ? AND user = ? AND kind = ? AND id = ?",
        (principal.team, principal.user, SKILLS_FIELD, key),
    )
    return bool(found)


def write_skills(db: apsw.Connection, principal: Principal, key: str, text: str) -> None:
    """Store the list of skills of a session; remove it for ""."""
    if text:
        put_record(db, principal, SKILLS_FIELD, key, text)
    else:
        delete_record(db, principal, SKILLS_FIELD, key)


def delete_session(db: apsw.Connection, principal: Principal, key: str) -> set[str]:
    """Mark a session as deleted and return its agent.

    The row goes with its `sessions.json` entry.
    """
    write_skills(db, principal, key, "")
    found = db.execute(
        "UPDATE sessions SET deleted = 1, change = ? WHERE team = ? AND user = ? AND key = ?"
        " RETURNING agent",
        (next_change(db), principal.team, principal.user, key),
    )
    return {agent for (agent,) in found}


def touch_sessions(db: apsw.Connection, principal: Principal, session_id: str) -> None:
    """Raise the version of sessions whose transcript changed outside, so that caches reload."""
    db.execute(
        "UPDATE sessions SET version = version + 1 WHERE team = ? AND user = ? AND session_id = ?",
        (principal.team, principal.user, session_id),
    )


def open_transcript(
    db: apsw.Connection, principal: Principal, session_id: str, agent: str, header: str
) -> None:
    """Create a transcript, unless there is one."""
    db.execute(
        "INSERT INTO transcripts (team, user, session_id, agent, header) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (principal.team, principal.user, session_id, agent, header),
    )


def append(
    db: apsw.Connection,
    principal: Principal,
    session_id: str,
    entries: Sequence[tuple[TranscriptEntry, str]],
) -> None:
    """Append entries, each with its line; the last becomes the leaf."""
    seq = _last_seq(db, principal, session_id)
    _insert(db, principal, session_id, seq, entries)
    db.execute(
        "UPDATE transcripts SET leaf = ?, last_seq = ?"
        " WHERE team = ? AND user = ? AND session_id = ?",
        (entries[-1][0].id, seq + len(entries), principal.team, principal.user, session_id),
    )


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import. The file has every entry of ours up to `floor`, by its last line."""

    changes: int
    floor: int


def import_entries(
    db: apsw.Connection,
    principal: Principal,
    session_id: str,
    found: Sequence[tuple[TranscriptEntry, str]],
    file_seq: int,
) -> ImportResult:
    """Import what a file holds: new entries are added, changed ones replaced.

    Entries of ours that are missing at the end of the file will follow the imported ones there,
    so the leaf stays ours while there are any. New answers are counted: no call of ours made them.
    """
    scope = (principal.team, principal.user, session_id)
    rows = select(
        db,
        "SELECT id, json, seq FROM entries WHERE team = ? AND user = ? AND session_id = ?",
        scope,
    )
    known = {id_: (json, seq) for id_, json, seq in rows}
    held = {entry.id for entry, _ in found if entry.id in known}
    floor = max((seq for id_ in held if (seq := known[id_][1]) <= file_seq), default=0)
    lacking = any(seq > floor and id_ not in held for id_, (_, seq) in known.items())
    new = [(entry, text) for entry, text in found if entry.id not in held]
    changed = [
        (entry.parent, entry.type, entry.at_ms, text, *scope, entry.id)
        for entry, text in found
        if entry.id in held and known[entry.id][0] != text
    ]
    if changed:
        db.executemany(
            "UPDATE entries SET parent = ?, type = ?, at_ms = ?, json = ?"
            " WHERE team = ? AND user = ? AND session_id = ? AND id = ?",
            changed,
        )
    if new:
        seq = _last_seq(db, principal, session_id)
        _insert(db, principal, session_id, seq, new)
        add_imported_usage(db, principal, session_id, [entry for entry, _ in new])
        db.execute(
            "UPDATE transcripts SET leaf = coalesce(?, leaf), last_seq = ?"
            " WHERE team = ? AND user = ? AND session_id = ?",
            (None if lacking else new[-1][0].id, seq + len(new), *scope),
        )
    if new or changed:
        touch_sessions(db, principal, session_id)
    return ImportResult(len(new) + len(changed), floor)


def set_leaf(
    db: apsw.Connection, principal: Principal, session_id: str, entry_id: str | None
) -> None:
    """Make the next entry follow this one; None is the root."""
    scope = (principal.team, principal.user, session_id)
    _last_seq(db, principal, session_id)
    if entry_id is not None:
        known = select(
            db,
            "SELECT 1 FROM entries WHERE team = ? AND user = ? AND session_id = ? AND id = ?",
            (*scope, entry_id),
        )
        if not known:
            raise NotFoundError(f"session {session_id} has no entry {entry_id}")
    db.execute(
        "UPDATE transcripts SET leaf = ? WHERE team = ? AND user = ? AND session_id = ?",
        (entry_id, *scope),
    )


def archive(db: apsw.Connection, principal: Principal, session_id: str, suffix: str) -> None:
    """Record that its file will be renamed to `<file>.<suffix>`."""
    db.execute(
        "UPDATE transcripts SET moved_to = ?"
        " WHERE team = ? AND user = ? AND session_id = ? AND moved_to IS NULL",
        (suffix, principal.team, principal.user, session_id),
    )


def put_record(
    db: apsw.Connection, principal: Principal, kind: str, record_id: str, json: str
) -> None:
    """Write a small record."""
    db.execute(
        "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)",
        (principal.team, principal.user, kind, record_id, json),
    )


def delete_record(db: apsw.Connection, principal: Principal, kind: str, record_id: str) -> None:
    """Delete a small record."""
    db.execute(
        "DELETE FROM records WHERE team = ? AND user = ? AND kind = ? AND id = ?",
        (principal.team, principal.user, kind, record_id),
    )


def _last_seq(db: apsw.Connection, principal: Principal, session_id: str) -> int:
    rows = select(
        db,
        "SELECT last_seq FROM transcripts WHERE team = ? AND user = ? AND session_id = ?",
        (principal.team, principal.user, session_id),
    )
    if not rows:
        raise NotFoundError(f"there is no transcript {session_id}", fix="open it first")
    return int(rows[0][0])


def _insert(
    db: apsw.Connection,
    principal: Principal,
    session_id: str,
    seq: int,
    entries: Sequence[tuple[TranscriptEntry, str]],
) -> None:
    try:
        db.executemany(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    principal.team, principal.user, session_id, number,
                    entry.id, entry.parent, entry.type, entry.at_ms, text,
                )
                for number, (entry, text) in enumerate(entries, seq + 1)
            ],
        )  # fmt: skip
    except apsw.ConstraintError as exc:
        raise ConflictError(
            f"session {session_id} already has an entry with one of these ids"
        ) from exc
