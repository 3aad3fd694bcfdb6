"""Mention patterns: which apply, what is derived from a name, what is skipped."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.mentions import (
    AgentNames,
    MentionMatcher,
    is_mentioned,
    names_from_config,
    normalize_text,
    patterns_for,
)
from homarus.config.channels import AccountSettings
from homarus.config.check import check_config
from homarus.config.schema import Config


def configure(**tree: Any) -> Config:
    found = check_config(tree).config
    assert found
    return found


WORDS = ("own", "usual", "channel", "molty")


def heard(config: Config, channel: tuple[str, ...] | None = None) -> list[str]:
    """Return which of some words mention an agent."""
    settings = AccountSettings.model_construct(mention_patterns=channel)
    found = MentionMatcher().patterns(
        config, "main", settings, lambda: names_from_config(config, "main")
    )
    return [word for word in WORDS if is_mentioned(word, found)]


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
    mentions, settings = MentionMatcher(), AccountSettings()
    for _ in range(3):
        found = mentions.patterns(config, "main", settings, AgentNames)
        assert len(found) == 1 and is_mentioned("molty", found)
    assert sum("is not used" in one.message for one in caplog.records) == 2


@pytest.mark.parametrize(
    ("called", "text", "is_us"),
    [
        (AgentNames("Molty"), "molty", True),
        (AgentNames("Molty"), "hey @Molty!", True),
        (AgentNames("Molty"), "smolty", False),
        (AgentNames("Molty"), "moltyx", False),
        (AgentNames("Molty"), "molty's", True),
        (AgentNames("Big Lobster"), "the big   LOBSTER?", True),
        (AgentNames("Big Lobster"), "biglobster", False),
        (AgentNames("C++ (bot)"), "ask C++ (bot) now", True),
        (AgentNames("モルティ"), "モルティさん、こんにちは", True),
        (AgentNames("Zoë"), "zoë?", True),
        (AgentNames("a.b"), "axb", False),
        (AgentNames(emoji="🦞"), "you 🦞 there", True),
        (AgentNames(emoji="\u2764\ufe0f"), "I \u2764 you", True),
        (AgentNames(emoji="👩‍💻"), "👩‍💻", True),
        (AgentNames(), "anything", False),
        (AgentNames("   ", " "), "anything", False),
    ],
)
def test_mention_name_matches_as_word_and_symbol_as_symbol(
    called: AgentNames, text: str, is_us: bool
) -> None:
    assert is_mentioned(text, patterns_for(called)) == is_us


@given(st.text(max_size=30), st.text(max_size=10))
def test_mention_patterns_of_any_name_match_it(name: str, emoji: str) -> None:
    patterns = patterns_for(AgentNames(name, emoji))
    if normalize_text(name):
        assert is_mentioned(f"- {name} -", patterns)


def test_mention_invisible_characters_are_ignored() -> None:
    assert normalize_text("M\u200bo\u2060lty\ufe0f \n X") == "molty x"
