"""What all web tools of a program share: the caches, and the rate limit of searches."""

from dataclasses import field
from functools import cache

from homarus.core.clock import Clock, SystemClock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.tools.web.fetched_page import FetchedPage
from homarus.tools.web.request_pacer import RequestPacer
from homarus.tools.web.ttl_cache import TtlCache


@dataclass(frozen=True, slots=True)
class WebState:
    """The shared state of the web tools."""

    searches: TtlCache[dict[str, Json]]
    pages: TtlCache[FetchedPage]
    pacer: RequestPacer
    clock: Clock = field(default_factory=SystemClock)


def make_web_state(clock: Clock) -> WebState:
    """Return an empty state."""
    return WebState(
        TtlCache(clock.monotonic, lambda payload: len(str(payload))),
        TtlCache(clock.monotonic, lambda page: len(page.text)),
        RequestPacer(clock),
        clock,
    )


@cache
def shared_state() -> WebState:
    """Return the state of this process."""
    return make_web_state(SystemClock())
