"""One search: select the provider, look into the cache, wait for its turn, ask, and format."""

import re
from collections.abc import Mapping
from datetime import date
from typing import Final

from homarus.config.web_schema import WebSearchConfig
from homarus.core.errors import ToolError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.tools.web.search.base import MAX_RESULTS, SearchAnswer, WebQuery, WebResult
from homarus.tools.web.search_selection import SelectedProvider, select_provider
from homarus.tools.web.web_state import WebState

_MAX_CONTENT_CHARS: Final = 20_000
_MAX_CITATIONS: Final = 30
_RANGE: Final = re.compile(r"\d{4}-\d{2}-\d{2}to\d{4}-\d{2}-\d{2}")


async def search_web(
    config: WebSearchConfig, env: Mapping[str, str], state: WebState, query: WebQuery
) -> dict[str, Json]:
    """Return what was found, as the tool returns it. Raises ToolError."""
    selected = select_provider(config, env)
    access = selected.access
    key = (selected.name, access.base_url, access.model, query)
    ttl_s = config.cache_ttl_minutes * 60
    if (cached := state.searches.find(key, ttl_s)) is not None:
        return {**cached, "cached": True}
    await state.pacer.wait(selected.name, selected.module.MIN_INTERVAL_S)
    started_s = state.clock.monotonic()
    answer = await selected.module.search(query, access)
    took_ms = round((state.clock.monotonic() - started_s) * 1000)
    payload = _format(selected, query, answer, took_ms)
    if ttl_s > 0:
        state.searches.add(key, payload)
    return payload


def check_freshness(text: str) -> str:
    """Return how new results must be, as providers understand it. Raises ToolError."""
    wanted = text.strip().lower()
    if wanted in {"", "pd", "pw", "pm", "py"}:
        return wanted
    first, separator, last = wanted.partition("to")
    try:
        is_range = bool(separator) and date.fromisoformat(first) <= date.fromisoformat(last)
    except ValueError:
        is_range = False
    if not is_range or not _RANGE.fullmatch(wanted):
        raise ToolError(
            f"freshness cannot be {one_line(text, 40)!r}",
            fix="use pd, pw, pm or py for the last day, week, month or year, or"
            " 2026-01-01to2026-01-31",
        )
    return wanted


def default_count(config: WebSearchConfig) -> int:
    """Return how many results are asked for without an argument."""
    return min(config.max_results, MAX_RESULTS)


def _format(
    selected: SelectedProvider, query: WebQuery, answer: SearchAnswer, took_ms: int
) -> dict[str, Json]:
    payload: dict[str, Json] = {"query": query.text, "provider": selected.module.LABEL}
    if selected.access.model:
        payload["model"] = selected.access.model
    if answer.content:
        payload["content"] = answer.content[:_MAX_CONTENT_CHARS]
        payload["citations"] = list(answer.citations[:_MAX_CITATIONS])
    if answer.inline_citations:
        payload["inlineCitations"] = [dict(one) for one in answer.inline_citations]
    payload["tookMs"] = took_ms
    if answer.results or not answer.content:
        payload["count"] = len(answer.results)
        payload["results"] = [_row(one) for one in answer.results]
    if answer.ignored:
        payload["ignored"] = list(answer.ignored)
    return payload


def _row(result: WebResult) -> dict[str, Json]:
    row: dict[str, Json] = {
        "title": result.title,
        "url": result.url,
        "description": result.description,
    }
    if result.published:
        row["published"] = result.published
    if result.site_name:
        row["siteName"] = result.site_name
    return row
