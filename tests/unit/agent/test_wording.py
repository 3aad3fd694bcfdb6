"""The texts around an answer: prefix, usage line, reasoning."""

import pytest

from homarus.agent.reply.wording import (
    add_prefix,
    fill_prefix,
    prefix_names,
    reasoning_text,
    short_model,
    usage_line,
)
from homarus.core.message import Usage

NAMES = prefix_names("anthropic", "claude-opus-4-5-20251101", "low", "Ada")


@pytest.mark.parametrize(
    ("template", "prefix"),
    [
        ("[{model}]", "[claude-opus-4-5]"),
        ("{modelFull} {PROVIDER}", "anthropic/claude-opus-4-5-20251101 anthropic"),
        ("{identity.name} {identityName} {thinkingLevel} {think}", "Ada Ada low low"),
        ("{nobody} {} {model", "{nobody} {} {model"),
        ("plain", "plain"),
    ],
)
def test_fill_prefix_unknown_variables_stay(template: str, prefix: str) -> None:
    assert fill_prefix(template, NAMES) == prefix


def test_fill_prefix_values_are_not_expanded_again() -> None:
    assert fill_prefix("{identity.name}", prefix_names("p", "m", "off", "{model}")) == "{model}"


@pytest.mark.parametrize(
    ("model", "short"),
    [("moonshotai/kimi-k2", "kimi-k2"), ("gpt-5.2-2026-01-30", "gpt-5.2"), ("x-latest", "x")],
)
def test_short_model_drops_path_and_date(model: str, short: str) -> None:
    assert short_model(model) == short


def test_add_prefix_once_with_space() -> None:
    assert add_prefix("[a]", "text") == "[a] text"
    assert add_prefix("a: ", "text") == "a: text"
    assert add_prefix("[a]", "[a] text") == "[a] text"
    assert add_prefix("[a]", "") == "" and add_prefix("", "text") == "text"


def test_usage_line_by_display_level() -> None:
    usage = Usage(input=1_234, output=56, cache_read=999_950, cost=1.5)
    assert usage_line(usage, "off") == "" and usage_line(Usage(), "full") == ""
    assert usage_line(usage, "tokens", "k") == "Usage: 1.0m in / 56 out"
    assert usage_line(usage, "full", "k") == (
        "Usage: 1.0m in / 56 out · 1.0m cached · est $1.50 · session `k`"
    )


def test_reasoning_text_is_in_italics() -> None:
    assert reasoning_text("\nFirst.\n\n  Then.\n") == "Reasoning:\n_First._\n\n_Then._"
