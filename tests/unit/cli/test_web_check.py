"""The check of web search: which provider is used and why, never its key."""

from typing import Any

import pytest

from homarus.cli.web_check import check_web_search
from homarus.config.schema import Config

KEY = "topsecret-1234567890"


def check(search: dict[str, Any], **env: str) -> list[tuple[str, str, str, str]]:
    config = Config.model_validate({"tools": {"web": {"search": search}}})
    return list(check_web_search(config, env))


def test_web_search_without_a_key_is_named_with_its_fix() -> None:
    ((about, state, text, fix),) = check({})
    assert (about, state) == ("web search", "info")
    assert text == "duckduckgo (no key): no search provider is configured"
    assert "BRAVE_API_KEY" in fix


@pytest.mark.parametrize(
    ("search", "env", "text"),
    [
        ({}, {"BRAVE_API_KEY": KEY}, "brave: BRAVE_API_KEY"),
        ({"grok": {"apiKey": KEY}}, {}, "grok: tools.web.search.grok.apiKey"),
        (
            {"searxng": {"baseUrl": "http://nas.lan"}},
            {},
            "searxng: tools.web.search.searxng.baseUrl",
        ),
        ({"provider": "grok"}, {"XAI_API_KEY": KEY}, "grok: tools.web.search.provider names it"),
    ],
)
def test_web_search_provider_is_shown_with_its_reason(
    search: dict[str, Any], env: dict[str, str], text: str
) -> None:
    assert check(search, **env) == [("web search", "ok", text, "")]


def test_web_search_provider_without_its_key_is_a_problem() -> None:
    ((_, state, text, fix),) = check({"provider": "brave"})
    assert state == "bad" and "provider is brave" in text and "BRAVE_API_KEY" in fix


def test_web_search_that_is_switched_off_is_not_checked() -> None:
    assert check({"enabled": False}) == []
