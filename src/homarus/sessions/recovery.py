"""Resume messages that an earlier process accepted and did not settle.

A run that was started is resumed from its transcript; a message without a run gets one. A message
that was started too often may be what kills the process, and an answer to one that waited too
long is no longer expected: those are parked for a person to decide, and logged.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeAlias, TypeVar

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.store.journal import OPEN, InboxRecord, Journal

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
MAX_AGE_MS = 86_400_000

OutcomeT = TypeVar("OutcomeT")
ResumeRun: TypeAlias = Callable[
    [str, Sequence[InboxRecord]], OutcomeT
]  # a session, the rows of one run


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Runs in the order they are started, with their messages; and the messages to park."""

    runs: list[tuple[InboxRecord, ...]] = field(default_factory=list)
    parked: list[tuple[InboxRecord, str]] = field(default_factory=list)


def plan_recovery(rows: Sequence[InboxRecord], now_ms: int) -> RecoveryPlan:
    """Plan runs for open messages; those that shared a run share it again.

    Runs that were started come first: no message may come between a question and its answer.
    """
    made = RecoveryPlan()
    by_run: dict[str, list[InboxRecord]] = {}
    for row in rows:
        if row.inbound is None:
            made.parked.append((row, "its text cannot be read any more"))
        elif row.attempts >= MAX_ATTEMPTS:
            made.parked.append((row, f"the program ended {row.attempts} times while it ran"))
        elif not row.attempts and now_ms - row.at_ms > MAX_AGE_MS:
            made.parked.append((row, "it waited for more than a day"))
        else:
            by_run.setdefault(row.run or row.id, []).append(row)
    for run, shared in by_run.items():
        first = [row for row in shared if row.id == run]
        made.runs.append((*first, *(row for row in shared if row.id != run)))
    made.runs.sort(key=lambda rows: not rows[0].entry)
    return made


async def recover(journal: Journal, clock: Clock, begin: ResumeRun[OutcomeT]) -> list[OutcomeT]:
    """Resume or park every open message, and log a summary."""
    begun, summary = await resume_or_park(journal, clock, begin, await journal.inbox_records(*OPEN))
    unsent = await journal.outbox_records("pending", "sending")
    if summary or unsent:
        log.warning(
            "after the last end: %s, %d replies to send",
            summary or "nothing to answer",
            len(unsent),
        )
    return begun


async def resume_or_park(
    journal: Journal, clock: Clock, begin: ResumeRun[OutcomeT], rows: Sequence[InboxRecord]
) -> tuple[list[OutcomeT], str]:
    """Resume or park open messages that no run works on; return the runs and a summary."""
    now_ms = clock.now_ms()
    planned = plan_recovery(rows, now_ms)
    for row, reason in planned.parked:
        await _park(journal, row, reason, now_ms)
    begun = [begin(rows[0].session, rows) for rows in planned.runs]
    if not begun and not planned.parked:
        return begun, ""
    resumed = sum(1 for rows in planned.runs if rows[0].entry)
    summary = f"{resumed} runs go on, {len(begun) - resumed} messages are begun"
    return begun, f"{summary}, {len(planned.parked)} parked (homarus inbox --stuck)"


async def _park(journal: Journal, row: InboxRecord, reason: str, now_ms: int) -> None:
    log.warning("parked: message %s of %s, %s", row.id, row.session, reason)
    async with journal.lease(f"session:{row.session}") as lease, journal.transaction() as unit:
        unit.mark_running([row.id], lease, run=row.run or row.id)
        unit.settle([row.id], lease, "parked", at_ms=now_ms, why=reason)
