"""The interface of search providers, and what they are asked and answer.

A provider is a module of this package: its name in the config is the module's name. Installed
packages add others by the entry-point group `homarus.search_providers`.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

from homarus.config.web_schema import WebSearchConfig
from homarus.core.fast_dataclass import dataclass
from homarus.plugins.backends import BackendKind

MAX_RESULTS: Final = 10
_MAX_TITLE_CHARS: Final = 200
_MAX_DESCRIPTION_CHARS: Final = 600
_MAX_URL_CHARS: Final = 2_000
_TAG: Final = re.compile(r"<[^<>]{0,200}>")

# The filters of a search besides its words, as the arguments of the tool are named.
SearchFilter: TypeAlias = Literal["country", "search_lang", "ui_lang", "freshness"]


@dataclass(frozen=True, slots=True)
class WebQuery:
    """One search.

    `freshness` is `pd`, `pw`, `pm` or `py` for the last day, week, month or year, or a range of
    days, `2026-01-01to2026-01-31`.
    """

    text: str
    count: int = 5
    country: str = ""
    search_lang: str = ""
    ui_lang: str = ""
    freshness: str = ""

    @property
    def filters(self) -> tuple[SearchFilter, ...]:
        """The filters that are set."""
        names: tuple[SearchFilter, ...] = ("country", "search_lang", "ui_lang", "freshness")
        return tuple(name for name in names if getattr(self, name))

    @property
    def dates(self) -> tuple[str, str] | None:
        """The first and the last day of a range, None where there is none."""
        first, separator, last = self.freshness.partition("to")
        return (first, last) if separator else None


@dataclass(frozen=True, slots=True)
class SearchAccess:
    """How a provider is reached; `origin` is where a person finds the key or the address.

    One that is not `is_automatic` is used only when the config names the provider: its key is for
    models in the first place. `is_fallback`: it needs nothing, and is the last resort.
    """

    base_url: str
    origin: str = ""
    api_key: str = field(default="", repr=False)
    model: str = ""
    timeout_s: float = 30.0
    has_inline_citations: bool = False
    is_automatic: bool = True
    is_fallback: bool = False


@dataclass(frozen=True, slots=True)
class WebResult:
    """One page that was found."""

    title: str
    url: str
    description: str = ""
    published: str = ""
    site_name: str = ""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What a provider found: pages, or a text of its own with the pages that it cites.

    `ignored` are the filters that the provider does not have.
    """

    results: tuple[WebResult, ...] = ()
    content: str = ""
    citations: tuple[str, ...] = ()
    inline_citations: tuple[Mapping[str, str | int], ...] = ()
    ignored: tuple[SearchFilter, ...] = ()


class SearchModule(Protocol):
    """The module of a provider.

    `LABEL` is its name in results. Of the providers that are configured, the one with the lowest
    `AUTO_ORDER` is used. Two searches are at least `MIN_INTERVAL_S` apart. `FIX` says how to
    configure it.
    """

    LABEL: str
    AUTO_ORDER: int
    MIN_INTERVAL_S: float
    FIX: str

    def find_access(self, config: WebSearchConfig, env: Mapping[str, str]) -> SearchAccess | None:
        """Return how it is reached, None where it is not configured."""
        ...

    async def search(self, query: WebQuery, access: SearchAccess) -> SearchAnswer:
        """Search. Raises FetchError when the service fails or refuses."""
        ...


SEARCH_PROVIDERS: Final[BackendKind[SearchModule]] = BackendKind(
    name="search provider",
    package="homarus.tools.web.search",
    group="homarus.search_providers",
    required=("find_access", "search"),
    config_key="tools.web.search.provider",
)


def find_key(
    configured: str | None, path: str, env: Mapping[str, str], *names: str
) -> tuple[str, str]:
    """Return a key and where it was found: the config, else the first variable that is set."""
    if configured and configured.strip():
        return configured.strip(), path
    for name in names:
        if value := env.get(name, "").strip():
            return value, name
    return "", ""


def make_result(
    title: object, url: object, description: object = "", published: object = ""
) -> WebResult | None:
    """Return a result in plain text; None for one without an address on the web."""
    address = url.strip() if isinstance(url, str) else ""
    if not address.startswith(("http://", "https://")) or len(address) > _MAX_URL_CHARS:
        return None
    if not address.isprintable() or " " in address:
        return None
    try:
        site = urlsplit(address).hostname or ""
    except ValueError:
        return None
    return WebResult(
        plain_text(title, _MAX_TITLE_CHARS) or site,
        address,
        plain_text(description, _MAX_DESCRIPTION_CHARS),
        plain_text(published, 60),
        site,
    )


def plain_text(value: object, max_chars: int) -> str:
    """Return a text of a service in one line, without tags and entities; "" for no text."""
    if not isinstance(value, str):
        return ""
    text = " ".join(html.unescape(_TAG.sub("", value[: 4 * max_chars])).split())
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
