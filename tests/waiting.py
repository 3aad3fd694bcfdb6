"""Wait in tests for a condition, or for other tasks to run."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], interval_s: float = 0.001) -> None:
    """Wait until the condition holds; the timeout of the test ends a wait in vain."""
    while True:
        if condition():
            return
        await asyncio.sleep(interval_s)


async def settle(turns: int = 30) -> None:
    """Let other tasks run for a number of turns of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
