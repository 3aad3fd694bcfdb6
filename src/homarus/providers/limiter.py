"""How many requests one credential bears, learned from its refusals and shared by all sessions.

Nobody says beforehand what a service allows. Until it refuses, everything goes through. A
refusal closes the gate for as long as the service asks, and halves the number of requests that
may be under way; each success raises it a little. A thousand sessions that meet a refusal
together so come back a few at a time, not all at once.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from homarus.core.clock import Clock

WIDEST = 256.0
JITTER_S = 0.25
NO_WAIT_GIVEN_S = 1.0  # the pause after a refusal that names none


class Limiter:
    """The gate before one credential."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._width = WIDEST
        self._under_way = 0
        self._opens_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def width(self) -> int:
        """How many requests may be under way."""
        return max(1, int(self._width))

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Wait for the gate to be open and for a place."""
        await self._place()
        try:
            await self._open()
            yield
        finally:
            self._under_way -= 1
            self._wake()

    def refused(self, after_s: float | None) -> None:
        """The service said: too many."""
        now = self._clock.monotonic()
        # Those that were under way together were refused together: that is one refusal.
        if now >= self._opens_at:
            self._width = max(1.0, min(self._width, float(self._under_way)) / 2)
        wait_s = NO_WAIT_GIVEN_S if after_s is None else after_s
        self._opens_at = max(self._opens_at, now + wait_s)

    def went_well(self) -> None:
        """The service answered."""
        self._width = min(WIDEST, self._width + 1.0 / self._width)
        self._wake()

    async def _place(self) -> None:
        if self._under_way < self.width and not self._waiting:
            self._under_way += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._under_way -= 1
                self._wake()
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    async def _open(self) -> None:
        while (left_s := self._opens_at - self._clock.monotonic()) > 0:
            spread_s = random.random() * min(JITTER_S, left_s)  # noqa: S311 - spreading load
            await self._clock.sleep(left_s + spread_s)

    def _wake(self) -> None:
        while self._waiting and self._under_way < self.width:
            place = self._waiting.popleft()
            if not place.done():
                self._under_way += 1
                place.set_result(None)
