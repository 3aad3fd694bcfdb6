"""The index of an agent's notes: `memory/<agentId>.sqlite`, derived from files, never their record.

    with open_index(path) as index:
        report = index.sync(find_notes(workspace))

A note is read again only when its file changed (size, time, then SHA-256). All changes of one
`sync` are one transaction: a search sees the old generation until the new one is whole. A damaged
database is put away and made anew; the files it came from are never written.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import apsw

from homarus.core.errors import Corrupt, StoreError
from homarus.core.value import dataclass
from homarus.memory.chunk import CHUNK_OVERLAP, CHUNK_TOKENS, Piece, cut_chunks, cut_lines
from homarus.memory.compatible import hash_text
from homarus.memory.embed.base import Embedder
from homarus.memory.flags import HEADING, flags_of
from homarus.memory.moment import day_in
from homarus.memory.schema import META_KEY, TABLES, VERSION
from homarus.memory.source import Content, Note, Skipped, read_note
from homarus.memory.vectors import embedded_text, pack, text_key
from homarus.memory.words import stemmer, stop_stems
from homarus.store.failure import Translated
from homarus.store.query import select

GAP: Final = 16  # between two notes, wider than any window of the ranking
KEYWORDS_ONLY: Final = "fts-only"
_RECENT_NS = 2_000_000_000  # a file written this shortly before a look may change within its time
_EMBED_BATCH = 64
_BUSY_MS = 30_000


@dataclass(frozen=True, slots=True)
class Report:
    """What a sync did. `rebuilt` says why everything was made anew, when it was."""

    indexed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    skipped: tuple[Skipped, ...] = ()
    inexact: tuple[str, ...] = ()
    lines: int = 0
    embedded: int = 0
    generation: int = 0
    rebuilt: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much an index holds."""

    files: int
    lines: int
    chunks: int
    vectors: int
    generation: int


@dataclass(frozen=True, slots=True)
class _Change:
    note: Note
    content: Content
    looked_ns: int


@dataclass(frozen=True, slots=True)
class _Lines:
    """A note, ready to be put: rows of `lines`, stems for `postings`, who speaks how often."""

    rows: list[tuple[Any, ...]]
    postings: list[tuple[int, str]]
    speakers: Counter[str]

    def told_speakers(self) -> str:
        return json.dumps(self.speakers)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the index knows of a note without reading it."""

    note: int
    hash: str
    size: int
    mtime_ns: int
    looked_ns: int
    owner: str
    audience: str


def open_index(path: Path, embedder: Embedder | None = None) -> "Index":
    """Open the index, or make it. One that cannot be read is made anew, and says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return Index(path, embedder)
    except Corrupt as exc:
        _put_away(path)
        return Index(path, embedder, rebuilt=f"the index was damaged ({exc.message})")


def _put_away(path: Path) -> None:
    """Forget a damaged database. It held nothing that its files do not."""
    for name in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        name.unlink(missing_ok=True)


class Index:
    """One open index, used by one thread at a time; any number of processes may have it open."""

    def __init__(self, path: Path, embedder: Embedder | None = None, *, rebuilt: str = "") -> None:
        self.path = path
        self.embedder = embedder
        self._rebuilt = rebuilt
        with Translated(path):
            self.db = _connect(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.db.close()

    @property
    def generation(self) -> int:
        """Larger after every change, of this process or another."""
        return int(_meta(self.db, "generation") or 0)

    def count(self) -> Counts:
        """How much there is."""
        with Translated(self.path):
            tables = ("notes", "lines", "chunks", "line_vectors")
            asked = ", ".join(f"(SELECT count(*) FROM {name})" for name in tables)  # noqa: S608 - names above
            ((files, lines, chunks, vectors),) = select(self.db, f"SELECT {asked}")
            return Counts(files, lines, chunks, vectors, self.generation)

    def sync(self, found: Iterable[Note | Skipped], *, force: bool = False) -> Report:
        """Bring the index to what the files say now; `force` reads every file again."""
        try:
            return self._sync(found, force=force)
        except Corrupt as exc:
            why = f"the index was damaged ({exc.message})"
        self.db.close()
        _put_away(self.path)
        with Translated(self.path):
            self.db = _connect(self.path)
        self._rebuilt = why
        return self._sync(found, force=True)

    def _sync(self, found: Iterable[Note | Skipped], *, force: bool) -> Report:
        found = list(found)
        with Translated(self.path):
            stale = _meta(self.db, META_KEY) != self._shape()
            known = {} if force or stale else self._known()
            changes, skipped = _Changes(known), [one for one in found if isinstance(one, Skipped)]
            embedded = self._embed_ahead(changes, found)
            with _written(self.db):
                writer = _Writer(self.db, self.embedder)
                gone = self._begin(found, stale=stale or force)
                for one in changes.of(found):
                    if isinstance(one, Skipped):
                        skipped.append(one)
                        gone += writer.drop(one.path)
                    else:
                        writer.put(one)
                if changes.touched:
                    writer.touch(changes.touched)
                generation = writer.finish(self._shape(), changed=bool(gone))
        report = Report(
            indexed=tuple(writer.put_paths),
            removed=tuple(gone),
            unchanged=changes.unchanged,
            skipped=tuple(skipped),
            inexact=tuple(writer.inexact),
            lines=writer.lines,
            embedded=embedded,
            generation=generation,
            rebuilt=self._rebuilt,
        )
        self._rebuilt = ""
        return report

    def _shape(self) -> str:
        """What makes two indexes comparable; another shape means a new generation of everything."""
        model = self.embedder.model if self.embedder else None
        shape: dict[str, Any] = {
            "model": model.name if model else KEYWORDS_ONLY,
            "provider": model.provider if model else "none",
            "providerKey": model.key if model else "",
            "chunkTokens": CHUNK_TOKENS,
            "chunkOverlap": CHUNK_OVERLAP,
            "homarus": VERSION,
        }
        if model:
            shape["vectorDims"] = model.dims
        return json.dumps(shape, separators=(",", ":"))

    def _known(self) -> dict[str, _Known]:
        rows = select(
            self.db,
            "SELECT path, note, hash, size, mtime_ns, looked_ns, owner, audience"
            " FROM notes JOIN files USING (path)",
        )
        return {str(path): _Known(*rest) for path, *rest in rows}

    def _begin(self, found: Sequence[Note | Skipped], *, stale: bool) -> list[str]:
        """Forget what is not there any more, or everything; the paths that are gone."""
        here = {one.path for one in found if isinstance(one, Note)}
        before = [str(path) for (path,) in select(self.db, "SELECT path FROM notes")]
        gone = [path for path in before if path not in here]
        if stale:
            _clear(self.db)
        else:
            for path in gone:
                _forget(self.db, path)
        return gone

    def _embed_ahead(self, changes: "_Changes", found: Sequence[Note | Skipped]) -> int:
        """Embed what is new before anything is locked: it may take minutes."""
        if self.embedder is None:
            return 0
        made = 0
        wanted: dict[bytes, str] = {}
        for change in changes.of(found):
            if isinstance(change, Skipped):
                continue
            for piece in cut_lines(change.content.text):
                if not piece.is_heading:
                    wanted.setdefault(text_key(piece.text), embedded_text(piece.text))
            if len(wanted) >= _EMBED_BATCH:
                made += self._embed(wanted)
                wanted.clear()
        return made + self._embed(wanted)

    def _embed(self, wanted: dict[bytes, str]) -> int:
        if not wanted or self.embedder is None:
            return 0
        model = self.embedder.model.id
        held = {key for key in wanted if _vector(self.db, model, key) is not None}
        keys = [key for key in wanted if key not in held]
        for at in range(0, len(keys), _EMBED_BATCH):
            some = keys[at : at + _EMBED_BATCH]
            made = self.embedder.embed([wanted[key] for key in some])
            if len(made) != len(some):
                raise StoreError(f"{model} gave {len(made)} vectors for {len(some)} texts")
            rows = [(model, key, pack(vector)) for key, vector in zip(some, made, strict=True)]
            with _written(self.db):
                self.db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
        return len(keys)


class _Changes:
    """Which notes changed: by their size and time, or by their hash when those say nothing."""

    def __init__(self, known: dict[str, _Known]) -> None:
        self._known = known
        self.unchanged = 0
        self.touched: list[tuple[int, int, str]] = []

    def of(self, found: Sequence[Note | Skipped]) -> Iterator[_Change | Skipped]:
        self.unchanged = 0
        self.touched = []
        for note in found:
            if isinstance(note, Skipped):
                continue
            known = self._known.get(note.path)
            if known and _is_same(note, known):
                self.unchanged += 1
                continue
            looked_ns = time.time_ns()
            content = read_note(note)
            if isinstance(content, Skipped):
                yield content
            elif known and content.hash == known.hash and _is_seen_alike(note, known):
                self.unchanged += 1
                self.touched.append((content.mtime_ns, looked_ns, note.path))
            else:
                yield _Change(note, content, looked_ns)


def _is_same(note: Note, known: _Known) -> bool:
    try:
        status = note.file.lstat()
    except OSError:
        return False
    if (status.st_mtime_ns, status.st_size) != (known.mtime_ns, known.size):
        return False
    return known.looked_ns - known.mtime_ns > _RECENT_NS and _is_seen_alike(note, known)


def _is_seen_alike(note: Note, known: _Known) -> bool:
    return (note.owner, note.audience) == (known.owner, known.audience)


class _Writer:
    """Puts notes into the tables, inside one transaction."""

    def __init__(self, db: apsw.Connection, embedder: Embedder | None) -> None:
        self._db = db
        self._model = embedder.model if embedder else None
        self._next = 0
        self._chunk = 0
        self._stem, self._stop = stemmer(), stop_stems()
        self.put_paths: list[str] = []
        self.inexact: list[str] = []
        self.lines = 0

    def drop(self, path: str) -> list[str]:
        """Forget a note that was there and cannot be read now."""
        return [path] if _forget(self._db, path) else []

    def put(self, change: _Change) -> None:
        note, content = change.note, change.content
        if self._has(note, content):  # another process was here first
            return
        _forget(self._db, note.path)
        first = self._place()
        lines = self._cut(first, content.text)
        last = first + len(lines.rows) - 1
        self._next = last + 1 + GAP
        self._db.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?)",
            (note.path, note.source, content.hash, content.mtime_ns // 1_000_000, content.size),
        )
        found = self._db.execute(
            "INSERT INTO notes (path, source, owner, audience, day, first, last, mtime_ns,"
            " looked_ns, speakers) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING note",
            (
                *(note.path, note.source, note.owner, note.audience, day_in(note.path)),
                *(first, last, content.mtime_ns, change.looked_ns, lines.told_speakers()),
            ),
        ).fetchall()
        self._put_lines(int(str(found[0][0])), lines)
        self._put_chunks(note, content.text)
        self.put_paths.append(note.path)
        if not content.is_exact:
            self.inexact.append(note.path)
        self.lines += len(lines.rows)

    def _has(self, note: Note, content: Content) -> bool:
        rows = select(
            self._db,
            "SELECT 1 FROM files JOIN notes USING (path)"
            " WHERE path = ? AND hash = ? AND owner = ? AND audience = ?",
            (note.path, content.hash, note.owner, note.audience),
        )
        return bool(rows)

    def _place(self) -> int:
        if not self._next:
            rows = select(self._db, "SELECT COALESCE(MAX(last), 0) FROM notes")
            self._next = int(rows[0][0]) + 1 + GAP
        return self._next

    def _cut(self, first: int, text: str) -> "_Lines":
        rows: list[tuple[Any, ...]] = []
        postings: list[tuple[int, str]] = []
        speakers: Counter[str] = Counter()
        headings: dict[int, int] = {}
        for at, piece in enumerate(cut_lines(text), first):
            stems = self._stem(piece.text)
            section = _section(headings, piece, at)
            flags = flags_of(piece, stems)
            rows.append((at, piece.line, piece.start, piece.speaker, flags, section, piece.text))
            said = {*stems} - self._stop
            if said:
                postings.append((at, " ".join(said)))
            if piece.speaker:
                speakers[piece.speaker] += 1
        return _Lines(rows, postings, speakers)

    def _put_lines(self, note: int, lines: "_Lines") -> None:
        names = "id, line, start, speaker, flags, section, text, note"
        self._db.executemany(
            f"INSERT INTO lines ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, {int(note)})",  # noqa: S608 - names above
            lines.rows,
        )
        self._db.executemany("INSERT INTO postings (rowid, stems) VALUES (?, ?)", lines.postings)
        if self._model:
            self._put_vectors(lines.rows)

    def _put_vectors(self, rows: Iterable[tuple[Any, ...]]) -> None:
        assert self._model  # noqa: S101 - the caller looked
        model = self._model.id
        found = (
            (row[0], _vector(self._db, model, text_key(row[6])))
            for row in rows
            if not row[4] & HEADING
        )
        held = [(at, vector) for at, vector in found if vector is not None]
        self._db.executemany("INSERT INTO line_vectors VALUES (?, ?)", held)

    def _put_chunks(self, note: Note, text: str) -> None:
        model = self._model.name if self._model else KEYWORDS_ONLY
        now_ms = time.time_ns() // 1_000_000
        made: dict[str, tuple[Any, ...]] = {}
        for chunk in cut_chunks(text):
            if not chunk.text.strip():
                continue
            hashed = hash_text(chunk.text)
            lines = (chunk.start_line, chunk.end_line)
            place = (note.source, note.path, *lines, hashed, model)
            known_by = hash_text(":".join(map(str, place)))  # of a long line, two may be alike
            row = (note.path, note.source, *lines, hashed, model, chunk.text, "[]", now_ms)
            made[known_by] = (known_by, *row)
        rows = list(made.values())
        at = self._next_chunk(len(rows))
        names = "id, path, source, start_line, end_line, hash, model, text, embedding, updated_at"
        self._db.executemany(
            f"INSERT INTO chunks (rowid, {names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - names above
            [(at + number, *row) for number, row in enumerate(rows)],
        )
        names = "text, id, path, source, model, start_line, end_line"
        self._db.executemany(
            f"INSERT INTO chunks_fts (rowid, {names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - names above
            [
                (at + number, row[7], row[0], row[1], row[2], row[6], row[3], row[4])
                for number, row in enumerate(rows)
            ],
        )

    def _next_chunk(self, number: int) -> int:
        """Room for so many chunks: a chunk and its words have one row number."""
        if not self._chunk:
            rows = select(self._db, "SELECT COALESCE(MAX(rowid), 0) FROM chunks")
            self._chunk = int(rows[0][0]) + 1
        self._chunk += number
        return self._chunk - number

    def touch(self, seen: Iterable[tuple[int, int, str]]) -> None:
        """Files whose time changed and whose bytes did not."""
        self._db.executemany(
            "UPDATE notes SET mtime_ns = ?, looked_ns = ? WHERE path = ?", list(seen)
        )

    def finish(self, shape: str, *, changed: bool) -> int:
        """The number of this generation."""
        generation = int(_meta(self._db, "generation") or 0)
        if self.put_paths or changed or _meta(self._db, META_KEY) != shape:
            generation += 1
            rows = [(META_KEY, shape), ("generation", str(generation))]
            self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
        return generation


def _section(headings: dict[int, int], piece: Piece, at: int) -> int:
    """The line of the heading a line is under, 0 at the top; keeps `headings` by their depth."""
    if not piece.is_heading:
        return headings[max(headings)] if headings else 0
    text = piece.text.lstrip()
    depth = len(text) - len(text.lstrip("#"))
    for deeper in [known for known in headings if known >= depth]:
        del headings[deeper]
    above = headings[max(headings)] if headings else 0
    headings[depth] = at
    return above


def _connect(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    try:
        path.chmod(0o600)
        db.set_busy_timeout(_BUSY_MS)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -16000"):
            select(db, f"PRAGMA {pragma}")
        _make_tables(db)
    except BaseException:
        db.close()
        raise
    return db


def _make_tables(db: apsw.Connection) -> None:
    """Make the tables; those of another version of ours, or of the original, are made anew."""
    names = {str(name) for (name,) in select(db, "SELECT name FROM sqlite_schema")}
    if "notes" in names and _meta(db, "version") == str(VERSION):
        return
    with _written(db):
        names = {str(name) for (name,) in select(db, "SELECT name FROM sqlite_schema")}
        if "notes" in names and _meta(db, "version") == str(VERSION):
            return
        for kind in ("chunks_vec", "chunks_fts", "postings"):
            db.execute(f"DROP TABLE IF EXISTS {kind}")
        kept = "name NOT LIKE 'sqlite_%'"
        for (name,) in select(db, f"SELECT name FROM sqlite_schema WHERE type='table' AND {kept}"):  # noqa: S608 - a constant
            db.execute(f'DROP TABLE IF EXISTS "{name}"')
        db.execute(TABLES)
        db.execute("INSERT INTO meta VALUES ('version', ?)", (str(VERSION),))


@contextmanager
def _written(db: apsw.Connection) -> Iterator[None]:
    """One transaction, taken at its beginning: two writers wait for each other and never fail."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _meta(db: apsw.Connection, key: str) -> str | None:
    rows = select(db, "SELECT value FROM meta WHERE key = ?", (key,))
    return str(rows[0][0]) if rows else None


def _vector(db: apsw.Connection, model: str, key: bytes) -> bytes | None:
    rows = select(db, "SELECT vector FROM vectors WHERE model = ? AND hash = ?", (model, key))
    return rows[0][0] if rows else None


def _clear(db: apsw.Connection) -> None:
    for table in ("files", "chunks", "chunks_fts", "notes", "lines", "line_vectors"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - names above
    db.execute("INSERT INTO postings (postings) VALUES ('delete-all')")


def _forget(db: apsw.Connection, path: str) -> bool:
    rows = select(db, "SELECT first, last FROM notes WHERE path = ?", (path,))
    for first, last in rows:
        for table, column in (("lines", "id"), ("line_vectors", "id"), ("postings", "rowid")):
            db.execute(
                f"DELETE FROM {table} WHERE {column} BETWEEN ? AND ?",  # noqa: S608 - names above
                (first, last),
            )
    if rows:
        held = "SELECT rowid FROM chunks WHERE path = ?"
        db.execute(f"DELETE FROM chunks_fts WHERE rowid IN ({held})", (path,))  # noqa: S608 - ours
        for table in ("chunks", "files", "notes"):
            db.execute(f"DELETE FROM {table} WHERE path = ?", (path,))  # noqa: S608 - names above
    return bool(rows)
