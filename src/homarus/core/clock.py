"""The clock as a dependency, so that tests need not sleep."""

import asyncio
import time
from typing import Protocol


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
