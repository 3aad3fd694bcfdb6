"""DuckDuckGo: pages of its results page for browsers without scripts; it needs no key.

The page is made for people, not for programs. It may change, and the service may refuse a machine
that asks often. Both are an error that names the remedy: a key, or a SearXNG server.
"""

import asyncio
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Final
from urllib.parse import parse_qs, urlsplit

from homarus.config.web_schema import WebSearchConfig
from homarus.core.errors import FetchError
from homarus.tools.web.search.base import (
    SearchAccess,
    SearchAnswer,
    SearchFilter,
    WebQuery,
    WebResult,
    make_result,
)
from homarus.tools.web.service_request import (
    WebServiceRequest,
    add_query,
    check_status,
    request_service,
)

LABEL: Final = "duckduckgo (no key)"
AUTO_ORDER: Final = 1000  # where nothing else is configured
MIN_INTERVAL_S: Final = 2.0
FIX: Final = (
    "search without a key is not reliable: set BRAVE_API_KEY or another provider's key, or"
    " tools.web.search.searxng.baseUrl"
)
BASE_URL: Final = "https://html.duckduckgo.com"
# What this program is, in the form that servers of pages expect.
USER_AGENT: Final = "Mozilla/5.0 (compatible; homarus)"
_MAX_PAGE_BYTES: Final = 1_000_000
_RANGES: Final = {"pd": "d", "pw": "w", "pm": "m", "py": "y"}
_REFUSALS: Final = ("anomaly-modal", "anomaly.js", "g-recaptcha", "challenge-form")
_NOTHING_FOUND: Final = "no-results"


def find_access(_config: WebSearchConfig, _env: Mapping[str, str]) -> SearchAccess | None:
    """Return the address: there is nothing to configure."""
    return SearchAccess(BASE_URL, "no search provider is configured", is_fallback=True)


async def search(query: WebQuery, access: SearchAccess) -> SearchAnswer:
    """`GET /html/?q=…`."""
    has_region = bool(query.country and query.search_lang)
    region = f"{query.country}-{query.search_lang.partition('-')[0]}".lower()
    dates = query.dates
    params = {
        "q": query.text,
        "kl": region if has_region else "",
        "df": "..".join(dates) if dates else _RANGES.get(query.freshness, ""),
    }
    request = WebServiceRequest(
        "DuckDuckGo",
        add_query(f"{access.base_url.rstrip('/')}/html/", params),
        headers={"Accept": "text/html", "User-Agent": USER_AGENT},
        timeout_s=access.timeout_s,
        fix=FIX,
    )
    response = await request_service(request)
    check_status(request, response)
    page = response.body[:_MAX_PAGE_BYTES].decode("utf-8", "replace")
    # Beside the loop: a page takes some ten milliseconds.
    results = await asyncio.to_thread(parse_results, page)
    if not results and _NOTHING_FOUND not in page:
        is_refused = response.status == 202 or any(mark in page for mark in _REFUSALS)
        what = "asks for a proof that a person searches" if is_refused else "has changed its page"
        raise FetchError(f"DuckDuckGo {what}", fix=FIX)
    return SearchAnswer(
        tuple(results[: query.count]), ignored=_ignored(query, has_region=has_region)
    )


def _ignored(query: WebQuery, *, has_region: bool) -> tuple[SearchFilter, ...]:
    used = {"freshness", *(("country", "search_lang") if has_region else ())}
    return tuple(name for name in query.filters if name not in used)


def parse_results(page: str) -> list[WebResult]:
    """Return the results of a page in their order, without advertisements."""
    parser = _ResultsPage()
    parser.feed(page)
    parser.close()
    made = (
        make_result(title, _target(address), description)
        for address, title, description in parser.rows
    )
    return [one for one in made if one and not _is_own(one.url)]


def _target(address: str) -> str:
    """Return the page that a link of the results leads to, behind DuckDuckGo's redirect."""
    full = f"https:{address}" if address.startswith("//") else address
    try:
        parts = urlsplit(full)
    except ValueError:
        return ""
    if parts.path == "/l/" and (targets := parse_qs(parts.query).get("uddg")):
        return targets[0]
    return full


def _is_own(url: str) -> bool:
    """Return whether an address is one of DuckDuckGo itself, as those of advertisements are."""
    host = urlsplit(url).hostname or ""
    return host == "duckduckgo.com" or host.endswith(".duckduckgo.com")


class _ResultsPage(HTMLParser):
    """Collects address, title and description of each result."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[tuple[str, str, str]] = []
        self._address = ""
        self._reading, self._tag = "", ""  # the part that is read, and the tag that ends it
        self._pieces: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._reading:
            return
        values = dict(attrs)
        names = (values.get("class") or "").split()
        if tag == "a" and {"result__a", "result-link"} & {*names}:
            self._reading, self._tag = "title", tag
            self._address, self._pieces = values.get("href") or "", []
        elif {"result__snippet", "result-snippet"} & {*names}:
            self._reading, self._tag, self._pieces = "description", tag, []

    def handle_endtag(self, tag: str) -> None:
        if not self._reading or tag != self._tag:
            return
        text = "".join(self._pieces)
        if self._reading == "title":
            self.rows.append((self._address, text, ""))
        elif self.rows and not self.rows[-1][2]:
            address, title, _ = self.rows[-1]
            self.rows[-1] = (address, title, text)
        self._reading = ""

    def handle_data(self, data: str) -> None:
        if self._reading:
            self._pieces.append(data)
