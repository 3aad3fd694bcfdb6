"""Brave: pages by the Brave Search API."""

from collections.abc import Mapping
from typing import Any, Final

from homarus.config.web_schema import WebSearchConfig
from homarus.tools.web.search.base import (
    SearchAccess,
    SearchAnswer,
    WebQuery,
    find_key,
    make_result,
)
from homarus.tools.web.service_request import (
    WebServiceRequest,
    add_query,
    list_of_objects,
    request_json,
)

LABEL: Final = "brave"
AUTO_ORDER: Final = 20
MIN_INTERVAL_S: Final = 1.0  # of the free plan
FIX: Final = "set BRAVE_API_KEY or tools.web.search.apiKey to a key of https://brave.com/search/api"
BASE_URL: Final = "https://api.search.brave.com"


def find_access(config: WebSearchConfig, env: Mapping[str, str]) -> SearchAccess | None:
    """Return the key; None without one."""
    key, origin = find_key(config.api_key, "tools.web.search.apiKey", env, "BRAVE_API_KEY")
    return SearchAccess(BASE_URL, origin, key) if key else None


async def search(query: WebQuery, access: SearchAccess) -> SearchAnswer:
    """`GET /res/v1/web/search`."""
    params: dict[str, str | int] = {
        "q": query.text,
        "count": query.count,
        "country": query.country.upper(),
        "search_lang": query.search_lang,
        "ui_lang": query.ui_lang,
        "freshness": query.freshness,
        "text_decorations": "false",
    }
    found = await request_json(
        WebServiceRequest(
            "Brave Search",
            add_query(f"{access.base_url.rstrip('/')}/res/v1/web/search", params),
            access.api_key,
            headers={"X-Subscription-Token": access.api_key},
            timeout_s=access.timeout_s,
            fix=FIX,
        )
    )
    web: Any = found.get("web")
    rows = list_of_objects(web.get("results") if isinstance(web, dict) else None)
    results = (
        make_result(
            row.get("title"),
            row.get("url"),
            row.get("description"),
            row.get("age") or row.get("page_age"),
        )
        for row in rows
    )
    return SearchAnswer(tuple(one for one in results if one)[: query.count])
