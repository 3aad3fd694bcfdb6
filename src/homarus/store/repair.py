"""Rebuild a damaged state.sqlite: keep every row that can be read, take the rest from the files.

The damaged file is never written. Its readable rows are copied to a new database, range by range
around what cannot be read. A conversation that lost a row is rebuilt from its transcript file,
which has every entry but those of the last moment; entries that only the database has follow.
Sessions are taken from `sessions.json`. Then the new database replaces the damaged one, which
is kept next to it.
"""

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import apsw

from homarus.core.atomic_file import sync_folder
from homarus.core.fast_dataclass import dataclass
from homarus.core.principal import OWNER
from homarus.core.private_files import create_private, open_private
from homarus.store import sessions_file
from homarus.store.approvals import APPROVAL_STATES
from homarus.store.base import TranscriptHeader
from homarus.store.damage import (
    DAMAGE,
    INBOX_STATES,
    MAX_EPOCH,
    OUTBOX_STATES,
    RowCheck,
    expected_schema,
    make_tables,
    read_schema,
)
from homarus.store.query import select
from homarus.store.state_paths import REPAIRED, StatePaths, is_session_id
from homarus.store.transcript_codec import encode_header, load_json
from homarus.store.transcript_scan import scan_transcript

log = logging.getLogger(__name__)

DAMAGED: Final = "state.sqlite.damaged-"
_ROWID_TABLES: Final = (
    "sessions", "transcripts", "entries", "accepted", "parcels", "spent", "approvals", "slots",
    "traces", "chat_records",
)  # fmt: skip
_KEYED_TABLES: Final = (
    "records",
    "calls",
    "audit",
    "spent_days",
)  # `indexes` only says what the files have
# Without an index that lists the rows, their ids are tried until so many in a row are not there.
_MAX_GUESSES: Final = 2_000
_MAX_GUESSED_ID: Final = 1 << 40
_SIDE_FILES: Final = ("-wal", "-shm")
# In the header of page 1: page size, format versions, number of pages.
_PAGE_SIZE, _FORMATS, _PAGES = slice(16, 18), slice(18, 20), slice(28, 32)
_INTERIOR: Final = 0x05  # the kind of a page that lists others
_WAL_MODE: Final = b"\2\2"


@dataclass(slots=True)
class RepairReport:
    """What a repair found: unreadable rows by table, and the conversations that were rebuilt."""

    reason: str
    kept: Path  # the damaged file
    lost: dict[str, int] = field(default_factory=dict)
    rebuilt: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = ", ".join(f"{count} of {table}" for table, count in self.lost.items() if count)
        lost = f"unreadable: {rows}; " if rows else ""
        return (
            f"state.sqlite was damaged ({self.reason}) and was repaired: {lost}"
            f"{len(self.rebuilt)} conversations rebuilt from their files;"
            f" the damaged file is kept as {self.kept.name}"
        )


def repair_offline(paths: StatePaths, reason: str) -> RepairReport:
    """Replace a database that no connection has open. Raises OSError or StoreError."""
    report = _rebuild(paths, reason, paths.state / REPAIRED)
    finish_repair(paths, report.kept)
    log.error("%s", report)
    return report


def repair_open(paths: StatePaths, reason: str, db: apsw.Connection) -> RepairReport:
    """Replace the contents of a database through the only connection that writes it.

    Other connections stay open and see the change like that of any transaction.
    """
    repaired = paths.state / f"{REPAIRED}.tmp"
    report = _rebuild(paths, reason, repaired, keep_copy=True)
    source = apsw.Connection(str(repaired))
    try:
        with db.backup("main", source, "main") as backup:
            backup.step()
    finally:
        source.close()
        _remove(repaired)
    log.error("%s", report)
    return report


def finish_repair(paths: StatePaths, kept: Path | None = None) -> None:
    """Put a complete repaired database in place, also after a crash in the middle of it.

    The log goes first: it must never be applied to the repaired database.
    """
    repaired = paths.state / REPAIRED
    if not repaired.exists():
        return
    kept = kept or _kept_path(paths)
    for suffix in ("-wal", ""):
        source = Path(f"{paths.database}{suffix}")
        if source.exists():
            source.rename(f"{kept}{suffix}")
    Path(f"{paths.database}-shm").unlink(missing_ok=True)
    repaired.rename(paths.database)
    sync_folder(paths.state)


def _kept_path(paths: StatePaths) -> Path:
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return paths.state / f"{DAMAGED}{at}"


def _remove(path: Path) -> None:
    for suffix in ("", *_SIDE_FILES):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reading, open_private(target, "wb") as writing:
        shutil.copyfileobj(reading, writing)


def _rebuild(
    paths: StatePaths, reason: str, target: Path, *, keep_copy: bool = False
) -> RepairReport:
    """Write the repaired database to `target`, which appears when it is complete."""
    report = RepairReport(reason, _kept_path(paths))
    making = paths.state / f"{REPAIRED}.new"
    _remove(making)
    with tempfile.TemporaryDirectory(prefix=".repair-", dir=paths.state) as folder:
        source = Path(folder, "state.sqlite")
        for suffix in ("", "-wal"):
            damaged = Path(f"{paths.database}{suffix}")
            if damaged.exists():
                _copy(damaged, Path(f"{source}{suffix}"))
                if keep_copy:
                    _copy(damaged, Path(f"{report.kept}{suffix}"))
        create_private(making)
        new = apsw.Connection(str(making))
        try:
            make_tables(new)
            with new:
                meta = _salvage(source, new, report)
                _rebuild_conversations(paths, new, report)
                _import_sessions(paths, new)
                _repair_numbers(new, meta)
            select(new, "PRAGMA journal_mode = DELETE")
        finally:
            new.close()
    descriptor = os.open(making, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    making.rename(target)
    sync_folder(paths.state)
    return report


# Salvage


def _salvage(source: Path, new: apsw.Connection, report: RepairReport) -> dict[str, Any]:
    """Copy what can be read, and return the counters of the damaged database."""
    if not source.exists():
        return {}
    for prepare in (None, _replace_schema_pages):
        if prepare and not prepare(source):
            break
        db = apsw.Connection(str(source))
        try:
            if read_schema(db) != expected_schema():
                continue
            for table in (*_ROWID_TABLES, *_KEYED_TABLES):
                _copy_table(db, new, table, report)
            return dict(row for row in _rows_by_key(db, "meta", RowCheck(new, "meta")) if row)
        except (*DAMAGE, apsw.Error) as exc:
            log.debug("%s cannot be read: %s", source, exc)
        finally:
            db.close()
        new.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)  # rows of the audit log are guarded
        for table in (*_ROWID_TABLES, *_KEYED_TABLES):
            new.execute(f"DELETE FROM {table}")  # noqa: S608 - our names
    return {}


def _replace_schema_pages(source: Path) -> bool:
    """Rewrite the pages of the schema as a new database has them.

    All tables are made before the first row, so they start at the same pages in every database.
    """
    template_path = source.with_name("template.sqlite")
    template_db = apsw.Connection(str(template_path))
    try:
        make_tables(template_db)
    finally:
        template_db.close()
    template, data = template_path.read_bytes(), bytearray(source.read_bytes())
    size = int.from_bytes(template[_PAGE_SIZE], "big")
    if len(data) < len(template):
        return False
    pages = [1, *_schema_children(template[:size])]
    for page in pages:
        start = (page - 1) * size
        data[start : start + size] = template[start : start + size]
    data[_FORMATS] = _WAL_MODE  # else its log would not be read
    data[_PAGES] = (len(data) // size).to_bytes(4, "big")
    with open_private(source, "wb") as file:
        file.write(data)
    Path(f"{source}-shm").unlink(missing_ok=True)
    return True


def _schema_children(page: bytes) -> list[int]:
    """Return the pages below page 1, which is the root of the schema."""
    if page[100] != _INTERIOR:
        return []
    count = int.from_bytes(page[103:105], "big")
    cells = [int.from_bytes(page[112 + 2 * n : 114 + 2 * n], "big") for n in range(count)]
    starts = [*cells, 108]  # each cell begins with its page; the last page is in the header
    return [int.from_bytes(page[start : start + 4], "big") for start in starts]


def _copy_table(
    db: apsw.Connection, new: apsw.Connection, table: str, report: RepairReport
) -> None:
    check = RowCheck(new, table)
    marks = ", ".join("?" * len(check.columns))
    insert = f"INSERT OR IGNORE INTO {table} ({check.listed}) VALUES ({marks})"  # noqa: S608 - our names
    read = _rows_by_id if table in _ROWID_TABLES else _rows_by_key
    lost = 0
    for row in read(db, table, check):
        if row is not None and check.is_sound(row):
            new.execute(insert, row)
        else:
            lost += 1
    report.lost[table] = lost


def _rows_by_id(
    db: apsw.Connection, table: str, check: RowCheck
) -> Iterator[tuple[Any, ...] | None]:
    """Yield the rows in order, None for each that cannot be read.

    After the first such place the rows are read one by one, as an index lists them.
    """
    sql = f"SELECT rowid, {check.listed} FROM {table} NOT INDEXED WHERE rowid"  # noqa: S608 - our names
    after = -1
    try:
        for row_id, *row in db.execute(f"{sql} >= 0 ORDER BY rowid"):
            if row_id <= after:
                raise apsw.CorruptError("rows out of order")
            after = row_id
            yield tuple(row)
    except DAMAGE:
        pass
    else:
        return
    row_ids = _row_ids(db, table, after)
    missing = 0
    for row_id in range(after + 1, _MAX_GUESSED_ID) if row_ids is None else row_ids:
        try:
            rows = select(db, f"{sql} = ?", (row_id,))
        except DAMAGE:
            rows = []
        missing = 0 if rows else missing + 1
        if rows or row_ids is not None:
            yield tuple(rows[0][1:]) if rows else None
        elif missing > _MAX_GUESSES:
            yield None  # nothing says how many
            return


def _row_ids(db: apsw.Connection, table: str, after: int) -> list[int] | None:
    """Return the ids of the rows after one, by the first index that can be read; else None."""
    for (index,) in select(
        db,
        f"SELECT name FROM pragma_index_list('{table}') WHERE NOT partial",  # noqa: S608 - our names
    ):
        with suppress(*DAMAGE):
            found = select(db, f"SELECT rowid FROM {table} INDEXED BY {index}")  # noqa: S608 - our names
            return sorted(row_id for (row_id,) in found if row_id > after)
    return None


def _rows_by_key(
    db: apsw.Connection, table: str, check: RowCheck
) -> Iterator[tuple[Any, ...] | None]:
    """Yield the readable rows of a table without rowids, from both of its ends."""
    keys = select(db, f"SELECT name FROM pragma_table_info('{table}') WHERE pk ORDER BY pk")  # noqa: S608 - our names
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{name} {direction}" for (name,) in keys)
        try:
            yield from db.execute(f"SELECT {check.listed} FROM {table} ORDER BY {order}")  # noqa: S608 - our names
        except DAMAGE:
            yield None
        else:
            return


# Conversations


@dataclass(slots=True)
class _Line:
    """One entry: its columns and its text."""

    id: str
    parent: str | None
    type: str
    at_ms: int
    text: str


def _rebuild_conversations(paths: StatePaths, new: apsw.Connection, report: RepairReport) -> None:
    found = select(
        new,
        "SELECT team, user, session_id FROM transcripts UNION"
        " SELECT team, user, session_id FROM entries",
    )
    for team, user, session_id in found:
        if _is_whole(new, (team, user, session_id)):
            continue
        is_mirrored = (team, user) == (OWNER.team, OWNER.user) and is_session_id(session_id)
        _rebuild_conversation(paths if is_mirrored else None, new, (team, user, session_id))
        report.rebuilt.append(session_id)
    # The files are compared with the database again, at their next use.
    new.execute(
        "UPDATE transcripts SET file_size = NULL, file_mtime_ns = NULL, file_inode = NULL,"
        " file_offset = 0, file_tail = NULL, file_seq = 0"
        " WHERE moved_to IS NULL OR coalesce(file, '') NOT LIKE '%' || moved_to"
    )


def _is_whole(db: apsw.Connection, scope: tuple[str, str, str]) -> bool:
    """Return whether a conversation has all its entries, and their tree holds together."""
    head = select(
        db,
        "SELECT last_seq, leaf FROM transcripts WHERE team = ? AND user = ? AND session_id = ?",
        scope,
    )
    rows = select(
        db,
        "SELECT seq, id, parent FROM entries WHERE team = ? AND user = ? AND session_id = ?"
        " ORDER BY seq",
        scope,
    )
    if not head or [seq for seq, _, _ in rows] != list(range(1, head[0][0] + 1)):
        return False
    ids = {id_ for _, id_, _ in rows}
    return all(parent is None or parent in ids for _, _, parent in rows) and (
        head[0][1] is None or head[0][1] in ids
    )


def _rebuild_conversation(
    paths: StatePaths | None, new: apsw.Connection, scope: tuple[str, str, str]
) -> None:
    head = select(
        new,
        "SELECT agent, header, leaf, file, moved_to FROM transcripts"
        " WHERE team = ? AND user = ? AND session_id = ?",
        scope,
    )
    session = select(
        new,
        "SELECT agent, json FROM sessions WHERE team = ? AND user = ? AND session_id = ? LIMIT 1",
        scope,
    )
    agent = head[0][0] if head else session[0][0] if session else "main"
    header, leaf, name, moved_to = head[0][1:] if head else ("", None, None, None)
    lines: dict[str, _Line] = {}
    if paths:
        named = load_json(session[0][1]).get("sessionFile") if session else None
        path = paths.state / name if name else Path(paths.transcript(agent, scope[2], named))
        if moved_to and not path.exists():  # archived, and its row does not know yet
            path = path.with_name(f"{path.name}.{moved_to}")
        header = _read_lines(path, lines) or header
    for id_, parent, kind, at_ms, text in select(
        new,
        "SELECT id, parent, type, at_ms, json FROM entries"
        " WHERE team = ? AND user = ? AND session_id = ? ORDER BY seq",
        scope,
    ):
        lines.setdefault(id_, _Line(id_, parent, kind, at_ms, text))
    header = header or encode_header(TranscriptHeader(scope[2], agent, 0))
    _write_conversation(new, scope, (agent, header, leaf, name, moved_to), list(lines.values()))


def _read_lines(path: Path, lines: dict[str, _Line]) -> str:
    """Read a transcript file and return its header; "" when there is none."""
    try:
        with path.open("rb") as file:
            scan = scan_transcript(file)
    except OSError:
        return ""
    for one in scan.found:
        entry = one.entry
        lines[entry.id] = _Line(entry.id, entry.parent, entry.type, entry.at_ms, one.text)
    return scan.header


def _write_conversation(
    new: apsw.Connection,
    scope: tuple[str, str, str],
    head: tuple[str, str, str | None, str | None, str | None],
    lines: list[_Line],
) -> None:
    for table in ("entries", "transcripts"):
        new.execute(
            f"DELETE FROM {table} WHERE team = ? AND user = ? AND session_id = ?",  # noqa: S608 - our names
            scope,
        )
    known: set[str] = set()
    last: str | None = None
    for seq, line in enumerate(lines, 1):
        # A parent that was lost is replaced by the entry before it, as in a file.
        parent = line.parent if line.parent is None or line.parent in known else last
        new.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*scope, seq, line.id, parent, line.type, line.at_ms, line.text),
        )
        known.add(line.id)
        last = line.id
    agent, header, leaf, name, moved_to = head
    new.execute(
        "INSERT INTO transcripts (team, user, session_id, agent, header, leaf, last_seq, file,"
        " moved_to) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*scope, agent, header, leaf if leaf in known else last, len(lines), name, moved_to),
    )


def _import_sessions(paths: StatePaths, new: apsw.Connection) -> None:
    for agent in paths.agents():
        try:
            sessions_file.import_file(Path(paths.index(agent)), agent, new)
        except OSError as exc:
            log.warning("the sessions of agent %s cannot be read: %s", agent, exc)
    # Cached conversations are loaded again.
    new.execute("UPDATE sessions SET version = version + 1")


def _repair_numbers(new: apsw.Connection, meta: Mapping[str, Any]) -> None:
    """Make the counters larger than every number that was made with them."""
    for table, states, fallback in (
        ("accepted", INBOX_STATES, "parked"),
        ("parcels", OUTBOX_STATES, "unknown"),
    ):
        new.execute(
            f"UPDATE {table} SET state = ?, why = 'its row was damaged' WHERE state NOT IN"  # noqa: S608 - our names
            " (SELECT value FROM json_each(?))",
            (fallback, json.dumps(sorted(states))),
        )
    new.execute(  # what a damaged approval allowed is not known
        "UPDATE approvals SET state = 'cancelled' WHERE state NOT IN"
        " (SELECT value FROM json_each(?))",
        (json.dumps(APPROVAL_STATES),),
    )
    tokens = select(new, "SELECT token >> 32 FROM accepted UNION SELECT token >> 32 FROM parcels")
    epochs = [meta.get("epoch"), *(epoch for (epoch,) in tokens)]
    epoch = max((one for one in epochs if isinstance(one, int) and 0 <= one < MAX_EPOCH), default=0)
    for table in ("accepted", "parcels"):
        new.execute(f"UPDATE {table} SET token = 0 WHERE token >> 32 > ?", (epoch,))  # noqa: S608 - our names
    newest = select(new, "SELECT max(change) FROM sessions")[0][0] or 0
    change = meta.get("change")
    change = max(newest, change) if isinstance(change, int) else newest
    new.execute("DELETE FROM meta WHERE key IN ('change', 'epoch', 'clock')")
    new.execute("INSERT INTO meta VALUES ('change', ?), ('epoch', ?)", (change, epoch))
    for key, value in meta.items():
        if key.startswith("audit:"):  # so that lost rows of the audit log stay missing
            new.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
