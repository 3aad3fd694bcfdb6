"""Find damage in state.sqlite: by SQLite's own check, and by what its rows must agree on.

A flipped byte can leave a structure that SQLite accepts and a program cannot use, such as a number
of entries that is too low. `find_damage` is quick enough for every start; `find_bad_rows` reads
every row, for `homarus doctor` and for a repair.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, get_args

import apsw

from homarus.core.errors import CorruptDataError
from homarus.core.principal import OWNER
from homarus.store.journal import InboxState
from homarus.store.journal_codec import decode_extras
from homarus.store.query import select
from homarus.store.schema import MIGRATIONS, migrate
from homarus.store.state_paths import FileStamp, is_agent_id, is_session_id, stat_stamp
from homarus.store.transcript_codec import load_json, parse_ms
from homarus.store.transcript_scan import scan_transcript

CHECK_BUDGET_S: Final = 1.0  # of a start; a larger database is checked completely by `doctor`
MAX_EPOCH: Final = 1 << 30
# What reading a damaged database or decoding a damaged row raises. Not among them: an error of the
# disk, of permissions or of another process, which no repair can help.
DAMAGE: Final = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.SQLError,  # a table or column whose name was hit
    apsw.MismatchError,
    CorruptDataError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
)
INBOX_STATES: Final = frozenset(get_args(InboxState))
OUTBOX_STATES: Final = frozenset({"pending", "sending", "sent", "unknown", "dead"})
_STEPS_PER_CALL: Final = 10_000

# Each returns rows only when something does not agree.
_RULES: Final = (
    ("a transcript's number of entries", (
        "SELECT 1 FROM transcripts t WHERE typeof(last_seq) <> 'integer' OR last_seq <>"
        " (SELECT count(*) FROM entries e WHERE e.team = t.team AND e.user = t.user"
        " AND e.session_id = t.session_id) LIMIT 1"
    )),
    ("a transcript's last entry", (
        "SELECT 1 FROM transcripts t WHERE last_seq > 0 AND NOT EXISTS (SELECT 1 FROM entries e"
        " WHERE e.team = t.team AND e.user = t.user AND e.session_id = t.session_id"
        " AND e.seq = t.last_seq) LIMIT 1"
    )),
    ("a transcript's leaf", (
        "SELECT 1 FROM transcripts t WHERE leaf IS NOT NULL AND NOT EXISTS (SELECT 1 FROM entries e"
        " WHERE e.team = t.team AND e.user = t.user AND e.session_id = t.session_id"
        " AND e.id = t.leaf) LIMIT 1"
    )),
    ("an entry's parent", (
        "SELECT 1 FROM entries e WHERE parent IS NOT NULL AND NOT EXISTS (SELECT 1 FROM entries p"
        " WHERE p.team = e.team AND p.user = e.user AND p.session_id = e.session_id"
        " AND p.id = e.parent) LIMIT 1"
    )),
    ("an entry without a transcript", (
        "SELECT 1 FROM (SELECT DISTINCT team, user, session_id FROM entries) e WHERE NOT EXISTS"
        " (SELECT 1 FROM transcripts t WHERE t.team = e.team AND t.user = e.user"
        " AND t.session_id = e.session_id) LIMIT 1"
    )),
    ("how much of a transcript its file has", (
        "SELECT 1 FROM transcripts WHERE file_seq > last_seq OR file_offset < 0"
        " OR (file NOT GLOB 'agents/*/sessions/' || session_id || '*'"
        " AND file NOT GLOB '/*/' || session_id || '*') LIMIT 1"  # in a folder of `session.store`
    )),
    ("a session", (
        "SELECT 1 FROM sessions WHERE NOT json_valid(json) OR deleted NOT IN (0, 1)"
        " OR change > (SELECT value FROM meta WHERE key = 'change') LIMIT 1"
    )),
    ("what sessions.json has", (
        "SELECT 1 FROM indexes WHERE change > (SELECT value FROM meta WHERE key = 'change') LIMIT 1"
    )),
    ("the state of a message", (
        "SELECT 1 FROM accepted WHERE state NOT IN"
        " ('accepted', 'running', 'suspended', 'answered', 'silent', 'reported', 'parked') LIMIT 1"
    )),
    ("the state of a reply", (
        "SELECT 1 FROM parcels WHERE state NOT IN"
        " ('pending', 'sending', 'sent', 'unknown', 'dead') LIMIT 1"
    )),
    ("the state of an approval", (
        "SELECT 1 FROM approvals WHERE state NOT IN"
        " ('pending', 'allowed', 'denied', 'expired', 'cancelled') LIMIT 1"
    )),
    ("the number of the last start", (
        "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = 'epoch'"
        " AND typeof(value) = 'integer' AND value BETWEEN 0 AND 1 << 30)"
        " OR NOT EXISTS (SELECT 1 FROM meta WHERE key = 'change' AND typeof(value) = 'integer')"
        " OR EXISTS (SELECT 1 FROM accepted WHERE token >> 32 >"
        " (SELECT value FROM meta WHERE key = 'epoch')) OR EXISTS (SELECT 1 FROM parcels"
        " WHERE token >> 32 > (SELECT value FROM meta WHERE key = 'epoch'))"
    )),
)  # fmt: skip


class _OutOfTimeError(Exception):
    """The check took longer than its budget."""


def find_damage(db: apsw.Connection, budget_s: float | None = CHECK_BUDGET_S) -> str:
    """Return what is damaged, "" for nothing or when the budget was used up."""
    try:
        with _limited(db, budget_s):
            rows = select(db, "PRAGMA integrity_check(3)")
            if rows != [("ok",)]:
                return "; ".join(str(row[0]) for row in rows)
            schema = read_schema(db)
            if not schema:
                pages = select(db, "PRAGMA page_count")[0][0]
                return "its tables are gone" if pages > 1 else ""  # a new one has no tables yet
            version = _version(db)
            if isinstance(version, int) and version > len(MIGRATIONS):
                return ""  # of a newer program: opening it refuses it
            is_current = version == len(MIGRATIONS)
            if (schema == expected_schema()) != is_current:
                return "its tables are not those of its version"
            if not is_current:
                return ""  # opening it migrates it
            return next((f"{about} is wrong" for about, sql in _RULES if select(db, sql)), "")
    except _OutOfTimeError:
        return ""
    except DAMAGE as exc:
        return str(exc)


def _version(db: apsw.Connection) -> object:
    return select(db, "SELECT value FROM meta WHERE key = 'schema'")[0][0]


@contextmanager
def _limited(db: apsw.Connection, budget_s: float | None) -> Iterator[None]:
    if budget_s is None:
        yield
        return
    deadline_s = time.monotonic() + budget_s
    is_over = False

    def stop() -> bool:
        nonlocal is_over
        is_over = time.monotonic() > deadline_s
        return is_over

    db.set_progress_handler(stop, _STEPS_PER_CALL)
    try:
        yield
    except apsw.InterruptError as exc:
        raise _OutOfTimeError from exc
    finally:
        db.set_progress_handler(None)


def read_schema(db: apsw.Connection) -> set[tuple[Any, ...]]:
    """Return the tables and indexes of a database, and the columns of its tables."""
    return {
        *select(db, "SELECT type, name FROM sqlite_schema"),
        *select(
            db,
            'SELECT s.name, c.cid, c.name, c.type, c."notnull", c.pk'
            " FROM sqlite_schema s, pragma_table_info(s.name) c WHERE s.type = 'table'",
        ),
    }


def expected_schema() -> set[tuple[Any, ...]]:
    """Return the tables, indexes and columns that a new database has."""
    db = apsw.Connection(":memory:")
    try:
        make_tables(db)
        return read_schema(db)
    finally:
        db.close()


def make_tables(db: apsw.Connection) -> None:
    """Make the tables of the newest version in an empty database."""
    migrate(db, Path(db.filename or ":memory:"))


def has_unknown_format(path: Path) -> bool:
    """Return whether a file says that only a newer SQLite may write it."""
    with path.open("rb") as file:
        header = file.read(20)
    return len(header) == 20 and not {1, 2}.issuperset(header[18:20])


# Rows


def _check_session(row: Mapping[str, Any]) -> bool:
    data = load_json(row["json"])
    session_id = data.get("sessionId")
    return (
        is_agent_id(row["agent"])
        and row["session_id"] == (session_id if is_session_id(session_id) else "")
        and row["updated_ms"] == parse_ms(data.get("updatedAt"))
        and row["deleted"] in {0, 1}
    )


def _check_transcript(row: Mapping[str, Any]) -> bool:
    return (
        is_session_id(row["session_id"])
        and is_agent_id(row["agent"])
        and isinstance(load_json(row["header"]), dict)
        and _is_file_of(row["file"], row["session_id"])
    )


def _is_file_of(file: str | None, session_id: str) -> bool:
    """Return whether a path is that of a transcript; in a folder of `session.store` absolute."""
    if file is None:
        return True
    return f"{'' if file.startswith('/') else '/sessions'}/{session_id}" in file


def _check_entry(row: Mapping[str, Any]) -> bool:
    data = load_json(row["json"])
    same = data.get("id", row["id"]) == row["id"] and data.get("type") == row["type"]
    return bool(same) and row["seq"] > 0


def _check_record(row: Mapping[str, Any]) -> bool:
    return isinstance(load_json(row["json"]), dict | list | str | int | float | None)


def _check_parcel(row: Mapping[str, Any]) -> bool:
    decode_extras(row["extras"])
    return True


def _check_approval(row: Mapping[str, Any]) -> bool:
    return isinstance(load_json(row["request"]), dict) and isinstance(load_json(row["extra"]), dict)


_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    "sessions": _check_session,
    "transcripts": _check_transcript,
    "entries": _check_entry,
    "records": _check_record,
    "parcels": _check_parcel,
    "approvals": _check_approval,
}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "TEXT": (str,),
    "INTEGER": (int,),
    "REAL": (float, int),
    "BLOB": (bytes,),
    "": (str, int, float, bytes, type(None)),
}


class RowCheck:
    """Check the rows of one table: the types of their columns, and what they must hold."""

    def __init__(self, db: apsw.Connection, table: str) -> None:
        info = select(db, f"PRAGMA table_info({table})")
        self.table, self.columns = table, [name for _, name, *_ in info]
        self.listed = ", ".join(self.columns)
        self._types = [
            _TYPES[kind] if not_null or key else (*_TYPES[kind], type(None))
            for _, _, kind, not_null, _, key in info
        ]
        self._check = _CHECKS.get(table)

    def is_sound(self, row: tuple[Any, ...]) -> bool:
        """Return whether a row can be used as it is."""
        if not all(isinstance(value, kind) for value, kind in zip(row, self._types, strict=True)):
            return False
        try:
            return not self._check or self._check(dict(zip(self.columns, row, strict=True)))
        except (*DAMAGE, AttributeError):
            return False


def find_changed_entries(db: apsw.Connection, state: Path) -> str:
    """Compare the database with the transcript files that no other program has changed."""
    sql = (
        "SELECT session_id, file, file_size, file_mtime_ns, file_inode FROM transcripts"
        " WHERE team = ? AND user = ? AND file IS NOT NULL AND file_size IS NOT NULL"
    )
    for session_id, name, *stamp in select(db, sql, (OWNER.team, OWNER.user)):
        path = state / name
        if stat_stamp(path) != FileStamp(*stamp):
            continue
        with path.open("rb") as file:
            texts = {one.entry.id: one.text for one in scan_transcript(file).found}
        rows = select(
            db,
            "SELECT id, json FROM entries WHERE team = ? AND user = ? AND session_id = ?",
            (OWNER.team, OWNER.user, session_id),
        )
        changed = sum(texts.get(id_, text) != text for id_, text in rows)
        if changed:
            return f"{changed} entries of {name} are not as in the file"
    return ""


def find_bad_rows(db: apsw.Connection) -> str:
    """Read every row of a database that SQLite accepts, and return what cannot be used."""
    for (table,) in select(db, "SELECT name FROM sqlite_schema WHERE type = 'table'"):
        check, bad = RowCheck(db, table), 0
        try:
            for row in db.execute(f"SELECT {check.listed} FROM {table}"):  # noqa: S608 - our names
                bad += not check.is_sound(row)
        except DAMAGE as exc:
            return f"{table}: {exc}"
        if bad:
            return f"{table}: {bad} rows are unreadable"
    return ""
