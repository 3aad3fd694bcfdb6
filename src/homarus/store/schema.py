"""The tables of state.sqlite and their migrations."""

from collections.abc import Sequence
from pathlib import Path

import apsw

from homarus.core.errors import StoreError
from homarus.store.query import select

BUSY_MS = 5000

# One migration per version, each applied completely or not at all, never changed once released.
# `change` counts every change of any session: it tells which changes a file contains.
# A transcript row tracks its file: up to `file_offset` both agree, `file_tail` is a hash of
# the bytes before that place, `file_seq` the last entry written there; `moved_to` is the name
# the file is archived under.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE sessions (
        place INTEGER PRIMARY KEY,
        team TEXT NOT NULL, user TEXT NOT NULL, key TEXT NOT NULL,
        agent TEXT NOT NULL, session_id TEXT NOT NULL, updated_ms INTEGER NOT NULL,
        version INTEGER NOT NULL, change INTEGER NOT NULL, deleted INTEGER NOT NULL DEFAULT 0,
        json TEXT NOT NULL,
        UNIQUE (team, user, key)
    );
    CREATE INDEX sessions_by_time ON sessions (team, user, updated_ms DESC);
    CREATE INDEX sessions_by_change ON sessions (team, user, agent, change);
    CREATE INDEX sessions_by_id ON sessions (team, user, session_id);
    CREATE TABLE transcripts (
        team TEXT NOT NULL, user TEXT NOT NULL, session_id TEXT NOT NULL, agent TEXT NOT NULL,
        header TEXT NOT NULL, leaf TEXT, last_seq INTEGER NOT NULL DEFAULT 0,
        file TEXT, moved_to TEXT,
        file_size INTEGER, file_mtime_ns INTEGER, file_inode INTEGER,
        file_offset INTEGER NOT NULL DEFAULT 0, file_tail BLOB, file_seq INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (team, user, session_id)
    );
    CREATE TABLE entries (
        team TEXT NOT NULL, user TEXT NOT NULL, session_id TEXT NOT NULL, seq INTEGER NOT NULL,
        id TEXT NOT NULL, parent TEXT, type TEXT NOT NULL, at_ms INTEGER NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (team, user, session_id, seq)
    );
    CREATE UNIQUE INDEX entries_by_id ON entries (team, user, session_id, id);
    CREATE TABLE records (
        team TEXT NOT NULL, user TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (team, user, kind, id)
    ) WITHOUT ROWID;
    CREATE TABLE indexes (
        team TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL,
        file_size INTEGER, file_mtime_ns INTEGER, file_inode INTEGER,
        change INTEGER NOT NULL,
        PRIMARY KEY (team, user, agent)
    ) WITHOUT ROWID;
    INSERT INTO meta VALUES ('change', 0), ('epoch', 0);
    """,
    # To count sessions without reading them.
    "CREATE INDEX sessions_alive ON sessions (team, user, agent) WHERE NOT deleted;",
    # The journal. A `body` goes when its message is settled. What is open, parked or not yet
    # sent is little, and has an index of its own.
    """
    CREATE TABLE accepted (
        place INTEGER PRIMARY KEY,
        team TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL,
        channel TEXT NOT NULL, account TEXT NOT NULL, message_id TEXT NOT NULL,
        sender TEXT NOT NULL, preview TEXT NOT NULL, at_ms INTEGER NOT NULL,
        state TEXT NOT NULL, token INTEGER NOT NULL DEFAULT 0,
        run TEXT NOT NULL DEFAULT '', session_id TEXT NOT NULL DEFAULT '',
        entry TEXT NOT NULL DEFAULT '', reply TEXT NOT NULL DEFAULT '',
        why TEXT NOT NULL DEFAULT '', attempts INTEGER NOT NULL DEFAULT 0,
        duplicates INTEGER NOT NULL DEFAULT 0, settled_ms INTEGER NOT NULL DEFAULT 0,
        digest TEXT NOT NULL, body TEXT,
        UNIQUE (team, user, id), UNIQUE (team, user, channel, account, message_id)
    );
    CREATE INDEX accepted_open ON accepted (team, user, run)
        WHERE state IN ('accepted', 'running');
    CREATE INDEX accepted_parked ON accepted (team, user) WHERE state = 'parked';
    CREATE TABLE calls (
        team TEXT NOT NULL, user TEXT NOT NULL, run TEXT NOT NULL, call_id TEXT NOT NULL,
        PRIMARY KEY (team, user, run, call_id)
    ) WITHOUT ROWID;
    CREATE TABLE parcels (
        place INTEGER PRIMARY KEY,
        team TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL, run TEXT NOT NULL,
        channel TEXT NOT NULL, chat TEXT NOT NULL, account TEXT NOT NULL, thread TEXT,
        text TEXT NOT NULL, at_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending', token INTEGER NOT NULL DEFAULT 0,
        receipt TEXT NOT NULL DEFAULT '', why TEXT NOT NULL DEFAULT '',
        attempts INTEGER NOT NULL DEFAULT 0, not_before_ms INTEGER NOT NULL DEFAULT 0,
        UNIQUE (team, user, id)
    );
    CREATE INDEX parcels_waiting ON parcels (team, user)
        WHERE state IN ('pending', 'sending');
    CREATE INDEX parcels_stranded ON parcels (team, user)
        WHERE state IN ('unknown', 'dead');
    """,
    # Each call of a model, those that failed too.
    """
    CREATE TABLE spent (
        place INTEGER PRIMARY KEY,
        team TEXT NOT NULL, user TEXT NOT NULL, at_ms INTEGER NOT NULL,
        run TEXT NOT NULL, session TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
        input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
        cache_write INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost REAL NOT NULL,
        error TEXT NOT NULL
    );
    CREATE INDEX spent_by_time ON spent (team, user, at_ms);
    """,
    # Media, buttons and reply references of an outbox record.
    "ALTER TABLE parcels ADD COLUMN extras TEXT NOT NULL DEFAULT '';",
    # The audit log: rows are only ever added. `seq` counts the rows of a principal.
    """
    CREATE TABLE audit (
        team TEXT NOT NULL, user TEXT NOT NULL, seq INTEGER NOT NULL, at_ms INTEGER NOT NULL,
        kind TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL,
        json TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL,
        PRIMARY KEY (team, user, seq)
    ) WITHOUT ROWID;
    CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'rows of the audit log are not changed'); END;
    CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
        BEGIN SELECT RAISE(ABORT, 'rows of the audit log are not deleted'); END;
    """,
    # Approvals of tool calls, and the messages whose runs wait for one.
    """
    CREATE TABLE approvals (
        place INTEGER PRIMARY KEY,
        team TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL,
        agent TEXT NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL, call_id TEXT NOT NULL,
        tool TEXT NOT NULL, requester TEXT NOT NULL, digest TEXT NOT NULL, request TEXT NOT NULL,
        created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, state TEXT NOT NULL,
        decision TEXT NOT NULL, resolved_by TEXT NOT NULL, resolved_ms INTEGER NOT NULL,
        used_ms INTEGER NOT NULL, extra TEXT NOT NULL,
        UNIQUE (team, user, id)
    );
    CREATE INDEX approvals_by_run ON approvals (team, user, run);
    CREATE INDEX approvals_pending ON approvals (team, user) WHERE state = 'pending';
    CREATE INDEX accepted_suspended ON accepted (team, user) WHERE state = 'suspended';
    """,
)


def migrate(db: apsw.Connection, path: Path, steps: Sequence[str] = MIGRATIONS) -> None:
    """Bring the tables to the newest version. Raises StoreError for those of a newer Homarus."""
    version = check_version(db, path, steps)
    db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID")
    for number, step in enumerate(steps[version:], version + 1):
        with db:
            db.execute(step)
            db.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (number,))


def check_version(db: apsw.Connection, path: Path, steps: Sequence[str] = MIGRATIONS) -> int:
    """Return the version of the tables, 0 for none. Raises StoreError when it is unknown."""
    made = select(db, "SELECT 1 FROM sqlite_schema WHERE name = 'meta'")
    found = select(db, "SELECT value FROM meta WHERE key = 'schema'") if made else []
    version = int(found[0][0]) if found else 0
    if version > len(steps):
        raise StoreError(
            f"{path} has schema {version}, of a newer Homarus; this one knows {len(steps)}",
            fix="upgrade homarus, or set OPENCLAW_STATE_DIR to another directory",
        )
    return version


def configure(db: apsw.Connection) -> None:
    """Configure the writing connection: the log survives a crash of the machine too."""
    db.set_busy_timeout(BUSY_MS)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        select(db, f"PRAGMA {pragma}")  # a row that is not fetched would block the next statement
