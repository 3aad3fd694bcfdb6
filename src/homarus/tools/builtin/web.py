"""The web: `web_search` finds pages, `web_fetch` reads one.

What both return was written by others, and is marked so. The code that searches and reads is
imported with the first call.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AliasChoices, Field

from homarus.core.errors import FetchError, ToolError
from homarus.core.message import Text
from homarus.policy.tool_call import TaintSource
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput, tool

if TYPE_CHECKING:
    from homarus.tools.web.web_fetch import PageNetwork
    from homarus.tools.web.web_state import WebState

_MARGIN_S = 30.0  # for waiting for a turn, and for reading what was fetched


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tools that the config does not switch off."""
    web = context.config.tools.web
    made = [make_search_tool(context)] if web.search.enabled else []
    return [*made, make_fetch_tool(context)] if web.fetch.enabled else made


def make_search_tool(context: ToolSourceContext, state: "WebState | None" = None) -> Tool:
    """Return `web_search`; tests give it a state of their own."""
    config = context.config.tools.web.search

    @tool(group="web", idempotent=True, timeout_s=config.timeout_seconds + _MARGIN_S)
    async def web_search(
        ctx: ToolContext,
        query: Annotated[str, Field(min_length=1, max_length=400)],
        *,
        count: Annotated[int | None, Field(ge=1, le=10)] = None,
        country: Annotated[str | None, Field(pattern="^[A-Za-z]{2}$", description="as DE")] = None,
        search_lang: Annotated[
            str | None, Field(pattern="^[A-Za-z-]{2,8}$", description="of results, as de")
        ] = None,
        ui_lang: Annotated[str | None, Field(pattern="^[A-Za-z-]{2,8}$")] = None,
        freshness: Annotated[
            str | None, Field(description="pd, pw, pm, py or YYYY-MM-DDtoYYYY-MM-DD")
        ] = None,
    ) -> ToolOutput:
        """Search the web. Read a result with web_fetch."""
        from homarus.tools.web.search.base import WebQuery
        from homarus.tools.web.web_search import check_freshness, default_count, search_web
        from homarus.tools.web.web_state import shared_state

        asked = WebQuery(
            " ".join(query.split()),
            count or default_count(config),
            country or "",
            search_lang or "",
            ui_lang or "",
            check_freshness(freshness or ""),
        )
        if not asked.text:
            raise ToolError("there is nothing to search for", fix="ask with words")
        source = TaintSource("web", f"search: {asked.text}")
        try:
            payload = await search_web(config, context.env, state or shared_state(), asked)
        except FetchError as exc:  # it may have the words of the service
            return ToolOutput((Text(str(exc)),), is_error=True, untrusted=source)
        text = json.dumps(payload, ensure_ascii=False, indent=1)
        return ToolOutput((Text(text),), payload, untrusted=source)

    return web_search


def make_fetch_tool(
    context: ToolSourceContext,
    network: "PageNetwork | None" = None,
    state: "WebState | None" = None,
) -> Tool:
    """Return `web_fetch`; tests give it a network and a state of their own."""
    config = context.config.tools.web.fetch
    timeout_s = config.timeout_seconds + config.firecrawl.timeout_seconds + _MARGIN_S

    @tool(group="web", idempotent=True, timeout_s=timeout_s)
    async def web_fetch(
        ctx: ToolContext,
        url: str,
        mode: Annotated[
            Literal["markdown", "text"], Field(validation_alias=AliasChoices("extractMode"))
        ] = "markdown",
        max_chars: Annotated[
            int | None, Field(validation_alias=AliasChoices("maxChars"), ge=100)
        ] = None,
    ) -> ToolOutput:
        """Read a web page, PDF, JSON or text file by its http(s) URL. It runs no scripts."""
        from homarus.tools.web.web_fetch import PageFetcher, PageNetwork
        from homarus.tools.web.web_state import shared_state

        fetcher = PageFetcher(
            config, context.env, state or shared_state(), network or PageNetwork()
        )
        try:
            page, is_cached = await fetcher.fetch(url.strip(), mode, max_chars)
        except FetchError as exc:  # it may have the words of the server
            source = TaintSource("web", url.strip())
            return ToolOutput((Text(str(exc)),), is_error=True, untrusted=source)
        return ToolOutput(
            (Text(page.show()),),
            page.details(is_cached=is_cached),
            untrusted=TaintSource("web", page.final_url),
        )

    return web_fetch
