"""Transcript files next to the database: written in the background, imported when others wrote.

One thread does all of this. A file is only ever appended to; when its stamp differs from the one
we left, it is read again and its new entries enter the database. Entries of ours that are not in
the file yet are appended after that.
"""

import contextlib
import hashlib
import logging
import os
import stat
from collections.abc import Collection
from pathlib import Path

import apsw

from homarus.core.fast_dataclass import dataclass
from homarus.core.principal import OWNER
from homarus.store import sqlite_sql
from homarus.store.base import TranscriptHeader
from homarus.store.database_writer import DatabaseWriter
from homarus.store.query import select
from homarus.store.state_paths import (
    FileStamp,
    StatePaths,
    is_session_id,
    make_private_dir,
    stat_stamp,
)
from homarus.store.transcript_codec import encode_header, load_json
from homarus.store.transcript_scan import TranscriptScan, scan_transcript

log = logging.getLogger(__name__)

_TAIL_BYTES = 4096
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_REMEMBERED_BYTES = 64 << 20
_ATTEMPTS = 3
_KEPT_VIEWS = 256  # what is known of other files is in the database


@dataclass(frozen=True, slots=True)
class Repair:
    """A file that held unreadable lines, which were copied to `<file>.corrupt`."""

    path: Path
    bad: int
    kept: int


@dataclass(slots=True)
class FileView:
    """The known state of one transcript's file."""

    session_id: str
    agent: str
    path: Path
    header: str = ""
    moved_to: str | None = None
    stamp: FileStamp | None = None
    offset: int = 0
    tail: bytes = b""
    seq: int = 0
    stored: bool = False  # the database has this transcript

    @property
    def archived(self) -> bool:
        return self.moved_to is not None and self.path.name.endswith(self.moved_to)


@dataclass(frozen=True, slots=True)
class _Pending:
    seq: int
    id: str
    text: str


class TranscriptFiles:
    """The transcripts of the owner's agents, as files."""

    def __init__(self, paths: StatePaths, db: apsw.Connection, writer: DatabaseWriter) -> None:
        self._paths, self._db, self._writer = paths, db, writer
        self._views: dict[str, FileView] = {}
        self.repairs: list[Repair] = []

    def changed(self, session_id: str) -> bool:
        """Return whether `sync` may have something to import. Cheap, and safe on any thread."""
        view = self._views.get(session_id)
        if view is None:
            return True
        return not view.archived and stat_stamp(view.path) != view.stamp

    def forget(self) -> None:
        """Drop what is known of files: the database was replaced."""
        self._views.clear()

    def close(self) -> None:
        """Close what is open for reading."""

    def check(self, session_id: str) -> None:
        """Raise StoreError for a transcript that must not be continued: it could not be read."""

    def unwritten(self) -> list[str]:
        """Return the transcripts whose file is behind the database."""
        found = select(
            self._db,
            "SELECT session_id FROM transcripts WHERE team = ? AND user = ? AND"
            " CASE WHEN moved_to IS NULL THEN last_seq > file_seq"
            " ELSE coalesce(file, '') NOT LIKE '%' || moved_to END",
            (OWNER.team, OWNER.user),
        )
        return [session_id for (session_id,) in found]

    def sync(self, session_id: str) -> None:
        """Make the database and the file agree: import, then write. Raises OSError on failure."""
        view = self._views.get(session_id) or self._view(session_id)
        if view is None or view.archived:
            return
        for _ in range(_ATTEMPTS):
            if self._pass(view):
                break
        self._put_aside(view)
        self._remember(view)
        self._keep(view)

    def _keep(self, view: FileView) -> None:
        self._views.pop(view.session_id, None)
        self._views[view.session_id] = view  # the newest last
        while len(self._views) > _KEPT_VIEWS:
            del self._views[next(iter(self._views))]

    def _pass(self, view: FileView) -> bool:
        """Try once; return False when another program wrote between our read and our write."""
        stamp = stat_stamp(view.path)
        if stamp is None:  # no file, or it is gone: all of it is written
            view.stamp, view.offset, view.tail, view.seq = None, 0, b"", 0
        pending = self._pending(view)
        if stamp == view.stamp:
            return _extend(view, pending)
        rest = _rest_of_ours(view, _blob(view, pending))
        if rest is not None:
            view.stamp = stamp
            if not _append(view, rest, new_line=False):
                return False
            view.seq = pending[-1].seq if pending else view.seq
            return True
        held = self._take_in(view)
        return _extend(view, self._pending(view), held)

    def _view(self, session_id: str) -> FileView | None:
        found = select(
            self._db,
            "SELECT agent, header, moved_to, file, file_size, file_mtime_ns, file_inode,"
            " file_offset, file_tail, file_seq FROM transcripts"
            " WHERE team = ? AND user = ? AND session_id = ?",
            (OWNER.team, OWNER.user, session_id),
        )
        if not found:
            place = self._place(session_id)
            return FileView(session_id, *place) if place and stat_stamp(place[1]) else None
        agent, header, moved_to, file, size, mtime_ns, inode, offset, tail, seq = found[0]
        if file is None:
            place = self._place(session_id)
            path = place[1] if place else Path(self._paths.transcript(agent, session_id))
        else:
            path = self._paths.state / file
        stamp = None if size is None else FileStamp(size, mtime_ns, inode)
        return FileView(
            session_id, agent, path, header, moved_to, stamp, offset, tail or b"", seq, stored=True
        )

    def _place(self, session_id: str) -> tuple[str, Path] | None:
        """Return the agent and the file that a session of this id names."""
        found = select(
            self._db,
            "SELECT agent, json FROM sessions"
            " WHERE team = ? AND user = ? AND session_id = ? AND NOT deleted LIMIT 1",
            (OWNER.team, OWNER.user, session_id),
        )
        if not found or not is_session_id(session_id):
            return None
        agent, text = found[0]
        named = load_json(text).get("sessionFile")
        return agent, Path(self._paths.transcript(agent, session_id, named))

    def _pending(self, view: FileView) -> list[_Pending]:
        if not view.stored:
            return []
        found = select(
            self._db,
            "SELECT seq, id, json FROM entries"
            " WHERE team = ? AND user = ? AND session_id = ? AND seq > ? ORDER BY seq",
            (OWNER.team, OWNER.user, view.session_id, view.seq),
        )
        return [_Pending(*row) for row in found]

    def _take_in(self, view: FileView) -> Collection[str]:
        """Import the file and return the ids it holds."""
        with os.fdopen(os.open(view.path, _READ), "rb") as file:
            stamp = _stamp(os.fstat(file.fileno()))
            read = scan_transcript(file)
            tail = _digest(file.fileno(), read.end)
        header = read.header or view.header or _made_header(view, read, stamp)
        entries = [(found.entry, found.text) for found in read.found]

        def enter(db: apsw.Connection) -> sqlite_sql.ImportResult:
            sqlite_sql.open_transcript(db, OWNER, view.session_id, view.agent, header)
            return sqlite_sql.import_entries(db, OWNER, view.session_id, entries, view.seq)

        taken = self._writer.submit(enter).result()
        self._quarantine(view.path, read)
        view.header, view.stored = header, True
        view.stamp, view.offset, view.tail, view.seq = stamp, read.end, tail, taken.floor
        if taken.changes:
            log.info("took %d entries from %s", taken.changes, view.path)
        return {entry.id for entry, _ in entries}

    def _quarantine(self, path: Path, read: TranscriptScan) -> None:
        if not read.bad:
            return
        aside = path.with_name(path.name + ".corrupt")
        before = _known_lines(aside)
        fresh = [line for line in dict.fromkeys(read.bad) if line not in before]
        if not fresh:
            return
        fd = os.open(aside, _APPEND, 0o600)
        with os.fdopen(fd, "ab") as file:
            file.write(b"".join(line + b"\n" for line in fresh))
        repair = Repair(path, len(fresh), len(read.found))
        self.repairs.append(repair)
        log.warning(
            "%s: %d unreadable line(s) copied to %s; %d entries kept",
            path, repair.bad, aside.name, repair.kept,
        )  # fmt: skip

    def _put_aside(self, view: FileView) -> None:
        found = select(
            self._db,
            "SELECT moved_to FROM transcripts WHERE team = ? AND user = ? AND session_id = ?",
            (OWNER.team, OWNER.user, view.session_id),
        )
        if not found or found[0][0] is None:
            return
        view.moved_to = found[0][0]
        target = view.path.with_name(f"{view.path.name}.{view.moved_to}")
        with contextlib.suppress(FileNotFoundError):
            view.path.rename(target)
        view.path = target

    def _remember(self, view: FileView) -> None:
        if not view.stored:
            return
        size, mtime_ns, inode = (
            (view.stamp.size, view.stamp.mtime_ns, view.stamp.inode)
            if view.stamp
            else (None, None, None)
        )
        file = self._paths.stored_path(view.path)
        values = (file, size, mtime_ns, inode, view.offset, view.tail, view.seq)
        scope = (OWNER.team, OWNER.user, view.session_id)
        self._writer.run_deferred(
            f"transcript {view.session_id}",
            lambda db: db.execute(
                "UPDATE transcripts SET file = ?, file_size = ?, file_mtime_ns = ?,"
                " file_inode = ?, file_offset = ?, file_tail = ?, file_seq = ?"
                " WHERE team = ? AND user = ? AND session_id = ?",
                (*values, *scope),
            ),
        )


def _blob(view: FileView, pending: list[_Pending], held: Collection[str] = ()) -> bytes:
    """Return the lines to write: those of `pending` that the file does not hold."""
    lines = [row.text for row in pending if row.id not in held]
    if lines and view.offset == 0:
        lines.insert(0, view.header)
    return "".join(line + "\n" for line in lines).encode()


def _extend(view: FileView, pending: list[_Pending], held: Collection[str] = ()) -> bool:
    blob = _blob(view, pending, held)
    if blob and not _append(view, blob, new_line=True):
        return False
    view.seq = pending[-1].seq if pending else view.seq
    return True


def _rest_of_ours(view: FileView, blob: bytes) -> bytes | None:
    """Return what is left to write when only a beginning of it is beyond the known offset.

    This happens after a crash, or a write that the disk cut short.
    """
    if not view.stored:
        return None
    fd = os.open(view.path, _READ)
    try:
        size = os.fstat(fd).st_size
        if not view.offset <= size <= view.offset + len(blob):
            return None
        if view.tail and _digest(fd, view.offset) != view.tail:
            return None
        extra = os.pread(fd, size - view.offset, view.offset) if size > view.offset else b""
        # A file of the known length with another stamp was edited in place.
        same = blob.startswith(extra) and (extra or view.stamp is None)
        return blob[len(extra) :] if same else None
    finally:
        os.close(fd)


def _append(view: FileView, blob: bytes, *, new_line: bool) -> bool:
    """Append to the file and record its stamp; return False when the file has changed.

    With `new_line`, a torn last line is ended first, so that nothing merges with it.
    """
    try:
        fd = os.open(view.path, _APPEND, 0o600)
    except FileNotFoundError:
        make_private_dir(view.path.parent)
        fd = os.open(view.path, _APPEND, 0o600)
    try:
        before = os.fstat(fd).st_size
        if before != (view.stamp.size if view.stamp else 0):
            return False
        if new_line and before and os.pread(fd, 1, before - 1) != b"\n":
            blob = b"\n" + blob
        _write(fd, blob, before)
        after = os.fstat(fd)
        if after.st_size != before + len(
            blob
        ):  # another program wrote at the same time: check again
            return False
        view.stamp, view.offset = _stamp(after), after.st_size
        view.tail = _digest(fd, after.st_size)
    finally:
        os.close(fd)
    return True


def _write(fd: int, blob: bytes, before: int) -> None:
    written = 0
    try:
        while written < len(blob):
            written += os.write(fd, blob[written:] if written else blob)
    except OSError:  # leave no half line behind, unless another program wrote after it
        with contextlib.suppress(OSError):
            if os.fstat(fd).st_size == before + written:
                os.ftruncate(fd, before)
        raise


def _digest(fd: int, end: int) -> bytes:
    start = max(0, end - _TAIL_BYTES)
    return hashlib.blake2b(os.pread(fd, end - start, start), digest_size=16).digest()


def _stamp(found: os.stat_result) -> FileStamp:
    if not stat.S_ISREG(found.st_mode):
        raise OSError("not a regular file")
    return FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)


def _known_lines(path: Path) -> set[bytes]:
    try:
        with os.fdopen(os.open(path, _READ), "rb") as file:
            return set(file.read(_MAX_REMEMBERED_BYTES).split(b"\n"))
    except FileNotFoundError:
        return set()


def _made_header(view: FileView, read: TranscriptScan, stamp: FileStamp) -> str:
    first = read.found[0].entry.at_ms if read.found else 0
    return encode_header(
        TranscriptHeader(view.session_id, view.agent, first or stamp.mtime_ns // 1_000_000)
    )
