"""The SQL of usage: a row for each model call, and the totals of a day, which outlive the rows."""

from collections.abc import Iterable, Sequence
from typing import Final

import apsw

from homarus.core.message import Usage
from homarus.core.principal import Principal
from homarus.store.base import TranscriptEntry, UsageRecord
from homarus.store.journal_codec import to_storable
from homarus.store.query import WhereClause, select
from homarus.store.usage import UsageField, UsageFilter, UsageTotal, transcript_usage

_PRUNED_AT_ONCE: Final = 20_000  # rows, before another write gets a turn
_TOKENS: Final = "input, output, cache_read, cache_write, reasoning, cost"
_INSERT: Final = (
    "INSERT INTO spent (team, user, at_ms, run, session, provider, model, input, output,"
    " cache_read, cache_write, reasoning, cost, error, agent, session_id, channel, purpose,"
    " priced)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADD_TO_DAY: Final = (
    "INSERT INTO spent_days (team, user, day, agent, session, session_id, channel, purpose,"
    " provider, model, calls, failed, unpriced, input, output, cache_read, cache_write,"
    " reasoning, cost)"
    " VALUES (?1, ?2, coalesce(date(?3 / 1000, 'unixepoch', 'localtime'), '1970-01-01'), ?15, ?5,"
    " ?16, ?17, ?18, ?6, ?7, 1, ?14 <> '', NOT ?19, ?8, ?9, ?10, ?11, ?12, ?13)"
    " ON CONFLICT DO UPDATE SET calls = calls + 1, failed = failed + excluded.failed,"
    " unpriced = unpriced + excluded.unpriced, input = input + excluded.input,"
    " output = output + excluded.output, cache_read = cache_read + excluded.cache_read,"
    " cache_write = cache_write + excluded.cache_write,"
    " reasoning = reasoning + excluded.reasoning, cost = cost + excluded.cost"
)


def add_usage(db: apsw.Connection, principal: Principal, calls: Iterable[UsageRecord]) -> None:
    """Record the usage of model calls, and add it to the totals of their days."""
    rows = [
        (
            principal.team, principal.user, call.at_ms, to_storable(call.run),
            to_storable(call.session), to_storable(call.provider), to_storable(call.model),
            call.usage.input, call.usage.output, call.usage.cache_read, call.usage.cache_write,
            call.usage.reasoning, call.usage.cost, to_storable(call.error), call.agent,
            call.session_id or _current_session_id(db, principal, call.session),
            to_storable(call.channel), call.purpose, call.is_priced,
        )
        for call in calls
    ]  # fmt: skip
    db.executemany(_INSERT, rows)
    db.executemany(_ADD_TO_DAY, rows)


def add_imported_usage(
    db: apsw.Connection, principal: Principal, session_id: str, entries: Iterable[TranscriptEntry]
) -> None:
    """Count the answers of entries that were read from a file: no call of ours made them."""
    scope = (principal.team, principal.user, session_id)
    made = select(
        db, "SELECT agent FROM transcripts WHERE team = ? AND user = ? AND session_id = ?", scope
    )
    keys = select(
        db, "SELECT key FROM sessions WHERE team = ? AND user = ? AND session_id = ? LIMIT 1", scope
    )
    agent, key = made[0][0] if made else "", keys[0][0] if keys else ""
    calls = transcript_usage(entries, agent=agent, session=key, session_id=session_id)
    add_usage(db, principal, calls)


def usage_records(
    db: apsw.Connection, principal: Principal, since_ms: int, session: str | None
) -> list[UsageRecord]:
    """Return the usage records since a time."""
    clause = WhereClause()
    clause.add("team = ? AND user = ? AND at_ms >= ?", principal.team, principal.user, since_ms)
    if session is not None:
        clause.add("session = ?", session)
    found = select(
        db,
        "SELECT run, session, provider, model, at_ms, error, agent, session_id, channel, purpose,"  # noqa: S608 - our names
        f" priced, {_TOKENS} FROM spent WHERE {clause} ORDER BY place",
        tuple(clause.values),
    )
    return [
        UsageRecord(
            run, key, provider, model, at_ms, Usage(*used), error, agent, session_id, channel,
            purpose, bool(priced),
        )
        for run, key, provider, model, at_ms, error, agent, session_id, channel, purpose, priced,
        *used in found
    ]  # fmt: skip


def usage_totals(
    db: apsw.Connection, principal: Principal, by: Sequence[UsageField], wanted: UsageFilter
) -> list[UsageTotal]:
    """Return totals of days, in the order of their groups."""
    clause = WhereClause()
    clause.add("team = ? AND user = ?", principal.team, principal.user)
    if wanted.first_day:
        clause.add("day >= ?", wanted.first_day)
    if wanted.last_day:
        clause.add("day <= ?", wanted.last_day)
    if wanted.agent:
        clause.add("agent = ?", wanted.agent)
    if wanted.session:
        clause.add("session = ?", wanted.session)
    sums = ", ".join(f"sum({name.strip()})" for name in _TOKENS.split(","))
    names = ", ".join(by)
    sql = (
        f"SELECT sum(calls), sum(failed), sum(unpriced), {sums}{', ' if by else ''}{names}"  # noqa: S608 - our names
        f" FROM spent_days WHERE {clause}"
    )
    if by:
        sql += f" GROUP BY {names} ORDER BY {names}"
    totals = list[UsageTotal]()
    for calls, failed, unpriced, *rest in select(db, sql, tuple(clause.values)):
        if calls is not None:
            group = dict(zip(by, rest[6:], strict=True))
            totals.append(UsageTotal(group, Usage(*rest[:6]), calls, failed, unpriced))
    return totals


def prune_usage(db: apsw.Connection, principal: Principal, before_ms: int) -> int:
    """Delete some rows that are older, and return how many; the totals of days stay."""
    db.execute(
        "DELETE FROM spent WHERE place IN (SELECT place FROM spent"
        " WHERE team = ? AND user = ? AND at_ms < ? LIMIT ?)",
        (principal.team, principal.user, before_ms, _PRUNED_AT_ONCE),
    )
    return db.changes()


def _current_session_id(db: apsw.Connection, principal: Principal, key: str) -> str:
    found = select(
        db,
        "SELECT session_id FROM sessions WHERE team = ? AND user = ? AND key = ?",
        (principal.team, principal.user, to_storable(key)),
    )
    return str(found[0][0]) if found else ""
