"""The one timer of the scheduler: sleeps until something is due, and has it started.

It sleeps at most a minute, so that a clock that was set, or a suspend of the machine, is noticed
soon. What is due is decided by the wall clock at each wake, never by how long the sleep was.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from homarus.core.clock import Clock
from homarus.schedule.wakeable_sleep import WakeableSleep

MAX_SLEEP_S: Final = 60.0
_MIN_SLEEP_S: Final = 0.01


class TimedSource(Protocol):
    """What has things to do at times."""

    def next_due_ms(self) -> int | None:
        """Return when the next thing is due; None when none is."""
        ...

    async def tick(self) -> None:
        """Start what is due."""
        ...


class ScheduleTimer:
    """Calls `tick` of its sources when they are due. `get_sources` may change at any time."""

    def __init__(self, clock: Clock, get_sources: Callable[[], Sequence[TimedSource]]) -> None:
        self._clock, self._get_sources = clock, get_sources
        self._sleep = WakeableSleep(clock)

    def wake(self) -> None:
        """Look for what is due now: something may be due earlier than before."""
        self._sleep.wake()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            for source in self._get_sources():
                await source.tick()
            await self._sleep.sleep(self._next_sleep_s())

    def _next_sleep_s(self) -> float:
        due = [due_ms for one in self._get_sources() if (due_ms := one.next_due_ms()) is not None]
        if not due:
            return MAX_SLEEP_S
        wait_s = (min(due) - self._clock.now_ms()) / 1000
        return min(MAX_SLEEP_S, max(_MIN_SLEEP_S, wait_s))
