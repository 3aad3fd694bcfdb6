"""Make the services of jobs and turns when one is used, or an earlier process left some."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_stamp import stat_stamp
from homarus.core.message import Json
from homarus.schedule.internal_jobs import InternalJobs
from homarus.schedule.timer import ScheduleTimer, TimedSource
from homarus.sessions.run_end import RunEnd, WriteEnd, write_nothing
from homarus.store.base import Store

if TYPE_CHECKING:
    from homarus.schedule.cron_service import CronService, CronServices
    from homarus.schedule.turn_service import TurnService, TurnServices


@dataclass(frozen=True, slots=True)
class ScheduleSources:
    """What the loader is given from outside; the functions are called for the first job or turn.

    `get_jobs_path` returns the path of `jobs.json`. `prune_sessions` deletes old sessions of runs.
    """

    store: Store
    clock: Clock
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None]
    get_jobs_path: Callable[[], Path]
    make_turn_services: Callable[[], "TurnServices"]
    make_cron_services: Callable[["TurnService"], "CronServices"]
    prune_sessions: Callable[[], Awaitable[None]]


class ScheduleLoader:
    """Returns the service of cron jobs when called; nothing of it is imported before."""

    def __init__(self, sources: ScheduleSources) -> None:
        self._sources, self._store = sources, sources.store
        self.timer = ScheduleTimer(sources.clock, self._get_timed)
        self.internal = InternalJobs(
            sources.store, sources.clock, sources.spawn, on_ended=self.timer.wake
        )
        self._open_turns: set[str] = set()
        self._turns: TurnService | None = None
        self._cron: CronService | None = None
        self._listeners: list[Callable[[Mapping[str, Json]], None]] = []

    def add_listener(self, listener: Callable[[Mapping[str, Json]], None]) -> None:
        """Have a function called with the payload of each event `cron`."""
        self._listeners.append(listener)

    def publish(self, event: Mapping[str, Json]) -> None:
        """Pass the payload of an event `cron` on."""
        for listener in self._listeners:
            listener(event)

    def __call__(self) -> "CronService":
        """Return the service of cron jobs."""
        if self._cron is None:
            from homarus.schedule.cron_service import CronService

            self._cron = CronService(self._sources.make_cron_services(self.turns()))
        return self._cron

    def turns(self) -> "TurnService":
        """Return the service of isolated turns."""
        if self._turns is None:
            from homarus.schedule.turn_service import TurnService

            self._turns = TurnService(self._sources.make_turn_services(), self._open_turns)
        return self._turns

    def _get_timed(self) -> Sequence[TimedSource]:
        return (self.internal, self._cron or self)

    def next_due_ms(self) -> int | None:
        """Return None: without jobs, nothing is due."""
        return None

    async def tick(self) -> None:
        """Take up jobs that were written to the file while there were none."""
        if self._cron is None and self._has_file():
            await self.recover()

    def settling(self, end: RunEnd) -> AbstractAsyncContextManager[WriteEnd]:
        """Add the end of a turn to the transaction that settles its message."""
        if self._open_turns.isdisjoint(end.ids):
            return nullcontext(write_nothing)
        self()  # the turn may be that of a job
        return self.turns().settling(end)

    def settling_unanswered(
        self, key: str, ids: Sequence[str], reason: str
    ) -> AbstractAsyncContextManager[WriteEnd]:
        """Do the same for messages that get no run."""
        return self.settling(RunEnd(key, ids, reason=reason))

    async def load_turns(self) -> None:
        """Load which turns have not ended, before the journal resumes their runs."""
        self._open_turns.update(await self._store.records("turn"))

    async def recover(self) -> None:
        """Take care of the jobs and turns that an earlier process left."""
        if self._open_turns or await self.has_jobs():
            cron = self()
            await self.turns().recover()
            await cron.recover()
            self.timer.wake()

    async def recover_turns(self) -> None:
        """End the turns whose messages were parked while the program runs."""
        if self._open_turns:
            await self.recover()

    async def has_jobs(self) -> bool:
        """Return whether there are jobs, in the store or in the file, or results to deliver."""
        for kind in ("cron-job", "webhook-delivery"):
            if await self._store.records(kind):
                return True
        return self._has_file()

    def _has_file(self) -> bool:
        return stat_stamp(os.path.realpath(self._sources.get_jobs_path())) is not None

    async def run(self) -> None:
        """Run the scheduler until cancelled."""
        await self.internal.load()
        await self.timer.run()

    async def prune(self) -> None:
        """Delete old sessions and rows of runs."""
        await self._sources.prune_sessions()
        if self._cron:
            await self._cron.prune()
