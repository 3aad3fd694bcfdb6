"""Retry with exponential backoff, capped and with jitter."""

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays of `first_s · factor^n`, at most `max_s`; `jitter` is the share that is random."""

    first_s: float = 0.5
    factor: float = 2.0
    max_s: float = 30.0
    jitter: float = 0.5

    def delay_s(self, attempt: int) -> float:
        """Return how long to wait after the `attempt`-th failure (from 1)."""
        # The exponent is bounded so that a long outage cannot overflow the float.
        delay = min(self.max_s, self.first_s * self.factor ** min(attempt - 1, 64))
        return delay * (1 - self.jitter * random.random())  # noqa: S311 - spreading load, not a secret


async def retry(
    run: Callable[[], Awaitable[T]],
    *,
    on: tuple[type[Exception], ...],
    attempts: int,
    backoff: Backoff,
    clock: Clock,
) -> T:
    """Call `run` until it succeeds, it raises something else, or `attempts` are used up."""
    attempt = 1
    while True:
        try:
            return await run()
        except on as exc:
            if attempt >= attempts:
                raise
            retry_after_s = getattr(exc, "after_s", None)  # what the service asked for
            await clock.sleep(backoff.delay_s(attempt) if retry_after_s is None else retry_after_s)
        attempt += 1
