"""Perplexity: a text with its sources, directly or by OpenRouter."""

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from homarus.config.web_schema import WebSearchConfig
from homarus.core.errors import FetchError
from homarus.tools.web.search.base import (
    SearchAccess,
    SearchAnswer,
    SearchFilter,
    WebQuery,
    find_key,
    make_result,
)
from homarus.tools.web.service_request import WebServiceRequest, list_of_objects, request_json

LABEL: Final = "perplexity"
AUTO_ORDER: Final = 30
MIN_INTERVAL_S: Final = 0.5
FIX: Final = "set PERPLEXITY_API_KEY, OPENROUTER_API_KEY or tools.web.search.perplexity.apiKey"
DIRECT_URL: Final = "https://api.perplexity.ai"
OPENROUTER_URL: Final = "https://openrouter.ai/api/v1"
_VENDOR: Final = "perplexity/"  # what OpenRouter's names of the models start with
_RANGES: Final = {"pd": "day", "pw": "week", "pm": "month", "py": "year"}


def find_access(config: WebSearchConfig, env: Mapping[str, str]) -> SearchAccess | None:
    """Return the key, and whose it is; None without one."""
    own = config.perplexity
    names = ("PERPLEXITY_API_KEY", "OPENROUTER_API_KEY")
    key, origin = find_key(own.api_key, "tools.web.search.perplexity.apiKey", env, *names)
    if not key:
        return None
    is_direct = key.startswith("pplx-") or origin == names[0]
    base_url = (own.base_url or "").strip() or (DIRECT_URL if is_direct else OPENROUTER_URL)
    model = own.model.removeprefix(_VENDOR) if _is_direct(base_url) else own.model
    # OpenRouter's key is for models; to spend it on searches is the owner's decision.
    return SearchAccess(base_url, origin, key, model, is_automatic=origin != names[1])


def _is_direct(base_url: str) -> bool:
    return base_url.rstrip("/").removesuffix("/v1") == DIRECT_URL


async def search(query: WebQuery, access: SearchAccess) -> SearchAnswer:
    """`POST /chat/completions` with a model that searches."""
    body: dict[str, Any] = {
        "model": access.model,
        "messages": [{"role": "user", "content": query.text}],
    }
    if _is_direct(access.base_url):
        body |= _filters(query)
    found = await request_json(
        WebServiceRequest(
            "Perplexity",
            f"{access.base_url.rstrip('/')}/chat/completions",
            access.api_key,
            body=body,
            timeout_s=access.timeout_s,
            fix=FIX,
        )
    )
    choices = list_of_objects(found.get("choices"))
    message = choices[0].get("message") if choices else None
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(content, str):
        raise FetchError("Perplexity answered without a text", fix=FIX)
    rows = list_of_objects(found.get("search_results"))
    results = (
        make_result(row.get("title"), row.get("url"), row.get("snippet"), row.get("date"))
        for row in rows
    )
    return SearchAnswer(
        tuple(one for one in results if one)[: query.count],
        content,
        _citations(found, message),
        ignored=_ignored(query, body),
    )


def _filters(query: WebQuery) -> dict[str, Any]:
    """Return the filters as Perplexity's own API has them."""
    if query.freshness in _RANGES:
        return {"search_recency_filter": _RANGES[query.freshness]}
    if query.dates:
        first, last = (date.fromisoformat(day).strftime("%m/%d/%Y") for day in query.dates)
        return {"search_after_date_filter": first, "search_before_date_filter": last}
    return {}


def _ignored(query: WebQuery, body: Mapping[str, Any]) -> tuple[SearchFilter, ...]:
    is_filtered = any(name.startswith("search_") for name in body)
    return tuple(name for name in query.filters if name != "freshness" or not is_filtered)


def _citations(found: Mapping[str, Any], message: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cited addresses: Perplexity lists them, OpenRouter annotates the text."""
    listed = found.get("citations")
    addresses = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    for note in list_of_objects(message.get("annotations")):
        cited = note.get("url_citation")
        if isinstance(cited, dict) and isinstance(cited.get("url"), str):
            addresses.append(cited["url"])
    valid = (made.url for one in addresses if (made := make_result("", one)))
    return tuple(dict.fromkeys(valid))
