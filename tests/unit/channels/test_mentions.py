"""Mention patterns: which apply, what is derived from a name, what is skipped."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.mentions import (
    Called,
    Mentions,
    called_by_config,
    derive,
    is_called,
    normalise,
)
from homarus.config.channels import AccountSettings
from homarus.config.check import check
from homarus.config.schema import Config


def configure(**tree: Any) -> Config:
    found = check(tree).config
    assert found
    return found


WORDS = ("own", "usual", "channel", "molty")


def heard(config: Config, channel: tuple[str, ...] | None = None) -> list[str]:
    """Return which of some words mention an agent."""
    settings = AccountSettings.model_construct(mention_patterns=channel)
    found = Mentions().patterns(config, "main", settings, lambda: called_by_config(config, "main"))
    return [word for word in WORDS if is_called(word, found)]


def test_mention_patterns_of_agent_win_over_global_and_channel() -> None:
    own: Any = {"list": [{"id": "Main", "groupChat": {"mentionPatterns": ["own"]}}]}
    usual: Any = {"groupChat": {"mentionPatterns": ["usual"]}}
    assert heard(configure(agents=own, messages=usual), ("channel",)) == ["own"]
    assert heard(configure(messages=usual), ("channel",)) == ["usual"]
    assert heard(configure(), ("channel",)) == ["channel"]
    assert heard(configure()) == []
    named: Any = {"list": [{"id": "main", "identity": {"name": "Molty"}}]}
    assert heard(configure(agents=named)) == ["molty"]
    assert heard(configure(agents=named), ()) == []  # an empty list is a list


def test_mention_invalid_patterns_are_logged_once_and_others_hold(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = configure(messages={"groupChat": {"mentionPatterns": ["(", r"(a)\1", "molty"]}})
    mentions, settings = Mentions(), AccountSettings()
    for _ in range(3):
        found = mentions.patterns(config, "main", settings, Called)
        assert len(found) == 1 and is_called("molty", found)
    assert sum("is not used" in one.message for one in caplog.records) == 2


@pytest.mark.parametrize(
    ("called", "text", "is_us"),
    [
        (Called("Molty"), "molty", True),
        (Called("Molty"), "hey @Molty!", True),
        (Called("Molty"), "smolty", False),
        (Called("Molty"), "moltyx", False),
        (Called("Molty"), "molty's", True),
        (Called("Big Lobster"), "the big   LOBSTER?", True),
        (Called("Big Lobster"), "biglobster", False),
        (Called("C++ (bot)"), "ask C++ (bot) now", True),
        (Called("モルティ"), "モルティさん、こんにちは", True),
        (Called("Zoë"), "zoë?", True),
        (Called("a.b"), "axb", False),
        (Called(emoji="🦞"), "you 🦞 there", True),
        (Called(emoji="\u2764\ufe0f"), "I \u2764 you", True),
        (Called(emoji="👩‍💻"), "👩‍💻", True),
        (Called(), "anything", False),
        (Called("   ", " "), "anything", False),
    ],
)
def test_mention_name_matches_as_word_and_symbol_as_symbol(
    called: Called, text: str, is_us: bool
) -> None:
    assert is_called(text, derive(called)) == is_us


@given(st.text(max_size=30), st.text(max_size=10))
def test_mention_patterns_of_any_name_match_it(name: str, emoji: str) -> None:
    patterns = derive(Called(name, emoji))
    if normalise(name):
        assert is_called(f"- {name} -", patterns)


def test_mention_invisible_characters_are_ignored() -> None:
    assert normalise("M\u200bo\u2060lty\ufe0f \n X") == "molty x"
