"""The clock as a dependency, so that tests need not sleep."""

import asyncio
import time
from typing import Final, Protocol

MIN_STEP_MS: Final = 2_000  # a smaller difference is drift, not a step


class Clock(Protocol):
    """The current time and a sleep."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch: for timestamps, not for durations."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds: for deadlines and durations."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def seconds_since_boot() -> float:
    """Return a clock that never steps and, unlike `monotonic`, counts the time of a suspend."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ClockStepDetector:
    """Find steps of the wall clock, by a clock that never steps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steady = seconds_since_boot if isinstance(clock, SystemClock) else clock.monotonic
        self._offset_ms = self._read_offset_ms()

    def take_step_ms(self) -> int:
        """Return by how much the wall clock was set since the last step; 0 for no step."""
        offset_ms = self._read_offset_ms()
        step_ms = offset_ms - self._offset_ms
        if abs(step_ms) < MIN_STEP_MS:
            return 0
        self._offset_ms = offset_ms
        return step_ms

    def restore(self, step_ms: int) -> None:
        """Report a step again: what depends on it could not be corrected."""
        self._offset_ms -= step_ms

    def _read_offset_ms(self) -> int:
        return self._clock.now_ms() - round(self._steady() * 1000)
