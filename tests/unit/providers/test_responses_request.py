"""Messages → items of the Responses wire."""

import gc
import json
import re
import time
from collections.abc import Iterable
from functools import cache
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import (
    EasyInputMessageParam,
    FunctionToolParam,
    ResponseFunctionToolCallParam,
    ResponseReasoningItemParam,
)
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.responses.response_input_param import FunctionCallOutput
from openai.types.responses.response_input_param import Message as InputMessage
from pydantic import TypeAdapter

from homarus.core.message import (
    Image,
    Message,
    Origin,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    user_message,
)
from homarus.providers.base import ToolSpec
from homarus.providers.conversation import INTERRUPTED, NO_OUTPUT, NO_TEXT, SHOWN, UNSEEN
from homarus.providers.responses_request import ResponsesItemRenderer, tool_list

PICTURE = Image("aGk=", "image/png")
SHOWN_PICTURE = {
    "type": "input_image",
    "detail": "auto",
    "image_url": "data:image/png;base64,aGk=",
}
CALL = ToolCall("call_1", "read", {"path": "é"})


def signed(item_id: str = "rs_1", **fields: Any) -> Thinking:
    item = {"type": "reasoning", "id": item_id, "summary": [], "encrypted_content": "secret"}
    return Thinking("because", json.dumps({**item, **fields}))


def rendered(*messages: Message, sees: bool = True) -> list[Any]:
    items = ResponsesItemRenderer(provider="p", model="m", sees_images=sees)
    return [json.loads(item) for item in items.render(messages)]


def said(*parts: Part | str, stop: Any = "stop", model: str = "m") -> Message:
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message("assistant", made, origin=Origin("openai-responses", "p", model, stop))


def result(call_id: str, *content: Text | Image) -> Message:
    return Message("tool", (ToolResult(call_id, "read", content),))


def kinds(items: Iterable[Any]) -> list[str]:
    return [item.get("role") or item["type"] for item in items]


def test_conversation_renders_item_by_item() -> None:
    assert rendered(
        user_message("read it"),
        said(signed(), "Looking.", CALL),
        result("call_1", Text("4"), Text("2")),
        said("It is 42."),
    ) == [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "read it"}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret"},
        {"type": "message", "role": "assistant", "content": "Looking."},
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "read",
            "arguments": '{"path": "é"}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "4\n2"},
        {"type": "message", "role": "assistant", "content": "It is 42."},
    ]


def test_call_without_result_gets_interrupted_result() -> None:
    got = rendered(said(CALL), user_message("go on"))
    assert kinds(got) == ["function_call", "function_call_output", "user"]
    assert got[1]["output"] == INTERRUPTED


def test_late_result_follows_its_call() -> None:
    got = rendered(said(CALL), user_message("hey"), said("Hm."), result("call_1", Text("x")))
    assert kinds(got) == ["function_call", "function_call_output", "user", "assistant"]
    assert got[1]["output"] == "x"


def test_orphan_and_second_results_are_dropped() -> None:
    got = rendered(
        result("call_1", Text("too early")),
        said(CALL),
        result("call_1", Text("first")),
        result("call_1", Text("second")),
        result("other", Text("nobody asked")),
        Message("tool", ()),
    )
    assert [item.get("output") for item in got] == [None, "first"]


def test_repeated_id_is_another_call() -> None:
    got = rendered(
        said(CALL),
        said(CALL, ToolCall("call_1", "ls", {})),
        result("call_1", Text("one")),
        result("call_1", Text("two")),
    )
    calls = [item["call_id"] for item in got if item["type"] == "function_call"]
    assert calls == ["call_1", "call_1-2", "call_1-3"]
    outputs = [(i["call_id"], i["output"]) for i in got if i["type"] == "function_call_output"]
    assert outputs == [("call_1", INTERRUPTED), ("call_1-2", "one"), ("call_1-3", "two")]


def test_same_history_renders_same_bytes() -> None:
    history = [said(CALL), said(CALL), result("call_1", Text("x")), user_message("go")]
    items = ResponsesItemRenderer(provider="p", model="m", sees_images=True)
    first = items.render(history)
    assert items.render(history) == first
    assert items.render([*history, user_message("more")])[:-1] == first


@pytest.mark.parametrize(
    "call_id", ["", "a" * 65, "call_1|fc_" + "x" * 400, "call_1|fc_2", "a b", "ü", "\ud800"]
)
def test_foreign_id_replaced_same_in_call_and_result(call_id: str) -> None:
    got = rendered(said(ToolCall(call_id, "read", {})), result(call_id, Text("x")))
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", got[0]["call_id"])
    assert got[1] == {
        "type": "function_call_output",
        "call_id": got[0]["call_id"],
        "output": "x",
    }
    if call_id.startswith("call_1|"):
        assert got[0]["call_id"] == "call_1", "the original keeps two ids in one"


def test_empty_text_is_never_sent() -> None:
    assert rendered()[0]["content"] == [{"type": "input_text", "text": NO_TEXT}]
    got = rendered(
        user_message(""), said("", stop="aborted"), said(Thinking("hm")), said(stop="error")
    )
    assert [item["content"] for item in got] == [[{"type": "input_text", "text": NO_TEXT}]]
    assert rendered(said(CALL), result("call_1"))[1]["output"] == NO_OUTPUT


def test_pictures_render_in_messages_and_results() -> None:
    got = rendered(
        user_message("see", PICTURE), said(CALL), result("call_1", Text("shot"), PICTURE)
    )
    assert got[0]["content"] == [{"type": "input_text", "text": "see"}, SHOWN_PICTURE]
    assert got[2]["output"] == [{"type": "input_text", "text": "shot"}, SHOWN_PICTURE]


def test_blind_model_gets_note_for_picture() -> None:
    got = rendered(user_message("", PICTURE), said(CALL), result("call_1", PICTURE), sees=False)
    assert got[0]["content"] == [{"type": "input_text", "text": UNSEEN}]
    assert got[2]["output"] == UNSEEN


def test_model_made_picture_becomes_note() -> None:
    assert rendered(said("Look:", PICTURE))[0]["content"] == f"Look:{SHOWN}"


def test_reasoning_rendered_before_what_it_led_to() -> None:
    got = rendered(
        said(signed("rs_1"), CALL, signed("rs_2"), "So.", "And.", signed("rs_3")),
    )
    assert [item.get("id") or item["type"] for item in got] == [
        "rs_1",
        "function_call",
        "rs_2",
        "message",
        "function_call_output",
    ]
    assert got[3]["content"] == "So.And.", "what no reasoning parts is one message"


def test_reasoning_between_texts_separates_them() -> None:
    got = rendered(said("One.", signed("rs_1"), "Two."))
    assert [item.get("content") for item in got] == ["One.", None, "Two."]
    unsigned = rendered(said("One.", Thinking("hm"), "Two."))
    assert [item["content"] for item in unsigned] == ["One.Two."]


def test_reasoning_replayed_only_to_its_author() -> None:
    for message in (
        said(signed(), "Yes", model="other"),
        said(signed(), "Yes", stop="aborted"),
        said(signed(), "Yes", stop="error"),
        Message("assistant", (signed(), Text("Yes"))),
    ):
        assert rendered(message) == [{"type": "message", "role": "assistant", "content": "Yes"}]


@pytest.mark.parametrize(
    "thought",
    [
        Thinking("hm"),
        Thinking("hm", "reasoning_content"),
        Thinking("hm", "{"),
        Thinking("hm", "[" * 100_000),
        Thinking("hm", "{" + '"a":{' * 100_000),
        Thinking("hm", "[1]"),
        Thinking("hm", '{"type":"reasoning"}'),
        signed(encrypted_content=None),
        signed(encrypted_content=5),
        signed(id=""),
        signed(id="a b"),
        signed(id=None),
        signed(type="message"),
    ],
)
def test_reasoning_that_cannot_be_replayed_is_dropped(thought: Thinking) -> None:
    assert kinds(rendered(said(thought, "Yes"))) == ["assistant"]


def test_reasoning_item_only_known_fields_are_sent() -> None:
    summary = [{"type": "summary_text", "text": "short", "x": 1}, {"type": "y"}, "z"]
    content = [{"type": "reasoning_text", "text": "long"}]
    got = rendered(said(signed(summary=summary, content=content, status="x", more=1), "Yes"))[0]
    assert got == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "short"}],
        "encrypted_content": "secret",
    }
    open_ = rendered(said(signed(encrypted_content="", content=content), "Yes"))[0]
    assert open_["content"] == content, "a service that does not encrypt wants the words"


def test_reasoning_item_in_history_twice_is_sent_once() -> None:
    assert kinds(rendered(said(signed(), "a"), said(signed(), "b"))) == [
        "reasoning",
        "assistant",
        "assistant",
    ]


def test_text_phase_replayed_to_its_author() -> None:
    parts = (
        Text("Let me see.", '{"v":1,"id":"msg_1","phase":"commentary"}'),
        Text("It is so.", '{"v":1,"id":"msg_2","phase":"final_answer"}'),
        Text("Odd.", '{"phase":["x"]}'),
        Text("Older.", "msg_3"),
    )
    got = rendered(said(*parts))
    assert [item.get("phase") for item in got] == ["commentary", "final_answer", None, None]
    assert not any("phase" in item for item in rendered(said(*parts, model="other")))


def test_broken_arguments_are_not_replayed() -> None:
    assert rendered(said(ToolCall("c", "read", {}, broken='{"pa')))[0]["arguments"] == "{}"


def test_tool_name_is_made_valid() -> None:
    for name, want in (("", "unknown"), ("a.b c", "a_b_c"), ("x" * 99, "x" * 64)):
        assert rendered(said(ToolCall("c", name, {})))[0]["name"] == want


@pytest.mark.parametrize(
    ("strict", "sent"), [(None, [False, False]), (True, [True, False]), (False, [None, None])]
)
def test_tools_listed_flat_with_strict_flag(strict: bool | None, sent: list[bool | None]) -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    specs = [ToolSpec("read", "Read.", closed), ToolSpec("ls", "List.", {"type": "object"})]
    tools = json.loads(tool_list(specs, strict=strict))
    assert [tool.get("strict") for tool in tools] == sent
    assert tools[1]["parameters"] == {"type": "object", "properties": {}}
    if strict is not False:
        for tool in tools:
            check(FunctionToolParam, tool)


# What the SDK's own types say

TYPES: dict[str, Any] = {
    "user": InputMessage,
    "assistant": EasyInputMessageParam,
    "function_call": ResponseFunctionToolCallParam,
    "function_call_output": FunctionCallOutput,
    "reasoning": ResponseReasoningItemParam,
}


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def check(kind: Any, value: dict[str, Any]) -> None:
    """Valid for exactly this type, with no field it does not know."""
    assert set(value) <= set(get_type_hints(kind)), kind
    exhaust(adapter(kind).validate_python(value, strict=True))


def exhaust(value: Any) -> None:
    """Pydantic checks an Iterable only as far as somebody reads it."""
    if isinstance(value, dict):
        value = value.values()
    if not isinstance(value, str) and isinstance(value, Iterable):
        for part in value:
            exhaust(part)


texts = st.sampled_from(["", "hi", "é\ud800", "two\nlines"])
ids = st.sampled_from(["", "a", "a-2", "b", "a|fc_1", "long|" * 20])
content = st.lists(texts.map(Text) | st.just(PICTURE), max_size=2).map(tuple)
calls = st.builds(
    ToolCall,
    ids,
    st.sampled_from(["", "read", "a.b"]),
    st.just({"k": [1, None]}),
    broken=st.sampled_from(["", "{"]),
)
signatures = st.sampled_from(
    [
        "",
        "reasoning_content",
        "{",
        "null",
        signed().signature,
        signed("rs_2", summary=[{"text": "s"}, 5]).signature,
        signed("rs_3", encrypted_content=None, content=[{"text": "c"}]).signature,
        signed("a").signature,
        signed("", summary=5).signature,
        '{"v":1,"phase":"commentary"}',
    ]
)
parts = st.lists(
    st.builds(Text, texts, signatures)
    | calls
    | st.builds(Thinking, texts, signatures)
    | st.just(PICTURE)
    | st.builds(lambda call_id: ToolResult(call_id, "read", ()), ids),
    max_size=5,
).map(tuple)
origins = st.builds(
    Origin,
    st.just("x"),
    st.just("p"),
    st.sampled_from(["m", "n"]),
    st.sampled_from(["stop", "error", "aborted", "toolUse"]),
)
messages = st.one_of(
    st.builds(Message, st.just("user"), content | parts),
    st.builds(Message, st.just("assistant"), parts, origin=st.none() | origins),
    st.builds(
        lambda call_id, parts: Message("tool", (ToolResult(call_id, "read", parts),)), ids, content
    ),
    st.builds(Message, st.just("tool"), parts),
)


@given(st.lists(messages, max_size=12), st.booleans())
def test_any_history_renders_items_vendor_accepts(history: list[Message], sees: bool) -> None:
    history += history[:3]  # the same messages may stand there twice
    got = rendered(*history, sees=sees)
    body = {"model": "m", "stream": True, "input": got}
    exhaust(adapter(ResponseCreateParamsStreaming).validate_python(body))
    waiting: list[str] = []
    seen: set[str] = set()
    for item, following in zip(got, [*got[1:], {}], strict=True):
        check(TYPES[item.get("role") or item["type"]], item)
        match item["type"]:
            case "function_call":
                assert item["call_id"] not in seen, "an id means one call"
                seen.add(item["call_id"])
                waiting.append(item["call_id"])
                assert isinstance(json.loads(item["arguments"]), dict)
            case "function_call_output":
                assert item["call_id"] == waiting.pop(0)
                assert item["output"]
            case "reasoning":
                assert item["id"] not in seen
                seen.add(item["id"])
                led_to = following.get("role") or following["type"]
                assert led_to in {"reasoning", "assistant", "function_call"}
            case _:
                assert item["content"], "no message is empty"
                if item["role"] == "user":
                    assert waiting == [], "every call is answered before anyone else speaks"
                    assert all(part.get("text") != "" for part in item["content"])
    assert waiting == []
    assert got


def test_long_history_is_rendered_once() -> None:
    history = [
        message
        for n in range(500)
        for message in (
            user_message(f"question {n} " * 20),
            said(signed(f"rs_{n}"), ToolCall(f"c{n}", "read", {"path": "x" * 200})),
            result(f"c{n}", Text("line\n" * 100)),
            said("answer " * 50),
        )
    ]
    items = ResponsesItemRenderer(provider="p", model="m", sees_images=True)
    first = items.render(history)
    spent_s = []
    for _ in range(5):
        gc.collect()  # else the collection of other tests' objects may fall into the measurement
        start = time.process_time()
        again = items.render([*history, user_message("new")])
        spent_s.append(time.process_time() - start)
        assert again[:-1] == first
    assert min(spent_s) < 0.02, "2,000 known messages cost next to nothing"
