"""The index of an agent's notes, `memory/<agentId>.homarus.sqlite`: derived from the files.

    with open_index(path) as index:
        report = index.sync(lambda: find_notes(workspace))

A note is read again only when its file changed (size, times, then SHA-256). All changes of one
`sync` are one transaction: a search sees the previous generation until the new one is complete. A
damaged database is replaced and rebuilt; the notes themselves are never written.
"""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import apsw

from homarus.config.sqlite_errors import TranslateErrors
from homarus.core.errors import ConflictError, CorruptDataError
from homarus.core.fast_dataclass import dataclass
from homarus.memory import schema
from homarus.memory.changes import ChangedNote, ChangeScan, TouchedFile, read_known
from homarus.memory.chunking import DEFAULT_CHUNK_SIZE, ChunkSize, cut_lines
from homarus.memory.database import BUSY_MS, Database
from homarus.memory.embed.base import Embedder, EmbeddingModel
from homarus.memory.index_writer import WORDS_ONLY, IndexWriter, lines_without_vector
from homarus.memory.note_files import NoteFile, SkippedFile
from homarus.memory.vector_cache import VectorCache
from homarus.memory.vectors import add_model, count_missing, missing_of, number_of
from homarus.store.query import select

if TYPE_CHECKING:
    from homarus.memory.base import Progress

FindNotes: TypeAlias = Callable[[], Iterable[NoteFile | SkippedFile]]


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did; `rebuilt` says why everything was indexed again, if it was.

    `unembedded` lines are found by their words only, until a later sync: `problem` says why.
    """

    indexed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    skipped: tuple[SkippedFile, ...] = ()
    inexact: tuple[str, ...] = ()
    lines: int = 0
    embedded: int = 0
    unembedded: int = 0
    problem: str = ""
    generation: int = 0
    rebuilt: str = ""


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """The number of rows in an index."""

    files: int
    lines: int
    chunks: int
    vectors: int
    generation: int


def open_index(
    path: Path,
    embedder: Embedder | None = None,
    *,
    max_cached: int | None = None,
    busy_ms: int = BUSY_MS,
    chunk_size: ChunkSize = DEFAULT_CHUNK_SIZE,
) -> "Index":
    """Open or create the index; a damaged one is replaced, and the next sync reports it.

    `max_cached` vectors outlive their notes; a sync waits `busy_ms` for another one, and makes an
    index with chunks of another size again.
    """
    return Index(Database(path, busy_ms), embedder, max_cached, chunk_size)


class Index:
    """One open index, used by one thread at a time; several processes may have it open."""

    def __init__(
        self,
        database: Database,
        embedder: Embedder | None = None,
        max_cached: int | None = None,
        chunk_size: ChunkSize = DEFAULT_CHUNK_SIZE,
    ) -> None:
        self.database, self.chunk_size = database, chunk_size
        self._max_cached = max_cached
        self.embedder = embedder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()

    def close(self) -> None:
        self.database.close()

    @property
    def generation(self) -> int:
        """Return a number that grows with every change by any process; 0 before the first sync."""
        return int(schema.read_meta(self.database.db, "generation") or 0)

    def is_made(self) -> bool:
        """Return whether there was a first sync; a damaged index is replaced, and has none."""
        try:
            with self.database.reading():
                return bool(self.generation)
        except CorruptDataError as exc:
            self.database.reopen(exc)
            return False

    def made_chunk_size(self) -> ChunkSize:
        """Return the size of the chunks that are in the index, which may be another one's."""
        try:
            shape = json.loads(schema.read_meta(self.database.db, schema.META_KEY) or "{}")
            return ChunkSize(shape["chunkTokens"], shape["chunkOverlap"])
        except (ValueError, LookupError, TypeError):
            return self.chunk_size

    def count(self) -> IndexCounts:
        """Count the rows; vectors of the embedder's model, or of any without one."""
        if not self.is_made():
            return IndexCounts(0, 0, 0, 0, 0)
        with self.database.reading() as db:
            tables = ("notes", "lines", "chunks")
            query = ", ".join(f"(SELECT count(*) FROM {name})" for name in tables)  # noqa: S608 - names above
            ((files, lines, chunks),) = select(db, f"SELECT {query}")
            return IndexCounts(files, lines, chunks, self._count_vectors(db), self.generation)

    def _count_vectors(self, db: apsw.Connection) -> int:
        model = number_of(db, self.embedder.model) if self.embedder else None
        query = "SELECT count(DISTINCT id) FROM line_vectors WHERE ?1 IS NULL OR model = ?1"
        return int(select(db, query, (model,))[0][0])

    def has_vectors(self, model: EmbeddingModel) -> bool:
        """Return whether any line has a vector of this model."""
        if not self.is_made():
            return False
        with self.database.reading() as db:
            query = "SELECT 1 FROM line_vectors WHERE model = ? LIMIT 1"
            return bool(select(db, query, (number_of(db, model),)))

    def sync(
        self,
        find: FindNotes,
        *,
        force: bool = False,
        progress: "Progress | None" = None,
    ) -> SyncReport:
        """Update the index from the files; `force` reads every file again.

        `find` lists the notes; it is called again when another process wrote meanwhile, since its
        notes may be newer than the list.
        """
        try:
            return self._sync(find, progress, force=force)
        except (
            CorruptDataError,
            ConflictError,
        ) as exc:  # after a conflict, what the other process wrote is compared again
            if isinstance(exc, CorruptDataError):
                self.database.reopen(exc)
        return self._sync(find, progress, force=force)

    def _sync(self, find: FindNotes, progress: "Progress | None", *, force: bool) -> SyncReport:
        with self.database.reading() as db:
            is_full = force or schema.read_meta(db, schema.META_KEY) != _shape(self.chunk_size)
            missing = missing_of(db, self.embedder.model) if self.embedder else 0
            plan = _SyncPlan(
                find,
                self.generation,
                is_full,
                is_vector_due=not is_full and missing != 0,
                chunk_size=self.chunk_size,
            )
            recorded = {} if is_full else read_known(db)
        cache = self._cache()
        changes = ChangeScan(recorded, list(find()))  # after the generation was read
        sync = _SyncRun(self.database, plan, changes, cache, progress)
        if sync.is_needed():
            try:
                with TranslateErrors(self.database.path):
                    sync.embed_ahead()
                    sync.write()
            finally:
                if cache:
                    cache.close()
            self.database.seal()
        with self.database.reading() as db:
            return self._report(db, sync)

    def _report(self, db: apsw.Connection, sync: "_SyncRun") -> SyncReport:
        rebuilt, self.database.rebuilt = self.database.rebuilt, ""
        writer, cache = sync.writer, sync.cache
        return SyncReport(
            indexed=tuple(writer.put_paths) if writer else (),
            removed=tuple(sync.removed),
            unchanged=sync.unchanged,
            skipped=tuple(sync.skipped),
            inexact=tuple(writer.inexact) if writer else (),
            lines=writer.lines if writer else 0,
            embedded=cache.made if cache else 0,
            unembedded=missing_of(db, self.embedder.model) or 0 if self.embedder else 0,
            problem=cache.problem if cache else "",
            generation=self.generation,
            rebuilt=rebuilt,
        )

    def _cache(self) -> VectorCache | None:
        if self.embedder is None:
            return None
        return VectorCache(self.database.path, self.embedder, self._max_cached)


def _shape(size: ChunkSize) -> str:
    """Return what makes two indexes comparable; another one means a new generation of everything.

    The embedding model is no part of it: processes with different ones share the words.
    """
    shape = {
        "model": WORDS_ONLY,
        "provider": "none",
        "providerKey": "",
        "chunkTokens": size.tokens,
        "chunkOverlap": size.overlap,
        "homarus": schema.VERSION,
    }
    return json.dumps(shape, separators=(",", ":"))


_STEP_LINES = 64  # lines without a vector for each step of the progress


@dataclass(frozen=True, slots=True)
class _SyncPlan:
    """What a sync does: a full rebuild, missing vectors, or just the changes.

    `generation` is that of the index before the notes were listed.
    """

    find: FindNotes
    generation: int
    is_full: bool
    is_vector_due: bool = False
    chunk_size: ChunkSize = DEFAULT_CHUNK_SIZE


class _SyncRun:
    """One sync: embed before the lock is taken, then write in one transaction."""

    def __init__(
        self,
        database: Database,
        plan: _SyncPlan,
        changes: ChangeScan,
        cache: VectorCache | None,
        progress: "Progress | None",
    ) -> None:
        self._database, self._plan = database, plan
        self._progress = progress
        self.cache = cache
        self.writer: IndexWriter | None = None
        self.removed: list[str] = []
        self._done = 0
        self._use(changes)
        self._all = len(changes.suspects) * (2 if cache else 1)

    def _use(self, changes: ChangeScan) -> None:
        self._changes = changes
        self.skipped = list(changes.skipped)
        self.unchanged = len(changes.notes) - len(changes.suspects)

    def is_needed(self) -> bool:
        """Return whether there is anything to do; if not, nothing is locked or written."""
        plan, changes = self._plan, self._changes
        return bool(plan.is_full or plan.is_vector_due or changes.removed or changes.suspects)

    def embed_ahead(self) -> None:
        """Embed what is new before anything is locked: it may take minutes."""
        if self.cache is None:
            return
        if self._plan.is_vector_due:
            db = self._database.db
            due = lines_without_vector(db, number_of(db, self.cache.model))
            self._all += math.ceil(len(due) / _STEP_LINES)
            for number, (_, text) in enumerate(due):
                if not number % _STEP_LINES:
                    self._step("vectors")
                self.cache.request(text)
        for note in self._changes.suspects:
            self._step(note.path)
            change = None if self.cache.problem else self._changes.read(note)
            if isinstance(change, ChangedNote):
                for piece in cut_lines(change.content.text):
                    if not piece.is_heading:
                        self.cache.request(piece.text)
        self.cache.embed_requested()

    def _step(self, what: str) -> None:
        if self._progress:
            self._progress(self._done, self._all, what)
        self._done += 1

    def write(self) -> None:
        """Write the new generation atomically."""
        plan = self._plan
        with self._database.writing() as db:
            before = {str(path) for (path,) in select(db, "SELECT path FROM notes")}
            shape = _shape(plan.chunk_size)
            if not plan.is_full and schema.read_meta(db, schema.META_KEY) != shape:
                raise ConflictError(f"another process made {self._database.path} in another way")
            if int(schema.read_meta(db, "generation") or 0) != plan.generation:
                self._scan_again(db)
            if plan.is_full:
                schema.clear(db)
            model = add_model(db, self.cache.model) if self.cache else 0
            self.writer = writer = IndexWriter(
                db, model, self.cache, is_empty=plan.is_full, chunk_size=plan.chunk_size
            )
            self._remove_missing(writer, before)
            self._put_suspects(writer, before)
            filled = 0
            if plan.is_vector_due:
                writer.flush()
                filled = writer.add_vectors(lines_without_vector(db, model))
            writer.finish(shape, changed=bool(self.removed or filled))
            count_missing(db)
        if self.cache:
            self.cache.prune()

    def _scan_again(self, db: apsw.Connection) -> None:
        """List the notes again: a note that another process added may be newer than the list."""
        recorded = {} if self._plan.is_full else read_known(db)
        self._use(ChangeScan(recorded, list(self._plan.find())))

    def _remove_missing(self, writer: IndexWriter, before: set[str]) -> None:
        if self._plan.is_full:
            self.removed = sorted(before - {note.path for note in self._changes.notes})
            return
        for path in self._changes.removed:
            if writer.remove_note(path):
                self.removed.append(path)

    def _put_suspects(self, writer: IndexWriter, before: set[str]) -> None:
        touched: list[TouchedFile] = []
        for note in self._changes.suspects:
            self._step(note.path)
            change = self._changes.read(note)
            if isinstance(change, ChangedNote):
                self.unchanged += not writer.add_note(change)
            elif isinstance(change, TouchedFile):
                touched.append(change)
                self.unchanged += 1
            else:
                self.skipped.append(change)
                if note.path in before:
                    self.removed.append(note.path)
                    writer.remove_note(note.path)
        writer.update_times(touched)
        self._step("")
