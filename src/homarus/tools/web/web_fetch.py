"""One fetch: through the network guard, then the readable text of what was found.

Where Firecrawl is configured, it is asked about pages that could not be read: by a failure of the
server, or because they show a notice instead of their text. What the guard refuses is never sent
to it, and no address of a private network is.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final

from homarus.config.network_policy import resolve_network_policy
from homarus.config.web_schema import WebFetchConfig
from homarus.core.errors import FetchError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.net.guard import PUBLIC_ONLY, CheckedTarget, Resolve, check_target, resolve_host
from homarus.net.guarded_fetch import (
    FetchClient,
    FetchedResponse,
    FetchLimits,
    MakeClient,
    guarded_fetch,
    make_client,
)
from homarus.tools.web.fetched_page import (
    ExtractMode,
    FetchedPage,
    describe_status,
    shown_url,
)
from homarus.tools.web.firecrawl import firecrawl_key, scrape_page
from homarus.tools.web.page_text import PageText, read_page
from homarus.tools.web.web_state import WebState

MAX_BYTES: Final = 10_000_000
# Of one result: below the limit at which tool results are cut in their middle.
MAX_TEXT_CHARS: Final = 28_000
USER_AGENT: Final = "Mozilla/5.0 (compatible; homarus)"
_ACCEPT: Final = "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, */*;q=0.5"
_MAX_REASON_CHARS: Final = 400
_GONE: Final = frozenset({404, 410})  # another reader finds no more


@dataclass(frozen=True, slots=True)
class PageNetwork:
    """How names are resolved and connections made; tests and attacks replace both."""

    resolve: Resolve = resolve_host
    open_client: MakeClient = make_client


@dataclass(frozen=True, slots=True)
class PageFetcher:
    """Fetches pages with the settings of a config."""

    config: WebFetchConfig
    env: Mapping[str, str]
    state: WebState
    network: PageNetwork = field(default_factory=PageNetwork)

    async def fetch(
        self, url: str, mode: ExtractMode, max_chars: int | None = None
    ) -> tuple[FetchedPage, bool]:
        """Return a page, and whether it is from the cache.

        Raises BlockedUrlError where the guard refuses the URL itself. Whatever fails after a server
        was asked is a FetchError: its message may have the words of the server.
        """
        limit = min(max_chars or self.config.max_chars, self._cap)
        policy = resolve_network_policy(self.config)
        key = (url, mode, self.config.readability, self.config.user_agent, self._cap, policy)
        ttl_s = self.config.cache_ttl_minutes * 60
        if page := self.state.pages.find(key, ttl_s):
            return page.cut(limit), True
        started_s = self.state.clock.monotonic()
        page = await self._fetch(url, mode)
        took_ms = round((self.state.clock.monotonic() - started_s) * 1000)
        page = replace(page, took_ms=took_ms, fetched_at_ms=self.state.clock.now_ms())
        if ttl_s > 0:
            self.state.pages.add(key, page)
        return page.cut(limit), False

    @property
    def _cap(self) -> int:
        return min(self.config.max_chars_cap, MAX_TEXT_CHARS)

    async def _fetch(self, url: str, mode: ExtractMode) -> FetchedPage:
        asked = list[str]()  # the hosts that were connected to

        def open_client(target: CheckedTarget, limits: FetchLimits) -> FetchClient:
            asked.append(target.host)
            return self.network.open_client(target, limits)

        is_gone = False
        try:
            response = await self._request(url, open_client)
            if response.status < 400:
                return await self._read_response(url, response, mode)
            is_gone = response.status in _GONE
            problem = await self._http_error(response)
        except FetchError as exc:
            problem = exc
        except ToolError as exc:  # of the guard, or of what reads documents
            if not asked:
                raise
            raise FetchError(exc.message, fix=exc.fix) from exc
        page = await self._try_scrape(url, mode) if asked and not is_gone else None
        if page is None:
            raise problem
        return page

    async def _read_response(
        self, url: str, response: FetchedResponse, mode: ExtractMode
    ) -> FetchedPage:
        text = await self._read(response, mode)
        if text.text.strip() and not text.warning:
            return _make_page(url, response, text, mode)
        return await self._try_scrape(url, mode) or _make_page(url, response, text, mode)

    async def _request(self, url: str, open_client: MakeClient) -> FetchedResponse:
        limits = FetchLimits(
            max_bytes=MAX_BYTES,
            max_redirects=self.config.max_redirects,
            total_s=float(self.config.timeout_seconds),
            truncates=True,
        )
        return await guarded_fetch(
            url,
            limits=limits,
            policy=resolve_network_policy(self.config),
            headers={"User-Agent": self.config.user_agent or USER_AGENT, "Accept": _ACCEPT},
            resolve=self.network.resolve,
            open_client=open_client,
        )

    async def _read(self, response: FetchedResponse, mode: ExtractMode) -> PageText:
        return await read_page(
            response, mode=mode, max_chars=self._cap, is_readable=self.config.readability
        )

    async def _http_error(self, response: FetchedResponse) -> FetchError:
        """Return the error of a status, with what the server says about it if that is readable."""
        try:
            said = (await self._read(response, "text")).text
        except ToolError:
            said = ""
        reason = one_line(said, _MAX_REASON_CHARS).strip()
        status = describe_status(response.status)
        message = f"{shown_url(response.url)} answered with the status {status}"
        return FetchError(f"{message}: {reason}" if reason else message)

    async def _try_scrape(self, url: str, mode: ExtractMode) -> FetchedPage | None:
        """Return the page as Firecrawl reads it; None where it is not used or fails."""
        key = firecrawl_key(self.config.firecrawl, self.env)
        if not key:
            return None
        try:
            await check_target(url, PUBLIC_ONLY, self.network.resolve)
            found = await scrape_page(self.config.firecrawl, key, url, mode)
        except ToolError:
            return None
        page = FetchedPage(
            url,
            found.url or url,
            found.status,
            "text/markdown",
            mode,
            "firecrawl",
            found.text[: self._cap],
            found.title,
            len(found.text) > self._cap,
        )
        return page if page.text.strip() else None


def _make_page(
    url: str, response: FetchedResponse, text: PageText, mode: ExtractMode
) -> FetchedPage:
    return FetchedPage(
        url,
        response.url,
        response.status,
        text.content_type,
        mode,
        text.extractor,
        text.text,
        text.title,
        text.is_truncated,
        text.warning,
    )
