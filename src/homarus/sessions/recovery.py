"""What a start does about messages that an earlier process accepted and did not settle.

A run that was begun goes on from its transcript; a message that was not begun is begun. One that
was begun too often may be what kills the process, and one that waited too long nobody expects an
answer to any more: those are parked, loudly, for a person to decide on.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeAlias, TypeVar

from homarus.core.clock import Clock
from homarus.core.value import dataclass
from homarus.store.journal import OPEN, Accepted, Journal

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
MAX_AGE_MS = 86_400_000

Outcome = TypeVar("Outcome")
Begin: TypeAlias = Callable[[str, Sequence[Accepted]], Outcome]  # a session, the rows of one run


@dataclass(frozen=True, slots=True)
class Plan:
    """Runs in the order they are taken up, each with the messages it answers; and what is not."""

    runs: list[tuple[Accepted, ...]] = field(default_factory=list)
    parked: list[tuple[Accepted, str]] = field(default_factory=list)


def plan(rows: Sequence[Accepted], now_ms: int) -> Plan:
    """Sort what is open. Messages that shared a run share it again.

    What was begun goes first: nothing may come between a question and its answer.
    """
    made = Plan()
    by_run: dict[str, list[Accepted]] = {}
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


async def recover(journal: Journal, clock: Clock, begin: Begin[Outcome]) -> list[Outcome]:
    """Take up what is open, and say in one line what was done."""
    begun, told = await take_up(journal, clock, begin, await journal.rows(*OPEN))
    unsent = await journal.parcels("pending", "sending")
    if told or unsent:
        log.warning(
            "after the last end: %s, %d replies to send", told or "nothing to answer", len(unsent)
        )
    return begun


async def take_up(
    journal: Journal, clock: Clock, begin: Begin[Outcome], rows: Sequence[Accepted]
) -> tuple[list[Outcome], str]:
    """Begin or park open rows that nobody works on; what was done, in words."""
    now_ms = clock.now_ms()
    found = plan(rows, now_ms)
    for row, why in found.parked:
        await _park(journal, row, why, now_ms)
    begun = [begin(rows[0].session, rows) for rows in found.runs]
    if not begun and not found.parked:
        return begun, ""
    resumed = sum(1 for rows in found.runs if rows[0].entry)
    told = f"{resumed} runs go on, {len(begun) - resumed} messages are begun"
    return begun, f"{told}, {len(found.parked)} parked (homarus inbox --stuck)"


async def _park(journal: Journal, row: Accepted, why: str, now_ms: int) -> None:
    log.warning("parked: message %s of %s, %s", row.id, row.session, why)
    async with journal.lease(f"session:{row.session}") as lease, journal.commit() as unit:
        unit.start([row.id], lease, run=row.run or row.id)
        unit.settle([row.id], lease, "parked", at_ms=now_ms, why=why)
