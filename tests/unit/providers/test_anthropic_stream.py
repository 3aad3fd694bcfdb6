"""Assembling Anthropic events that recorded streams do not contain."""

import json
from typing import Any

import pytest

from homarus.core.message import Text, Thinking, ToolCall, Usage
from homarus.providers.anthropic_stream import AnthropicStreamAssembler, usage_of
from homarus.providers.base import TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_stream import MalformedChunkError


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def reply_of(*events: dict[str, Any]) -> AnthropicStreamAssembler:
    reply = AnthropicStreamAssembler()
    for event in events:
        reply.add(event)
    return reply


def test_block_start_with_full_text_is_read() -> None:
    reply = AnthropicStreamAssembler()
    assert reply.add(start(0, type="text", text="Hi")) == (TextDelta("Hi"),)
    assert reply.add(delta(0, "text_delta", text="!")) == (TextDelta("!"),)
    assert reply.add(start(1, type="thinking", thinking="Hm")) == (ThinkingDelta("Hm"),)
    assert reply.message_parts() == (Text("Hi!"), Thinking("Hm"))


def test_block_index_used_again_starts_new_block() -> None:
    reply = reply_of(
        start(0, type="tool_use", id="a", name="read", input={}),
        delta(0, "input_json_delta", partial_json='{"n":1}'),
        start(0, type="tool_use", id="b", name="read", input={}),
        delta(0, "input_json_delta", partial_json='{"n":2}'),
    )
    assert [part.args for part in reply.message_parts() if isinstance(part, ToolCall)] == [
        {"n": 1},
        {"n": 2},
    ]


def test_delta_of_other_kind_starts_own_block() -> None:
    reply = reply_of(start(0, type="thinking"), delta(0, "text_delta", text="x"))
    assert reply.message_parts() == (Text("x"),)


@pytest.mark.parametrize(
    ("pieces", "args", "broken"),
    [
        ([], {"given": 1}, ""),
        ([""], {"given": 1}, ""),
        (["{}"], {}, ""),
        (['{"a":', "[1]}"], {"a": [1]}, ""),
        (['{"a"'], {}, '{"a"'),
        (["[1]"], {}, "[1]"),
        (["NaN"], {}, "NaN"),
        (['{"a":Infinity}'], {}, '{"a":Infinity}'),
        (["[" * 100_000], {}, "[" * 100_000),
    ],
)
def test_tool_input_whole_in_pieces_or_broken_is_read(
    pieces: list[str], args: dict[str, Any], broken: str
) -> None:
    given = start(0, type="tool_use", id="a", name="read", input={"given": 1})
    reply = reply_of(given, *(delta(0, "input_json_delta", partial_json=p) for p in pieces))
    assert reply.message_parts() == (ToolCall("a", "read", args, broken),)
    assert reply.stop() == "toolUse"


def test_calls_without_or_with_repeated_id_get_unique_ids() -> None:
    calls = [start(i, type="tool_use", id=id_, name="x") for i, id_ in enumerate(["", "a", "a"])]
    ids = [part.id for part in reply_of(*calls).message_parts() if isinstance(part, ToolCall)]
    assert ids[1] == "a"
    assert all(ids)
    assert len(set(ids)) == 3


def test_call_name_is_mapped_to_our_tool() -> None:
    reply = reply_of(start(0, type="tool_use", id="a", name="a_b", input={}))
    assert reply.message_parts({"a_b": "a.b"}) == (ToolCall("a", "a.b", {}),)


def test_unknown_events_are_ignored() -> None:
    reply = reply_of(
        {"type": "ping"},
        {"type": "of next year", "delta": 7},
        {},
        start(0, type="server_tool_use", id="s", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query":"x"}'),
        delta(1, "of_next_year_delta", words="x"),
        delta(2, "citations_delta", citation={}),
    )
    assert reply.message_parts() == ()
    assert reply.stop() == "stop"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 0},
        {"type": "content_block_delta", "index": 0, "delta": []},
        {"type": "content_block_start", "index": 0, "content_block": "text"},
        {"type": "message_start"},
        {"type": "message_delta", "delta": None},
        {"type": "message", "content": "hi"},
        {"type": "message", "content": ["hi"]},
        delta(0, "text_delta", text=7),
        delta(0, "input_json_delta", partial_json="{}"),
        {"type": "message_delta", "delta": {"stop_reason": 7}},
    ],
)
def test_event_of_wrong_shape_raises_malformed(event: dict[str, Any]) -> None:
    with pytest.raises(MalformedChunkError):
        AnthropicStreamAssembler().add(event)


def test_refusal_reason_is_kept() -> None:
    for details, why in (
        ({"type": "refusal", "category": "cyber", "explanation": "No."}, "No."),
        ({"type": "refusal", "category": "cyber", "explanation": None}, "cyber"),
        (None, ""),
        ("x", ""),
    ):
        ended = {"stop_reason": "refusal", "stop_details": details}
        reply = reply_of({"type": "message_delta", "delta": ended})
        assert (reply.finish, reply.refusal) == ("refusal", why)


def test_unstreamed_answer_is_read_like_a_stream() -> None:
    message = {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "a", "name": "x", "input": {"n": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    reply = AnthropicStreamAssembler()
    assert list(reply.add(message)) == [ThinkingDelta("Hm"), TextDelta("Hi")]
    assert reply.message_parts() == (
        Thinking("Hm", "s"),
        Thinking("", "redacted:d"),
        Text("Hi"),
        ToolCall("a", "x", {"n": 1}),
    )
    assert (reply.done, reply.stop()) == (True, "toolUse")
    assert reply.usage(Price()) == Usage(3, 4)


def test_usage_is_priced_with_hour_cache_rate() -> None:
    raw = {
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 500,
        "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 200},
        "output_tokens_details": {"thinking_tokens": 4},
    }
    usage = usage_of(raw, Price(5, 25, 0.5, 6.25))
    assert usage == Usage(100, 10, 1000, 500, 4, usage.cost)
    dollars = (100 * 5 + 10 * 25 + 1000 * 0.5 + 300 * 6.25 + 200 * 10) / 1e6
    assert usage.cost == pytest.approx(dollars)


@pytest.mark.parametrize("odd", [None, "7", -1, 1e300, float("nan"), [], {}])
def test_usage_of_invalid_counts_is_zero(odd: Any) -> None:
    names = ("input_tokens", "output_tokens", "cache_creation", "output_tokens_details")
    assert usage_of(dict.fromkeys(names, odd), Price(1, 1, 1, 1)) == Usage()


def test_usage_later_count_replaces_earlier_and_null_does_not() -> None:
    reply = reply_of(
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"input_tokens": None, "output_tokens": 50},
        },
    )
    assert reply.usage(Price()) == Usage(9, 50)


def test_any_json_event_is_read_or_malformed() -> None:
    event = json.loads('{"type":"content_block_delta","index":true,"delta":{"type":null}}')
    assert reply_of(event).message_parts() == ()
