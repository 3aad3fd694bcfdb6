"""Parse levels and modes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.sessions import levels

READERS: list[Callable[[str | None], str | None]] = [
    levels.think_level,
    levels.verbose_level,
    levels.notice_level,
    levels.reasoning_level,
    levels.elevated_level,
    levels.usage_display,
    levels.queue_mode,
    levels.queue_drop,
]


@pytest.mark.parametrize("read", READERS)
def test_level_of_empty_or_unknown_word_is_none(read: Callable[[str | None], str | None]) -> None:
    for word in (None, "", "  ", "bogus", "on off", "0x0", "x" * 10_000):
        assert read(word) is None


@given(st.sampled_from(READERS), st.text(max_size=12))
def test_level_is_parsed_in_any_case(read: Callable[[str | None], str | None], word: str) -> None:
    level = read(word)
    if level is not None:
        assert read(level) == level
        assert read(f" {level.upper()} ") == level


def test_queue_mode_queue_is_followup() -> None:
    assert levels.queue_mode("queue") == "followup"


def test_elevated_mode_on_asks_and_none_is_off() -> None:
    assert levels.elevated_mode("on") == "ask"
    assert levels.elevated_mode(None) == "off"


def test_think_level_xhigh_is_limited_to_some_models() -> None:
    assert "xhigh" in levels.think_levels("GitHub-Copilot", "gpt-5.2")
    assert "xhigh" not in levels.think_levels("openai", "gpt-5.2-codex")
    assert "xhigh" not in levels.think_levels(None, None)
    assert levels.think_labels("openai", "gpt-5") == levels.think_levels("openai", "gpt-5")
