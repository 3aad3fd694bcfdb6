"""Acknowledge interactions (button presses, slash commands) as fast as their service demands it.

A service waits three seconds for the acknowledgement. It is sent when the handler has stored the
event, and at the latest after a timeout; it is the same for every sender, so that an unknown one
does not learn from it whether the bot knows them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from homarus.core.errors import ChannelError
from homarus.core.tasks import task_group

log = logging.getLogger(__name__)

ACKNOWLEDGE_S: Final = 2.0


async def acknowledge_within(
    work: Awaitable[None],
    acknowledge: Callable[[], Awaitable[None]],
    timeout_s: float = ACKNOWLEDGE_S,
) -> None:
    """Await the work, and acknowledge when it is done or after the timeout, whichever is first.

    It is acknowledged too when the work fails: the interaction cannot be offered again. The error
    of the work is raised. A failed acknowledgement is logged: it must not end the work.
    """
    is_late = False

    async def try_acknowledge() -> None:
        try:
            await acknowledge()
        except (ChannelError, TimeoutError, OSError) as exc:
            log.warning("an interaction was not acknowledged: %s", str(exc) or "too slow")

    async def acknowledge_late() -> None:
        nonlocal is_late
        await asyncio.sleep(timeout_s)
        is_late = True
        await try_acknowledge()

    async with task_group() as group:
        timer = group.create_task(acknowledge_late(), name="late acknowledgement")
        try:
            await work
        finally:
            if not is_late:
                timer.cancel()
                await try_acknowledge()
