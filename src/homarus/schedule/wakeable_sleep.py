"""A sleep that another task can end early."""

import asyncio

from homarus.core.clock import Clock


class WakeableSleep:
    """Sleeps until a time has passed or `wake` is called; a call before the sleep counts too."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._event = clock, asyncio.Event()

    def wake(self) -> None:
        """End the sleep, or the next one if none is under way."""
        self._event.set()

    async def sleep(self, seconds: float) -> None:
        """Wait for the time or for `wake`."""
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._wait(seconds), name="sleep")
            await self._event.wait()
            timer.cancel()
        self._event.clear()

    async def _wait(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._event.set()
