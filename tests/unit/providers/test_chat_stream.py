"""Chunks of the chat dialect → an answer."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Message, Text, Thinking, ToolCall, Usage
from homarus.providers.base import TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_stream import (
    ChatStreamAssembler,
    MalformedChunkError,
    parse_object,
    usage_of,
)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(**piece: Any) -> dict[str, Any]:
    function = {k: piece.pop(k) for k in ("name", "arguments") if k in piece}
    return chunk(tool_calls=[{**piece, "function": function}])


def calls_in(*chunks: dict[str, Any]) -> tuple[ToolCall, ...]:
    reply = ChatStreamAssembler()
    for one in chunks:
        assert list(reply.add(one)) == []
    return Message("assistant", reply.message_parts()).calls


def named(calls: tuple[ToolCall, ...]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(c.id, c.name, dict(c.args)) for c in calls]


def test_text_and_reasoning_deltas_are_separated() -> None:
    reply = ChatStreamAssembler()
    assert list(reply.add(chunk(role="assistant", content=""))) == []
    assert list(reply.add(chunk(reasoning_content="Hm"))) == [ThinkingDelta("Hm")]
    assert list(reply.add(chunk(content="Hi"))) == [TextDelta("Hi")]
    both = reply.add(chunk(reasoning=" wait", content="!"))
    assert list(both) == [ThinkingDelta(" wait"), TextDelta("!")]
    assert list(reply.add(chunk("stop"))) == []
    assert reply.message_parts() == (Thinking("Hm wait", "reasoning_content"), Text("Hi!"))
    assert reply.stop() == "stop"


def test_interleaved_calls_assembled_by_index() -> None:
    calls = calls_in(
        call(index=0, id="a", name="read", arguments=""),
        call(index=1, id="b", name="ls", arguments=""),
        call(index=1, arguments='{"x"'),
        call(index=0, arguments='{"path":'),
        call(index=1, arguments=":1}"),
        call(index=0, arguments='"p"}'),
    )
    assert named(calls) == [("a", "read", {"path": "p"}), ("b", "ls", {"x": 1})]


def test_calls_without_index_start_at_id_or_name() -> None:
    calls = calls_in(
        call(id="a", name="read", arguments='{"n":'),
        call(arguments="1}"),
        call(id="b", name="read", arguments='{"n":2}'),
        call(id="a", arguments=""),
    )
    assert named(calls) == [("a", "read", {"n": 1}), ("b", "read", {"n": 2})]


def test_calls_all_claiming_index_0_are_separated() -> None:
    by_id = calls_in(
        call(index=0, id="a", name="w", arguments='{"n":1}'),
        call(index=0, id="b", name="w", arguments='{"n":2}'),
    )
    assert named(by_id) == [("a", "w", {"n": 1}), ("b", "w", {"n": 2})]
    by_name = calls_in(
        call(index=0, name="r", arguments='{"n":1}'), call(index=0, name="w", arguments='{"n":2}')
    )
    assert [(c.name, c.args) for c in by_name] == [("r", {"n": 1}), ("w", {"n": 2})]
    by_end = calls_in(
        call(index=0, name="w", arguments='{"n":1}'), call(index=0, name="w", arguments='{"n":2}')
    )
    assert [c.args for c in by_end] == [{"n": 1}, {"n": 2}]


def test_repeated_name_or_new_id_per_piece_is_one_call() -> None:
    repeated = calls_in(
        call(index=0, id="a", name="w", arguments='{"n":'),
        call(index=0, id="a", name="w", arguments='"}'),
        call(index=0, id="", name="w", arguments='"}'),
    )
    assert named(repeated) == [("a", "w", {"n": "}"})]
    fresh = calls_in(
        call(index=0, id="a", name="w", arguments='{"n":'), call(index=0, id="b", arguments="1}")
    )
    assert named(fresh) == [("a", "w", {"n": 1})]


def test_missing_and_repeated_ids_become_unique() -> None:
    calls = calls_in(
        call(index=0, name="a", arguments="{}"),
        call(index=1, id="x", name="b", arguments="{}"),
        call(index=2, id="x", name="c", arguments="{}"),
    )
    ids = [c.id for c in calls]
    assert ids[1] == "x"
    assert all(ids)
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("given_args", "args", "broken"),
    [
        ('{"a": 1}', {"a": 1}, ""),
        ({"a": 1}, {"a": 1}, ""),
        ("", {}, ""),
        ("  \n", {}, ""),
        (None, {}, ""),
        ('"{\\"a\\": 1}"', {"a": 1}, ""),
        ('{"a": ', {}, '{"a": '),
        ("[1]", {}, "[1]"),
        ([1], {}, "[1]"),
        (5, {}, "5"),
        ('{"a": NaN}', {}, '{"a": NaN}'),
        ("[" * 100_000, {}, "[" * 100_000),
        ('{"a": ' + "9" * 5000 + "}", {}, '{"a": ' + "9" * 5000 + "}"),
    ],
)
def test_arguments_parse_to_object_or_broken(
    given_args: Any, args: dict[str, Any], broken: str
) -> None:
    (made,) = calls_in(call(index=0, id="c", name="n", arguments=given_args))
    assert (dict(made.args), made.broken) == (args, broken)


@pytest.mark.parametrize(
    ("finish", "calls", "stop"),
    [
        ("stop", False, "stop"),
        ("stop", True, "toolUse"),
        ("tool_calls", True, "toolUse"),
        ("tool_calls", False, "stop"),
        ("function_call", True, "toolUse"),
        ("length", False, "length"),
        ("length", True, "length"),
        ("model_length", False, "length"),
        ("eos", False, "stop"),
        ("", True, "toolUse"),
    ],
)
def test_finish_reason_maps_to_stop(finish: str, calls: bool, stop: str) -> None:
    reply = ChatStreamAssembler()
    if calls:
        reply.add(call(index=0, id="c", name="n", arguments="{}"))
    reply.add(chunk(finish))
    assert reply.stop() == stop


def test_unstreamed_answer_is_read() -> None:
    reply = ChatStreamAssembler()
    message = {"role": "assistant", "content": "Hi", "tool_calls": None, "reasoning": "hm"}
    whole = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": None}
    assert list(reply.add(whole)) == [ThinkingDelta("hm"), TextDelta("Hi")]
    assert reply.whole


def test_usage_cost_follows_price_and_counts_cached_apart() -> None:
    raw = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }
    price = Price(input=2.0, output=10.0, cache_read=0.5, cache_write=4.0)
    usage = usage_of(raw, price)
    cost = (300 * 2 + 100 * 10 + 600 * 0.5 + 100 * 4) / 1e6
    assert usage == Usage(300, 100, 600, 100, 40, usage.cost)
    assert usage.cost == pytest.approx(cost)
    assert usage.prompt == 1000


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"prompt_tokens": None, "completion_tokens": "7", "prompt_tokens_details": 5},
        {"prompt_tokens": -4, "completion_tokens": 1e300, "cost": "free"},
        {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 50}},
        {"prompt_tokens": float("nan"), "cost": float("-inf")},
    ],
)
def test_usage_odd_counts_are_never_negative(raw: dict[str, Any]) -> None:
    usage = usage_of(raw, Price(1, 1, 1, 1))
    numbers = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    assert all(type(n) is int for n in numbers)
    assert all(0 <= n < 1e12 for n in numbers)
    assert usage.cost >= 0


@pytest.mark.parametrize(
    "bad",
    [
        {"choices": "x"},
        {"choices": ["x"]},
        {"choices": [{"delta": "x"}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"choices": [{"delta": {"tool_calls": {"a": 1}}}]},
        {"choices": [{"delta": {"tool_calls": ["x"]}}]},
    ],
)
def test_chunk_of_wrong_shape_raises_malformed(bad: dict[str, Any]) -> None:
    with pytest.raises(MalformedChunkError):
        ChatStreamAssembler().add(bad)


@pytest.mark.parametrize("data", ['{"a": [1, "x"]}', ' {"a": [1, "x"]} \t', '{"a":[1,"x"]}\n'])
def test_parse_object_accepts_json_object(data: str) -> None:
    assert parse_object(data) == {"a": [1, "x"]}


@pytest.mark.parametrize(
    "data", ["", "{", "[1]", "null", "{} {}", '{"a":1}x', "[" * 100_000, '{"a":' * 100_000]
)
def test_parse_object_of_other_value_raises_malformed(data: str) -> None:
    with pytest.raises(MalformedChunkError):
        parse_object(data)


KEYS = [
    "choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "id",
    "index", "finish_reason", "usage", "x_groq", "reasoning", "refusal", "type", "text", "thinking",
]  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.sampled_from(["", "a", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=20,
)
deltas = st.dictionaries(st.sampled_from(KEYS), json_values, max_size=5)
shaped = deltas.map(lambda delta: {"choices": [{"delta": delta}]})


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), json_values, max_size=5) | shaped))
def test_any_chunks_are_read_or_malformed(chunks: list[dict[str, Any]]) -> None:
    reply = ChatStreamAssembler()
    said = ""
    for one in chunks:
        try:
            said += "".join(d.text for d in reply.add(one) if isinstance(d, TextDelta))
        except MalformedChunkError:
            break
    else:
        message = Message("assistant", reply.message_parts())
        assert message.text == said
        json.dumps([dict(c.args) for c in message.calls])
    reply.usage(Price())
    assert reply.stop() in {"stop", "length", "toolUse"}
