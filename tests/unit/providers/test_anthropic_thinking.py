"""Thinking fields for each generation of Claude."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.providers.anthropic_thinking import (
    ClaudeModel,
    is_thinking,
    parse_claude_model,
    thinking_fields,
)
from homarus.providers.base import ThinkLevel


@pytest.mark.parametrize(
    ("name", "claude"),
    [
        ("claude-opus-4-6", ClaudeModel("opus", (4, 6))),
        ("claude-haiku-4-5-20251001", ClaudeModel("haiku", (4, 5))),
        ("claude-sonnet-4-20250514", ClaudeModel("sonnet", (4, 0))),
        ("claude-sonnet-5", ClaudeModel("sonnet", (5, 0))),
        ("claude-3-7-sonnet-20250219", ClaudeModel("sonnet", (3, 7))),
        ("anthropic/claude-opus-4.6", ClaudeModel("opus", (4, 6))),
        ("us.anthropic.claude-opus-4-6-v1:0", ClaudeModel("opus", (4, 6))),
        ("Claude-Fable-5-1", ClaudeModel("fable", (5, 1))),
        ("claude-mythos-preview", ClaudeModel("mythos", (5, 0))),
        ("claude-opus-12-1", ClaudeModel("opus", (12, 1))),
        ("claude-opus-latest", None),
        ("claude-3-opus-20240229", None),
        ("MiniMax-M2", None),
        ("", None),
    ],
)
def test_parse_claude_model_reads_generation_from_name(
    name: str, claude: ClaudeModel | None
) -> None:
    assert parse_claude_model(name) == claude


def asked(model: str, level: ThinkLevel, max_tokens: int = 64_000) -> dict[str, Any]:
    return dict(thinking_fields(parse_claude_model(model), level, max_tokens))


@pytest.mark.parametrize(
    ("model", "level", "fields"),
    [
        ("claude-haiku-4-5", "off", {}),
        ("claude-haiku-4-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("MiniMax-M2", "high", {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
        ("claude-opus-4-6", "off", {}),
        (
            "claude-opus-4-6",
            "xhigh",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        ),
        ("claude-opus-4-8", "off", {}),
        (
            "claude-opus-4-8",
            "xhigh",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "xhigh"},
            },
        ),
        ("claude-sonnet-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-haiku-5-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        (
            "claude-opus-5",
            "minimal",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "low"},
            },
        ),
    ],
)
def test_thinking_fields_follow_generation(
    model: str, level: ThinkLevel, fields: dict[str, Any]
) -> None:
    assert asked(model, level) == fields


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5-1", "claude-opus-7"])
def test_thinking_off_on_always_thinking_model_asks_minimum(model: str) -> None:
    assert asked(model, "off") == {
        "thinking": {
            "type": "adaptive",
            "display": "summarized",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"},
        },
        "output_config": {"effort": "low"},
    }


def test_only_newer_claude_binds_reasoning() -> None:
    bound = ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1", "claude-mythos-5-2"]
    free = ["claude-opus-5", "claude-fable-5", "claude-mythos-preview", "claude-opus-4-8"]
    assert all((claude := parse_claude_model(name)) and claude.binds for name in bound)
    assert not any((claude := parse_claude_model(name)) and claude.binds for name in free)


@given(st.integers(1, 200_000), st.sampled_from(get_args(ThinkLevel)))
def test_thinking_budget_leaves_room_for_answer_or_is_omitted(
    max_tokens: int, level: ThinkLevel
) -> None:
    fields = asked("claude-haiku-4-5", level, max_tokens)
    if is_thinking(fields):
        budget = fields["thinking"]["budget_tokens"]
        assert 1024 <= budget <= max_tokens - 1024
    else:
        assert level == "off" or max_tokens < 2048
