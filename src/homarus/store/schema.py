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
    # Slots of cron jobs: one row for each time at which a job was due, so that it runs once.
    """
    CREATE TABLE slots (
        place INTEGER PRIMARY KEY,
        team TEXT NOT NULL, user TEXT NOT NULL, job TEXT NOT NULL, slot_ms INTEGER NOT NULL,
        cause TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
        attempt INTEGER NOT NULL, run_id TEXT NOT NULL, started_ms INTEGER NOT NULL,
        ended_ms INTEGER NOT NULL, session_key TEXT NOT NULL, session_id TEXT NOT NULL,
        summary TEXT NOT NULL, model TEXT NOT NULL, provider TEXT NOT NULL, usage TEXT NOT NULL,
        next_run_ms INTEGER NOT NULL, count INTEGER NOT NULL, until_ms INTEGER NOT NULL,
        UNIQUE (team, user, job, slot_ms)
    );
    CREATE INDEX slots_running ON slots (team, user) WHERE state = 'running';
    """,
    # When each step of a run happened: one row for each attempt at it. An outbox record has the
    # attempts to send it.
    """
    CREATE TABLE traces (
        place INTEGER PRIMARY KEY,
        team TEXT NOT NULL, user TEXT NOT NULL, run TEXT NOT NULL, attempt INTEGER NOT NULL,
        session TEXT NOT NULL, at_ms INTEGER NOT NULL, json TEXT NOT NULL,
        UNIQUE (team, user, run, attempt)
    );
    ALTER TABLE parcels ADD COLUMN tries TEXT NOT NULL DEFAULT '';
    ALTER TABLE parcels ADD COLUMN started_ms INTEGER NOT NULL DEFAULT 0;
    """,
    # What each call was for, and totals by day, which stay when calls are pruned. An answer that
    # another program wrote becomes a row too. Here those are the answers in transcripts of which
    # there is no call with the same tokens within a quarter of an hour.
    """
    ALTER TABLE spent ADD COLUMN agent TEXT NOT NULL DEFAULT '';
    ALTER TABLE spent ADD COLUMN session_id TEXT NOT NULL DEFAULT '';
    ALTER TABLE spent ADD COLUMN channel TEXT NOT NULL DEFAULT '';
    ALTER TABLE spent ADD COLUMN purpose TEXT NOT NULL DEFAULT '';
    ALTER TABLE spent ADD COLUMN priced INTEGER NOT NULL DEFAULT 1;
    CREATE INDEX spent_by_session ON spent (team, user, session, at_ms);
    CREATE TABLE spent_days (
        team TEXT NOT NULL, user TEXT NOT NULL, day TEXT NOT NULL, agent TEXT NOT NULL,
        session TEXT NOT NULL, session_id TEXT NOT NULL, channel TEXT NOT NULL,
        purpose TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
        calls INTEGER NOT NULL, failed INTEGER NOT NULL, unpriced INTEGER NOT NULL,
        input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
        cache_write INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost REAL NOT NULL,
        PRIMARY KEY (
            team, user, day, agent, session, session_id, channel, purpose, provider, model
        )
    ) WITHOUT ROWID;
    CREATE INDEX spent_days_by_session ON spent_days (team, user, session);
    UPDATE spent SET agent = CASE WHEN session LIKE 'agent:_%:%'
        THEN substr(session, 7, instr(substr(session, 7), ':') - 1) ELSE '' END;
    UPDATE spent SET session_id = coalesce((
        SELECT session_id FROM sessions s
        WHERE s.team = spent.team AND s.user = spent.user AND s.key = spent.session
    ), '');
    CREATE TEMP TABLE answered AS
    SELECT team, user, at_ms, session_id,
        substr(coalesce(json_extract(json, '$.message.provider'), 'unknown'), 1, 200) AS provider,
        substr(coalesce(json_extract(json, '$.message.model'), 'unknown'), 1, 200) AS model,
        json_extract(json, '$.message.usage.input') AS input,
        json_extract(json, '$.message.usage.output') AS output,
        json_extract(json, '$.message.usage.cacheRead') AS cache_read,
        json_extract(json, '$.message.usage.cacheWrite') AS cache_write,
        json_extract(json, '$.message.usage.reasoning') AS reasoning,
        json_extract(json, '$.message.usage.cost.total') AS cost,
        json_type(json, '$.message.usage.cost') IS 'object' AS priced
    FROM (
        SELECT team, user, at_ms, session_id,
            CASE WHEN json_valid(json) THEN json ELSE '{}' END AS json
        FROM entries
        WHERE type = 'message' AND json LIKE '%"assistant"%' AND json LIKE '%"usage"%'
    )
    WHERE json_extract(json, '$.message.role') = 'assistant'
        AND json_type(json, '$.message.usage') = 'object';
    UPDATE answered SET
        input = min(max(CAST(coalesce(input, 0) AS INTEGER), 0), 1 << 40),
        output = min(max(CAST(coalesce(output, 0) AS INTEGER), 0), 1 << 40),
        cache_read = min(max(CAST(coalesce(cache_read, 0) AS INTEGER), 0), 1 << 40),
        cache_write = min(max(CAST(coalesce(cache_write, 0) AS INTEGER), 0), 1 << 40),
        reasoning = min(max(CAST(coalesce(reasoning, 0) AS INTEGER), 0), 1 << 40),
        cost = min(max(CAST(coalesce(cost, 0) AS REAL), 0.0), 1e9);
    INSERT INTO spent (team, user, at_ms, run, session, provider, model, input, output,
        cache_read, cache_write, reasoning, cost, error, agent, session_id, purpose, priced)
    SELECT a.team, a.user, a.at_ms, '', coalesce((
            SELECT key FROM sessions s
            WHERE s.team = a.team AND s.user = a.user AND s.session_id = a.session_id LIMIT 1
        ), ''), a.provider, a.model, a.input, a.output, a.cache_read, a.cache_write,
        a.reasoning, a.cost, '', t.agent, a.session_id, 'imported', a.priced
    FROM answered a
    JOIN transcripts t ON t.team = a.team AND t.user = a.user AND t.session_id = a.session_id
    WHERE a.input + a.output + a.cache_read + a.cache_write + a.cost > 0 AND NOT EXISTS (
        SELECT 1 FROM spent s
        WHERE s.team = a.team AND s.user = a.user
            AND s.at_ms BETWEEN a.at_ms - 900000 AND a.at_ms + 900000
            AND s.input = a.input AND s.output = a.output
            AND s.cache_read = a.cache_read AND s.cache_write = a.cache_write
    )
    ORDER BY a.at_ms;
    DROP TABLE answered;
    INSERT INTO spent_days
    SELECT team, user, coalesce(date(at_ms / 1000, 'unixepoch', 'localtime'), '1970-01-01'),
        agent, session, session_id, channel, purpose, provider, model, count(*),
        sum(error <> ''), sum(NOT priced), sum(input), sum(output), sum(cache_read),
        sum(cache_write), sum(reasoning), sum(cost)
    FROM spent GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10;
    """,
    # What is remembered of a chat between its messages: chat_records.py.
    """
    CREATE TABLE chat_records (
        place INTEGER PRIMARY KEY,
        team TEXT NOT NULL, user TEXT NOT NULL, kind TEXT NOT NULL, chat TEXT NOT NULL,
        id TEXT NOT NULL, at_ms INTEGER NOT NULL, json TEXT NOT NULL,
        UNIQUE (team, user, kind, chat, id)
    );
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
