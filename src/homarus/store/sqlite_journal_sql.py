"""The SQL statements of the journal in state.sqlite.

Statements that write run on the writer thread, inside a transaction. A row stores the token of the
lease it was started under (0: never); writes under a smaller token are refused.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import apsw

from homarus.core.errors import ConflictError, LeaseLostError
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
    SELECT_INBOX,
    NewInboxRecord,
    decode_inbox_record,
    encode_extras,
    new_outbox_record,
)
from homarus.store.query import select

BY_ID: Final = f"{SELECT_INBOX} WHERE team = ? AND user = ? AND id = ?"
# The exact text of the partial indexes' conditions: only then does SQLite use them.
OPEN: Final = "state IN ('accepted', 'running')"
PARKED: Final = "state = 'parked'"
SUSPENDED: Final = "state = 'suspended'"
PENDING: Final = "state = 'pending'"
WAITING: Final = "state IN ('pending', 'sending')"
STRANDED: Final = "state IN ('unknown', 'dead')"
# What is not done: its kind, its table, the column of its time and the condition of its index.
BACKLOG: Final = (
    *(("inbox", "accepted", "at_ms", each) for each in (OPEN, PARKED, SUSPENDED)),
    *(("outbox", "parcels", "at_ms", each) for each in (WAITING, STRANDED)),
    ("approvals", "approvals", "created_ms", PENDING),
)


def accept(db: apsw.Connection, principal: Principal, new_record: NewInboxRecord) -> Acceptance:
    """Store a message, or count it as a duplicate."""
    if place := _insert(db, principal, new_record):
        return Acceptance("new", new_record.at(place))
    for other in new_record.as_conflict():
        if existing_id := _count(db, principal, other):
            (row,) = select(db, BY_ID, (principal.team, principal.user, existing_id))
            return Acceptance("duplicate", decode_inbox_record(row))
        if place := _insert(db, principal, other):
            return Acceptance("conflict", other.at(place))
    raise ConflictError(f"there is no room beside message {new_record.record.message_id}")


def accept_new(db: apsw.Connection, principal: Principal, new_record: NewInboxRecord) -> None:
    """Store a message that must be new. Raises ConflictError."""
    if not _insert(db, principal, new_record):
        raise ConflictError(f"message {new_record.record.message_id} was accepted before")


def _insert(db: apsw.Connection, principal: Principal, new_record: NewInboxRecord) -> int:
    inserted = select(
        db,
        "INSERT INTO accepted (team, user, id, session, channel, account, message_id, sender,"
        " preview, at_ms, state, why, settled_ms, digest, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING RETURNING place",
        (principal.team, principal.user, *new_record.columns()),
    )
    return int(inserted[0][0]) if inserted else 0


def _count(db: apsw.Connection, principal: Principal, new_record: NewInboxRecord) -> str:
    row = new_record.record
    existing_id = select(
        db,
        "UPDATE accepted SET duplicates = duplicates + 1 WHERE team = ? AND user = ?"
        " AND channel = ? AND account = ? AND message_id = ? AND digest = ? RETURNING id",
        (
            principal.team,
            principal.user,
            row.channel,
            row.account,
            row.message_id,
            new_record.digest,
        ),
    )
    return str(existing_id[0][0]) if existing_id else ""


def mark_running(
    db: apsw.Connection,
    principal: Principal,
    ids: Sequence[str],
    lease: Lease,
    *,
    run: str,
    session_id: str,
    entry: str,
) -> None:
    """Mark open rows as running under this lease. Doing so twice under one lease is one attempt."""
    for record_id in ids:
        db.execute(
            "UPDATE accepted SET attempts = attempts + (state <> 'running' OR token <> ?5),"
            " state = 'running', token = ?5, run = ?4,"
            " session_id = CASE ?6 WHEN '' THEN session_id ELSE ?6 END,"
            " entry = CASE ?7 WHEN '' THEN entry ELSE ?7 END"
            " WHERE team = ?1 AND user = ?2 AND id = ?3 AND token <= ?5"
            " AND state IN ('accepted', 'running', 'suspended')",
            (principal.team, principal.user, record_id, run, lease.token, session_id, entry),
        )
        if not db.changes():
            raise _lost(db, principal, record_id, lease)


def check_lease(
    db: apsw.Connection, principal: Principal, ids: Iterable[str], lease: Lease
) -> None:
    """Raise LeaseLostError unless these rows are running under this lease."""
    for record_id in ids:
        if not select(
            db,
            "SELECT 1 FROM accepted WHERE team = ? AND user = ? AND id = ?"
            " AND state = 'running' AND token = ?",
            (principal.team, principal.user, record_id, lease.token),
        ):
            raise _lost(db, principal, record_id, lease)


def cancel_attempt(
    db: apsw.Connection, principal: Principal, ids: Iterable[str], lease: Lease
) -> None:
    """Take back the count of the attempt under this lease."""
    db.executemany(
        "UPDATE accepted SET attempts = max(attempts - 1, 0)"
        " WHERE team = ? AND user = ? AND id = ? AND state = 'running' AND token = ?",
        [(principal.team, principal.user, record_id, lease.token) for record_id in ids],
    )


def suspend(db: apsw.Connection, principal: Principal, ids: Iterable[str], lease: Lease) -> None:
    """Mark running rows as suspended, without the count of this attempt."""
    for record_id in ids:
        db.execute(
            "UPDATE accepted SET state = 'suspended', attempts = max(attempts - 1, 0)"
            " WHERE team = ? AND user = ? AND id = ? AND state = 'running' AND token = ?",
            (principal.team, principal.user, record_id, lease.token),
        )
        if not db.changes():
            raise _lost(db, principal, record_id, lease)


def add_approval(db: apsw.Connection, principal: Principal, record: ApprovalRecord) -> None:
    """Insert an approval."""
    names, marks = ", ".join(APPROVAL_COLUMNS), ", ".join("?" * (len(APPROVAL_COLUMNS) + 2))
    db.execute(
        f"INSERT INTO approvals (team, user, {names}) VALUES ({marks})",  # noqa: S608 - our names
        (principal.team, principal.user, *encode_approval(record)),
    )


def use_approval(
    db: apsw.Connection, principal: Principal, approval_id: str, digest: str, at_ms: int
) -> None:
    """Mark an approval as used, if it allows this call."""
    db.execute(
        "UPDATE approvals SET used_ms = ?5 WHERE team = ?1 AND user = ?2 AND id = ?3"
        " AND digest = ?4 AND state = 'allowed' AND used_ms = 0 AND expires_ms > ?5",
        (principal.team, principal.user, approval_id, digest, at_ms),
    )
    if not db.changes():
        raise unusable_approval(approval_id)


def cancel_approvals(
    db: apsw.Connection, principal: Principal, runs: Iterable[str], at_ms: int
) -> None:
    """Cancel the pending approvals of these runs."""
    db.executemany(
        "UPDATE approvals SET state = 'cancelled', resolved_ms = ?"
        " WHERE team = ? AND user = ? AND run = ? AND state = 'pending'",
        [(at_ms, principal.team, principal.user, run) for run in runs],
    )


def resolve_approval(
    db: apsw.Connection,
    principal: Principal,
    resolution: ApprovalResolution,
    outbox: Sequence[OutboxRecord],
) -> ApprovalRecord | None:
    """Resolve a pending approval, and enqueue records with it."""
    scope = (principal.team, principal.user, resolution.id)
    rows = select(db, f"{SELECT_APPROVALS} WHERE team = ? AND user = ? AND id = ?", scope)
    resolved = resolution.apply(decode_approval(rows[0])) if rows else None
    if resolved is None:
        return None
    db.execute(
        "UPDATE approvals SET state = ?, decision = ?, resolved_by = ?, resolved_ms = ?"
        " WHERE team = ? AND user = ? AND id = ?",
        (resolved.state, resolved.decision, resolved.resolved_by, resolved.resolved_ms, *scope),
    )
    enqueue(db, principal, outbox)
    return resolved


def settle(
    db: apsw.Connection,
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
    runs = set[str]()
    for record_id in ids:
        settled = select(
            db,
            "UPDATE accepted SET state = ?5, token = ?4, settled_ms = ?6, why = ?7, reply = ?8,"
            " body = CASE ?5 WHEN 'parked' THEN body END"
            " WHERE team = ?1 AND user = ?2 AND id = ?3 AND"
            " (state = 'running' AND token = ?4"
            " OR state IN ('accepted', 'suspended') AND token <= ?4)"
            " RETURNING run",
            (principal.team, principal.user, record_id, lease.token, state, at_ms, why, reply),
        )
        if not settled:
            raise _lost(db, principal, record_id, lease)
        runs.add(settled[0][0])
    for run in runs - {""}:
        _forget_calls(db, principal, run)


def call_started(
    db: apsw.Connection, principal: Principal, run: str, lease: Lease, call_id: str
) -> None:
    """Record that a tool call may have started."""
    _check_run(db, principal, run, lease)
    db.execute(
        "INSERT INTO calls VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (principal.team, principal.user, run, call_id),
    )


def call_ended(
    db: apsw.Connection, principal: Principal, run: str, lease: Lease, call_id: str
) -> None:
    """Delete a started call: its result is stored in the transcript."""
    _check_run(db, principal, run, lease)
    db.execute(
        "DELETE FROM calls WHERE team = ? AND user = ? AND run = ? AND call_id = ?",
        (principal.team, principal.user, run, call_id),
    )


def enqueue(db: apsw.Connection, principal: Principal, records: Iterable[OutboxRecord]) -> None:
    """Append records to the outbox."""
    db.executemany(
        "INSERT INTO parcels (team, user, id, run, channel, chat, account, thread, text, at_ms,"
        " expires_ms, not_before_ms, extras) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        [
            (
                principal.team, principal.user, record.id, record.run, record.address.channel,
                record.address.chat, record.address.account, record.address.thread, record.text,
                record.at_ms, record.expires_ms, record.not_before_ms, encode_extras(record.extras),
            )
            for record in map(new_outbox_record, records)
        ],
    )  # fmt: skip


def send_started(
    db: apsw.Connection, principal: Principal, record_id: str, lease: Lease, at_ms: int
) -> None:
    """Mark a record as sending: from now on it may have been delivered."""
    db.execute(
        "UPDATE parcels SET state = 'sending', token = ?4, attempts = attempts + 1, started_ms = ?5"
        " WHERE team = ?1 AND user = ?2 AND id = ?3 AND token <= ?4"
        " AND state IN ('pending', 'sending')",
        (principal.team, principal.user, record_id, lease.token, at_ms),
    )
    if not db.changes():
        raise LeaseLostError(f"parcel {record_id} is not ours to send under {lease.name}")


def send_ended(
    db: apsw.Connection,
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
    db.execute(
        "UPDATE parcels SET state = ?5, receipt = ?6, why = ?7, not_before_ms = ?8,"
        " tries = CASE ?9 WHEN '' THEN tries ELSE ?9 END,"
        " thread = CASE ?10 WHEN '' THEN thread ELSE ?10 END"
        " WHERE team = ?1 AND user = ?2 AND id = ?3 AND state = 'sending' AND token = ?4",
        (
            principal.team,
            principal.user,
            record_id,
            lease.token,
            state,
            receipt,
            why,
            not_before_ms,
            tries,
            thread,
        ),
    )
    if not db.changes():
        raise LeaseLostError(f"parcel {record_id} is not being sent under {lease.name}")


def add_trace(
    db: apsw.Connection, principal: Principal, row: tuple[str, int, str, int, str]
) -> None:
    """Store the trace of an attempt at a run."""
    db.execute(
        "INSERT INTO traces (team, user, run, attempt, session, at_ms, json)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (team, user, run, attempt)"
        " DO UPDATE SET at_ms = excluded.at_ms, json = excluded.json",
        (principal.team, principal.user, *row),
    )


def retry(db: apsw.Connection, principal: Principal, item_id: str, at_ms: int) -> bool:
    """Reset a parked or dead item. A larger token refuses writes of the previous holder.

    An outbox record gets as long until it expires as it had at first.
    """
    db.execute(
        "UPDATE accepted SET state = 'accepted', token = token + 1, reply = '', why = '',"
        " attempts = 0, settled_ms = 0"
        " WHERE team = ? AND user = ? AND id = ? AND state = 'parked'",
        (principal.team, principal.user, item_id),
    )
    if db.changes():
        return True
    db.execute(
        "UPDATE parcels SET state = 'pending', token = token + 1, why = '', attempts = 0,"
        " not_before_ms = 0, expires_ms = CASE WHEN expires_ms > at_ms"
        " THEN max(expires_ms, ?4 + expires_ms - at_ms) ELSE expires_ms END"
        " WHERE team = ?1 AND user = ?2 AND id = ?3 AND state IN ('unknown', 'dead')",
        (principal.team, principal.user, item_id, at_ms),
    )
    return bool(db.changes())


def discard(db: apsw.Connection, principal: Principal, item_id: str, at_ms: int, why: str) -> bool:
    """Report a parked message, or delete a dead or unknown outbox record."""
    discarded = select(
        db,
        "UPDATE accepted SET state = 'reported', settled_ms = ?, why = ?, body = NULL"
        " WHERE team = ? AND user = ? AND id = ? AND state = 'parked' RETURNING run",
        (at_ms, why, principal.team, principal.user, item_id),
    )
    if discarded:
        _forget_calls(db, principal, discarded[0][0])
        return True
    db.execute(
        "DELETE FROM parcels"
        " WHERE team = ? AND user = ? AND id = ? AND state IN ('unknown', 'dead')",
        (principal.team, principal.user, item_id),
    )
    return bool(db.changes())


def prune(
    db: apsw.Connection, principal: Principal, before_ms: int, approvals_before_ms: int
) -> int:
    """Delete finished items from before a time."""
    db.execute(
        "DELETE FROM accepted WHERE team = ? AND user = ? AND settled_ms < ?"
        " AND state IN ('answered', 'silent', 'reported')",
        (principal.team, principal.user, before_ms),
    )
    deleted = db.changes()
    db.execute(
        "DELETE FROM parcels WHERE team = ? AND user = ? AND at_ms < ? AND state = 'sent'",
        (principal.team, principal.user, before_ms),
    )
    deleted += db.changes()
    # Rows are in the order of their times: the first that is kept ends the search.
    db.execute(
        "DELETE FROM traces WHERE team = ?1 AND user = ?2 AND place < coalesce("
        "(SELECT place FROM traces WHERE team = ?1 AND user = ?2 AND at_ms >= ?3"
        " ORDER BY place LIMIT 1), (SELECT max(place) + 1 FROM traces))",
        (principal.team, principal.user, before_ms),
    )
    db.execute(
        "DELETE FROM chat_records WHERE team = ?1 AND user = ?2 AND (at_ms < ?3 OR place <= ("
        "SELECT place FROM chat_records WHERE team = ?1 AND user = ?2"
        " ORDER BY place DESC LIMIT 1 OFFSET ?4))",
        (principal.team, principal.user, before_ms, MAX_CHAT_RECORDS),
    )
    db.execute(
        "DELETE FROM approvals WHERE team = ? AND user = ? AND resolved_ms < ?"
        " AND state <> 'pending'",
        (principal.team, principal.user, approvals_before_ms),
    )
    return deleted + db.changes()


def set_message(db: apsw.Connection, principal: Principal, record_id: str, body: str) -> bool:
    """Replace the message of an accepted row."""
    db.execute(
        "UPDATE accepted SET body = ? WHERE team = ? AND user = ? AND id = ?"
        " AND state = 'accepted'",
        (body, principal.team, principal.user, record_id),
    )
    return bool(db.changes())


def put_chat_records(db: apsw.Connection, principal: Principal, rows: Iterable[ChatRow]) -> None:
    """Write or delete what is remembered of chats. A new row is the newest."""
    for *key, at_ms, text in rows:
        if text is None:
            db.execute(
                "DELETE FROM chat_records WHERE team = ? AND user = ? AND kind = ? AND chat = ?"
                " AND id = ?",
                (principal.team, principal.user, *key),
            )
        else:
            db.execute(
                "INSERT OR REPLACE INTO chat_records (team, user, kind, chat, id, at_ms, json)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (principal.team, principal.user, *key, at_ms, text),
            )


def _forget_calls(db: apsw.Connection, principal: Principal, run: str) -> None:
    """Delete the calls of a run, unless one of its messages may be retried."""
    db.execute(
        "DELETE FROM calls WHERE team = ?1 AND user = ?2 AND run = ?3"
        " AND NOT EXISTS (SELECT 1 FROM accepted WHERE team = ?1 AND user = ?2 AND run = ?3"
        " AND state IN ('accepted', 'running'))"
        " AND NOT EXISTS (SELECT 1 FROM accepted WHERE team = ?1 AND user = ?2 AND run = ?3"
        " AND state = 'suspended')"
        " AND NOT EXISTS (SELECT 1 FROM accepted WHERE team = ?1 AND user = ?2 AND run = ?3"
        " AND state = 'parked')",
        (principal.team, principal.user, run),
    )


def _check_run(db: apsw.Connection, principal: Principal, run: str, lease: Lease) -> None:
    if not select(
        db,
        "SELECT 1 FROM accepted WHERE team = ? AND user = ? AND run = ? AND token = ?"
        " AND state = 'running' AND state IN ('accepted', 'running')",
        (principal.team, principal.user, run, lease.token),
    ):
        raise LeaseLostError(f"run {run} is not going on under {lease.name}")


def _lost(
    db: apsw.Connection, principal: Principal, record_id: str, lease: Lease
) -> LeaseLostError:
    rows = select(
        db,
        "SELECT state FROM accepted WHERE team = ? AND user = ? AND id = ?",
        (principal.team, principal.user, record_id),
    )
    problem = f"is {rows[0][0]}, and not ours under {lease.name}" if rows else "is not known"
    return LeaseLostError(f"message {record_id} {problem}")
