"""Parse and check the settings of a session."""

import pytest

from homarus.core.errors import UserError
from homarus.sessions.session_settings import check_thinking, to_stored_value


@pytest.mark.parametrize(
    ("name", "word", "stored"),
    [
        ("thinkingLevel", "ultra", "high"),
        ("thinkingLevel", "off", "off"),
        ("verboseLevel", "all", "full"),
        ("reasoningLevel", "off", None),
        ("responseUsage", "on", "tokens"),
        ("responseUsage", "no", None),
        ("elevatedLevel", "off", "off"),
        ("execHost", "node", "node"),
        ("sendPolicy", "deny", "deny"),
        ("label", "anything", "anything"),
    ],
)
def test_setting_word_maps_to_stored_value(name: str, word: str, stored: str | None) -> None:
    assert to_stored_value(name, word) == stored


@pytest.mark.parametrize("name", ["thinkingLevel", "responseUsage", "execAsk", "groupActivation"])
def test_setting_unknown_word_raises_with_valid_words(name: str) -> None:
    with pytest.raises(UserError, match=f"invalid {name}") as caught:
        to_stored_value(name, "moon")
    assert caught.value.fix.startswith("use ")


def test_check_thinking_xhigh_needs_supporting_model() -> None:
    check_thinking("xhigh", "openai/gpt-5.2")
    check_thinking("high", "mock/mock-1")
    with pytest.raises(UserError, match="not supported by mock/mock-1"):
        check_thinking("xhigh", "mock/mock-1")
