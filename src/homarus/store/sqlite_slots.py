"""The slots of cron jobs in state.sqlite."""

from collections.abc import Collection, Sequence
from typing import Any, Final

import apsw

from homarus.core.errors import CorruptDataError
from homarus.core.principal import Principal
from homarus.store.journal_codec import to_storable
from homarus.store.query import WhereClause, select
from homarus.store.slots import (
    SLOT_STATES,
    SlotRecord,
    SlotState,
    claimed_slot,
    decode_usage,
    encode_usage,
    unclaimed_slot,
)
from homarus.store.transcript_codec import dump_json, load_json

# In the order of the fields of SlotRecord, without `place`.
_NAMES: Final = (
    "job", "slot_ms", "cause", "state", "reason", "attempt", "run_id", "started_ms", "ended_ms",
    "session_key", "session_id", "summary", "model", "provider", "usage", "next_run_ms", "count",
    "until_ms",
)  # fmt: skip
_FIELDS: Final = (
    "job", "slot_ms", "trigger", *_NAMES[3:],
)  # fmt: skip
_USAGE: Final = 14  # the index of the usage
_COLUMNS: Final = ", ".join(_NAMES)
_VALUES: Final = ", ".join("?" * (2 + len(_NAMES)))
_END: Final = ", ".join(f"{name} = ?" for name in _NAMES[2:])


def claim_slot(db: apsw.Connection, principal: Principal, record: SlotRecord) -> None:
    """Insert a slot. Raises ConflictError when there is one for the job and the time."""
    try:
        db.execute(
            f"INSERT INTO slots (team, user, {_COLUMNS}) VALUES ({_VALUES})",  # noqa: S608 - our names
            (principal.team, principal.user, *_encode_slot(record)),
        )
    except apsw.ConstraintError as exc:
        raise claimed_slot(record) from exc


def end_slot(db: apsw.Connection, principal: Principal, record: SlotRecord) -> None:
    """Write the end of a slot. Raises ConflictError unless it is running."""
    job, slot_ms, *values = _encode_slot(record)
    found = select(
        db,
        f"UPDATE slots SET {_END} WHERE team = ? AND user = ? AND job = ? AND slot_ms = ?"  # noqa: S608 - our names
        " AND state = 'running' RETURNING place",
        (*values, principal.team, principal.user, job, slot_ms),
    )
    if not found:
        raise unclaimed_slot(record)


def prune_slots(
    db: apsw.Connection,
    principal: Principal,
    max_per_job: int,
    before_ms: int,
    jobs: Collection[str],
) -> None:
    """Delete ended slots beyond the newest of their job, and old ones but the newest of `jobs`."""
    db.execute(
        "DELETE FROM slots WHERE place IN (SELECT place FROM (SELECT place, job, state, ended_ms,"
        " row_number() OVER (PARTITION BY job ORDER BY place DESC) AS number"
        " FROM slots WHERE team = ?1 AND user = ?2)"
        " WHERE state <> 'running' AND (number > ?3 OR (ended_ms < ?4"
        " AND (number > 1 OR job NOT IN (SELECT value FROM json_each(?5))))))",
        (principal.team, principal.user, max_per_job, before_ms, dump_json([*jobs])),
    )


def slots(
    db: apsw.Connection,
    principal: Principal,
    states: Sequence[SlotState] = (),
    *,
    job: str | None = None,
    slot_ms: int | None = None,
    limit: int | None = None,
) -> list[SlotRecord]:
    """Return the newest slots that match, in the order they were claimed."""
    clause = WhereClause()
    clause.add("team = ? AND user = ?", principal.team, principal.user)
    if len(states) == 1 and states[0] == "running":
        clause.add("state = 'running'")  # as its index says
    elif states:
        clause.add(f"state IN ({', '.join('?' * len(states))})", *states)
    if job is not None:
        clause.add("job = ?", job)
    if slot_ms is not None:
        clause.add("slot_ms = ?", slot_ms)
    sql = f"SELECT {_COLUMNS}, place FROM slots WHERE {clause} ORDER BY place DESC LIMIT ?"  # noqa: S608 - our names
    rows = select(db, sql, (*clause.values, -1 if limit is None else limit))
    return [_decode_slot(row) for row in reversed(rows)]


def _encode_slot(record: SlotRecord) -> tuple[Any, ...]:
    """Return the columns of a slot."""
    values = [getattr(record, name) for name in _FIELDS]
    values[_USAGE] = dump_json(encode_usage(record.usage)) if record.usage else ""
    return tuple(to_storable(one) if isinstance(one, str) else one for one in values)


def _decode_slot(row: Sequence[Any]) -> SlotRecord:
    """Return a slot from its columns, after which comes its place."""
    fields = [*row]
    fields[_USAGE] = decode_usage(load_json(row[_USAGE])) if row[_USAGE] else None
    record = SlotRecord(*fields)
    if record.state not in SLOT_STATES:
        raise CorruptDataError(f"a slot of job {record.job} has the state {record.state!r}")
    return record
