"""Messages → turns of the chat dialect."""

import gc
import json
import re
import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
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
from homarus.providers.chat_request import GOT_RESULTS, ChatMessageRenderer, tool_list
from homarus.providers.compat import ChatCompat, resolve_compat
from homarus.providers.conversation import (
    INTERRUPTED,
    NO_OUTPUT,
    NO_TEXT,
    PICTURES,
    SHOWN,
    UNSEEN,
    encode_json,
)
from homarus.providers.render_cache import PrefixCache

PICTURE = Image("aGk=", "image/png")
GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
CALL = ToolCall("call_1", "read", {"path": "é"})
VALID = TypeAdapter(list[ChatCompletionMessageParam])


def exhaust(value: Any) -> None:
    """Pydantic checks an Iterable only as far as somebody reads it."""
    if isinstance(value, dict):
        value = value.values()
    if not isinstance(value, str) and isinstance(value, Iterable):
        for part in value:
            exhaust(part)


def turns(compat: ChatCompat | None = None, *, sees: bool = True) -> ChatMessageRenderer:
    return ChatMessageRenderer(compat or ChatCompat(), provider="p", model="m", sees_images=sees)


def rendered(*messages: Message, compat: ChatCompat | None = None, sees: bool = True) -> list[Any]:
    return [json.loads(turn) for turn in turns(compat, sees=sees).render(messages)]


def said(*parts: Part | str, stop: Any = "stop", model: str = "m") -> Message:
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message("assistant", made, origin=Origin("openai-completions", "p", model, stop))


def result(call_id: str, *content: Text | Image, name: str = "read") -> Message:
    return Message("tool", (ToolResult(call_id, name, content),))


def test_conversation_renders_turn_by_turn() -> None:
    assert rendered(
        user_message("read it"),
        said("Looking.", CALL),
        result("call_1", Text("42")),
        said("It is 42."),
    ) == [
        {"role": "user", "content": "read it"},
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path": "é"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
        {"role": "assistant", "content": "It is 42."},
    ]


def test_call_without_result_gets_interrupted_result() -> None:
    assert rendered(said(CALL), user_message("go on"))[1:] == [
        {"role": "tool", "tool_call_id": "call_1", "content": INTERRUPTED},
        {"role": "user", "content": "go on"},
    ]


def test_neighbours_of_one_role_merge_into_one_turn() -> None:
    thought = Thinking("because", "reasoning_content")
    got = rendered(
        user_message("one"),
        user_message('t"wo'),
        said(thought, "a"),
        said("b"),
        said("c", CALL),
        user_message("three"),
    )
    assert [t["role"] for t in got] == ["user", "assistant", "tool", "user"]
    assert got[0]["content"] == 'one\n\nt"wo'
    assert got[1]["content"] == "a\n\nb\n\nc"
    assert got[1]["tool_calls"][0]["id"] == "call_1"
    assert "reasoning_content" not in got[1], "it led to other words than these"
    pictured = rendered(user_message("one"), user_message("", PICTURE), user_message("two"))[0][
        "content"
    ]
    assert [block["type"] for block in pictured] == ["text", "image_url", "text"]


def test_late_result_follows_its_call() -> None:
    roles = [
        t["role"] for t in rendered(said(CALL), user_message("hey"), result("call_1", Text("x")))
    ]
    assert roles == ["assistant", "tool", "user"]
    later = rendered(said(CALL), user_message("hey"), said("Hm."), result("call_1", Text("x")))
    assert [t["role"] for t in later] == ["assistant", "tool", "user", "assistant"]
    assert later[1]["content"] == "x"


def test_orphan_and_second_results_are_dropped() -> None:
    got = rendered(
        result("call_1", Text("too early")),
        said(CALL),
        result("call_1", Text("first")),
        result("call_1", Text("second")),
        result("other", Text("nobody asked")),
    )
    assert [t.get("content") for t in got] == [None, "first"]


def test_repeated_id_result_belongs_to_nearest_call() -> None:
    got = rendered(
        said(CALL), result("call_1", Text("one")), said(CALL), result("call_1", Text("two"))
    )
    assert [t["content"] for t in got if t["role"] == "tool"] == ["one", "two"]


def test_empty_answers_are_dropped() -> None:
    assert rendered(said(stop="error"), said(Thinking("hm")), said("", stop="aborted")) == []
    assert rendered(said("half an", stop="aborted")) == [
        {"role": "assistant", "content": "half an"}
    ]


def test_empty_text_is_never_sent() -> None:
    got = rendered(user_message(""), said(CALL), result("call_1"))
    assert got[0]["content"] == NO_TEXT
    assert got[2]["content"] == NO_OUTPUT


def test_pictures_render_with_user_or_behind_results() -> None:
    got = rendered(
        user_message("see", PICTURE),
        said(CALL, ToolCall("call_2", "ls", {})),
        result("call_2", Text("list")),
        result("call_1", Text("shot"), PICTURE),
        user_message("well?"),
    )
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert got[0]["content"] == [{"type": "text", "text": "see"}, shown]
    assert [t["role"] for t in got[1:]] == ["assistant", "tool", "tool", "user"]
    assert got[2]["tool_call_id"] == "call_1"
    assert got[2]["content"].startswith("shot\n")
    told, asked = ({"type": "text", "text": text} for text in (PICTURES, "well?"))
    assert got[4]["content"] == [told, shown, asked]


def test_blind_model_gets_note_for_picture() -> None:
    got = rendered(user_message("see", PICTURE), said(CALL), result("call_1", PICTURE), sees=False)
    assert got[0]["content"] == f"see\n{UNSEEN}"
    assert got[2]["content"] == UNSEEN
    assert len(got) == 3


def test_model_made_picture_becomes_note() -> None:
    assert rendered(said("Look:", PICTURE))[0]["content"] == f"Look:{SHOWN}"


def test_reasoning_replayed_only_to_its_author() -> None:
    thought = Thinking("because", "reasoning_content")
    assert rendered(said(thought, "Yes"))[0]["reasoning_content"] == "because"
    for other in (
        said(thought, "Yes", model="other"),
        said(Thinking("because", "anthropic-signature"), "Yes"),
        said(thought, "Yes", stop="aborted"),
    ):
        assert rendered(other) == [{"role": "assistant", "content": "Yes"}]
    as_text = rendered(said(thought, "Yes"), compat=ChatCompat(thinking_as_text=True))
    assert as_text == [{"role": "assistant", "content": "because\n\nYes"}]


def test_broken_arguments_are_not_replayed() -> None:
    got = rendered(said(ToolCall("c", "read", {}, broken='{"pa')))
    assert got[0]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("call_id", ["", "call_1|fc_" + "x" * 400, "a b", "ü", "\ud800"])
def test_foreign_id_replaced_same_in_call_and_result(call_id: str) -> None:
    for compat, pattern in (
        (ChatCompat(), r"[A-Za-z0-9_-]{1,40}"),
        (ChatCompat(mistral_tool_ids=True), r"[A-Za-z0-9]{9}"),
    ):
        call = ToolCall(call_id, "read", {})
        got = rendered(said(call), result(call_id, Text("x")), compat=compat)
        assert re.fullmatch(pattern, got[0]["tool_calls"][0]["id"])
        assert got[1] == {
            "role": "tool",
            "tool_call_id": got[0]["tool_calls"][0]["id"],
            "content": "x",
        }


def test_tool_name_is_made_valid() -> None:
    for name, want in (("", "unknown"), ("a.b c", "a_b_c"), ("x" * 99, "x" * 64)):
        got = rendered(said(ToolCall("c", name, {})))
        assert got[0]["tool_calls"][0]["function"]["name"] == want


def test_compat_result_name_and_bridge_turn_are_added() -> None:
    compat = ChatCompat(tool_result_name=True, assistant_after_tool_result=True)
    got = rendered(said(CALL), result("call_1", PICTURE), user_message("and?"), compat=compat)
    assert got[1]["name"] == "read"
    assert [t["role"] for t in got] == ["assistant", "tool", "assistant", "user"]
    assert got[2]["content"] == GOT_RESULTS


def test_compat_interrupted_result_names_its_tool() -> None:
    assert rendered(said(CALL), compat=ChatCompat(tool_result_name=True))[1]["name"] == "read"


def test_compat_unsigned_calls_get_google_waiver() -> None:
    call = rendered(said(CALL), compat=resolve_compat(GOOGLE))[0]["tool_calls"][0]
    assert call["extra_content"]["google"]["thought_signature"]
    assert "extra_content" not in rendered(said(CALL))[0]["tool_calls"][0]


def test_encode_json_replaces_lone_surrogates() -> None:
    assert encode_json({"a": "x\ud800y🦞"}).decode() == '{"a":"x?y🦞"}'


def test_tools_listed_with_schemas() -> None:
    spec = ToolSpec("read", "Read.", {"type": "object", "properties": {}})
    assert json.loads(tool_list([spec])) == [
        {
            "type": "function",
            "function": {
                "name": "read",
                "description": "Read.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]


def test_strict_mode_marks_each_tool_by_its_schema() -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    specs = [ToolSpec("a", "A.", closed), ToolSpec("b", "B.", {"type": "object"})]
    functions = [tool["function"] for tool in json.loads(tool_list(specs, strict=True))]
    assert [function["strict"] for function in functions] == [True, False]
    assert functions[1]["parameters"] == {"type": "object", "properties": {}}
    assert "strict" not in json.loads(tool_list(specs))[0]["function"]


texts = st.sampled_from(["", "hi", "é\ud800", "two\nlines"])
ids = st.sampled_from(["", "a", "b", "long|" * 20])
content = st.lists(texts.map(Text) | st.just(PICTURE), max_size=2).map(tuple)
calls = st.builds(
    ToolCall,
    ids,
    st.sampled_from(["", "read", "a.b"]),
    st.just({"k": [1, None]}),
    broken=st.sampled_from(["", "{"]),
)
thoughts = st.builds(Thinking, texts, st.sampled_from(["", "reasoning"]))
origins = st.builds(
    Origin,
    st.just("x"),
    st.just("p"),
    st.sampled_from(["m", "n"]),
    st.sampled_from(["stop", "error", "aborted", "toolUse"]),
)
parts = st.lists(texts.map(Text) | calls | thoughts | st.just(PICTURE), max_size=4).map(tuple)
messages = st.one_of(
    st.builds(Message, st.just("user"), content),
    st.builds(Message, st.just("assistant"), parts, origin=st.none() | origins),
    st.builds(
        lambda call_id, parts: Message("tool", (ToolResult(call_id, "read", parts),)), ids, content
    ),
    st.just(Message("tool", ())),
)
compats = st.builds(
    ChatCompat,
    tool_result_name=st.booleans(),
    assistant_after_tool_result=st.booleans(),
    thinking_as_text=st.booleans(),
    mistral_tool_ids=st.booleans(),
)


@given(st.lists(messages, max_size=12), compats, st.booleans())
def test_any_history_renders_turns_vendor_accepts(
    history: list[Message], compat: ChatCompat, sees: bool
) -> None:
    got = rendered(*history, compat=compat, sees=sees)
    exhaust(VALID.validate_python(got))
    waiting: list[str] = []
    last = ""
    for turn in got:
        if turn["role"] == "tool":
            assert turn["tool_call_id"] == waiting.pop(0)
        else:
            assert turn["role"] != last, "nobody speaks twice in a row"
            assert waiting == [], "every call is answered before anyone else speaks"
            waiting = [call["id"] for call in turn.get("tool_calls", ())]
            assert len(set(waiting)) == len(waiting)
        assert turn["content"] or turn.get("tool_calls"), "no turn is empty"
        last = turn["role"]
    assert waiting == []


def test_long_history_is_rendered_once() -> None:
    history = [
        message
        for n in range(500)
        for message in (
            user_message(f"question {n} " * 20),
            said(ToolCall(f"c{n}", "read", {"path": "x" * 200})),
            result(f"c{n}", Text("line\n" * 100)),
            said("answer " * 50),
        )
    ]
    made = turns()
    first = made.render(history)
    spent_s = []
    for _ in range(5):
        gc.collect()  # else the collection of other tests' objects may fall into the measurement
        start = time.process_time()
        again = made.render([*history, user_message("new")])
        spent_s.append(time.process_time() - start)
        assert b",".join(again) == b",".join([*first, *turns().render([user_message("new")])])
    assert min(spent_s) < 0.02, "2,000 known messages cost next to nothing"


@given(st.lists(messages, max_size=16), st.lists(messages, max_size=16), compats)
def test_cached_prefix_changes_no_bytes(
    one: list[Message], two: list[Message], compat: ChatCompat
) -> None:
    made = turns(compat)
    made._begun = PrefixCache(least=2)
    for size in range(17):  # two conversations by turns, each a little longer every time
        for history in (one[:size], two[:size]):
            fresh = turns(compat).render(history)
            assert b",".join(made.render(history)) == b",".join(fresh)
