"""Resume messages that an earlier process accepted and did not settle.

A run that was started is resumed from its transcript; a message without a run gets one. A message
that was started too often may be what kills the process, and an answer to one that waited too
long is no longer expected: those are parked for a person to decide, logged, and reported to their
senders. An attempt that a clean stop cancelled does not count. A message whose run waits for an
approval is left until the approval is answered, expires or is cancelled. A heartbeat is not parked,
because the next one does the same: it is settled without an answer, and logged.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeAlias, TypeVar

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.store.journal import OPEN, InboxRecord, Journal, OutboxRecord, SettledState

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
MAX_AGE_MS = 86_400_000

OutcomeT = TypeVar("OutcomeT")
# The session key and the inbox records of one run.
ResumeRun: TypeAlias = Callable[[str, Sequence[InboxRecord]], OutcomeT]
# The record that is parked, the run name of the notice's outbox records, and the reason.
BuildNotice: TypeAlias = Callable[[InboxRecord, str, str], Sequence[OutboxRecord]]


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Runs in the order they are started, with their messages; and the messages to park."""

    runs: list[tuple[InboxRecord, ...]] = field(default_factory=list)
    parked: list[tuple[InboxRecord, str]] = field(default_factory=list)


def plan_recovery(records: Sequence[InboxRecord], now_ms: int) -> RecoveryPlan:
    """Plan runs for open messages; those that shared a run share it again.

    Runs that were started come first: no message may come between a question and its answer.
    """
    plan = RecoveryPlan()
    by_run: dict[str, list[InboxRecord]] = {}
    for record in records:
        if record.inbound is None:
            plan.parked.append((record, "its text cannot be read any more"))
        elif record.attempts >= MAX_ATTEMPTS:
            plan.parked.append((record, f"the program ended {record.attempts} times while it ran"))
        elif not record.was_started and now_ms - record.at_ms > MAX_AGE_MS:
            plan.parked.append((record, "it waited for more than a day"))
        else:
            by_run.setdefault(record.run or record.id, []).append(record)
    for run, shared in by_run.items():
        first = [record for record in shared if record.id == run]
        plan.runs.append((*first, *(record for record in shared if record.id != run)))
    plan.runs.sort(key=lambda records: not records[0].entry)
    return plan


async def recover(
    journal: Journal,
    clock: Clock,
    resume: ResumeRun[OutcomeT],
    hold: ResumeRun[object],
    build_notice: BuildNotice,
) -> list[OutcomeT]:
    """Resume, hold or park every unsettled message, and log a summary."""
    records = [*await journal.inbox_records(*OPEN)]
    if suspended := await journal.inbox_records("suspended"):
        waiting = {approval.run for approval in await journal.approvals("pending")}
        records += [record for record in suspended if record.run not in waiting]
        for run in waiting & {record.run for record in suspended}:
            shared = [record for record in suspended if record.run == run]
            shared.sort(key=lambda record: record.id != run)
            hold(shared[0].session, shared)
    started, summary = await resume_or_park(journal, clock, resume, build_notice, records)
    unsent = await journal.outbox_records("pending", "sending")
    if summary or unsent:
        log.warning(
            "after the last end: %s, %d replies to send",
            summary or "nothing to answer",
            len(unsent),
        )
    return started


async def resume_or_park(
    journal: Journal,
    clock: Clock,
    resume: ResumeRun[OutcomeT],
    build_notice: BuildNotice,
    records: Sequence[InboxRecord],
) -> tuple[list[OutcomeT], str]:
    """Resume or park open messages that no run works on; return the runs and a summary."""
    now_ms = clock.now_ms()
    plan = plan_recovery(records, now_ms)
    for record, reason in plan.parked:
        await _park(journal, record, reason, build_notice, now_ms)
    started = [resume(records[0].session, records) for records in plan.runs]
    if not started and not plan.parked:
        return started, ""
    resumed = sum(1 for records in plan.runs if records[0].entry)
    summary = f"{resumed} runs go on, {len(started) - resumed} messages are begun"
    return started, f"{summary}, {len(plan.parked)} parked (homarus inbox --stuck)"


async def _park(
    journal: Journal, record: InboxRecord, reason: str, build_notice: BuildNotice, now_ms: int
) -> None:
    """Park a message, and enqueue the notice for its sender in the same transaction."""
    log.warning("parked: message %s of %s, %s", record.id, record.session, reason)
    async with (
        journal.lease(f"session:{record.session}") as lease,
        journal.transaction() as transaction,
    ):
        is_heartbeat = record.inbound is not None and record.inbound.is_heartbeat
        state: SettledState = "silent" if is_heartbeat else "parked"
        transaction.mark_running([record.id], lease, run=record.run or record.id)
        transaction.settle([record.id], lease, state, at_ms=now_ms, why=reason)
        if record.run:
            transaction.cancel_approvals([record.run], at_ms=now_ms)
        if is_heartbeat:
            return
        # The lease's token keeps the name unique when a person retries the message.
        transaction.enqueue(*build_notice(record, f"{record.id}:parked:{lease.token}", reason))
