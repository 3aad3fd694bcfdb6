"""Limit concurrent requests per credential and model, learned from refusals, for all sessions.

Services do not announce their limits. Until the first refusal all requests pass. A refusal blocks
new ones for the requested time and halves the number that may run at once; each success raises it a
little. A thousand sessions that are refused together so return a few at a time.

A service that asks for a longer wait than a run may take (`MAX_WAIT_S`) is not waited for: requests
fail at once until the time is over, except one a minute, which finds out whether it is sooner. A
request counts for at most `MAX_COUNTED_S`, so that one that hangs does not hold up the others.
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
MAX_WAIT_S = 60.0
PROBE_S = 60.0
MAX_COUNTED_S = 10.0


class LimiterClosedError(Exception):
    """The service asked for a wait that is too long; `left_s` of it are left."""

    def __init__(self, left_s: float) -> None:
        super().__init__(f"closed for {left_s:.0f} s")
        self.left_s = left_s


class ConcurrencyLimiter:
    """Limits the requests of one credential for one model."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._width = WIDEST
        self._started_s: dict[object, float] = {}  # when each request under way was admitted
        self._opens_at = self._probe_at = 0.0
        self._probe: object | None = None  # the request that finds out whether the wait is over
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._recheck: asyncio.TimerHandle | None = None  # while requests wait for a place

    @property
    def limit(self) -> int:
        """Return how many requests may run at once."""
        return max(1, int(self._width))

    @property
    def closed_s(self) -> float:
        """Return for how long the service still wants no requests; 0 when it accepts them."""
        return max(0.0, self._opens_at - self._clock.monotonic())

    @property
    def _under_way(self) -> int:
        return len(self._started_s)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Wait until requests are admitted and a place is free; raises LimiterClosedError."""
        if (left_s := self.closed_s) > MAX_WAIT_S and self._clock.monotonic() < self._probe_at:
            raise LimiterClosedError(left_s)
        request = await self._acquire_slot()
        try:
            await self._open(request)
            yield
        finally:
            del self._started_s[request]
            if self._probe is request:
                self._probe = None
            self._wake()

    def on_rate_limited(self, after_s: float | None) -> None:
        """Record a refusal for too many requests."""
        now = self._clock.monotonic()
        # Requests that ran at once are refused at once: that counts as one refusal.
        if now >= self._opens_at:
            self._width = max(1.0, min(self._width, float(self._under_way)) / 2)
        wait_s = NO_WAIT_GIVEN_S if after_s is None else after_s
        self._opens_at = max(self._opens_at, now + wait_s)
        if wait_s > MAX_WAIT_S:
            self._probe_at = now + PROBE_S
            while self._waiting:
                place = self._waiting.popleft()
                if not place.done():
                    place.set_exception(LimiterClosedError(wait_s))

    def on_success(self) -> None:
        if self._probe is not None:  # the service accepts requests sooner than it said
            self._opens_at = self._clock.monotonic()
        self._width = min(WIDEST, self._width + 1.0 / self._width)
        self._wake()

    async def _acquire_slot(self) -> object:
        """Wait for a place; return the key of the request."""
        if self._under_way < self.limit and not self._waiting:
            request = object()
            self._started_s[request] = self._clock.monotonic()
            return request
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._wake()
        try:
            await place
        except asyncio.CancelledError:
            if self._started_s.pop(place, None) is not None:
                self._wake()  # admitted and cancelled at once
            elif place in self._waiting:
                self._waiting.remove(place)
            raise
        return place

    async def _open(self, request: object) -> None:
        """Wait until the service accepts requests again, or make this request the probe."""
        while (left_s := self.closed_s) > 0:
            now_s = self._clock.monotonic()
            if left_s > MAX_WAIT_S:
                if now_s < self._probe_at or self._probe is not None:
                    raise LimiterClosedError(left_s)
                self._probe, self._probe_at = request, now_s + PROBE_S
                return
            spread_s = random.random() * min(JITTER_S, left_s)  # noqa: S311 - spreading load
            await self._clock.sleep(left_s + spread_s)
            self._started_s[request] = self._clock.monotonic()

    def _wake(self) -> None:
        """Admit as many waiting requests as there are places."""
        if not self._waiting:
            return
        now_s = self._clock.monotonic()
        counted = list(self._started_s.values())
        if not self.closed_s:  # else they all still wait
            counted = [started_s for started_s in counted if now_s - started_s < MAX_COUNTED_S]
        free = self.limit - len(counted)
        while self._waiting and free > 0:
            place = self._waiting.popleft()
            if not place.done():
                free -= 1
                self._started_s[place] = now_s
                counted.append(now_s)
                place.set_result(None)
        if self._waiting and counted and self._recheck is None:
            delay_s = max(0.05, min(counted) + MAX_COUNTED_S - now_s)
            self._recheck = asyncio.get_running_loop().call_later(delay_s, self._check_again)

    def _check_again(self) -> None:
        self._recheck = None
        self._wake()
