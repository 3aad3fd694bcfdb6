"""The rate limit of requests to a service, one for the whole program.

A request gets the next free moment at once, and waits until then. There is no lock: moments are
given out in the order of the calls, whichever run they come from.
"""

from typing import Final

from homarus.core.clock import Clock
from homarus.core.errors import ToolError

MAX_WAIT_S: Final = 10.0


class RequestPacer:
    """Keeps requests to each service a minimum time apart."""

    def __init__(self, clock: Clock, max_wait_s: float = MAX_WAIT_S) -> None:
        self._clock, self._max_wait_s = clock, max_wait_s
        self._free_at_s: dict[str, float] = {}

    async def wait(self, service: str, min_interval_s: float) -> None:
        """Wait for the turn of a request. Raises ToolError when too many are waiting."""
        now_s = self._clock.monotonic()
        at_s = max(now_s, self._free_at_s.get(service, now_s))
        if at_s - now_s > self._max_wait_s:
            raise ToolError(
                f"too many searches at once: {service} is asked once in {min_interval_s:g} s",
                fix="search less, or again in a moment",
            )
        self._free_at_s[service] = at_s + min_interval_s
        if at_s > now_s:
            await self._clock.sleep(at_s - now_s)
