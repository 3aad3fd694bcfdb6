"""Trace records: when each step of a run happened, and each attempt to send a reply.

The record of a run is written in the transaction that settles, suspends or cancels it; what an
attempt to send took is written in the transaction that records its outcome. Tracing costs no
transaction of its own. Records are deleted with the settled messages of the journal.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

MAX_TRACE_CHARS: Final = 16_000  # of the JSON of one record
MAX_DELIVERY_ATTEMPTS: Final = 8  # that an outbox record keeps, the newest ones
_MAX_WHY_CHARS: Final = 160


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """What one attempt at a run did, and when.

    `attempt` is the token of the lease that it had: later attempts have larger ones. `at_ms` is
    when the attempt started.
    """

    run: str
    session: str
    attempt: int
    at_ms: int
    data: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One attempt to send an outbox record, and the state that it led to."""

    started_ms: int
    ended_ms: int
    state: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class BacklogCount:
    """How many records of the journal are in a state, and when the oldest was stored."""

    kind: str  # inbox, outbox or approvals
    state: str
    count: int
    oldest_ms: int


def add_attempt(
    earlier: Iterable[DeliveryAttempt], attempt: DeliveryAttempt
) -> tuple[DeliveryAttempt, ...]:
    """Return the attempts with one more; of many, the newest."""
    return (*earlier, attempt)[-MAX_DELIVERY_ATTEMPTS:]


def encode_attempts(attempts: Iterable[DeliveryAttempt]) -> list[list[Json]]:
    """Return attempts as they are stored."""
    return [
        [one.started_ms, one.ended_ms, one.state, one_line(one.why, _MAX_WHY_CHARS)]
        for one in attempts
    ]


def decode_attempts(rows: Json) -> tuple[DeliveryAttempt, ...]:
    """Return the attempts that `encode_attempts` wrote; rows that are damaged are left out."""
    found = list[DeliveryAttempt]()
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [int(started_ms), int(ended_ms), str(state), str(why)]:
                found.append(DeliveryAttempt(started_ms, ended_ms, state, why))
    return tuple(found)


def newest_attempt(records: Sequence[TraceRecord]) -> TraceRecord | None:
    """Return the record of the latest attempt."""
    return max(records, key=lambda record: record.attempt, default=None)
