"""Write notes into the tables of an index, inside one transaction.

Rows are buffered and written by the thousand: a statement for each note costs more than its words,
and one that SQLite may have to roll back (`RETURNING`, several rows at once) makes FTS5 flush every
time.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import apsw

from homarus.memory import schema
from homarus.memory.changes import ChangedNote, TouchedFile
from homarus.memory.chunking import (
    DEFAULT_CHUNK_SIZE,
    ChunkSize,
    LinePiece,
    cut_chunks,
    cut_lines,
)
from homarus.memory.flags import HEADING, flags_of
from homarus.memory.hybrid_scoring import hash_text
from homarus.memory.note_files import NoteFile
from homarus.memory.stems import stemmer, stop_stems
from homarus.memory.time_expressions import day_in
from homarus.memory.vector_cache import VectorCache
from homarus.store.query import select

WORDS_ONLY: Final = "fts-only"  # OpenClaw's name for chunks without a vector, as ours are
GAP: Final = 16  # line ids between two notes, more than any window of the ranking
_ENOUGH_ROWS = 4_000

_INSERTS = {
    "files": "INSERT INTO files VALUES (?, ?, ?, ?, ?)",
    "notes": "INSERT INTO notes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "lines": "INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "postings": "INSERT INTO postings (rowid, stems) VALUES (?, ?)",
    "line_vectors": "INSERT INTO line_vectors VALUES (?, ?, ?)",
    "chunks": (
        "INSERT INTO chunks (rowid, id, path, source, start_line, end_line, hash, model, text,"
        " embedding, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '[]', ?)"
    ),
    "chunks_fts": "INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)",
}


class IndexWriter:
    """Writes notes into the tables; `is_empty` says that there are no rows to replace."""

    def __init__(
        self,
        db: apsw.Connection,
        model: int,
        cache: VectorCache | None,
        *,
        is_empty: bool,
        chunk_size: ChunkSize = DEFAULT_CHUNK_SIZE,
    ) -> None:
        self._db, self._model, self._cache = db, model, cache
        self._chunk_size = chunk_size
        self._is_empty = is_empty
        self._stem, self._stop = stemmer(), stop_stems()
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _INSERTS}
        self._note = self._after("note", "notes")
        self._line = self._after("last", "notes") + GAP
        self._chunk = self._after("rowid", "chunks")
        self._now_ms = time.time_ns() // 1_000_000
        self.put_paths: list[str] = []
        self.inexact: list[str] = []
        self.lines = 0

    def _after(self, column: str, table: str) -> int:
        rows = select(self._db, f"SELECT COALESCE(MAX({column}), 0) + 1 FROM {table}")  # noqa: S608 - names of ours
        return int(rows[0][0])

    def add_note(self, change: ChangedNote) -> bool:
        """Add or replace a note; false if another process has already done so."""
        note, content = change.note, change.content
        if not self._is_empty:
            if self._has(change):
                return False
            self.remove_note(note.path)
        first = self._line
        speakers = self._put_lines(content.text)
        last = self._line - 1
        self._line += GAP
        self._put_chunks(note, content.text)
        self._rows["files"].append(
            (note.path, note.source, content.hash, content.mtime_ns // 1_000_000, content.size)
        )
        self._rows["notes"].append(
            (
                *(self._note, note.path, note.source, note.owner, note.audience),
                *(note.day or day_in(note.path), first, last, content.mtime_ns, content.ctime_ns),
                *(change.checked_ns, json.dumps(speakers)),
            )
        )
        self._note += 1
        self.lines += last + 1 - first
        self.put_paths.append(note.path)
        if not content.is_exact:
            self.inexact.append(note.path)
        if len(self._rows["lines"]) + len(self._rows["notes"]) >= _ENOUGH_ROWS:
            self.flush()
        return True

    def remove_note(self, path: str) -> bool:
        """Remove a note; return whether it was there."""
        rows = select(self._db, "SELECT first, last FROM notes WHERE path = ?", (path,))
        for first, last in rows:
            for table, column in (("lines", "id"), ("line_vectors", "id"), ("postings", "rowid")):
                self._db.execute(
                    f"DELETE FROM {table} WHERE {column} BETWEEN ? AND ?",  # noqa: S608 - names above
                    (first, last),
                )
        if rows:
            held = select(self._db, "SELECT rowid FROM chunks WHERE path = ?", (path,))
            # Before the chunks: the old words are read from there.
            self._db.executemany("DELETE FROM chunks_fts WHERE rowid = ?", held)
            for table in ("chunks", "files", "notes"):
                self._db.execute(f"DELETE FROM {table} WHERE path = ?", (path,))  # noqa: S608 - names above
        return bool(rows)

    def update_times(self, seen: Sequence[TouchedFile]) -> None:
        self._db.executemany(
            "UPDATE notes SET mtime_ns = ?, ctime_ns = ?, looked_ns = ? WHERE path = ?",
            [(one.mtime_ns, one.ctime_ns, one.checked_ns, one.path) for one in seen],
        )

    def add_vectors(self, lines: Sequence[tuple[int, str]]) -> int:
        """Add vectors for lines of the index that have none."""
        before = len(self._rows["line_vectors"])
        for at, text in lines:
            self._put_vector(at, text)
        return len(self._rows["line_vectors"]) - before

    def finish(self, shape: str, *, changed: bool) -> int:
        """Write the remaining rows; return the number of this generation."""
        self.flush()
        generation = int(schema.read_meta(self._db, "generation") or 0)
        if self.put_paths or changed or schema.read_meta(self._db, schema.META_KEY) != shape:
            generation += 1
            rows = [(schema.META_KEY, shape), ("generation", str(generation))]
            self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
        return generation

    def _has(self, change: ChangedNote) -> bool:
        note = change.note
        rows = select(
            self._db,
            "SELECT 1 FROM files JOIN notes USING (path)"
            " WHERE path = ? AND hash = ? AND owner = ? AND audience = ?",
            (note.path, change.content.hash, note.owner, note.audience),
        )
        return bool(rows)

    def _put_lines(self, text: str) -> Counter[str]:
        """Buffer the rows of `lines` and `postings`, and count the lines of each speaker."""
        speakers: Counter[str] = Counter()
        headings: dict[int, int] = {}
        lines, postings = self._rows["lines"], self._rows["postings"]
        stem, stop, note = self._stem, self._stop, self._note
        at = self._line
        for piece in cut_lines(text):
            said, speaker = piece.text, piece.speaker
            stems = stem(said)
            flags = flags_of(piece, stems)
            section = _section(headings, piece, at)
            lines.append((at, note, piece.line, piece.start, speaker, flags, section, said))
            if words := {*stems} - stop:
                postings.append((at, " ".join(words)))
            if speaker:
                speakers[speaker] += 1
            if self._cache and not piece.is_heading:
                self._put_vector(at, said)
            at += 1
            if len(lines) >= _ENOUGH_ROWS:
                self.flush()
        self._line = at
        return speakers

    def _put_vector(self, at: int, text: str) -> None:
        vector = self._cache.get(text) if self._cache else None
        if vector is not None:
            self._rows["line_vectors"].append((at, self._model, vector))

    def _put_chunks(self, note: NoteFile, text: str) -> None:
        """Buffer the chunks as OpenClaw knows them; a chunk and its words share one row id."""
        made: set[str] = set()
        for chunk in cut_chunks(text, self._chunk_size.tokens, self._chunk_size.overlap):
            if not chunk.text.strip():
                continue
            hashed = hash_text(chunk.text)
            place = (note.source, note.path, chunk.start_line, chunk.end_line, hashed, WORDS_ONLY)
            known_by = hash_text(":".join(map(str, place)))
            if known_by in made:  # two chunks of a long line may be equal
                continue
            made.add(known_by)
            named = (self._chunk, known_by, note.path, note.source)
            said = (hashed, WORDS_ONLY, chunk.text, self._now_ms)
            self._rows["chunks"].append((*named, chunk.start_line, chunk.end_line, *said))
            self._rows["chunks_fts"].append((self._chunk, chunk.text))
            self._chunk += 1
            if len(self._rows["chunks"]) >= _ENOUGH_ROWS:
                self.flush()

    def flush(self) -> None:
        """Write the buffered rows to the index."""
        for name, rows in self._rows.items():
            if rows:
                self._db.executemany(_INSERTS[name], rows)
                rows.clear()


def _section(headings: dict[int, int], piece: LinePiece, at: int) -> int:
    """Return the line of the heading above a line, 0 at the top; updates `headings` by level."""
    if not piece.is_heading:
        return headings[max(headings)] if headings else 0
    text = piece.text.lstrip()
    depth = len(text) - len(text.lstrip("#"))
    for deeper in [known for known in headings if known >= depth]:
        del headings[deeper]
    above = headings[max(headings)] if headings else 0
    headings[depth] = at
    return above


def lines_without_vector(db: apsw.Connection, model: int) -> list[tuple[int, str]]:
    """Return the lines with words that have no vector of a model."""
    return [
        (int(at), str(text))
        for at, text in select(
            db,
            "SELECT id, text FROM lines WHERE NOT flags & ?"
            " AND id NOT IN (SELECT id FROM line_vectors WHERE model = ?)",
            (HEADING, model),
        )
    ]
