"""Firecrawl: a service that reads a page with a browser of its own, where that is configured."""

import re
from collections.abc import Mapping
from typing import Any, Final

from homarus.config.web_schema import FirecrawlConfig
from homarus.core.errors import FetchError
from homarus.core.fast_dataclass import dataclass
from homarus.tools.web.fetched_page import ExtractMode
from homarus.tools.web.search.base import find_key, plain_text
from homarus.tools.web.service_request import WebServiceRequest, request_json

_FIX: Final = "check tools.web.fetch.firecrawl, or set its enabled to false"
_LINK: Final = re.compile(r"!?\[([^\[\]]{0,300})\]\([^()\s]{0,2000}\)")
_HEADING: Final = re.compile(r"^#{1,6} +", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ScrapedPage:
    """What Firecrawl returns for a page."""

    text: str
    title: str = ""
    url: str = ""
    status: int = 200


def firecrawl_key(config: FirecrawlConfig, env: Mapping[str, str]) -> str:
    """Return the key; "" where Firecrawl is not used."""
    if not config.enabled:
        return ""
    path = "tools.web.fetch.firecrawl.apiKey"
    return find_key(config.api_key, path, env, "FIRECRAWL_API_KEY")[0]


async def scrape_page(
    config: FirecrawlConfig, key: str, url: str, mode: ExtractMode
) -> ScrapedPage:
    """`POST /v2/scrape`. Raises FetchError when the service fails or returns no text."""
    body: dict[str, Any] = {
        "url": url,
        "formats": ["markdown"],
        "onlyMainContent": config.only_main_content,
        "timeout": config.timeout_seconds * 1000,
        "maxAge": config.max_age_ms,
    }
    found = await request_json(
        WebServiceRequest(
            "Firecrawl",
            f"{config.base_url.rstrip('/')}/v2/scrape",
            key,
            body=body,
            timeout_s=float(config.timeout_seconds),
            fix=_FIX,
        )
    )
    data = found.get("data")
    markdown = data.get("markdown") if isinstance(data, dict) else None
    if found.get("success") is False or not isinstance(data, dict) or not isinstance(markdown, str):
        reason = plain_text(found.get("error"), 200) or "it returned no text"
        raise FetchError(f"Firecrawl could not read the page: {reason}", fix=_FIX)
    about: Any = data.get("metadata")
    about = about if isinstance(about, dict) else {}
    status = about.get("statusCode")
    address = about.get("url") or about.get("sourceURL")
    return ScrapedPage(
        markdown if mode == "markdown" else _to_text(markdown),
        plain_text(about.get("title"), 300),
        address if isinstance(address, str) else "",
        status if isinstance(status, int) else 200,
    )


def _to_text(markdown: str) -> str:
    """Return Markdown without its links and headings."""
    return _HEADING.sub("", _LINK.sub(r"\1", markdown))
