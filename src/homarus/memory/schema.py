"""The tables of a memory index: OpenClaw's under its names, and ours for lines.

Everything here is derived from files and can be rebuilt. `lines.id` is consecutive within a note,
with a gap wider than any window of the ranking between two notes.

Two things can change. *The content of the tables*: raise `VERSION`, and the next sync makes a new
generation of all of it, reusing the vectors. *The tables*: they are one set, as written in
`TABLES`; a database in which some are missing or different is not ours and is rebuilt. Nothing that
costs money is in here: vectors are cached in a file of their own (`vector_cache.py`). A later part
that stores something else here (facts, links between entities) gets a set of its own, created where
it is missing and never cleared by a sync: existing databases stay as they are. OpenClaw finds its
tables with its columns, sees another model in `meta`, and makes its own index.
"""

from typing import Final

import apsw

from homarus.core.errors import CorruptDataError
from homarus.store.query import select

VERSION: Final = 3
META_KEY: Final = "memory_index_meta_v1"  # OpenClaw's: which model, which chunks

# `notes` has what does not fit into OpenClaw's `files`. `postings` has stems without their
# positions: FTS5 is used as an inverted index, and the ranking is ours. `chunks_fts` has the words
# of `chunks` without their text. A vector is bytes where OpenClaw's is a list of numbers in text;
# the two never meet, as ours are of lines. `embedding_cache` is empty here: ours is a file of its
# own. `line_vectors` may have several models; `missing` counts lines without a vector of a model.
TABLES: Final = {
    "meta": "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "files": """CREATE TABLE files (
    path TEXT PRIMARY KEY, source TEXT NOT NULL DEFAULT 'memory', hash TEXT NOT NULL,
    mtime INTEGER NOT NULL, size INTEGER NOT NULL
)""",
    "chunks": """CREATE TABLE chunks (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, source TEXT NOT NULL DEFAULT 'memory',
    start_line INTEGER NOT NULL, end_line INTEGER NOT NULL, hash TEXT NOT NULL,
    model TEXT NOT NULL, text TEXT NOT NULL, embedding TEXT NOT NULL, updated_at INTEGER NOT NULL
)""",
    "idx_chunks_path": "CREATE INDEX idx_chunks_path ON chunks (path)",
    "idx_chunks_source": "CREATE INDEX idx_chunks_source ON chunks (source)",
    "embedding_cache": """CREATE TABLE embedding_cache (
    provider TEXT NOT NULL, model TEXT NOT NULL, provider_key TEXT NOT NULL, hash TEXT NOT NULL,
    embedding TEXT NOT NULL, dims INTEGER, updated_at INTEGER NOT NULL,
    PRIMARY KEY (provider, model, provider_key, hash)
)""",
    "idx_embedding_cache_updated_at": (
        "CREATE INDEX idx_embedding_cache_updated_at ON embedding_cache (updated_at)"
    ),
    "chunks_fts": """CREATE VIRTUAL TABLE chunks_fts USING fts5(
    text, id UNINDEXED, path UNINDEXED, source UNINDEXED, model UNINDEXED,
    start_line UNINDEXED, end_line UNINDEXED, content = 'chunks',
    tokenize = 'porter unicode61 remove_diacritics 2'
)""",
    "notes": """CREATE TABLE notes (
    note INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
    owner TEXT NOT NULL, audience TEXT NOT NULL, day TEXT,
    first INTEGER NOT NULL, last INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL, looked_ns INTEGER NOT NULL, speakers TEXT NOT NULL
)""",
    "notes_by_day": "CREATE INDEX notes_by_day ON notes (day) WHERE day IS NOT NULL",
    "lines": """CREATE TABLE lines (
    id INTEGER PRIMARY KEY, note INTEGER NOT NULL, line INTEGER NOT NULL, start INTEGER NOT NULL,
    speaker TEXT NOT NULL, flags INTEGER NOT NULL, section INTEGER NOT NULL, text TEXT NOT NULL
)""",
    "postings": """CREATE VIRTUAL TABLE postings USING fts5(
    stems, content = '', contentless_delete = 1, detail = none,
    tokenize = 'unicode61 remove_diacritics 0'
)""",
    "vector_models": """CREATE TABLE vector_models (
    number INTEGER PRIMARY KEY, model TEXT NOT NULL UNIQUE, missing INTEGER NOT NULL
)""",
    "line_vectors": """CREATE TABLE line_vectors (
    id INTEGER NOT NULL, model INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (id, model)
) WITHOUT ROWID""",
}

_OF_A_GENERATION = ("files", "chunks", "notes", "lines", "line_vectors", "vector_models")


def has_tables(db: apsw.Connection) -> bool:
    """Return whether the tables exist. Raises CorruptDataError for other or incomplete tables."""
    found = {str(name): sql for name, sql in select(db, "SELECT name, sql FROM sqlite_schema")}
    if all(found.get(name) == sql for name, sql in TABLES.items()):
        return True
    if found:
        raise CorruptDataError("its tables are those of another program or version")
    return False


def is_sound(db: apsw.Connection) -> bool:
    """Return whether every note has the lines it claims, in order."""
    rows = select(
        db,
        "SELECT COALESCE(SUM(last - first + 1), 0), COALESCE(MAX(last), 0),"
        " COALESCE(MIN(last - first + 1), 0) >= 0,"
        " (SELECT COUNT(*) FROM lines), COALESCE((SELECT MAX(id) FROM lines), 0) FROM notes",
    )
    ((said, last, is_ordered, lines, highest),) = rows
    return bool(said == lines and is_ordered and highest <= last)


def create_tables(db: apsw.Connection) -> None:
    """Create the tables, inside a transaction."""
    for sql in TABLES.values():
        db.execute(sql)


def clear(db: apsw.Connection) -> None:
    """Delete every note."""
    for name in ("chunks_fts", "postings"):
        db.execute(f"INSERT INTO {name} ({name}) VALUES ('delete-all')")  # noqa: S608 - names above
    for name in _OF_A_GENERATION:
        db.execute(f"DELETE FROM {name}")  # noqa: S608 - names above


def read_meta(db: apsw.Connection, key: str) -> str | None:
    """Return a value of the index's metadata."""
    rows = select(db, "SELECT value FROM meta WHERE key = ?", (key,))
    return str(rows[0][0]) if rows else None
