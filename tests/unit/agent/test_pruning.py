"""Pruning old tool results: which, when, and how."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.context.pruning import (
    NO_CUTS,
    PrunedResults,
    apply_pruning,
    is_due,
    is_pruned_provider,
    prune,
)
from homarus.agent.context.tokens import message_bytes
from homarus.config.schema import ContextPruningConfig
from homarus.core.message import Image, Message, Origin, Text, ToolResult, user_message

MINUTE_MS = 60_000


def rules(**given: Any) -> ContextPruningConfig:
    return ContextPruningConfig.model_validate(given)


def said(text: str = "ok", at_ms: int = 0) -> Message:
    return Message("assistant", (Text(text),), at_ms, Origin("api", "p", "m"))


def result(number: int, text: str, tool: str = "exec", *images: Image) -> Message:
    content: tuple[Text | Image, ...] = (Text(text), *images)
    return Message("tool", (ToolResult(f"c{number}", tool, content),), number)


def pruned(messages: Sequence[Message], by: ContextPruningConfig, window: int) -> list[str]:
    cuts = prune(messages, by, window)
    return [
        part.text
        for message in messages
        for part in apply_pruning(message, cuts, by).parts
        if isinstance(part, ToolResult)
    ]


def make_turns(*results: Message) -> list[Message]:
    return [user_message("hi"), *results, said(), said(), said()]


def test_pruning_long_result_keeps_head_and_tail() -> None:
    text = "a" * 3_000 + "b" * 3_000
    (kept,) = pruned(make_turns(result(1, text)), rules(softTrimRatio=0), 10_000)
    assert kept.startswith("a" * 1_500 + "\n...\n" + "b" * 1_500)
    assert "first 1500 chars and last 1500 chars of 6000 chars" in kept


def test_pruning_result_within_limit_stays() -> None:
    assert pruned(make_turns(result(1, "a" * 4_000)), rules(softTrimRatio=0), 10_000) == [
        "a" * 4_000
    ]


def test_pruning_window_with_headroom_prunes_nothing() -> None:
    assert pruned(make_turns(result(1, "a" * 9_000)), rules(), 200_000) == ["a" * 9_000]


def test_pruning_clears_oldest_results_until_below_ratio() -> None:
    by = rules(minPrunableToolChars=1_000)
    messages = make_turns(*(result(n, f"{n}" * 4_000) for n in range(6)))
    kept = pruned(messages, by, 8_000)  # 32,000 bytes: half of the results may stay
    assert kept[0] == "[Old tool result content cleared]"
    assert kept[-1] == "5" * 4_000
    size = sum(message_bytes(apply_pruning(m, prune(messages, by, 8_000), by)) for m in messages)
    assert size < 16_000


def test_pruning_small_gain_clears_nothing() -> None:
    messages = make_turns(*(result(n, "x" * 4_000) for n in range(6)))
    assert "x" * 4_000 in pruned(messages, rules(), 6_000)
    off = rules(minPrunableToolChars=0, hardClear={"enabled": False})
    assert pruned(messages, off, 6_000) == ["x" * 4_000] * 6


def test_pruning_protects_start_and_last_answers() -> None:
    long = "x" * 9_000
    messages = [
        result(0, long),
        user_message("hi"),
        result(1, long),
        said(),
        result(2, long),
        said(),
    ]
    messages += [said(), result(3, long)]
    kept = pruned(messages, rules(softTrimRatio=0), 10_000)
    assert [text == long for text in kept] == [True, False, True, True]
    few = [user_message("hi"), result(1, long), said(), said()]
    assert pruned(few, rules(softTrimRatio=0), 10_000) == [long]


def test_pruning_skips_images_and_denied_tools() -> None:
    long, image = "x" * 9_000, Image("aGk=", "image/png")
    messages = make_turns(result(1, long, "exec", image), result(2, long, "Read"), result(3, long))
    by = rules(softTrimRatio=0, tools={"deny": ["re*"]})
    assert [text == long for text in pruned(messages, by, 10_000)] == [True, True, False]
    by = rules(softTrimRatio=0, tools={"allow": ["group:fs"]})
    assert [text == long for text in pruned(messages, by, 10_000)] == [True, False, True]


def test_pruning_keeps_earlier_cuts() -> None:
    messages = make_turns(result(1, "x" * 9_000))
    before = prune(messages, rules(softTrimRatio=0), 10_000)
    messages += [result(2, "y" * 9_000), said(), said(), said()]
    after = prune(messages, rules(softTrimRatio=0), 10_000, before)
    assert before.trimmed < after.trimmed


def test_pruning_is_due_when_last_answer_is_older_than_ttl() -> None:
    talked = [user_message("hi"), said(at_ms=MINUTE_MS), user_message("more")]
    by = rules(mode="cache-ttl")
    assert not is_due(by, talked, 6 * MINUTE_MS - 1)
    assert is_due(by, talked, 6 * MINUTE_MS)
    assert not is_due(rules(mode="cache-ttl", ttl="2h"), talked, 61 * MINUTE_MS)
    assert not is_due(rules(), talked, 60 * MINUTE_MS), "an hour, where nobody asked for it"
    assert not is_due(by, [user_message("hi")], 99 * MINUTE_MS), "nothing is cached yet"
    assert not is_due(rules(mode="cache-ttl", ttl="0"), talked, 99 * MINUTE_MS)


@pytest.mark.parametrize(
    ("mode", "provider", "on"),
    [
        (None, "anthropic", True),
        (None, "openai", False),
        ("off", "anthropic", False),
        ("cache-ttl", "openai", True),
    ],
)
def test_pruning_is_on_by_default_for_anthropic(mode: str | None, provider: str, on: bool) -> None:
    assert is_pruned_provider(rules(mode=mode), provider) is on


def test_pruning_invalid_ttl_raises() -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        rules(ttl="soon")


@given(
    sizes=st.lists(st.integers(0, 12_000), max_size=12),
    window=st.integers(1, 20_000),
    keep=st.integers(0, 4),
)
def test_pruning_never_enlarges_a_message(sizes: list[int], window: int, keep: int) -> None:
    messages = make_turns(*(result(n, "x" * size) for n, size in enumerate(sizes)))
    by = rules(keepLastAssistants=keep, minPrunableToolChars=0)
    cuts = prune(messages, by, window)
    for message in messages:
        small = apply_pruning(message, cuts, by)
        assert message_bytes(small) <= max(message_bytes(message), 16 + 16 + 33)
        assert message.role == "tool" or small is message
    assert not NO_CUTS and apply_pruning(messages[0], PrunedResults(), by) is messages[0]
