"""Messages: plain values, and the few things one can ask of them."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import (
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    user_message,
)

usages = st.builds(Usage, *[st.integers(0, 10**6)] * 5)


def test_message_text_excludes_thinking_calls_and_images() -> None:
    call = ToolCall("1", "ls", {})
    message = Message(
        "assistant", (Thinking("hm "), Text("a"), call, Image("AA", "image/png"), Text("b"))
    )
    assert message.text == "ab"
    assert message.thinking == "hm "
    assert message.calls == (call,)


def test_tool_result_text_joins_parts_with_newlines() -> None:
    result = ToolResult("1", "read", (Text("a"), Image("AA", "image/png"), Text("b")))
    assert result.text == "a\nb"


def test_user_message_has_text_and_images() -> None:
    picture = Image("AA", "image/png")
    assert user_message("look", picture, at_ms=5) == Message("user", (Text("look"), picture), 5)


def test_message_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        user_message("hello").role = "assistant"  # type: ignore[misc] # that is what is tested


@given(usages, usages, usages)
def test_usage_addition_is_commutative_sum(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a
    assert (a + b).total == a.total + b.total


@given(usages)
def test_usage_prompt_includes_cache_and_output_reasoning(usage: Usage) -> None:
    assert usage.prompt == usage.input + usage.cache_read + usage.cache_write
    assert usage.total == usage.prompt + usage.output
