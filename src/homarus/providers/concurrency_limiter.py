"""Limit concurrent requests per credential, learned from refusals, for all sessions.

Services do not announce their limits. Until the first refusal all requests pass. A refusal blocks
new ones for the requested time and halves the number that may run at once; each success raises it a
little. A thousand sessions that are refused together so return a few at a time.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from homarus.core.clock import Clock

WIDEST = 256.0
JITTER_S = 0.25
NO_WAIT_GIVEN_S = 1.0  # the delay after a refusal that names none


class ConcurrencyLimiter:
    """Limits the requests of one credential."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._width = WIDEST
        self._under_way = 0
        self._opens_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """Return how many requests may run at once."""
        return max(1, int(self._width))

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Wait until requests are admitted and a place is free."""
        await self._acquire_slot()
        try:
            await self._open()
            yield
        finally:
            self._under_way -= 1
            self._wake()

    def on_rate_limited(self, after_s: float | None) -> None:
        """Record a refusal for too many requests."""
        now = self._clock.monotonic()
        # Requests that ran at once are refused at once: that counts as one refusal.
        if now >= self._opens_at:
            self._width = max(1.0, min(self._width, float(self._under_way)) / 2)
        wait_s = NO_WAIT_GIVEN_S if after_s is None else after_s
        self._opens_at = max(self._opens_at, now + wait_s)

    def on_success(self) -> None:
        self._width = min(WIDEST, self._width + 1.0 / self._width)
        self._wake()

    async def _acquire_slot(self) -> None:
        if self._under_way < self.limit and not self._waiting:
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
        while self._waiting and self._under_way < self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self._under_way += 1
                place.set_result(None)
