"""The tables of a memory index: the original's under its names, and ours for lines.

Everything here is derived from files and can be made anew. `lines.id` runs through a note without
a gap, and a gap wider than any window lies between two notes.
"""

from typing import Final

VERSION: Final = 1
META_KEY: Final = "memory_index_meta_v1"  # the original's: which model, which chunks

# `notes` is what the original's `files` has no room for. `postings` holds stems without their
# places: FTS5 is used as an inverted index, and the ranking is ours.
TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE files (
    path TEXT PRIMARY KEY, source TEXT NOT NULL DEFAULT 'memory', hash TEXT NOT NULL,
    mtime INTEGER NOT NULL, size INTEGER NOT NULL
);
CREATE TABLE chunks (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, source TEXT NOT NULL DEFAULT 'memory',
    start_line INTEGER NOT NULL, end_line INTEGER NOT NULL, hash TEXT NOT NULL,
    model TEXT NOT NULL, text TEXT NOT NULL, embedding TEXT NOT NULL, updated_at INTEGER NOT NULL
);
CREATE INDEX idx_chunks_path ON chunks (path);
CREATE INDEX idx_chunks_source ON chunks (source);
CREATE TABLE embedding_cache (
    provider TEXT NOT NULL, model TEXT NOT NULL, provider_key TEXT NOT NULL, hash TEXT NOT NULL,
    embedding TEXT NOT NULL, dims INTEGER, updated_at INTEGER NOT NULL,
    PRIMARY KEY (provider, model, provider_key, hash)
);
CREATE INDEX idx_embedding_cache_updated_at ON embedding_cache (updated_at);
CREATE VIRTUAL TABLE chunks_fts USING fts5(
    text, id UNINDEXED, path UNINDEXED, source UNINDEXED, model UNINDEXED,
    start_line UNINDEXED, end_line UNINDEXED, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE TABLE notes (
    note INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
    owner TEXT NOT NULL, audience TEXT NOT NULL, day TEXT,
    first INTEGER NOT NULL, last INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL, looked_ns INTEGER NOT NULL, speakers TEXT NOT NULL
);
CREATE INDEX notes_by_day ON notes (day) WHERE day IS NOT NULL;
CREATE TABLE lines (
    id INTEGER PRIMARY KEY, note INTEGER NOT NULL, line INTEGER NOT NULL, start INTEGER NOT NULL,
    speaker TEXT NOT NULL, flags INTEGER NOT NULL, section INTEGER NOT NULL, text TEXT NOT NULL
);
CREATE VIRTUAL TABLE postings USING fts5(
    stems, content = '', contentless_delete = 1, detail = none,
    tokenize = 'unicode61 remove_diacritics 0'
);
CREATE TABLE vectors (
    model TEXT NOT NULL, hash BLOB NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (model, hash)
) WITHOUT ROWID;
CREATE TABLE line_vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
"""
