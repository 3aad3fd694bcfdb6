"""Keep the typing indicator of one chat alive.

Services show it for a few seconds only, so it is repeated; and it is given up after a while without
progress, so that a hanging run does not seem to type forever.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

from homarus.core.clock import Clock
from homarus.core.errors import ChannelError

log = logging.getLogger(__name__)

TTL_S: Final = 120.0


class TypingIndicator:
    """Keep the indicator of one chat alive. The owner of the answer runs `run` as a task."""

    initial_delay_s: ClassVar[float] = (
        0.3  # a faster answer needs no indicator: it would only flicker
    )

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
        self.was_shown = False  # it was shown, or may have been
        self._until_s = 0.0
        self._is_over = False

    def refresh(self) -> None:
        """Show the indicator, or extend it: the run made progress."""
        if not self._is_over:
            self._until_s = self._clock.monotonic() + self._ttl_s
            self._wanted.set()

    def stop(self) -> None:
        """Hide the indicator for good: the answer was sent."""
        self._is_over = True
        self._wanted.clear()

    async def run(self) -> None:
        """Show the indicator while it is wanted, until cancelled or refused by the service."""
        await self._clock.sleep(self.initial_delay_s)
        while True:
            await self._wanted.wait()
            if not await self._send():
                return
            await self._clock.sleep(self._interval_s)
            if self._clock.monotonic() >= self._until_s:
                self._wanted.clear()

    async def _send(self) -> bool:
        self.was_shown = True
        try:
            async with asyncio.timeout(self._interval_s):
                await self._show()
        except TimeoutError:
            return True  # the next request may be faster
        except (ChannelError, OSError) as exc:
            log.debug("no typing sign: %s", exc)
            return False
        return True
