"""Jobs of the program itself: maintenance, syncs and sweeps, at intervals.

They are registered when the program is composed, not stored as jobs; when each ran last is a
record, so that a restart does not run a daily job again at once.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from homarus.core.clock import Clock, ClockStepDetector
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Json
from homarus.core.tasks import run_contained
from homarus.core.text import one_line
from homarus.schedule.cron_values import InternalJobStatus
from homarus.store.base import Store

log = logging.getLogger(__name__)

KIND: Final = "internal-job"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class InternalJob:
    """A job of the program: what it does, how often, and how long after a start at the earliest.

    `get_interval_s` returns 0 while there is nothing to do. `waits_after_clock_step`: a clock that
    is set forwards by more than the interval does not make it due, because what it deletes by age
    would seem old.
    """

    name: str
    description: str
    run: Callable[[], Awaitable[None]]
    get_interval_s: Callable[[], float]
    first_delay_s: float = 60.0
    waits_after_clock_step: bool = False


@dataclass(frozen=True, slots=True)
class _JobRun:
    """What is known of a job; `due_ms` is when it runs next, 0 before it was computed."""

    last_ms: int = 0
    duration_ms: int = 0
    error: str = ""
    due_ms: int = 0
    is_running: bool = False


class InternalJobs:
    """Runs the registered jobs when they are due, each in a task of its own."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        on_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._clock, self._spawn, self._on_ended = store, clock, spawn, on_ended
        self._jobs: dict[str, InternalJob] = {}
        self._runs: dict[str, _JobRun] = {}
        self._started_ms = clock.now_ms()
        self._steps = ClockStepDetector(clock)

    def register(self, job: InternalJob) -> None:
        """Add a job, before the scheduler starts or while it runs."""
        self._jobs[job.name] = job
        self._runs.setdefault(job.name, _JobRun())

    def remove(self, name: str) -> None:
        """Remove a job; one that runs now ends by itself."""
        self._jobs.pop(name, None)

    async def load(self) -> None:
        """Load when each job ran last."""
        self._started_ms = self._clock.now_ms()
        for name, data in (await self._store.records(KIND)).items():
            known = self._runs.get(name, _JobRun())
            self._runs[name] = replace(
                known,  # one that ran after now did so by a clock that was set back
                last_ms=min(int(data.get("lastRunAtMs", 0)), self._started_ms),
                duration_ms=int(data.get("lastDurationMs", 0)),
                error=str(data.get("lastError", "")),
            )

    def statuses(self) -> Sequence[InternalJobStatus]:
        """Return the jobs as they are listed."""
        return tuple(self._status(job) for _, job in sorted(self._jobs.items()))

    def _status(self, job: InternalJob) -> InternalJobStatus:
        run, interval_s = self._runs[job.name], job.get_interval_s()
        return InternalJobStatus(
            job.name,
            job.description,
            f"every {_format_interval(interval_s)}" if interval_s else "off",
            run.last_ms,
            run.duration_ms,
            run.error,
            self._due_ms(job) if interval_s else 0,
            run.is_running,
        )

    def next_due_ms(self) -> int | None:
        """Return when the next job is due; None when none is."""
        due = [
            self._due_ms(job)
            for job in self._jobs.values()
            if job.get_interval_s() and not self._runs[job.name].is_running
        ]
        return min(due, default=None)

    async def tick(self) -> None:
        """Start the jobs that are due."""
        self._take_step()
        now_ms = self._clock.now_ms()
        for job in list(self._jobs.values()):
            run = self._runs[job.name]
            if job.get_interval_s() and not run.is_running and self._due_ms(job) <= now_ms:
                self._runs[job.name] = replace(run, is_running=True)
                name = f"job {job.name}"
                self._spawn(run_contained(name, partial(self._run, job), lambda _exc: None), name)

    def _take_step(self) -> None:
        """Move the times after the clock was set."""
        step_ms = self._steps.take_step_ms()
        if not step_ms:
            return
        now_ms = self._clock.now_ms()
        self._started_ms += step_ms
        for name, job in self._jobs.items():
            interval_ms, run = round(job.get_interval_s() * 1000), self._runs[name]
            if step_ms < 0:
                last_ms = max(1, run.last_ms + step_ms) if run.last_ms else 0
                self._runs[name] = replace(run, last_ms=last_ms, due_ms=0)
            elif job.waits_after_clock_step and step_ms >= interval_ms:
                log.warning("the clock was set forwards: %s runs an interval later", name)
                self._runs[name] = replace(run, due_ms=now_ms + interval_ms)

    def _due_ms(self, job: InternalJob) -> int:
        run, interval_ms = self._runs[job.name], round(job.get_interval_s() * 1000)
        first_ms = self._started_ms + round(job.first_delay_s * 1000)
        due_ms = max(first_ms, run.last_ms + interval_ms) if run.last_ms else first_ms
        return max(due_ms, run.due_ms)

    async def _run(self, job: InternalJob) -> None:
        started_ms, error = self._clock.now_ms(), ""

        def failed(exc: Exception) -> None:
            nonlocal error
            error = one_line(str(exc) or type(exc).__name__, 300)

        try:
            await run_contained(f"job {job.name}", job.run, failed)
        finally:
            ended_ms = self._clock.now_ms()
            run = _JobRun(started_ms, max(0, ended_ms - started_ms), error)
            self._runs[job.name] = run
        await self._save(job.name, run)
        self._on_ended()

    async def _save(self, name: str, run: _JobRun) -> None:
        data: Mapping[str, Json] = {
            "lastRunAtMs": run.last_ms,
            "lastDurationMs": run.duration_ms,
            "lastError": run.error,
        }
        async with self._store.transaction() as transaction:
            transaction.put_record(KIND, name, data)


def _format_interval(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:g}s"
