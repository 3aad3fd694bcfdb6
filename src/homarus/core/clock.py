"""Time as a value handed in, so that tests never sleep."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, and waiting."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch: for stamps, never for measuring."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow: for deadlines and durations."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
