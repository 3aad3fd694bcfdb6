"""The section `tools.web` of the config."""

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from homarus.config.backend_names import SEARCH_PROVIDER_NAMES
from homarus.config.section import ConfigSection, HostNames, NonNegativeInt, PositiveInt

Minutes: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
SearchProviderName: TypeAlias = Annotated[
    str,
    AfterValidator(SEARCH_PROVIDER_NAMES.check),
    Field(json_schema_extra=SEARCH_PROVIDER_NAMES.add_to),
]


class SsrfPolicyConfig(ConfigSection):
    """What URLs that a model or a message names may reach besides the public internet.

    `allowedHostnames` may have private addresses; `blockedHostnames` are refused with all names
    beneath them.
    """

    dangerously_allow_private_network: bool = False
    allow_rfc2544_benchmark_range: bool = False
    allow_ipv6_unique_local_range: bool = False
    allowed_hostnames: HostNames = ()
    blocked_hostnames: HostNames = ()


class FirecrawlConfig(ConfigSection):
    """Firecrawl, a service that reads pages which cannot be read directly.

    It is used where there is a key: this one, or `FIRECRAWL_API_KEY`. `maxAgeMs` is how old its
    copy of a page may be.
    """

    enabled: bool = True
    api_key: str | None = None
    base_url: str = "https://api.firecrawl.dev"
    only_main_content: bool = True
    max_age_ms: NonNegativeInt = 172_800_000
    timeout_seconds: PositiveInt = 60


class WebFetchConfig(ConfigSection):
    """Fetches of URLs that a model or a message names.

    `maxChars` is the default of what `web_fetch` returns of a page, `maxCharsCap` the most that a
    call can ask for. Without `readability` a page is returned with its menus and footers.
    """

    enabled: bool = True
    max_chars: PositiveInt = 50_000
    max_chars_cap: PositiveInt = 50_000
    timeout_seconds: PositiveInt = 30
    cache_ttl_minutes: Minutes = 15.0
    max_redirects: NonNegativeInt = 3
    user_agent: str | None = None
    readability: bool = True
    firecrawl: FirecrawlConfig = FirecrawlConfig.model_construct()
    ssrf_policy: SsrfPolicyConfig = SsrfPolicyConfig.model_construct()


class PerplexityConfig(ConfigSection):
    """Perplexity, directly or by OpenRouter; without `baseUrl` the key tells which."""

    api_key: str | None = None
    base_url: str | None = None
    model: str = "perplexity/sonar-pro"


class GrokConfig(ConfigSection):
    """Grok's search; `inlineCitations` keeps the links within its text."""

    api_key: str | None = None
    model: str = "grok-4-1-fast"
    inline_citations: bool = False


class SearxngConfig(ConfigSection):
    """A SearXNG server of the owner's choice, also on a private network."""

    base_url: str | None = None


class WebSearchConfig(ConfigSection):
    """Searches on the web.

    Without `provider` it is the first that is configured, else DuckDuckGo without a key. `apiKey`
    is Brave's, or that of a provider without a section of its own.
    """

    enabled: bool = True
    provider: SearchProviderName | None = None
    api_key: str | None = None
    max_results: PositiveInt = 5
    timeout_seconds: PositiveInt = 30
    cache_ttl_minutes: Minutes = 15.0
    perplexity: PerplexityConfig = PerplexityConfig.model_construct()
    grok: GrokConfig = GrokConfig.model_construct()
    searxng: SearxngConfig = SearxngConfig.model_construct()


class WebToolsConfig(ConfigSection):
    """What reaches the web."""

    search: WebSearchConfig = WebSearchConfig.model_construct()
    fetch: WebFetchConfig = WebFetchConfig.model_construct()
