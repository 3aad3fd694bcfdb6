"""Limit failed authentications per client address and kind of secret.

After too many failures within the window the source is locked out for a while, and the right secret
does not help it then. Programs on this machine are exempt; browsers are not, because any page can
make them guess. Memory is bounded: the sources that were quiet the longest are dropped.
"""

from collections import OrderedDict
from dataclasses import field
from typing import Literal

from homarus.config.gateway_schema import RateLimitConfig
from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.gateway.connection_slots import address_block
from homarus.gateway.origin_policy import OriginPolicy, RequestInfo, is_loopback

MAX_SOURCES = 100_000


@dataclass(frozen=True, slots=True)
class ClientSource:
    """Identify a client address and the kind of secret whose failed attempts are counted."""

    ip: str
    kind: Literal["shared-secret", "device-token", "hook-token"]
    is_browser: bool
    is_local: bool

    @classmethod
    def from_request(
        cls,
        request: RequestInfo,
        origin_policy: OriginPolicy,
        kind: Literal["shared-secret", "device-token", "hook-token"],
    ) -> "ClientSource":
        ip = origin_policy.client_ip(request)
        # Behind an unknown proxy every client has the proxy's address: not exempt.
        is_local = is_loopback(ip) and not request.is_forwarded
        return cls(address_block(ip), kind, request.is_browser, is_local)


@dataclass(slots=True)
class _FailureWindow:
    at_s: list[float] = field(default_factory=list)
    locked_until_s: float = 0.0


class AuthRateLimiter:
    """Counts failed attempts; queried before a secret is compared."""

    def __init__(
        self, clock: Clock, limits: RateLimitConfig | None = None, max_sources: int = MAX_SOURCES
    ) -> None:
        self._clock = clock
        self._limits = limits or RateLimitConfig()
        self._max_sources = max_sources
        self._sources: OrderedDict[tuple[str, str, bool], _FailureWindow] = OrderedDict()

    @property
    def sources(self) -> int:
        """Return how many sources are tracked."""
        return len(self._sources)

    def retry_after_ms(self, source: ClientSource) -> int:
        """Return how long the source is still locked out; 0 when it may try."""
        found = self._sources.get(_key(source))
        if found is None or self._is_exempt(source):
            return 0
        left_s = found.locked_until_s - self._clock.monotonic()
        return max(0, round(left_s * 1000))

    def record_failure(self, source: ClientSource) -> int:
        """Record a failure and return how long the source must wait now."""
        if self._is_exempt(source):
            return 0
        now_s = self._clock.monotonic()
        found = self._sources.setdefault(_key(source), _FailureWindow())
        self._sources.move_to_end(_key(source))
        since_s = now_s - self._limits.window_ms / 1000
        found.at_s = [at_s for at_s in found.at_s if at_s > since_s]
        found.at_s.append(now_s)
        if len(found.at_s) >= self._limits.max_attempts:
            found.locked_until_s = now_s + self._limits.lockout_ms / 1000
            found.at_s.clear()
        while len(self._sources) > self._max_sources:
            self._sources.popitem(last=False)
        return self.retry_after_ms(source)

    def reset(self, source: ClientSource) -> None:
        """Clear the failures of a source that sent the right secret."""
        self._sources.pop(_key(source), None)

    def _is_exempt(self, source: ClientSource) -> bool:
        return self._limits.exempt_loopback and source.is_local and not source.is_browser


def _key(source: ClientSource) -> tuple[str, str, bool]:
    return source.ip, source.kind, source.is_browser
