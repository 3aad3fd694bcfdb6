"""`web_search` on labelled fakes of the vendors' services, which check the documented requests."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.config.check import check_config
from homarus.config.redaction import forget_known_secrets, mask_known_secrets
from homarus.config.schema import Config
from homarus.core.errors import FetchError, ToolError
from homarus.core.message import ToolResult
from homarus.core.untrusted import unwrap_untrusted
from homarus.testing.clock import FakeClock
from homarus.tools.builtin.web import make_search_tool
from homarus.tools.catalog import builtin_tools, find_declaration
from homarus.tools.tool import ToolContext
from homarus.tools.web.request_pacer import RequestPacer
from homarus.tools.web.search import brave, duckduckgo, grok, perplexity
from homarus.tools.web.search.base import (
    SEARCH_PROVIDERS,
    SearchAccess,
    SearchAnswer,
    SearchModule,
    WebQuery,
    make_result,
)
from homarus.tools.web.search_selection import select_provider
from homarus.tools.web.ttl_cache import TtlCache
from homarus.tools.web.web_search import check_freshness
from homarus.tools.web.web_state import WebState, make_web_state
from tests.unit.tools.web_builders import (
    Site,
    SiteRequest,
    always,
    call_tool,
    load_web_tools,
    open_site,
    respond,
    respond_json,
    tool_source,
    web_config,
)

KEY = "BSA-topsecret-key-1234567890"
RANGE = "2026-01-01to2026-01-31"


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return ToolContext("agent:main:main", "main", tmp_path)


@pytest.fixture
def state() -> WebState:
    return make_web_state(FakeClock(patient=False))


@pytest.fixture(autouse=True)
def _no_known_secrets() -> Any:
    yield
    forget_known_secrets()


async def search(
    ctx: ToolContext,
    state: WebState,
    config: Config,
    env: Mapping[str, str] | None = None,
    **args: Any,
) -> ToolResult:
    tool = make_search_tool(tool_source(config, env), state)
    return await call_tool(ctx, tool, "web_search", {"query": "lobsters"} | args)


def payload(result: ToolResult) -> Any:
    """Return what the model reads, as JSON."""
    assert not result.is_error, result.text
    return json.loads(unwrap_untrusted(result.text))


# A fake of Brave Search, with the response of its documentation.


def fake_brave(request: SiteRequest) -> bytes:
    if request.headers.get("x-subscription-token") != KEY:
        error = {"error": {"code": "SUBSCRIPTION_TOKEN_INVALID", "detail": f"no {KEY}"}}
        return respond_json({"type": "ErrorResponse", **error}, "422 Unprocessable Entity")
    assert (request.method, request.path) == ("GET", "/res/v1/web/search")
    assert "authorization" not in request.headers
    row = {
        "title": "All about <strong>lobsters</strong>",
        "url": "https://sea.example/lobsters",
        "description": "They &amp; their <strong>claws</strong>",
        "age": "2 days ago",
    }
    rows = [row, {"title": "no address"}, "junk", row | {"url": "javascript:alert(1)"}]
    return respond_json({"type": "search", "web": {"type": "search", "results": rows}})


async def test_brave_request_and_results_are_as_documented() -> None:
    query = WebQuery("lobsters & crabs", 3, "de", "de", "de-DE", "pw")
    async with open_site(fake_brave) as site:
        answer = await brave.search(query, SearchAccess(site.url, api_key=KEY))
    assert site.requests[0].query == {
        "q": "lobsters & crabs", "count": "3", "country": "DE", "search_lang": "de",
        "ui_lang": "de-DE", "freshness": "pw", "text_decorations": "false",
    }  # fmt: skip
    (found,) = answer.results
    assert found.title == "All about lobsters" and found.description == "They & their claws"
    assert (found.url, found.published) == ("https://sea.example/lobsters", "2 days ago")
    assert found.site_name == "sea.example" and answer.ignored == ()


async def test_brave_error_names_the_fix_and_not_the_key() -> None:
    async with open_site(fake_brave) as site:
        with pytest.raises(FetchError) as caught:
            await brave.search(WebQuery("x"), SearchAccess(site.url, api_key=f"{KEY}x"))
    assert "422" in str(caught.value) and "BRAVE_API_KEY" in caught.value.fix
    assert KEY in str(caught.value)  # the fake repeats another key than the one in use
    assert mask_known_secrets(f"{KEY}x") == "***"


async def test_service_error_masks_the_key_that_it_repeats() -> None:
    answer = respond_json({"message": f"bad key {KEY}"}, "401 Unauthorized")
    async with open_site(lambda _request: answer) as site:
        with pytest.raises(FetchError, match=r"refused the request \(401\): bad key \*\*\*"):
            await brave.search(WebQuery("x"), SearchAccess(site.url, api_key=KEY))


# A fake of Perplexity's chat completions, and of OpenRouter's.


def fake_perplexity(request: SiteRequest) -> bytes:
    assert (request.method, request.path) == ("POST", "/chat/completions")
    assert request.headers["authorization"].startswith("Bearer ")
    cited = {"type": "url_citation", "url_citation": {"url": "https://b.example/"}}
    message = {"role": "assistant", "content": "Lobsters grow.[1]", "annotations": [cited]}
    return respond_json(
        {
            "choices": [{"index": 0, "message": message}],
            "citations": ["https://a.example/", 7, "ftp://x"],
            "search_results": [{"title": "A", "url": "https://a.example/", "date": "2026-01-02"}],
        }
    )


async def test_perplexity_answer_has_text_citations_and_results(
    ctx: ToolContext, state: WebState
) -> None:
    async with open_site(fake_perplexity) as site:
        config = web_config({"perplexity": {"apiKey": "pplx-123456789", "baseUrl": site.url}})
        found = payload(await search(ctx, state, config, freshness="pd"))
    assert (found["provider"], found["model"]) == ("perplexity", "perplexity/sonar-pro")
    assert found["content"] == "Lobsters grow.[1]"
    assert found["citations"] == ["https://a.example/", "https://b.example/"]
    assert found["results"][0]["published"] == "2026-01-02"
    assert found["ignored"] == ["freshness"]  # another server than Perplexity's own
    assert site.requests[0].json == {
        "model": "perplexity/sonar-pro",
        "messages": [{"role": "user", "content": "lobsters"}],
    }


@pytest.mark.parametrize(
    ("freshness", "sent"),
    [
        ("pm", {"search_recency_filter": "month"}),
        (
            RANGE,
            {"search_after_date_filter": "01/01/2026", "search_before_date_filter": "01/31/2026"},
        ),
    ],
)
def test_perplexity_filters_are_those_of_its_own_api(freshness: str, sent: dict[str, str]) -> None:
    assert perplexity._filters(WebQuery("x", freshness=freshness)) == sent
    assert perplexity._ignored(WebQuery("x", country="de", freshness="pd"), sent) == ("country",)


@pytest.mark.parametrize(
    ("config", "env", "base_url", "model"),
    [
        ({}, {"PERPLEXITY_API_KEY": "k-1"}, perplexity.DIRECT_URL, "sonar-pro"),
        ({"apiKey": "pplx-1"}, {}, perplexity.DIRECT_URL, "sonar-pro"),
        ({"apiKey": "sk-or-1"}, {}, perplexity.OPENROUTER_URL, "perplexity/sonar-pro"),
        ({}, {"OPENROUTER_API_KEY": "k-1"}, perplexity.OPENROUTER_URL, "perplexity/sonar-pro"),
        (
            {"model": "perplexity/sonar"},
            {"PERPLEXITY_API_KEY": "k"},
            perplexity.DIRECT_URL,
            "sonar",
        ),
    ],
)
def test_perplexity_key_decides_which_service_is_asked(
    config: dict[str, str], env: dict[str, str], base_url: str, model: str
) -> None:
    settings = web_config({"perplexity": config}).tools.web.search
    access = perplexity.find_access(settings, env)
    assert access and (access.base_url, access.model) == (base_url, model)


# A fake of xAI's responses with its own search tool.


def fake_grok(request: SiteRequest) -> bytes:
    assert (request.method, request.path) == ("POST", "/responses")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    note = {"type": "url_citation", "url": "https://a.example/", "start_index": 3, "end_index": 9}
    part = {"type": "output_text", "text": "They molt.", "annotations": [note]}
    output = [{"type": "web_search_call"}, {"type": "message", "content": [part]}]
    return respond_json({"output": output, "citations": ["https://b.example/"]})


async def test_grok_request_and_answer_are_as_documented() -> None:
    access = SearchAccess("", api_key=KEY, model="grok-4-1-fast", has_inline_citations=True)
    async with open_site(fake_grok) as site:
        access = replace(access, base_url=site.url)
        answer = await grok.search(WebQuery("x", country="de"), access)
        plain = await grok.search(WebQuery("x"), replace(access, has_inline_citations=False))
    first, second = (request.json for request in site.requests)
    assert first == {
        "model": "grok-4-1-fast",
        "input": [{"role": "user", "content": "x"}],
        "tools": [{"type": "web_search"}],
    }
    assert second["include"] == ["no_inline_citations"]
    assert answer.content == "They molt." and answer.ignored == ("country",)
    assert answer.citations == ("https://b.example/", "https://a.example/")
    (inline,) = answer.inline_citations
    assert inline == {"url": "https://a.example/", "start_index": 3, "end_index": 9}
    assert plain.inline_citations == ()


# A fake of SearXNG's JSON API.


def fake_searxng(request: SiteRequest) -> bytes:
    assert (request.method, request.path) == ("GET", "/sx/search")
    if request.query.get("format") != "json":
        return respond("Forbidden", "403 Forbidden")
    row = {"title": "L", "url": "https://l.example/", "content": "about", "publishedDate": "2026"}
    return respond_json({"query": request.query["q"], "results": [row, row, row]})


async def test_searxng_on_a_private_address_is_searched(ctx: ToolContext, state: WebState) -> None:
    async with open_site(fake_searxng) as site:
        config = Config.model_validate(  # no host is allowed for what a model aims
            {"tools": {"web": {"search": {"searxng": {"baseUrl": f"{site.url}/sx/"}}}}}
        )
        args: dict[str, Any] = {"count": 2, "country": "at", "search_lang": "de", "freshness": "py"}
        result = await search(ctx, state, config, **args)
    found = payload(result)
    assert site.requests[0].query == {
        "q": "lobsters", "format": "json", "language": "de-AT", "time_range": "year",
    }  # fmt: skip
    assert (found["query"], found["provider"], found["count"]) == ("lobsters", "searxng", 2)
    assert found["results"][0] == {
        "title": "L", "url": "https://l.example/", "description": "about", "published": "2026",
        "siteName": "l.example",
    }  # fmt: skip
    assert isinstance(found["tookMs"], int) and "ignored" not in found
    assert result.text.startswith("<<<EXTERNAL_UNTRUSTED_CONTENT")
    assert result.details and result.details["untrusted"] == [
        {"kind": "web", "origin": "search: lobsters"}
    ]


async def test_searxng_without_json_gives_the_setting_to_change(
    ctx: ToolContext, state: WebState
) -> None:
    async with open_site(lambda _request: respond("<h1>Forbidden</h1>", "403 Forbidden")) as site:
        config = web_config({"searxng": {"baseUrl": site.url}})
        result = await search(ctx, state, config)
    assert result.is_error and "search.formats" in result.text and "403" in result.text
    config = web_config({"searxng": {"baseUrl": "searx.example"}})
    result = await search(ctx, state, config)
    assert result.is_error and "is not a URL" in result.text


# A fake of DuckDuckGo's page without scripts.

PAGE = """<html><body><div id="links" class="results">
<div class="result results_links result--ad"><h2><a class="result__a"
 href="https://duckduckgo.com/y.js?ad_domain=shop.example">An advertisement</a></h2></div>
<div class="result results_links web-result"><h2 class="result__title">
<a rel="nofollow" class="result__a"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fsea.example%2Fa%3Fx%3D1%26y%3D2&amp;rut=0a">
 The <b>lobster</b> &amp; us</a></h2>
<a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">Claws, <b>large</b> ones.</a></div>
<div class="result"><a class="result__a" href="https://plain.example/">Plain</a>
<div class="result__snippet">No redirect</div></div>
<div class="result"><a class="result__a" href="javascript:alert(1)">Script</a></div>
</div></body></html>"""


async def duck(page: bytes, **query: Any) -> tuple[SearchAnswer, Site]:
    async with open_site(lambda _request: page) as site:
        asked = WebQuery("lobsters", **query)
        return await duckduckgo.search(asked, SearchAccess(site.url)), site


async def test_duckduckgo_results_are_parsed_without_advertisements() -> None:
    answer, site = await duck(respond(PAGE), freshness=RANGE, country="DE", search_lang="de")
    assert site.requests[0].path == "/html/"
    assert site.requests[0].query == {
        "q": "lobsters", "kl": "de-de", "df": "2026-01-01..2026-01-31",
    }  # fmt: skip
    first, second = answer.results
    assert (first.url, first.title) == ("https://sea.example/a?x=1&y=2", "The lobster & us")
    assert first.description == "Claws, large ones."
    assert (second.url, second.description) == ("https://plain.example/", "No redirect")
    answer, _ = await duck(respond(PAGE), count=1, country="DE", ui_lang="de-DE")
    assert len(answer.results) == 1 and answer.ignored == ("country", "ui_lang")


async def test_duckduckgo_page_without_results_is_no_error() -> None:
    answer, _ = await duck(respond('<div class="no-results">None</div>'))
    assert answer.results == ()


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (respond('<div class="anomaly-modal">Bots</div>', "202 Accepted"), "proof that a person"),
        (respond("<html><body>A new design</body></html>"), "changed its page"),
        (respond("no", "403 Forbidden"), "refused the request"),
        (respond(b"\xff\xfe\0\0", kind=""), "changed its page"),
    ],
)
async def test_duckduckgo_refusal_is_one_error_with_the_fix(page: bytes, reason: str) -> None:
    with pytest.raises(FetchError, match=reason) as caught:
        await duck(page)
    assert "BRAVE_API_KEY" in caught.value.fix and "searxng.baseUrl" in caught.value.fix


# Which provider is used


@pytest.mark.parametrize(
    ("config", "env", "name", "reason"),
    [
        ({}, {}, "duckduckgo", "no search provider is configured"),
        ({}, {"OPENROUTER_API_KEY": KEY, "XAI_API_KEY": KEY}, "duckduckgo", "no search provider"),
        ({}, {"BRAVE_API_KEY": KEY, "PERPLEXITY_API_KEY": KEY}, "brave", "BRAVE_API_KEY"),
        ({"apiKey": KEY}, {}, "brave", "tools.web.search.apiKey"),
        ({}, {"PERPLEXITY_API_KEY": KEY}, "perplexity", "PERPLEXITY_API_KEY"),
        ({"grok": {"apiKey": KEY}}, {}, "grok", "tools.web.search.grok.apiKey"),
        ({"searxng": {"baseUrl": "http://nas.lan"}}, {"BRAVE_API_KEY": KEY}, "searxng", "searxng"),
        ({"provider": "grok"}, {"XAI_API_KEY": KEY}, "grok", "provider names it"),
        ({"provider": "duckduckgo"}, {"BRAVE_API_KEY": KEY}, "duckduckgo", "provider names it"),
    ],
)
def test_search_provider_is_the_named_or_first_configured_one(
    config: dict[str, Any], env: dict[str, str], name: str, reason: str
) -> None:
    selected = select_provider(web_config(config).tools.web.search, env)
    assert selected.name == name and reason in selected.reason
    assert KEY not in repr(selected)


@pytest.mark.parametrize("name", ["brave", "perplexity", "grok", "searxng"])
async def test_search_provider_without_its_key_gives_the_fix(
    name: str, ctx: ToolContext, state: WebState
) -> None:
    result = await search(ctx, state, web_config({"provider": name}))
    assert result.is_error and f"provider is {name}" in result.text and "set " in result.text
    assert "EXTERNAL_UNTRUSTED" not in result.text  # it is our own text


def test_search_providers_are_found_by_name_and_others_refused() -> None:
    names = {"brave", "duckduckgo", "grok", "perplexity", "searxng"}
    assert names == set(SEARCH_PROVIDERS.names())
    checked = check_config({"tools": {"web": {"search": {"provider": "bing"}}}})
    (problem,) = checked.problems
    assert "'brave'" in problem.message and problem.path[-1] == "provider"


def test_search_provider_key_of_the_config_is_a_secret(tmp_path: Path) -> None:
    from homarus.config.redaction import redact_tree

    tree: Any = {"tools": {"web": {"search": {"apiKey": KEY, "grok": {"apiKey": KEY}},
                                   "fetch": {"firecrawl": {"apiKey": KEY}}}}}  # fmt: skip
    assert KEY not in json.dumps(redact_tree(tree))


# Cache, rate limit, arguments


async def test_search_result_is_cached_until_its_time_is_over(
    ctx: ToolContext, state: WebState
) -> None:
    async with open_site(fake_searxng) as site:
        config = web_config({"searxng": {"baseUrl": f"{site.url}/sx"}, "cacheTtlMinutes": 1})
        first = payload(await search(ctx, state, config))
        again = payload(await search(ctx, state, config))
        assert again == first | {"cached": True} and len(site.requests) == 1
        await search(ctx, state, config, count=1)
        assert len(site.requests) == 2  # another request
        await state.clock.sleep(61)
        assert "cached" not in payload(await search(ctx, state, config))
        uncached = web_config({"searxng": {"baseUrl": f"{site.url}/sx"}, "cacheTtlMinutes": 0})
        await search(ctx, state, uncached)
        assert len(site.requests) == 4


async def test_search_failure_is_not_cached(ctx: ToolContext, state: WebState) -> None:
    answers = [respond("", "500 Oops"), respond_json({"results": []})]
    async with open_site(lambda _request: answers.pop(0)) as site:
        config = web_config({"searxng": {"baseUrl": site.url}})
        assert (await search(ctx, state, config)).is_error
        assert payload(await search(ctx, state, config))["count"] == 0


def test_cache_is_bounded_in_entries_and_characters() -> None:
    cache = TtlCache[str](FakeClock().monotonic, len, max_entries=2, max_chars=100)
    for name in "abc":
        cache.add(name, name * 10)
    assert cache.find("a", 60) is None and cache.find("c", 60) == "c" * 10
    cache.add("big", "x" * 51)
    assert cache.find("big", 60) is None and len(cache) == 2
    cache.add("d", "d" * 50)
    cache.add("e", "e" * 50)
    assert len(cache) == 2 and cache.find("b", 60) is None


async def test_pacer_delays_requests_and_refuses_a_long_queue() -> None:
    clock = FakeClock(patient=False)
    pacer = RequestPacer(clock, max_wait_s=2.0)
    await pacer.wait("brave", 1.0)
    await pacer.wait("other", 1.0)
    assert clock.slept == []
    await pacer.wait("brave", 1.0)
    assert clock.slept == [1.0]
    waiting = RequestPacer(FakeClock(), max_wait_s=2.0)
    waiting._free_at_s["brave"] = 2.5
    with pytest.raises(ToolError, match="too many searches at once"):
        await waiting.wait("brave", 1.0)


@pytest.mark.parametrize(
    "args",
    [{"count": 11}, {"count": 0}, {"country": "germany"}, {"freshness": "yesterday"},
     {"query": " "}, {"freshness": "2026-02-01to2026-01-01"}, {"freshness": "20260101to20260102"}],
)  # fmt: skip
async def test_search_argument_out_of_bounds_is_refused(
    args: dict[str, Any], ctx: ToolContext, state: WebState
) -> None:
    result = await search(
        ctx, state, web_config({"searxng": {"baseUrl": "http://0.0.0.0:1"}}), **args
    )
    assert result.is_error and "could not be reached" not in result.text


def test_freshness_of_each_form_is_accepted() -> None:
    for text in ("", "pd", "PW", "pm", "py", RANGE):
        assert check_freshness(text) == text.lower()


def test_result_of_a_service_is_plain_text_of_bounded_length() -> None:
    made = make_result("<b>a</b>\n" * 500, "https://a.example/", "x" * 5_000, 7)
    assert made and len(made.title) <= 200 and len(made.description) == 600 and made.published == ""
    assert "\n" not in made.title and "<b>" not in made.title
    for url in ("ftp://a", "https://a b", "https://[x", None, "https://a/" + "x" * 2_000):
        assert make_result("t", url) is None


async def test_service_that_hangs_or_floods_gives_one_error(
    ctx: ToolContext, state: WebState
) -> None:
    async with open_site(lambda _request: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") as site:
        config = web_config({"searxng": {"baseUrl": site.url}, "timeoutSeconds": 1})
        result = await search(ctx, state, config)
        assert result.is_error and "SearXNG did not answer within 1 s" in result.text
    flood = respond(b" " * 4_000_001, kind="application/json")
    async with open_site(lambda _request: flood) as site:
        result = await search(ctx, state, web_config({"searxng": {"baseUrl": site.url}}))
        assert result.is_error and "too large" in result.text
    for body in ("[]", "{}", "nope", '{"results": 7}', "[" * 100_000):
        answer = respond(body, kind="application/json")
        async with open_site(always(answer)) as site:
            result = await search(ctx, state, web_config({"searxng": {"baseUrl": site.url}}))
            assert result.is_error and "SearXNG" in result.text


def test_web_tools_are_removed_by_enabled_and_stay_known_to_rules() -> None:
    both = load_web_tools(Config())
    assert [tool.name for tool in both] == ["web_fetch", "web_search"]
    assert all(tool.idempotent for tool in both)
    assert [t.name for t in load_web_tools(web_config({"enabled": False}))] == ["web_fetch"]
    assert [t.name for t in load_web_tools(web_config(fetch={"enabled": False}))] == ["web_search"]
    for name in ("web_search", "web_fetch"):
        found = find_declaration(name)
        assert found and found.groups == ("web",)


@pytest.mark.parametrize(("name", "max_bytes"), [("web_search", 620), ("web_fetch", 380)])
def test_web_tool_specification_is_small(name: str, max_bytes: int) -> None:
    spec = builtin_tools().get(name).spec
    about = {"name": name, "description": spec.description, "parameters": spec.parameters}
    assert len(json.dumps(about, separators=(",", ":"))) <= max_bytes


def test_every_search_provider_has_what_its_protocol_demands() -> None:
    for name in SEARCH_PROVIDERS.names():
        module: SearchModule = SEARCH_PROVIDERS.load(name)
        assert module.LABEL.startswith(name) and module.MIN_INTERVAL_S > 0 and module.FIX
        find: Callable[..., SearchAccess | None] = module.find_access
        assert find(web_config().tools.web.search, {}) is None or name == "duckduckgo"
