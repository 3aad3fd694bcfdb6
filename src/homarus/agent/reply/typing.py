"""The sign that somebody is typing: when it is wanted, and keeping it alive while it is.

Services show the sign for a few seconds only, so it is given again and again; and it is given up
after a while in which nothing happened, so that a run that hangs does not seem to type for ever.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from homarus.core.clock import Clock
from homarus.core.errors import ChannelError
from homarus.core.event import (
    CompactionStarted,
    Fact,
    RunStarted,
    TextAdded,
    ThinkingAdded,
    ToolProgressed,
    ToolStarted,
)

log = logging.getLogger(__name__)

TypingMode: TypeAlias = Literal["never", "instant", "thinking", "message"]

INTERVAL_S = 6.0
TTL_S = 120.0


def typing_mode(
    configured: TypingMode | None, *, group: bool, mentioned: bool, heartbeat: bool
) -> TypingMode:
    """When to show the sign: as configured; else at once where a person waits for the answer."""
    if heartbeat:
        return "never"
    if configured:
        return configured
    return "message" if group and not mentioned else "instant"


def is_activity(mode: TypingMode, fact: Fact, *, speaking: bool) -> bool:
    """Whether a fact shows that an answer is being made. Words that may mean silence do not."""
    match fact:
        case _ if mode == "never":
            return False
        case TextAdded():
            return speaking
        case ToolStarted() | ToolProgressed() | CompactionStarted():
            return True
        case ThinkingAdded():
            return mode in ("instant", "thinking")
        case RunStarted():
            return mode == "instant"
        case _:
            return False


class Typing:
    """Keeps the sign of one chat alive. `run` is a task of whoever owns the answer."""

    def __init__(
        self,
        show: Callable[[], Awaitable[None]],
        clock: Clock,
        *,
        interval_s: float = INTERVAL_S,
        ttl_s: float = TTL_S,
    ) -> None:
        self._show, self._clock = show, clock
        self._interval_s, self._ttl_s = interval_s, ttl_s
        self._wanted = asyncio.Event()
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
        while True:
            await self._wanted.wait()
            if not await self._give():
                return
            await self._clock.sleep(self._interval_s)
            if self._clock.monotonic() >= self._until_s:
                self._wanted.clear()

    async def _give(self) -> bool:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._show()
        except TimeoutError:
            return True  # the next one may be quicker
        except ChannelError as exc:
            log.info("no typing sign: %s", exc)
            return False
        return True
