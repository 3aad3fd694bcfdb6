"""The audit log in state.sqlite: rows are added by the writer, which computes their hashes."""

import json
from collections.abc import Sequence
from typing import Any, Final

import apsw

from homarus.core.principal import Principal
from homarus.store.audit import (
    AuditAnchor,
    AuditCheck,
    AuditEntry,
    AuditRow,
    check_audit_rows,
    make_audit_row,
)
from homarus.store.query import select

_COLUMNS: Final = "seq, at_ms, kind, agent, session, tool, json, previous, hash"
_DATABASE: Final = "the database"  # the place of its own anchor, as a problem names it


def add_audit(db: apsw.Connection, principal: Principal, entries: Sequence[AuditEntry]) -> None:
    """Append entries, each with the hash of the one before it.

    They follow the anchor, not the last row: rows that were cut off stay missing.
    """
    last = _anchor(db, principal)
    for entry in entries:
        row = make_audit_row(principal, entry, last)
        db.execute(
            f"INSERT INTO audit (team, user, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our names
            (
                principal.team, principal.user, row.seq, row.at_ms, row.kind, row.agent,
                row.session, row.tool, row.json, row.previous, row.hash,
            ),
        )  # fmt: skip
        last = AuditAnchor(row.seq, row.hash)
    value = json.dumps([last.seq, last.hash])
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_key(principal), value))


def audit_entries(
    db: apsw.Connection,
    principal: Principal,
    *,
    since_ms: int = 0,
    agent: str | None = None,
    tool: str | None = None,
    kind: str | None = None,
    before_seq: int | None = None,
    limit: int | None = None,
) -> list[AuditEntry]:
    """Return the newest entries that match, oldest first."""
    found = select(
        db,
        f"SELECT {_COLUMNS} FROM audit WHERE team = ?1 AND user = ?2 AND at_ms >= ?3"  # noqa: S608 - our names
        " AND (?4 IS NULL OR agent = ?4) AND (?5 IS NULL OR tool = ?5)"
        " AND (?6 IS NULL OR kind = ?6) AND (?7 IS NULL OR seq < ?7)"
        " ORDER BY seq DESC LIMIT ?8",
        (
            principal.team, principal.user, since_ms, agent, tool, kind, before_seq,
            -1 if limit is None else limit,
        ),
    )  # fmt: skip
    return [AuditRow(*row).to_entry() for row in reversed(found)]


def check_audit(
    db: apsw.Connection, principal: Principal, anchors: dict[str, AuditAnchor]
) -> AuditCheck:
    """Check the rows of a principal, against each other, the anchor and the ones given."""
    cursor = db.execute(
        f"SELECT {_COLUMNS} FROM audit WHERE team = ? AND user = ? ORDER BY seq",  # noqa: S608 - our names
        (principal.team, principal.user),
    )
    known = {_DATABASE: _anchor(db, principal), **anchors}
    return check_audit_rows(principal, (AuditRow(*row) for row in cursor), known)


def audit_anchor(db: apsw.Connection, principal: Principal, seq: int) -> AuditAnchor:
    """Return number and hash of a row, or of the last one that was added for 0."""
    if not seq:
        return _anchor(db, principal)
    sql = "SELECT seq, hash FROM audit WHERE team = ? AND user = ? AND seq = ?"
    rows = select(db, sql, (principal.team, principal.user, seq))
    return AuditAnchor(*rows[0]) if rows else AuditAnchor()


def _anchor(db: apsw.Connection, principal: Principal) -> AuditAnchor:
    for (value,) in select(db, "SELECT value FROM meta WHERE key = ?", (_key(principal),)):
        return _decode_anchor(value)
    rows = select(
        db,
        "SELECT seq, hash FROM audit WHERE team = ? AND user = ? ORDER BY seq DESC LIMIT 1",
        (principal.team, principal.user),
    )
    return AuditAnchor(*rows[0]) if rows else AuditAnchor()


def _decode_anchor(value: Any) -> AuditAnchor:
    seq, digest = json.loads(value)
    return AuditAnchor(int(seq), str(digest))


def _key(principal: Principal) -> str:
    return f"audit:{principal.team}:{principal.user}"
