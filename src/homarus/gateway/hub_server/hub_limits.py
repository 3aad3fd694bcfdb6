"""Limit how often one client asks a registry; memory is bounded."""

from collections import OrderedDict
from typing import Final

from homarus.core.clock import Clock
from homarus.gateway.connection_slots import address_block

MAX_CLIENTS: Final = 10_000


class HubRateLimiter:
    """A bucket of requests for each client and kind, which fills again within a minute."""

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self._clock, self._size = clock, float(per_minute)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take one request; return 0, or how many seconds the client has to wait."""
        key, now_s = address_block(client), self._clock.monotonic()
        left, at_s = self._buckets.pop(key, (self._size, now_s))
        left = min(self._size, left + (now_s - at_s) * self._size / 60)
        wait_s = 0.0 if left >= 1 else (1 - left) * 60 / self._size
        self._buckets[key] = (left - 1 if left >= 1 else left), now_s
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return wait_s
