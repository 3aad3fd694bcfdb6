"""SearXNG: pages by a server that the owner runs or chose, also on a private network."""

from collections.abc import Mapping
from typing import Final

from homarus.config.web_schema import WebSearchConfig
from homarus.core.errors import FetchError
from homarus.tools.web.search.base import (
    SearchAccess,
    SearchAnswer,
    SearchFilter,
    WebQuery,
    make_result,
)
from homarus.tools.web.service_request import (
    WebServiceRequest,
    add_query,
    list_of_objects,
    request_json,
)

LABEL: Final = "searxng"
AUTO_ORDER: Final = 10  # a server of one's own comes first
MIN_INTERVAL_S: Final = 0.2
FIX: Final = (
    "set tools.web.search.searxng.baseUrl to the server's address; its settings.yml needs json in"
    " search.formats"
)
_RANGES: Final = {"pd": "day", "pw": "week", "pm": "month", "py": "year"}


def find_access(config: WebSearchConfig, env: Mapping[str, str]) -> SearchAccess | None:
    """Return the server's address; None without one."""
    address = (config.searxng.base_url or "").strip()
    if address:
        return SearchAccess(address, "tools.web.search.searxng.baseUrl")
    address = env.get("SEARXNG_BASE_URL", "").strip()
    return SearchAccess(address, "SEARXNG_BASE_URL") if address else None


async def search(query: WebQuery, access: SearchAccess) -> SearchAnswer:
    """`GET /search?q=…&format=json`."""
    language = query.search_lang
    if language and query.country and "-" not in language:
        language = f"{language}-{query.country.upper()}"
    params = {
        "q": query.text,
        "format": "json",
        "language": language,
        "time_range": _RANGES.get(query.freshness, ""),
    }
    base = access.base_url.rstrip("/").removesuffix("/search")
    found = await request_json(
        WebServiceRequest(
            "SearXNG", add_query(f"{base}/search", params), timeout_s=access.timeout_s, fix=FIX
        )
    )
    if not isinstance(found.get("results"), list):
        raise FetchError("SearXNG answered without a list of results", fix=FIX)
    results = (
        make_result(row.get("title"), row.get("url"), row.get("content"), row.get("publishedDate"))
        for row in list_of_objects(found["results"])
    )
    kept = tuple(one for one in results if one)[: query.count]
    return SearchAnswer(kept, ignored=_ignored(query))


def _ignored(query: WebQuery) -> tuple[SearchFilter, ...]:
    """Return the filters that the API does not have: a country alone, and ranges of days."""
    missing: set[SearchFilter] = {"ui_lang"}
    if not query.search_lang:
        missing.add("country")
    if query.dates:
        missing.add("freshness")
    return tuple(name for name in query.filters if name in missing)
