"""Assembling Responses events; complete streams are in tests/wire."""

import json
from typing import Any

import pytest

from homarus.core.message import Text, Thinking, ToolCall
from homarus.providers.base import Delta, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_stream import MalformedChunkError
from homarus.providers.responses_stream import ResponsesStreamAssembler


def read(*events: tuple[str, dict[str, Any]]) -> tuple[ResponsesStreamAssembler, list[Delta]]:
    reply = ResponsesStreamAssembler()
    said: list[Delta] = []
    for kind, fields in events:
        said += reply.add({"type": f"response.{kind}", **fields})
    return reply, said


def item(index: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "output_item.done", {"output_index": index, "item": fields}


def begun(index: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "output_item.added", {"output_index": index, "item": fields}


def text(delta: str, index: int = 0) -> tuple[str, dict[str, Any]]:
    return "output_text.delta", {"output_index": index, "content_index": 0, "delta": delta}


def said_whole(words: str) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": words}]}


def test_deltas_without_item_event_form_an_answer() -> None:
    reply, said = read(
        text("Hel"),
        text("lo"),
        ("function_call_arguments.delta", {"output_index": 1, "delta": '{"a"'}),
        ("function_call_arguments.delta", {"output_index": 1, "delta": ":1}"}),
        ("completed", {"response": None}),
    )
    assert said == [TextDelta("Hel"), TextDelta("lo")]
    words, call = reply.message_parts()
    assert words == Text("Hello")
    assert isinstance(call, ToolCall)
    assert (call.args, reply.stop(), reply.finish) == ({"a": 1}, "toolUse", "completed")


def test_deltas_without_index_belong_together() -> None:
    reply, _ = read(
        ("output_text.delta", {"delta": "a"}),
        ("output_text.delta", {"delta": "b"}),
        ("output_text.delta", {"delta": "c", "output_index": [1]}),
    )
    assert reply.message_parts() == (Text("abc"),)


def test_complete_item_replaces_deltas_and_keeps_what_it_lacks() -> None:
    reply, _ = read(
        begun(0, type="function_call", call_id="c1", name="read", arguments="{half"),
        ("function_call_arguments.delta", {"output_index": 0, "delta": '{"a":'}),
        ("function_call_arguments.done", {"output_index": 0, "arguments": '{"a":2}'}),
        ("completed", {"response": {"output": [{"type": "function_call", "arguments": ""}]}}),
    )
    assert reply.message_parts() == (ToolCall("c1", "read", {"a": 2}),)


@pytest.mark.parametrize("names", [{"id": "fc_2"}, {"call_id": "c2"}])
def test_repeated_item_found_by_id_at_any_index(names: dict[str, str]) -> None:
    again = {"type": "function_call", "arguments": '{"b":2}', **names}
    reply, _ = read(
        begun(0, type="function_call", id="fc_1", call_id="c1", name="one"),
        ("function_call_arguments.delta", {"output_index": 0, "delta": '{"a":1}'}),
        begun(1, type="function_call", id="fc_2", call_id="c2", name="two"),
        ("completed", {"response": {"output": [again]}}),
    )
    assert reply.message_parts() == (
        ToolCall("c1", "one", {"a": 1}),
        ToolCall("c2", "two", {"b": 2}),
    )


def test_arguments_may_be_an_object() -> None:
    reply, _ = read(item(0, type="function_call", call_id="c", name="n", arguments={"a": 1}))
    assert reply.message_parts() == (ToolCall("c", "n", {"a": 1}),)


def test_calls_without_id_get_unique_ids() -> None:
    same = {"type": "function_call", "name": "n", "arguments": "{}"}
    reply, _ = read(item(0, **same, call_id="c"), item(1, **same, call_id="c"), item(2, **same))
    ids = [part.id for part in reply.message_parts() if isinstance(part, ToolCall)]
    assert ids[0] == "c"
    assert len(set(ids)) == 3
    assert all(ids)


def test_unstreamed_text_is_yielded_when_item_completes() -> None:
    _, said = read(
        text("Hel"),
        item(0, **said_whole("Hello")),
        item(1, type="reasoning", id="rs", summary=[{"text": "a"}, {"text": "b"}]),
        ("completed", {"response": {"output": [said_whole("Hello, you")]}}),
    )
    assert said == [TextDelta("Hel"), TextDelta("lo"), ThinkingDelta("a\n\nb"), TextDelta(", you")]


def test_reasoning_sections_become_paragraphs() -> None:
    def thought(delta: str, number: int) -> tuple[str, dict[str, Any]]:
        fields = {"output_index": 0, "summary_index": number, "delta": delta}
        return "reasoning_summary_text.delta", fields

    reply, said = read(thought("a", 0), thought("b", 0), thought("c", 1), thought("d", 1))
    assert [delta.text for delta in said if isinstance(delta, ThinkingDelta)] == [
        "a", "b", "\n\nc", "d"
    ]  # fmt: skip
    assert reply.message_parts() == (Thinking("ab\n\ncd"),), "not whole: nothing to send back"


@pytest.mark.parametrize("status", ["incomplete", "in_progress"])
def test_incomplete_reasoning_is_not_kept(status: str) -> None:
    cut = {"type": "reasoning", "id": "rs", "summary": [{"text": "a"}], "status": status}
    assert read(item(0, **cut))[0].message_parts() == (Thinking("a"),)


def test_complete_reasoning_item_is_its_signature() -> None:
    given = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "gAAA",
        "status": "completed",
    }
    (thought,) = read(begun(0, **{**given, "encrypted_content": "g"}), item(0, **given))[
        0
    ].message_parts()
    assert isinstance(thought, Thinking)
    assert thought.text == ""
    assert json.loads(thought.signature) == {k: v for k, v in given.items() if k != "status"}


def test_message_phase_is_kept() -> None:
    (words,) = read(item(0, **said_whole("Hm."), id="msg_1", phase="commentary"))[0].message_parts()
    assert isinstance(words, Text)
    assert json.loads(words.signature) == {"v": 1, "id": "msg_1", "phase": "commentary"}


def test_usage_counts_cache_tokens_apart() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 15},
        "total_tokens": 120,
    }
    counted = read(("completed", {"response": {"usage": usage}}))[0].usage(Price())
    assert (counted.input, counted.cache_read, counted.cache_write) == (10, 60, 30)
    assert (counted.output, counted.reasoning) == (20, 15)


@pytest.mark.parametrize(
    "event", [{}, {"type": None}, {"type": []}, {"output": 5}, {"output": [], "status": "queued"}]
)
def test_invalid_event_raises_malformed(event: dict[str, Any]) -> None:
    with pytest.raises(MalformedChunkError):
        ResponsesStreamAssembler().add(event)


def test_unknown_events_are_ignored() -> None:
    reply, said = read(("new.thing", {"delta": "x"}), ("audio.delta", {"delta": "x"}))
    assert (said, reply.message_parts()) == ([], ())


def test_too_deep_item_is_not_kept() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    assert read(item(0, type="reasoning", id="rs", summary=deep))[0].message_parts() == ()
