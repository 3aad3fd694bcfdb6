"""Where messages come in: kept in the journal first, then handed to their session's inbox.

Every way in ends here: the gateway's methods, the channels, the terminal, and a start that goes
on with what an earlier process left. Each message is heard first: a command is obeyed at once,
whatever runs; anything else goes to the inbox. What gets no run of its own is settled here too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from homarus.config.schema import Queue
from homarus.core.clock import Clock
from homarus.core.message import Inbound, Json
from homarus.core.tasks import contain
from homarus.core.value import dataclass
from homarus.sessions.directives import QueueSetting
from homarus.sessions.inbox import Inbox, Start
from homarus.sessions.queue import QueueSettings, resolve
from homarus.sessions.recovery import recover
from homarus.store.journal import Acceptance, Accepted, Journal, JournalUnit, Lease, Parcel

ABORTED = "aborted"

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Heard(Generic[Outcome]):
    """A message as it was understood.

    `row` is what a run gets of it, `queue` how it wants to wait. With `instead`, that answers it
    at once; when it gives a row, there is something left for a run to answer.
    """

    row: Accepted
    queue: QueueSetting | None = None
    instead: Callable[[], Awaitable[Outcome | Accepted]] | None = None


def plain(_key: str, row: Accepted) -> Heard[Outcome]:
    """Words, whatever they say."""
    return Heard(row)


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
        hear: Callable[[str, Accepted], Heard[Outcome]] = plain,
    ) -> None:
        self._journal, self._clock, self._pack, self._posted = journal, clock, pack, posted
        self._hear, self._closed = hear, False
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
        heard = self._hear(key, row)
        if heard.instead:
            return self._aside(key, heard.instead)
        return self._line_up(key, heard)

    def take(self, key: str) -> Sequence[Accepted]:
        """What steers the live run of a session."""
        return self._inbox.take(key)

    async def recover(self) -> list[tuple[Accepted, asyncio.Future[Outcome]]]:
        """Go on with what was accepted before this program began, and not settled."""

        def begin(key: str, rows: Sequence[Accepted]) -> tuple[Accepted, asyncio.Future[Outcome]]:
            heard = [self._hear(key, row) for row in rows]
            if heard[0].instead and not rows[0].entry:
                return rows[0], self._aside(key, heard[0].instead)
            return rows[0], self._inbox.begin(key, [one.row for one in heard])

        return await recover(self._journal, self._clock, begin)

    def waiting(self, key: str) -> int:
        """How many messages of a session wait for a run."""
        return self._inbox.depth(key)

    def abort(self, key: str, run_id: str | None = None) -> tuple[str, ...]:
        """Stop what a session does and has waiting, or one run of it; the ids of the runs."""
        dropped = self._inbox.drop(key, run_id)
        if dropped:
            self._group.create_task(self._give_up(dropped, ABORTED), name=f"drop {key}")
        return (*self._stop(key, run_id), *(row.id for row in dropped))

    def close(self) -> None:
        """Begin nothing more: what is accepted from now on waits for the next start."""
        self._closed = True
        self._inbox.close()

    def _line_up(self, key: str, heard: Heard[Outcome]) -> asyncio.Future[Outcome]:
        inline = self._settings(key, heard.row, heard.queue) if heard.queue else None
        return self._inbox.put(key, heard.row, inline)

    def _aside(
        self, key: str, obey: Callable[[], Awaitable[Outcome | Accepted]]
    ) -> asyncio.Future[Outcome]:
        """Obey a command while runs go on; the future is done when it is answered."""
        promise: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        promise.add_done_callback(_look)
        if self._closed:
            promise.cancel()  # it stays in the journal, for the next start
            return promise

        async def work() -> None:
            found = await obey()
            if not isinstance(found, Accepted):
                promise.set_result(found)
            else:
                self._line_up(key, Heard(found)).add_done_callback(partial(_pass_on, promise))

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                promise.cancel()

        obeying = contain(f"command in {key}", work, promise.set_exception)
        try:
            task = self._group.create_task(obeying, name=f"command {key}")
        except RuntimeError:  # the program is ending
            obeying.close()
            promise.cancel()
        else:
            task.add_done_callback(ended)
        return promise

    def _settings(
        self, key: str, row: Accepted, inline: QueueSetting | None = None
    ) -> QueueSettings:
        entry = self._entry(key)
        return resolve(self._rules(), channel=row.channel, entry=entry, inline=inline)

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


def _pass_on(promise: "asyncio.Future[Outcome]", found: "asyncio.Future[Outcome]") -> None:
    """What became of a run is what becomes of the command that led to it."""
    if promise.done():
        return
    if found.cancelled():
        promise.cancel()
    elif error := found.exception():
        promise.set_exception(error)
    else:
        promise.set_result(found.result())


def _look(promise: "asyncio.Future[Outcome]") -> None:
    """A failure was logged when it happened: nobody need be waiting for it."""
    if not promise.cancelled():
        promise.exception()
