"""The sign that somebody is typing, kept alive in one chat.

Services show the sign for a few seconds only, so it is given again and again; and it is given up
after a while in which nothing happened, so that a run that hangs does not seem to type for ever.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

from homarus.core.clock import Clock
from homarus.core.errors import ChannelError

log = logging.getLogger(__name__)

TTL_S: Final = 120.0


class Typing:
    """Keeps the sign of one chat alive. `run` is a task of whoever owns the answer."""

    soon_s: ClassVar[float] = 0.3  # what is answered sooner needs no sign: it would only flicker

    def __init__(
        self,
        show: Callable[[], Awaitable[None]],
        clock: Clock,
        *,
        interval_s: float,
        ttl_s: float = TTL_S,
    ) -> None:
        self._show, self._clock = show, clock
        self._interval_s, self._ttl_s = interval_s, ttl_s
        self._wanted = asyncio.Event()
        self.given = False  # it was shown, or may have been
        self._until_s = 0.0
        self._over = False

    def touch(self) -> None:
        """Something happened: show the sign, or go on showing it."""
        if not self._over:
            self._until_s = self._clock.monotonic() + self._ttl_s
            self._wanted.set()

    def stop(self) -> None:
        """The answer is there; what comes late does not bring the sign back."""
        self._over = True
        self._wanted.clear()

    async def run(self) -> None:
        """Give the sign while it is wanted, until cancelled, or until the service refuses it."""
        await self._clock.sleep(self.soon_s)
        while True:
            await self._wanted.wait()
            if not await self._give():
                return
            await self._clock.sleep(self._interval_s)
            if self._clock.monotonic() >= self._until_s:
                self._wanted.clear()

    async def _give(self) -> bool:
        self.given = True
        try:
            async with asyncio.timeout(self._interval_s):
                await self._show()
        except TimeoutError:
            return True  # the next one may be quicker
        except (ChannelError, OSError) as exc:
            log.debug("no typing sign: %s", exc)
            return False
        return True
