"""The tables and SQL statements of the journal in PostgreSQL, each inside a transaction.

They mean what those of sqlite_journal_sql.py mean. Other processes write at the same time: every
statement that reads a row also locks it, so that it stays unchanged until the commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from psycopg import AsyncConnection, AsyncCursor, sql

from homarus.core.errors import ConflictError, LeaseLostError, StoreError
from homarus.core.principal import Principal
from homarus.store.approval_codec import (
    APPROVAL_COLUMNS,
    SELECT_APPROVALS,
    ApprovalResolution,
    decode_approval,
    encode_approval,
    unusable_approval,
)
from homarus.store.approvals import ApprovalRecord
from homarus.store.chat_records import MAX_CHAT_RECORDS, ChatRow
from homarus.store.journal import Acceptance, Lease, OutboxRecord, OutboxState, SettledState
from homarus.store.journal_codec import (
    SELECT_CHAT_RECORDS,
    SELECT_INBOX,
    SELECT_OUTBOX,
    SELECT_TRACES,
    NewInboxRecord,
    decode_inbox_record,
    encode_extras,
    new_outbox_record,
)

Row: TypeAlias = tuple[Any, ...]
Db: TypeAlias = AsyncConnection[Row]

# One migration per version, each applied completely or not at all, never changed once released.
MIGRATIONS: Final = (
    """
    CREATE SEQUENCE tokens;
    CREATE TABLE accepted (
        place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        team text NOT NULL, member text NOT NULL, id text NOT NULL, session text NOT NULL,
        channel text NOT NULL, account text NOT NULL, message_id text NOT NULL,
        sender text NOT NULL, preview text NOT NULL, at_ms bigint NOT NULL,
        state text NOT NULL, token bigint NOT NULL DEFAULT 0,
        run text NOT NULL DEFAULT '', session_id text NOT NULL DEFAULT '',
        entry text NOT NULL DEFAULT '', reply text NOT NULL DEFAULT '',
        why text NOT NULL DEFAULT '', attempts bigint NOT NULL DEFAULT 0,
        duplicates bigint NOT NULL DEFAULT 0, settled_ms bigint NOT NULL DEFAULT 0,
        digest text NOT NULL, body text,
        UNIQUE (team, member, id), UNIQUE (team, member, channel, account, message_id)
    );
    CREATE INDEX accepted_open ON accepted (team, member, run)
        WHERE state IN ('accepted', 'running');
    CREATE INDEX accepted_parked ON accepted (team, member) WHERE state = 'parked';
    CREATE TABLE calls (
        team text, member text, run text, call_id text,
        PRIMARY KEY (team, member, run, call_id)
    );
    CREATE TABLE parcels (
        place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        team text NOT NULL, member text NOT NULL, id text NOT NULL, run text NOT NULL,
        channel text NOT NULL, chat text NOT NULL, account text NOT NULL, thread text,
        text text NOT NULL, at_ms bigint NOT NULL, expires_ms bigint NOT NULL,
        state text NOT NULL DEFAULT 'pending', token bigint NOT NULL DEFAULT 0,
        receipt text NOT NULL DEFAULT '', why text NOT NULL DEFAULT '',
        attempts bigint NOT NULL DEFAULT 0, not_before_ms bigint NOT NULL DEFAULT 0,
        UNIQUE (team, member, id)
    );
    CREATE INDEX parcels_waiting ON parcels (team, member) WHERE state IN ('pending', 'sending');
    CREATE INDEX parcels_stranded ON parcels (team, member) WHERE state IN ('unknown', 'dead');
    CREATE TABLE cursors (
        team text, member text, name text, json text NOT NULL,
        PRIMARY KEY (team, member, name)
    );
    """,
    # Media, buttons and reply references of an outbox record.
    "ALTER TABLE parcels ADD COLUMN extras text NOT NULL DEFAULT '';",
    # Approvals of tool calls, and the messages whose runs wait for one.
    """
    CREATE TABLE approvals (
        place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        team text NOT NULL, member text NOT NULL, id text NOT NULL,
        agent text NOT NULL, session text NOT NULL, run text NOT NULL, call_id text NOT NULL,
        tool text NOT NULL, requester text NOT NULL, digest text NOT NULL, request text NOT NULL,
        created_ms bigint NOT NULL, expires_ms bigint NOT NULL, state text NOT NULL,
        decision text NOT NULL, resolved_by text NOT NULL, resolved_ms bigint NOT NULL,
        used_ms bigint NOT NULL, extra text NOT NULL,
        UNIQUE (team, member, id)
    );
    CREATE INDEX approvals_by_run ON approvals (team, member, run);
    CREATE INDEX approvals_pending ON approvals (team, member) WHERE state = 'pending';
    CREATE INDEX accepted_suspended ON accepted (team, member) WHERE state = 'suspended';
    """,
    # When each step of a run happened, and the attempts to send a reply.
    """
    CREATE TABLE traces (
        place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        team text NOT NULL, member text NOT NULL, run text NOT NULL, attempt bigint NOT NULL,
        session text NOT NULL, at_ms bigint NOT NULL, json text NOT NULL,
        UNIQUE (team, member, run, attempt)
    );
    ALTER TABLE parcels ADD COLUMN tries text NOT NULL DEFAULT '';
    ALTER TABLE parcels ADD COLUMN started_ms bigint NOT NULL DEFAULT 0;
    """,
    # What is remembered of a chat between its messages: chat_records.py.
    """
    CREATE TABLE chat_records (
        place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        team text NOT NULL, member text NOT NULL, kind text NOT NULL, chat text NOT NULL,
        id text NOT NULL, at_ms bigint NOT NULL, json text NOT NULL,
        UNIQUE (team, member, kind, chat, id)
    );
    """,
)
_SCHEMA_LOCK: Final = 0x686F6D61  # any number, the same in every process

# What is not done: its kind, its table, the column of its time and the condition of its index.
BACKLOG: Final = (
    ("inbox", "accepted", "at_ms", "state IN ('accepted', 'running')"),
    ("inbox", "accepted", "at_ms", "state = 'parked'"),
    ("inbox", "accepted", "at_ms", "state = 'suspended'"),
    ("outbox", "parcels", "at_ms", "state IN ('pending', 'sending')"),
    ("outbox", "parcels", "at_ms", "state IN ('unknown', 'dead')"),
    ("approvals", "approvals", "created_ms", "state = 'pending'"),
)
SELECT_OWN_INBOX: Final = f"{SELECT_INBOX} WHERE team = %(team)s AND member = %(member)s"
SELECT_OWN_OUTBOX: Final = f"{SELECT_OUTBOX} WHERE team = %(team)s AND member = %(member)s"
SELECT_OWN_TRACES: Final = f"{SELECT_TRACES} WHERE team = %(team)s AND member = %(member)s"
SELECT_OWN_CHAT_RECORDS: Final = (
    f"{SELECT_CHAT_RECORDS} WHERE team = %(team)s AND member = %(member)s AND kind = %(kind)s"
)
SELECT_OWN_APPROVALS: Final = f"{SELECT_APPROVALS} WHERE team = %(team)s AND member = %(member)s"


async def migrate(db: Db, schema: str) -> None:
    """Bring the tables to the newest version. Raises StoreError for those of a newer Homarus."""
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        cursor = await db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,))
        if not await cursor.fetchone():
            await db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        await db.execute("CREATE TABLE IF NOT EXISTS meta (key text PRIMARY KEY, value bigint)")
        cursor = await db.execute("SELECT value FROM meta WHERE key = 'schema'")
        row = await cursor.fetchone()
        version = int(row[0]) if row else 0
        if version > len(MIGRATIONS):
            raise StoreError(
                f"the tables in {schema} have schema {version}, of a newer Homarus;"
                f" this one knows {len(MIGRATIONS)}",
                fix="upgrade homarus",
            )
        for step in MIGRATIONS[version:]:
            await db.execute(step)
        await db.execute(
            "INSERT INTO meta VALUES ('schema', %s)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (len(MIGRATIONS),),
        )


def values_of(principal: Principal, **others: object) -> Mapping[str, object]:
    """Return the named parameters of a statement."""
    return {"team": principal.team, "member": principal.user, **others}


async def put_cursor(db: Db, principal: Principal, name: str, json: str) -> None:
    """Save how far a channel has read."""
    await db.execute(
        "INSERT INTO cursors VALUES (%(team)s, %(member)s, %(name)s, %(json)s)"
        " ON CONFLICT (team, member, name) DO UPDATE SET json = excluded.json",
        values_of(principal, name=name, json=json),
    )


async def set_message(db: Db, principal: Principal, record_id: str, body: str) -> bool:
    """Replace the message of an accepted row."""
    changed = await db.execute(
        "UPDATE accepted SET body = %(body)s WHERE team = %(team)s AND member = %(member)s"
        " AND id = %(id)s AND state = 'accepted'",
        values_of(principal, body=body, id=record_id),
    )
    return changed.rowcount > 0


async def put_chat_records(db: Db, principal: Principal, rows: Iterable[ChatRow]) -> None:
    """Write or delete what is remembered of chats. A new row is the newest."""
    for *key, at_ms, text in rows:
        owned = (principal.team, principal.user, *key)
        await db.execute(
            "DELETE FROM chat_records WHERE team = %s AND member = %s AND kind = %s"
            " AND chat = %s AND id = %s",
            owned,
        )
        if text is not None:
            await db.execute(
                "INSERT INTO chat_records (team, member, kind, chat, id, at_ms, json)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (*owned, at_ms, text),
            )


async def accept(db: Db, principal: Principal, new_record: NewInboxRecord) -> Acceptance:
    """Store a message, or count it as a duplicate."""
    if place := await _insert(db, principal, new_record):
        return Acceptance("new", new_record.at(place))
    for other in new_record.as_conflict():
        if existing := await _count(db, principal, other):
            return Acceptance("duplicate", decode_inbox_record(existing))
        if place := await _insert(db, principal, other):
            return Acceptance("conflict", other.at(place))
        if existing := await _count(
            db, principal, other
        ):  # another process inserted it between the two statements
            return Acceptance("duplicate", decode_inbox_record(existing))
    raise ConflictError(f"there is no room beside message {new_record.record.message_id}")


async def accept_new(db: Db, principal: Principal, new_record: NewInboxRecord) -> None:
    """Store a message that must be new. Raises ConflictError."""
    if not await _insert(db, principal, new_record):
        raise ConflictError(f"message {new_record.record.message_id} was accepted before")


async def _insert(db: Db, principal: Principal, new_record: NewInboxRecord) -> int:
    cursor = await db.execute(
        "INSERT INTO accepted (team, member, id, session, channel, account, message_id, sender,"
        " preview, at_ms, state, why, settled_ms, digest, body)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING RETURNING place",
        (principal.team, principal.user, *new_record.columns()),
    )
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def _count(db: Db, principal: Principal, new_record: NewInboxRecord) -> Row | None:
    counted = await db.execute(
        "UPDATE accepted SET duplicates = duplicates + 1 WHERE team = %(team)s"
        " AND member = %(member)s AND channel = %(channel)s AND account = %(account)s"
        " AND message_id = %(message)s AND digest = %(digest)s RETURNING id",
        values_of(
            principal,
            channel=new_record.record.channel,
            account=new_record.record.account,
            message=new_record.record.message_id,
            digest=new_record.digest,
        ),
    )
    if not (existing := await counted.fetchone()):
        return None
    cursor = await db.execute(
        f"{SELECT_OWN_INBOX} AND id = %(id)s", values_of(principal, id=existing[0])
    )
    return await cursor.fetchone()


async def mark_running(
    db: Db,
    principal: Principal,
    ids: Sequence[str],
    lease: Lease,
    *,
    run: str,
    session_id: str,
    entry: str,
) -> None:
    """Mark open rows as running under this lease. Doing so twice under one lease is one attempt."""
    done = await db.execute(
        "UPDATE accepted SET state = 'running', token = %(token)s, run = %(run)s,"
        " attempts = attempts + (state <> 'running' OR token <> %(token)s)::int,"
        " session_id = coalesce(nullif(%(session_id)s, ''), session_id),"
        " entry = coalesce(nullif(%(entry)s, ''), entry)"
        " WHERE team = %(team)s AND member = %(member)s AND id = ANY(%(ids)s)"
        " AND state IN ('accepted', 'running', 'suspended') AND token <= %(token)s",
        values_of(
            principal, ids=[*ids], token=lease.token, run=run, session_id=session_id, entry=entry
        ),
    )
    _check_all(done, ids, lease)


async def check_lease(db: Db, principal: Principal, ids: Sequence[str], lease: Lease) -> None:
    """Raise LeaseLostError unless these rows are running under this lease until the commit."""
    cursor = await db.execute(
        "SELECT 1 FROM accepted WHERE team = %(team)s AND member = %(member)s"
        " AND id = ANY(%(ids)s) AND state = 'running' AND token = %(token)s FOR SHARE",
        values_of(principal, ids=[*ids], token=lease.token),
    )
    _check_all(cursor, ids, lease)


async def cancel_attempt(db: Db, principal: Principal, ids: Sequence[str], lease: Lease) -> None:
    """Take back the count of the attempt under this lease."""
    await db.execute(
        "UPDATE accepted SET attempts = greatest(attempts - 1, 0)"
        " WHERE team = %(team)s AND member = %(member)s AND id = ANY(%(ids)s)"
        " AND state = 'running' AND token = %(token)s",
        values_of(principal, ids=[*ids], token=lease.token),
    )


async def suspend(db: Db, principal: Principal, ids: Sequence[str], lease: Lease) -> None:
    """Mark running rows as suspended, without the count of this attempt."""
    done = await db.execute(
        "UPDATE accepted SET state = 'suspended', attempts = greatest(attempts - 1, 0)"
        " WHERE team = %(team)s AND member = %(member)s AND id = ANY(%(ids)s)"
        " AND state = 'running' AND token = %(token)s",
        values_of(principal, ids=[*ids], token=lease.token),
    )
    _check_all(done, ids, lease)


async def add_approval(db: Db, principal: Principal, record: ApprovalRecord) -> None:
    """Insert an approval."""
    names, marks = ", ".join(APPROVAL_COLUMNS), ", ".join(["%s"] * (len(APPROVAL_COLUMNS) + 2))
    await db.execute(
        sql.SQL(f"INSERT INTO approvals (team, member, {names}) VALUES ({marks})"),  # noqa: S608 - our names
        (principal.team, principal.user, *encode_approval(record)),
    )


async def use_approval(
    db: Db, principal: Principal, approval_id: str, digest: str, at_ms: int
) -> None:
    """Mark an approval as used, if it allows this call."""
    done = await db.execute(
        "UPDATE approvals SET used_ms = %(at_ms)s WHERE team = %(team)s AND member = %(member)s"
        " AND id = %(id)s AND digest = %(digest)s AND state = 'allowed' AND used_ms = 0"
        " AND expires_ms > %(at_ms)s",
        values_of(principal, id=approval_id, digest=digest, at_ms=at_ms),
    )
    if not done.rowcount:
        raise unusable_approval(approval_id)


async def cancel_approvals(db: Db, principal: Principal, runs: Sequence[str], at_ms: int) -> None:
    """Cancel the pending approvals of these runs."""
    await db.execute(
        "UPDATE approvals SET state = 'cancelled', resolved_ms = %(at_ms)s"
        " WHERE team = %(team)s AND member = %(member)s AND run = ANY(%(runs)s)"
        " AND state = 'pending'",
        values_of(principal, runs=[*runs], at_ms=at_ms),
    )


async def resolve_approval(
    db: Db,
    principal: Principal,
    resolution: ApprovalResolution,
    outbox: Sequence[OutboxRecord],
) -> ApprovalRecord | None:
    """Resolve a pending approval, and enqueue records with it."""
    found = await db.execute(
        f"{SELECT_OWN_APPROVALS} AND id = %(id)s FOR UPDATE",
        values_of(principal, id=resolution.id),
    )
    row = await found.fetchone()
    resolved = resolution.apply(decode_approval(row)) if row else None
    if resolved is None:
        return None
    await db.execute(
        "UPDATE approvals SET state = %(state)s, decision = %(decision)s, resolved_by = %(by)s,"
        " resolved_ms = %(at_ms)s WHERE team = %(team)s AND member = %(member)s AND id = %(id)s",
        values_of(
            principal,
            id=resolved.id,
            state=resolved.state,
            decision=resolved.decision,
            by=resolved.resolved_by,
            at_ms=resolved.resolved_ms,
        ),
    )
    await enqueue(db, principal, outbox)
    return resolved


async def settle(
    db: Db,
    principal: Principal,
    ids: Sequence[str],
    lease: Lease,
    *,
    state: SettledState,
    at_ms: int,
    why: str,
    reply: str,
) -> None:
    """Record the outcome. The body and the started calls are deleted unless it may be retried."""
    done = await db.execute(
        "UPDATE accepted SET state = %(state)s, token = %(token)s, settled_ms = %(at_ms)s,"
        " why = %(why)s, reply = %(reply)s,"
        " body = CASE WHEN %(state)s = 'parked' THEN body END"
        " WHERE team = %(team)s AND member = %(member)s AND id = ANY(%(ids)s)"
        " AND (state = 'running' AND token = %(token)s"
        " OR state IN ('accepted', 'suspended') AND token <= %(token)s) RETURNING run",
        values_of(
            principal, ids=[*ids], token=lease.token, state=state, at_ms=at_ms, why=why, reply=reply
        ),
    )
    _check_all(done, ids, lease)
    await _forget_calls(db, principal, [run for (run,) in await done.fetchall()])


async def call_started(db: Db, principal: Principal, run: str, lease: Lease, call_id: str) -> None:
    """Record that a tool call may have started."""
    await _check_run(db, principal, run, lease)
    await db.execute(
        "INSERT INTO calls VALUES (%(team)s, %(member)s, %(run)s, %(call)s) ON CONFLICT DO NOTHING",
        values_of(principal, run=run, call=call_id),
    )


async def call_ended(db: Db, principal: Principal, run: str, lease: Lease, call_id: str) -> None:
    """Delete a started call: its result is stored in the transcript."""
    await _check_run(db, principal, run, lease)
    await db.execute(
        "DELETE FROM calls WHERE team = %(team)s AND member = %(member)s"
        " AND run = %(run)s AND call_id = %(call)s",
        values_of(principal, run=run, call=call_id),
    )


async def enqueue(db: Db, principal: Principal, records: Iterable[OutboxRecord]) -> None:
    """Append records to the outbox."""
    for record in map(new_outbox_record, records):
        address = record.address
        await db.execute(
            "INSERT INTO parcels (team, member, id, run, channel, chat, account, thread, text,"
            " at_ms, expires_ms, not_before_ms, extras)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (
                principal.team, principal.user, record.id, record.run, address.channel,
                address.chat, address.account, address.thread, record.text,
                record.at_ms, record.expires_ms, record.not_before_ms, encode_extras(record.extras),
            ),
        )  # fmt: skip


async def send_started(
    db: Db, principal: Principal, record_id: str, lease: Lease, at_ms: int
) -> None:
    """Mark a record as sending: from now on it may have been delivered."""
    done = await db.execute(
        "UPDATE parcels SET state = 'sending', token = %(token)s, attempts = attempts + 1,"
        " started_ms = %(at_ms)s"
        " WHERE team = %(team)s AND member = %(member)s AND id = %(id)s"
        " AND token <= %(token)s AND state IN ('pending', 'sending')",
        values_of(principal, id=record_id, token=lease.token, at_ms=at_ms),
    )
    if not done.rowcount:
        raise LeaseLostError(f"parcel {record_id} is not ours to send under {lease.name}")


async def send_ended(
    db: Db,
    principal: Principal,
    record_id: str,
    lease: Lease,
    *,
    state: OutboxState,
    receipt: str,
    thread: str,
    why: str,
    not_before_ms: int,
    tries: str,
) -> None:
    """Record the result of a send."""
    done = await db.execute(
        "UPDATE parcels SET state = %(state)s, receipt = %(receipt)s, why = %(why)s,"
        " not_before_ms = %(not_before)s,"
        " tries = CASE WHEN %(tries)s = '' THEN tries ELSE %(tries)s END,"
        " thread = CASE WHEN %(thread)s = '' THEN thread ELSE %(thread)s END"
        " WHERE team = %(team)s AND member = %(member)s"
        " AND id = %(id)s AND state = 'sending' AND token = %(token)s",
        values_of(
            principal,
            id=record_id,
            token=lease.token,
            state=state,
            receipt=receipt,
            thread=thread,
            why=why,
            not_before=not_before_ms,
            tries=tries,
        ),
    )
    if not done.rowcount:
        raise LeaseLostError(f"parcel {record_id} is not being sent under {lease.name}")


async def add_trace(db: Db, principal: Principal, row: tuple[str, int, str, int, str]) -> None:
    """Store the trace of an attempt at a run."""
    await db.execute(
        "INSERT INTO traces (team, member, run, attempt, session, at_ms, json)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (team, member, run, attempt)"
        " DO UPDATE SET at_ms = excluded.at_ms, json = excluded.json",
        (principal.team, principal.user, *row),
    )


async def retry(db: Db, principal: Principal, item_id: str, at_ms: int) -> bool:
    """Reset a parked or dead item. A larger token refuses writes of the previous holder."""
    message = await db.execute(
        "UPDATE accepted SET state = 'accepted', token = token + 1, reply = '', why = '',"
        " attempts = 0, settled_ms = 0"
        " WHERE team = %(team)s AND member = %(member)s AND id = %(id)s AND state = 'parked'",
        values_of(principal, id=item_id),
    )
    if message.rowcount:
        return True
    record = await db.execute(
        "UPDATE parcels SET state = 'pending', token = token + 1, why = '', attempts = 0,"
        " not_before_ms = 0, expires_ms = CASE WHEN expires_ms > at_ms"
        " THEN greatest(expires_ms, %(at_ms)s + expires_ms - at_ms) ELSE expires_ms END"
        " WHERE team = %(team)s AND member = %(member)s AND id = %(id)s"
        " AND state IN ('unknown', 'dead')",
        values_of(principal, id=item_id, at_ms=at_ms),
    )
    return bool(record.rowcount)


async def discard(db: Db, principal: Principal, item_id: str, at_ms: int, why: str) -> bool:
    """Report a parked message, or delete a dead or unknown outbox record."""
    message = await db.execute(
        "UPDATE accepted SET state = 'reported', settled_ms = %(at_ms)s, why = %(why)s,"
        " body = NULL WHERE team = %(team)s AND member = %(member)s AND id = %(id)s"
        " AND state = 'parked' RETURNING run",
        values_of(principal, id=item_id, at_ms=at_ms, why=why),
    )
    if message.rowcount:
        await _forget_calls(db, principal, [run for (run,) in await message.fetchall()])
        return True
    record = await db.execute(
        "DELETE FROM parcels WHERE team = %(team)s AND member = %(member)s AND id = %(id)s"
        " AND state IN ('unknown', 'dead')",
        values_of(principal, id=item_id),
    )
    return bool(record.rowcount)


async def shift_times(db: Db, principal: Principal, step_ms: int) -> None:
    """Correct the times of unsent outbox records after the wall clock was set."""
    await db.execute(
        "UPDATE parcels SET expires_ms = expires_ms + greatest(%(step)s::bigint, 0),"
        " not_before_ms = greatest(0, not_before_ms + least(%(step)s::bigint, 0))"
        " WHERE team = %(team)s AND member = %(member)s AND state IN ('pending', 'sending')",
        values_of(principal, step=step_ms),
    )


async def prune(db: Db, principal: Principal, before_ms: int, approvals_before_ms: int) -> int:
    """Delete finished items from before a time."""
    messages = await db.execute(
        "DELETE FROM accepted WHERE team = %(team)s AND member = %(member)s"
        " AND settled_ms < %(before)s AND state IN ('answered', 'silent', 'reported')",
        values_of(principal, before=before_ms),
    )
    records = await db.execute(
        "DELETE FROM parcels WHERE team = %(team)s AND member = %(member)s"
        " AND at_ms < %(before)s AND state = 'sent'",
        values_of(principal, before=before_ms),
    )
    await db.execute(
        "DELETE FROM traces WHERE team = %(team)s AND member = %(member)s AND at_ms < %(before)s",
        values_of(principal, before=before_ms),
    )
    await db.execute(
        "DELETE FROM chat_records WHERE team = %(team)s AND member = %(member)s"
        " AND (at_ms < %(before)s OR place <= (SELECT place FROM chat_records"
        " WHERE team = %(team)s AND member = %(member)s"
        " ORDER BY place DESC LIMIT 1 OFFSET %(most)s))",
        values_of(principal, before=before_ms, most=MAX_CHAT_RECORDS),
    )
    approvals = await db.execute(
        "DELETE FROM approvals WHERE team = %(team)s AND member = %(member)s"
        " AND resolved_ms < %(before)s AND state <> 'pending'",
        values_of(principal, before=approvals_before_ms),
    )
    return messages.rowcount + records.rowcount + approvals.rowcount


async def count_backlog(db: Db, principal: Principal) -> Sequence[Row]:
    """Return kind, state, number and oldest time of what is not done."""
    cursor = await db.execute(
        " UNION ALL ".join(
            f"SELECT '{kind}', state, count(*), min({column}) FROM {table}"  # noqa: S608 - our names
            f" WHERE team = %(team)s AND member = %(member)s AND {condition} GROUP BY state"
            for kind, table, column, condition in BACKLOG
        ),
        values_of(principal),
    )
    return sorted(await cursor.fetchall())


async def _forget_calls(db: Db, principal: Principal, runs: Sequence[str]) -> None:
    """Delete the calls of these runs, unless one of their messages may be retried."""
    await db.execute(
        "DELETE FROM calls WHERE team = %(team)s AND member = %(member)s AND run = ANY(%(runs)s)"
        " AND NOT EXISTS (SELECT 1 FROM accepted WHERE team = %(team)s AND member = %(member)s"
        " AND run = calls.run AND state IN ('accepted', 'running'))"
        " AND NOT EXISTS (SELECT 1 FROM accepted WHERE team = %(team)s AND member = %(member)s"
        " AND run = calls.run AND state = 'suspended')"
        " AND NOT EXISTS (SELECT 1 FROM accepted WHERE team = %(team)s AND member = %(member)s"
        " AND run = calls.run AND state = 'parked')",
        values_of(principal, runs=[*runs]),
    )


async def _check_run(db: Db, principal: Principal, run: str, lease: Lease) -> None:
    cursor = await db.execute(
        "SELECT 1 FROM accepted WHERE team = %(team)s AND member = %(member)s"
        " AND run = %(run)s AND token = %(token)s AND state = 'running' FOR SHARE",
        values_of(principal, run=run, token=lease.token),
    )
    if not cursor.rowcount:
        raise LeaseLostError(f"run {run} is not going on under {lease.name}")


def _check_all(done: AsyncCursor[Row], ids: Sequence[str], lease: Lease) -> None:
    if done.rowcount != len(ids):
        raise LeaseLostError(
            f"not all of these messages are ours under {lease.name}: {', '.join(ids)}"
        )
