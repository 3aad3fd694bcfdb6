"""An HTTP proxy for a browser: it connects to every host that the network guard allows.

A browser resolves names itself, after any check of a URL. With this proxy it resolves none: each
request, tunnel and WebSocket names its host here, where it is resolved once and checked, and the
connection is made to the addresses of that check. A name that changes its address between two
lookups is judged by the address that is used.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from homarus.core.errors import BlockedUrlError, FetchError
from homarus.net.allow_proxy import AllowProxy, OpenStream, ProxyLimits
from homarus.net.guard import POLICY_KEY, NetworkPolicy, Resolve, check_target
from homarus.net.guarded_stream import Stream, open_guarded_stream
from homarus.net.host_allowlist import HostAllowlist
from homarus.net.proxy_request import ProxyRefusalError, ProxyTarget

MAX_REFUSALS: Final = 200
# Chromium opens 32 connections to a proxy at most, and as many more for WebSockets.
BROWSER_LIMITS: Final = ProxyLimits(connections=128, idle_s=120.0)


class GuardProxy(AllowProxy):
    """The proxy of one browser; `refusals` are what it refused last, as place and reason.

    `get_policy` returns the policy in use, for each connection again: a changed config holds at
    once, also for pages that are open.
    """

    name = "browser"
    allow_key = POLICY_KEY

    def __init__(
        self,
        get_policy: Callable[[], NetworkPolicy],
        *,
        limits: ProxyLimits = BROWSER_LIMITS,
        resolve: Resolve | None = None,
        open_stream: OpenStream = open_guarded_stream,
    ) -> None:
        super().__init__(HostAllowlist(()), limits=limits, resolve=resolve, open_stream=open_stream)
        self._get_policy = get_policy
        self._refused: deque[tuple[str, str]] = deque(maxlen=MAX_REFUSALS)
        self._count = 0

    async def open_target(self, target: ProxyTarget) -> Stream:
        """Return a stream to a target on the public internet. Raises ProxyRefusalError."""
        try:
            checked = await check_target(target.url, self._get_policy(), self._resolve)
        except BlockedUrlError as exc:
            self._add_refusal(target.place, str(exc))
            raise self._refuse(target, str(exc)) from exc
        except FetchError as exc:
            self._add_refusal(target.place, exc.message)
            raise ProxyRefusalError(502, exc.message, target.place) from exc
        try:
            return await self._connect(target, checked)
        except ProxyRefusalError as exc:
            self._add_refusal(target.place, exc.reason)
            raise

    async def check(self, url: str) -> None:
        """Check a URL before it is opened. Raises BlockedUrlError or FetchError."""
        await check_target(url, self._get_policy(), self._resolve)

    @contextmanager
    def watch_refusals(self) -> Iterator[list[tuple[str, str]]]:
        """Collect what is refused while the block lasts, each place once."""
        found, start = list[tuple[str, str]](), self._count
        try:
            yield found
        finally:
            new = min(self._count - start, len(self._refused))
            found += dict(list(self._refused)[len(self._refused) - new :]).items()

    def _add_refusal(self, place: str, reason: str) -> None:
        self._refused.append((place, reason))
        self._count += 1
