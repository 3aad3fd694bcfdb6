"""HTTP actions on a local server: what is sent, what is refused, and what comes back."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.policy.tool_call import TaintSource
from homarus.skills.actions.action_reader import read_actions
from homarus.skills.actions.definition import HttpAction
from homarus.skills.actions.http_request import make_http_call
from tests.unit.skills.action_builders import LOOPBACK, ActionCaller, http, schema, write_skill
from tests.unit.tools.web_builders import (
    Site,
    SiteRequest,
    always,
    open_site,
    respond,
    respond_json,
)

KEY = "k-topsecret-0123456789"
KEYED = {"primaryEnv": "TEST_KEY"}


@pytest.fixture
def caller(tmp_path: Path) -> ActionCaller:
    return ActionCaller(tmp_path, LOOPBACK, {"TEST_KEY": KEY})


async def call(
    caller: ActionCaller, site: Site, path: str, given: dict[str, Any], **keys: Any
) -> Any:
    action = http(f"{site.url}{path}", **keys)
    skill = write_skill(caller.home / "skills", [action], metadata=KEYED)
    return await caller.call(skill, "get", given)


async def test_request_of_an_action_has_its_arguments_encoded(caller: ActionCaller) -> None:
    async with open_site(always(respond_json({"now": {"temp": 7}}))) as site:
        result = await call(
            caller, site, "/v1/{city}/x", {"city": "São Paulo?&#", "days": 3, "tags": ["a", "b c"]},
            parameters=schema("city", days={"type": "integer"}, tags={"type": "array"},
                              other={"type": "string"}),
            query={"d": "{days}", "t": "{tags}", "o": "{other}", "fixed": "1+1"},
            headers={"X-Key": "Bearer ${ENV:TEST_KEY}"}, select="now.temp",
        )  # fmt: skip
    assert not result.is_error, result.text
    assert "\n7\n" in result.text and "EXTERNAL_UNTRUSTED_CONTENT" in result.text
    [request] = site.requests
    assert request.target == "/v1/S%C3%A3o%20Paulo%3F%26%23/x?d=3&t=a&t=b%20c&fixed=1%2B1"
    assert request.headers["x-key"] == f"Bearer {KEY}"


async def test_request_body_keeps_types_and_omits_what_is_missing(caller: ActionCaller) -> None:
    body = {"text": "{text}", "n": "{n}", "note": "n={n}", "other": "{other}", "on": True,
            "list": ["{text}", "{other}"], "braces": "{{x}}"}  # fmt: skip
    async with open_site(always(respond(b"", "204 No Content", ""))) as site:
        result = await call(
            caller, site, "/", {"text": 'a"b\r\nX: y', "n": 2}, method="POST", body=body,
            parameters=schema("text", n={"type": "integer"}, other={"type": "string"}),
        )  # fmt: skip
    assert not result.is_error, result.text
    assert site.requests[0].headers["content-type"] == "application/json"
    assert site.requests[0].json == {
        "text": 'a"b\r\nX: y', "n": 2, "note": "n=2", "on": True, "list": ['a"b\r\nX: y'],
        "braces": "{x}",
    }  # fmt: skip


async def test_request_with_a_form_is_encoded(caller: ActionCaller) -> None:
    async with open_site(always(respond("done", kind="text/plain"))) as site:
        await call(caller, site, "/", {"a": "x&b=1"}, args=("a",), method="POST",
                   bodyType="form", body={"a": "{a}", "n": 1})  # fmt: skip
    assert site.requests[0].body == b"a=x%26b%3D1&n=1"


# Attacks by arguments


@pytest.mark.parametrize(
    "city",
    [
        "..", ".", "", "../admin", "a/../b", "..\\admin", "a/b", "\r\nX-Evil: 1", "a\nb", "a\0b",
        "\u202eabc", "a\u200bb", "\ud800",
    ],
)  # fmt: skip
async def test_path_argument_that_leaves_its_segment_is_refused(
    caller: ActionCaller, city: str
) -> None:
    async with open_site(always(respond("x"))) as site:
        result = await call(caller, site, "/v1/{city}", {"city": city}, args=("city",))
    assert result.is_error and site.requests == [] and caller.decisions == []


@pytest.mark.parametrize(
    ("city", "sent"),
    [
        ("@evil.example", "/v1/%40evil.example"),
        ("//evil.example", None),
        ("%2e%2e", "/v1/%252e%252e"),
        ("..%2fadmin", "/v1/..%252fadmin"),
        ("a?b=c#d", "/v1/a%3Fb%3Dc%23d"),
        (":80", "/v1/%3A80"),
        ("{city}", "/v1/%7Bcity%7D"),
        ("${ENV:TEST_KEY}", "/v1/%24%7BENV%3ATEST_KEY%7D"),
        ("．．", "/v1/%EF%BC%8E%EF%BC%8E"),
    ],
)
async def test_path_argument_stays_one_segment_of_the_host(
    caller: ActionCaller, city: str, sent: str | None
) -> None:
    async with open_site(always(respond("x"))) as site:
        result = await call(caller, site, "/v1/{city}", {"city": city}, args=("city",))
    assert [each.target for each in site.requests] == ([sent] if sent else [])
    assert result.is_error == (sent is None)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "a//b", "/etc", "a/./b", "a/"])
async def test_path_of_segments_with_dots_is_refused(caller: ActionCaller, path: str) -> None:
    async with open_site(always(respond("x"))) as site:
        assert (await call(caller, site, "/f/{+p}", {"p": path}, args=("p",))).is_error
        assert not (await call(caller, site, "/f/{+p}", {"p": "a b/c"}, args=("p",))).is_error
    assert [each.target for each in site.requests] == ["/f/a%20b/c"]


async def test_query_argument_cannot_add_a_header_or_a_parameter(caller: ActionCaller) -> None:
    async with open_site(always(respond("x"))) as site:
        await call(caller, site, "/", {"q": "a\r\nX-Evil: 1&admin=1"}, args=("q",),
                   query={"q": "{q}"})  # fmt: skip
    [request] = site.requests
    assert request.query == {"q": "a\r\nX-Evil: 1&admin=1"} and "x-evil" not in request.headers


async def test_arguments_are_checked_before_the_decision(caller: ActionCaller) -> None:
    async with open_site(always(respond("x"))) as site:
        wrong = await call(
            caller, site, "/{n}", {"n": "7"}, parameters=schema("n", n={"type": "integer"})
        )
        extra = await call(caller, site, "/", {"x": 1})
    assert "must be integer" in wrong.text and "unknown argument" in extra.text
    assert caller.decisions == [] and site.requests == []


# Attacks by servers


async def test_response_beyond_the_limit_is_cut(caller: ActionCaller) -> None:
    async with open_site(always(respond("x" * 100_000, kind="text/plain"))) as site:
        result = await call(caller, site, "/", {}, maxBytes=1_000)
    assert "[cut after 1000 bytes]" in result.text and len(result.text) < 1_500


async def test_response_beyond_the_limit_is_an_error_to_select_from(caller: ActionCaller) -> None:
    async with open_site(always(respond_json({"a": "x" * 5_000}))) as site:
        result = await call(caller, site, "/", {}, maxBytes=1_000, select="a")
    assert result.is_error and "larger than 1000 bytes" in result.text


@pytest.mark.parametrize(
    "place",
    ["http://169.254.169.254/latest", "http://[::1]:1/", "http://10.0.0.1/", "http://0x7f000001/",
     "https://b.example/", "file:///etc/passwd", "http://127.0.0.1:1/"],
)  # fmt: skip
async def test_redirect_to_another_host_is_refused(caller: ActionCaller, place: str) -> None:
    async with open_site(always(respond(b"", "302 Found", "", Location=place))) as site:
        result = await call(caller, site, "/", {}, headers={"X-Key": "${ENV:TEST_KEY}"})
    assert result.is_error and len(site.requests) == 1 and KEY not in result.text


async def test_redirect_on_the_same_host_is_followed(caller: ActionCaller) -> None:
    def answer(request: SiteRequest) -> bytes:
        return (
            respond("there")
            if request.path == "/b"
            else respond(b"", "302 Found", "", Location="/b")
        )

    async with open_site(answer) as site:
        result = await call(caller, site, "/a", {})
    assert "there" in result.text and len(site.requests) == 2


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/", "http://10.1.2.3/", "http://localhost/"])
async def test_private_address_of_an_action_is_refused(tmp_path: Path, url: str) -> None:
    caller = ActionCaller(tmp_path)
    result = await caller.call(write_skill(tmp_path, [http(url)]), "get", {})
    assert result.is_error and "ssrfPolicy" in result.text


# Keys


async def test_key_in_a_response_is_masked(caller: ActionCaller) -> None:
    caller.env = {"TEST_KEY": "abcd"}  # short, so that the common masking leaves it
    async with open_site(always(respond("your key is abcd", kind="text/plain"))) as site:
        result = await call(caller, site, "/", {}, query={"key": "${ENV:TEST_KEY}"})
    assert site.requests[0].query == {"key": "abcd"}
    assert "your key is ***" in result.text and "abcd" not in str(result)
    [question] = caller.questions
    assert "?key=${ENV:TEST_KEY}" in question.detail and "abcd" not in str(question)


async def test_key_of_the_config_is_used_before_that_of_the_environment(
    caller: ActionCaller,
) -> None:
    entry = {"skills": {"entries": {"tester": {"apiKey": "of-the-config-1"}}}}
    caller.settings = LOOPBACK | entry
    async with open_site(always(respond("x"))) as site:
        await call(caller, site, "/", {}, headers={"X-Key": "${ENV:TEST_KEY}"})
    assert site.requests[0].headers["x-key"] == "of-the-config-1"


async def test_key_that_is_missing_names_its_setting(caller: ActionCaller) -> None:
    caller.env = {}
    async with open_site(always(respond("x"))) as site:
        result = await call(caller, site, "/", {}, headers={"X-Key": "${ENV:TEST_KEY}"})
    assert "skills.entries.tester.env.TEST_KEY" in result.text and site.requests == []


async def test_key_with_a_line_break_is_not_sent(caller: ActionCaller) -> None:
    caller.env = {"TEST_KEY": "abc\r\nX-Evil: 1"}
    async with open_site(always(respond("x"))) as site:
        result = await call(caller, site, "/", {}, headers={"X-Key": "${ENV:TEST_KEY}"})
    assert result.is_error and site.requests == []


async def test_key_is_not_sent_without_tls(tmp_path: Path) -> None:
    caller = ActionCaller(tmp_path, {}, {"TEST_KEY": KEY})
    action = http("http://a.example/", headers={"X-Key": "${ENV:TEST_KEY}"})
    result = await caller.call(write_skill(tmp_path, [action], metadata=KEYED), "get", {})
    assert "without TLS" in result.text


# Results


async def test_response_of_a_failure_is_an_error(caller: ActionCaller) -> None:
    async with open_site(always(respond_json({"why": "no"}, "404 Not Found"))) as site:
        result = await call(caller, site, "/", {}, select="a")
    assert result.is_error and "status 404" in result.text and '"why"' in result.text


async def test_response_that_is_not_text_is_described(caller: ActionCaller) -> None:
    async with open_site(always(respond(b"\x89PNG\0\0", kind="image/png"))) as site:
        result = await call(caller, site, "/", {})
    assert "[6 bytes of image/png: not text]" in result.text


async def test_request_that_writes_asks_after_untrusted_content(caller: ActionCaller) -> None:
    caller.taint = (TaintSource("web", "a page"),)
    async with open_site(always(respond("x"))) as site:
        await call(caller, site, "/", {}, method="POST", body={})
        assert {each.layer for each in caller.decisions[0].verdicts if each.action == "ask"} == {
            "tool", "taint",
        }  # fmt: skip
        await call(caller, site, "/", {}, method="POST", body={})
    assert [each.layer for each in caller.decisions] == ["tool", "taint"]
    assert len(site.requests) == 2


def test_url_of_every_argument_keeps_the_origin() -> None:
    parameters = schema("a", "b")
    data = {"actions": [http("https://a.example:8443/x/{a}/y-{b}", parameters=parameters)]}
    [action] = read_actions(json.dumps(data).encode()).actions
    assert isinstance(action.does, HttpAction)
    call = make_http_call(action.does, {"a": "@b.example", "b": ":1@c"}, {})
    assert call.url == "https://a.example:8443/x/%40b.example/y-%3A1%40c"
