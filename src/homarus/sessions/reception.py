"""Where messages come in: kept in the journal first, then handed to their session's inbox.

Every way in ends here: the gateway's methods, the channels, the terminal, and a start that goes
on with what an earlier process left. What gets no run of its own is settled here too.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from homarus.config.schema import Queue
from homarus.core.clock import Clock
from homarus.core.message import Inbound, Json
from homarus.sessions.inbox import Inbox, Start
from homarus.sessions.queue import QueueSettings, resolve
from homarus.sessions.recovery import recover
from homarus.store.journal import Acceptance, Accepted, Journal, JournalUnit, Lease, Parcel

ABORTED = "aborted"

Outcome = TypeVar("Outcome")


class Reception(Generic[Outcome]):
    """Takes messages in. `stop` ends the live run of a session, and says which it was."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        group: asyncio.TaskGroup,
        *,
        start: Start[Outcome],
        stop: Callable[[str, str | None], tuple[str, ...]],
        rules: Callable[[], Queue],
        entry: Callable[[str], Mapping[str, Json]],
        pack: Callable[[Inbound, str, str], Sequence[Parcel]],
        posted: Callable[[], None],
    ) -> None:
        self._journal, self._clock, self._pack, self._posted = journal, clock, pack, posted
        self._group: asyncio.TaskGroup = group
        self._stop, self._rules, self._entry = stop, rules, entry
        self._inbox = Inbox(
            start,
            group,
            clock,
            settings=self._settings,
            interrupt=lambda key: stop(key, None),
            settle=self._give_up,
        )

    async def accept(self, key: str, inbound: Inbound) -> Acceptance:
        """Take a message in for good; one that was taken before is not run again."""
        return await self._journal.accept(key, inbound, at_ms=self._clock.now_ms())

    def put(self, key: str, row: Accepted) -> asyncio.Future[Outcome]:
        """Have a message answered; the future is done when the run that answers it is."""
        return self._inbox.put(key, row)

    def take(self, key: str) -> Sequence[Accepted]:
        """What steers the live run of a session."""
        return self._inbox.take(key)

    async def recover(self) -> list[tuple[Accepted, asyncio.Future[Outcome]]]:
        """Go on with what was accepted before this program began, and not settled."""

        def begin(key: str, rows: Sequence[Accepted]) -> tuple[Accepted, asyncio.Future[Outcome]]:
            return rows[0], self._inbox.begin(key, rows)

        return await recover(self._journal, self._clock, begin)

    def abort(self, key: str, run_id: str | None = None) -> tuple[str, ...]:
        """Stop what a session does and has waiting, or one run of it; the ids of the runs."""
        dropped = self._inbox.drop(key, run_id)
        if dropped:
            self._group.create_task(self._give_up(dropped, ABORTED), name=f"drop {key}")
        return (*self._stop(key, run_id), *(row.id for row in dropped))

    def close(self) -> None:
        """Begin nothing more: what is accepted from now on waits for the next start."""
        self._inbox.close()

    def _settings(self, key: str, row: Accepted) -> QueueSettings:
        return resolve(self._rules(), channel=row.channel, entry=self._entry(key))

    async def _give_up(self, rows: Sequence[Accepted], why: str) -> None:
        """Messages that get no run of their own: the journal says why, and so do we."""
        fresh = [row for row in rows if not row.attempts]
        if fresh:  # nobody ever had a lease on these
            async with self._journal.commit() as unit:
                self._report(unit, fresh, Lease("", 0), why)
        for row in (row for row in rows if row.attempts):
            async with (
                self._journal.lease(f"session:{row.session}") as lease,
                self._journal.commit() as unit,
            ):
                unit.start([row.id], lease, run=row.run or row.id)
                self._report(unit, [row], lease, why)
        self._posted()

    def _report(self, unit: JournalUnit, rows: Sequence[Accepted], lease: Lease, why: str) -> None:
        now_ms, ids = self._clock.now_ms(), [row.id for row in rows]
        unit.settle(ids, lease, "reported", at_ms=now_ms, why=why)
        if why == ABORTED:
            return  # by a person, who knows
        for row in rows:
            if row.inbound:
                told = f"I did not get to your message “{row.preview}”: {why}."
                unit.post(*self._pack(row.inbound, row.id, told))
