"""Where messages come in: kept in the journal first, then handed to their session's inbox.

Every way in ends here: the gateway's methods, the channels, the terminal, and a start that goes
on with what an earlier process left. Each message is heard first: a command is obeyed at once,
whatever runs; anything else goes to the inbox. What gets no run of its own is settled here too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from homarus.config.schema import Queue
from homarus.core.clock import Clock
from homarus.core.message import Inbound, Json
from homarus.core.tasks import contain
from homarus.core.value import dataclass
from homarus.sessions.directives import QueueSetting
from homarus.sessions.inbox import Inbox, Start, make_promise
from homarus.sessions.queue import QueueSettings, resolve
from homarus.sessions.recovery import recover, take_up
from homarus.store.journal import OPEN, Acceptance, Accepted, Journal, JournalUnit, Lease, Parcel

log = logging.getLogger(__name__)

ABORTED = "aborted"
RETURN_S = 5.0  # until messages are taken up whose end could not be written down

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
        pause_ms: Callable[[Accepted], int] = lambda _row: 0,
        mute: Callable[[str, Inbound], bool] = lambda _key, _inbound: False,
    ) -> None:
        self._journal, self._clock, self._pack, self._posted = journal, clock, pack, posted
        self._hear, self._pause_ms, self._closed = hear, pause_ms, False
        self._mute = mute
        self._returns: set[asyncio.Task[None]] = set()
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
        return await recover(self._journal, self._clock, self._begin)

    def return_to(self, ids: Sequence[str]) -> None:
        """Come back to messages of which nobody could write down how their run ended."""
        if self._closed:
            return
        name = "return to messages"
        back = contain(name, lambda: self._return(ids), lambda _exc: self.return_to(ids))
        if task := self._spawn(back, name):
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    def waiting(self, key: str) -> int:
        """How many messages of a session wait for a run."""
        return self._inbox.depth(key)

    def abort(self, key: str, run_id: str | None = None) -> tuple[str, ...]:
        """Stop what a session does and has waiting, or one run of it; the ids of the runs."""
        dropped = self._inbox.drop(key, run_id)
        if dropped:
            name = f"drop {key}"
            settling = contain(name, lambda: self._give_up(dropped, ABORTED), lambda _exc: None)
            self._group.create_task(settling, name=name)
        return (*self._stop(key, run_id), *(row.id for row in dropped))

    def close(self) -> None:
        """Begin nothing more: what is accepted from now on waits for the next start."""
        self._closed = True
        self._inbox.close()
        for task in self._returns:
            task.cancel()

    def _begin(
        self, key: str, rows: Sequence[Accepted]
    ) -> tuple[Accepted, asyncio.Future[Outcome]]:
        heard = [self._hear(key, row) for row in rows]
        if heard[0].instead and not rows[0].entry:
            return rows[0], self._aside(key, heard[0].instead)
        return rows[0], self._inbox.begin(key, [one.row for one in heard])

    async def _return(self, ids: Sequence[str]) -> None:
        await self._clock.sleep(RETURN_S)
        found = [await self._journal.accepted(row_id) for row_id in ids]
        rows = [row for row in found if row and row.state in OPEN]
        _, told = await take_up(self._journal, self._clock, self._begin, rows)
        if told:
            log.warning("after a failure of the disk: %s", told)

    def _line_up(self, key: str, heard: Heard[Outcome]) -> asyncio.Future[Outcome]:
        inline = self._settings(key, heard.row, heard.queue) if heard.queue else None
        return self._inbox.put(key, heard.row, inline, pause_ms=self._pause_ms(heard.row))

    def _aside(
        self, key: str, obey: Callable[[], Awaitable[Outcome | Accepted]]
    ) -> asyncio.Future[Outcome]:
        """Obey a command while runs go on; the future is done when it is answered."""
        promise: asyncio.Future[Outcome] = make_promise()
        if self._closed:
            promise.cancel()  # it stays in the journal, for the next start
            return promise

        async def work() -> None:
            found = await obey()
            if isinstance(found, Accepted):
                self._line_up(key, Heard(found)).add_done_callback(partial(_pass_on, promise))
            elif not promise.done():  # whoever waits may have gone
                promise.set_result(found)

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                promise.cancel()

        obeying = contain(f"command in {key}", work, partial(_fail, promise))
        if task := self._spawn(obeying, f"command {key}"):
            task.add_done_callback(ended)
        else:
            promise.cancel()
        return promise

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None] | None:
        """Have something done aside; None when the program is ending."""
        try:
            return self._group.create_task(work, name=name)
        except RuntimeError:
            work.close()
            return None

    def _settings(
        self, key: str, row: Accepted, inline: QueueSetting | None = None
    ) -> QueueSettings:
        entry = self._entry(key)
        return resolve(self._rules(), channel=row.channel, entry=entry, inline=inline)

    async def _give_up(self, rows: Sequence[Accepted], why: str) -> None:
        """Messages that get no run of their own: the journal says why, and so do we."""
        # Nobody works on these: there is no need to wait until the session's run has ended.
        async with self._journal.lease("inbox") as lease, self._journal.commit() as unit:
            for row in (row for row in rows if row.attempts):  # begun under an earlier lease
                unit.start([row.id], lease, run=row.run or row.id)
            self._report(unit, rows, lease, why)
        self._posted()

    def _report(self, unit: JournalUnit, rows: Sequence[Accepted], lease: Lease, why: str) -> None:
        now_ms, ids = self._clock.now_ms(), [row.id for row in rows]
        unit.settle(ids, lease, "reported", at_ms=now_ms, why=why)
        if why == ABORTED:
            return  # by a person, who knows
        for row in rows:
            if row.inbound and not self._mute(row.session, row.inbound):
                told = f"I did not get to your message “{row.preview}”: {why}."
                unit.post(*self._pack(row.inbound, row.id, told))


def _pass_on(promise: "asyncio.Future[Outcome]", found: "asyncio.Future[Outcome]") -> None:
    """What became of a run is what becomes of the command that led to it."""
    if promise.done():
        return
    if found.cancelled():
        promise.cancel()
    elif error := found.exception():
        _fail(promise, error)
    else:
        promise.set_result(found.result())


def _fail(promise: "asyncio.Future[Outcome]", error: BaseException) -> None:
    if not promise.done():
        promise.set_exception(error)
