"""Jobs of the program, and the timer that wakes them."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from homarus.core.errors import StoreError
from homarus.schedule.internal_jobs import InternalJob, InternalJobs
from homarus.schedule.timer import MAX_SLEEP_S, ScheduleTimer
from homarus.testing.clock import START_MS, FakeClock
from homarus.testing.memory_store import MemoryStore

DAY_S = 86_400.0


class Program:
    """Internal jobs with a timer; `ran` has the times of the runs, in seconds."""

    def __init__(self, store: MemoryStore, clock: FakeClock, group: asyncio.TaskGroup) -> None:
        self.clock, self.group, self.ran = clock, group, list[int]()
        self.error: Exception | None = None
        self.interval_s = DAY_S
        self.jobs = InternalJobs(store, clock, self._spawn, on_ended=lambda: self.timer.wake())
        self.timer = ScheduleTimer(clock, lambda: (self.jobs,))
        self.jobs.register(
            InternalJob(
                "daily", "do it", self._run, lambda: self.interval_s, waits_after_clock_step=True
            )
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self.group.create_task(work, name=name)

    async def _run(self) -> None:
        self.ran.append((self.clock.now_ms() - START_MS) // 1000)
        if self.error:
            raise self.error


@asynccontextmanager
async def open_program(store: MemoryStore, clock: FakeClock) -> AsyncIterator[Program]:
    async with asyncio.TaskGroup() as group:
        program = Program(store, clock, group)
        await program.jobs.load()
        running = group.create_task(program.timer.run())
        await clock.advance(0)
        yield program
        running.cancel()


async def test_daily_job_runs_a_minute_after_start_then_daily() -> None:
    clock = FakeClock()
    async with open_program(MemoryStore(), clock) as program:
        await clock.advance(59)
        assert program.ran == []
        await clock.advance(2)
        assert program.ran == [60]
        await clock.advance(DAY_S)
        assert program.ran == [60, 86_460]
        assert max(clock.slept) <= MAX_SLEEP_S
        [status] = program.jobs.statuses()
        assert (status.name, status.schedule, status.last_error) == ("daily", "every 1d", "")
        assert status.next_run_at_ms == START_MS + (86_460 + 86_400) * 1000


async def test_restart_does_not_run_a_daily_job_again() -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_program(store, clock) as program:
        await clock.advance(61)
        assert program.ran == [60]
    async with open_program(store, clock) as program:
        await clock.advance(3_600)
        assert program.ran == []
        await clock.advance(DAY_S)
        assert program.ran == [86_460]


async def test_failed_job_is_shown_and_runs_again() -> None:
    clock = FakeClock()
    async with open_program(MemoryStore(), clock) as program:
        program.error = StoreError("the disk is full")
        await clock.advance(61)
        assert program.jobs.statuses()[0].last_error == "the disk is full"
        program.error = None
        await clock.advance(DAY_S)
        assert program.ran == [60, 86_460] and not program.jobs.statuses()[0].last_error


async def test_clock_set_forwards_delays_what_deletes_by_age() -> None:
    clock = FakeClock()
    async with open_program(MemoryStore(), clock) as program:
        await clock.advance(61)
        clock.step(365 * DAY_S)
        await clock.advance(3_600)
        assert program.ran == [60]
        await clock.advance(DAY_S)
        assert len(program.ran) == 2


async def test_clock_set_back_does_not_stop_a_job() -> None:
    clock = FakeClock()
    async with open_program(MemoryStore(), clock) as program:
        await clock.advance(61)
        clock.step(-365 * DAY_S)
        await clock.advance(DAY_S + 120)
        assert len(program.ran) == 2


async def test_job_without_interval_is_off() -> None:
    clock = FakeClock()
    async with open_program(MemoryStore(), clock) as program:
        program.interval_s = 0.0
        await clock.advance(2 * DAY_S)
        assert program.ran == [] and program.jobs.statuses()[0].schedule == "off"
        assert program.jobs.next_due_ms() is None
