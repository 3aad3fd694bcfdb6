"""Messages → turns of Anthropic's API."""

import gc
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import (
    DocumentBlockParam,
    ImageBlockParam,
    RedactedThinkingBlockParam,
    TextBlockParam,
    ThinkingBlockParam,
    ToolParam,
    ToolResultBlockParam,
    ToolUseBlockParam,
)
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming
from hypothesis import given
from hypothesis import strategies as st
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
from homarus.providers import anthropic
from homarus.providers.anthropic_blocks import BEGINNING, UNREADABLE, opens_with_thought, wire_names
from homarus.providers.anthropic_request import AnthropicMessageRenderer, tool_list, turn_json
from homarus.providers.base import ModelRequest, ThinkLevel, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.providers.conversation import GO_ON, INTERRUPTED, NO_OUTPUT, NO_TEXT, SHOWN, UNSEEN

PNG = "iVBORw0KGgoAAAANSUhEUg=="
PICTURE = Image(PNG, "image/png")
CALL = ToolCall("toolu_1", "read", {"path": "é"})


def turns(*, sees: bool = True, unsigned: bool = False) -> AnthropicMessageRenderer:
    return AnthropicMessageRenderer(provider="p", model="m", sees_images=sees, unsigned=unsigned)


def rendered(
    *messages: Message, sees: bool = True, unsigned: bool = False, reasoning: bool = True
) -> list[Any]:
    made = turns(sees=sees, unsigned=unsigned).render(messages, reasoning=reasoning)
    return [json.loads(turn_json(turn)) for turn in made]


def said(*parts: Part | str, stop: Any = "stop", model: str = "m") -> Message:
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message("assistant", made, origin=Origin("anthropic-messages", "p", model, stop))


def result(call_id: str, *content: Text | Image, failed: bool = False) -> Message:
    return Message("tool", (ToolResult(call_id, "read", content, is_error=failed),))


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def asked(words: str) -> dict[str, Any]:
    return {"role": "user", "content": [text(words)]}


def results(turn: Mapping[str, Any]) -> dict[str, Any]:
    blocks = [block for block in turn["content"] if block["type"] == "tool_result"]
    return {block["tool_use_id"]: block["content"][0].get("text") for block in blocks}


def test_conversation_renders_turn_by_turn() -> None:
    assert rendered(
        user_message("read it"),
        said("Looking.", CALL),
        result("toolu_1", Text("42")),
        said("It is 42."),
    ) == [
        asked("read it"),
        {
            "role": "assistant",
            "content": [
                text("Looking."),
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "é"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("42")]}],
        },
        {"role": "assistant", "content": [text("It is 42.")]},
        asked(GO_ON),
    ]


def test_neighbours_of_one_role_merge_into_one_turn() -> None:
    got = rendered(user_message("a"), user_message("b"), said("c"), said("d"), user_message("e"))
    assert [turn["role"] for turn in got] == ["user", "assistant", "user"]
    assert [block["text"] for turn in got for block in turn["content"]] == list("abcde")


def test_first_and_last_turn_are_the_users() -> None:
    assert [turn["role"] for turn in rendered(said("hi"))] == ["user", "assistant", "user"]
    assert rendered(said("hi"))[0] == asked(BEGINNING)
    assert rendered() == [asked(NO_TEXT)]
    assert rendered(result("x", Text("orphan"))) == [asked(NO_TEXT)]


def test_call_without_result_gets_interrupted_result() -> None:
    got = rendered(user_message("a"), said(CALL), user_message("go on"))
    assert results(got[2]) == {"toolu_1": INTERRUPTED}
    assert got[2]["content"][1:] == [text("go on")]
    alone = rendered(user_message("a"), said(CALL), said("Hm."))
    assert [turn["role"] for turn in alone] == ["user", "assistant", "user", "assistant", "user"]
    assert results(alone[2]) == {"toolu_1": INTERRUPTED}


def test_late_result_comes_first_behind_its_call() -> None:
    got = rendered(
        user_message("a"),
        said(CALL),
        user_message("hey"),
        said("Hm."),
        result("toolu_1", Text("x")),
        user_message("b"),
    )
    assert results(got[2]) == {"toolu_1": "x"}
    assert got[2]["content"][1] == text("hey")


def test_orphan_and_second_results_are_dropped() -> None:
    got = rendered(
        user_message("a"),
        result("toolu_1", Text("too early")),
        said(CALL),
        result("toolu_1", Text("first")),
        result("toolu_1", Text("second")),
        result("other", Text("nobody asked")),
        Message("tool", ()),
    )
    assert len(got) == 3
    assert results(got[2]) == {"toolu_1": "first"}


def test_results_follow_order_of_calls() -> None:
    other = ToolCall("toolu_2", "ls", {})
    got = rendered(
        user_message("a"),
        said(CALL, other),
        result("toolu_2", Text("2")),
        result("toolu_1", Text("1")),
    )
    assert list(results(got[2]).items()) == [("toolu_1", "1"), ("toolu_2", "2")]


def test_repeated_id_is_numbered_with_its_result() -> None:
    got = rendered(
        user_message("a"),
        said(CALL),
        result("toolu_1", Text("one")),
        said(CALL),
        result("toolu_1", Text("two")),
        said(ToolCall("toolu_1_2", "read", {})),
        result("toolu_1_2", Text("three")),
        said(CALL),
        result("toolu_1", Text("four")),
    )
    answers = [answer for turn in got[2::2] for answer in results(turn).items()]
    ids = [block["id"] for turn in got[1::2] for block in turn["content"]]
    assert [words for _, words in answers] == ["one", "two", "three", "four"]
    assert [call_id for call_id, _ in answers] == ids
    assert len(set(ids)) == 4


def test_same_id_twice_in_one_message_is_one_call() -> None:
    got = rendered(user_message("a"), said(CALL, ToolCall("toolu_1", "ls", {})))
    assert len(got[1]["content"]) == 1


@pytest.mark.parametrize("words", ["", " ", "\n\t "])
def test_empty_text_is_never_sent(words: str) -> None:
    got = rendered(
        user_message(words), said(words, CALL), result("toolu_1", Text(words)), user_message(words)
    )
    assert got[0] == asked(NO_TEXT)
    assert [block["type"] for block in got[1]["content"]] == ["tool_use"]
    assert results(got[2]) == {"toolu_1": NO_OUTPUT}
    assert got[2]["content"][1] == text(NO_TEXT)


def test_empty_answers_are_dropped() -> None:
    nothing = (said(stop="error"), said(Thinking("hm", "sig")), said(" ", stop="aborted"))
    assert rendered(user_message("a"), *nothing, user_message("b")) == [
        {"role": "user", "content": [text("a"), text("b")]}
    ]
    got = rendered(user_message("a"), said("half an", stop="aborted"), user_message("b"))
    assert got[1] == {"role": "assistant", "content": [text("half an")]}


def test_own_reasoning_is_replayed_unchanged() -> None:
    parts = (Thinking("because", "c2ln"), Thinking("", "redacted:ZGF0YQ=="), Text("So."))
    more = (Thinking("", "b21pdA=="), CALL)
    got = rendered(user_message("a"), said(*parts, *more), result("toolu_1", Text("x")))
    assert got[1]["content"][:4] == [
        {"type": "thinking", "thinking": "because", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        text("So."),
        {"type": "thinking", "thinking": "", "signature": "b21pdA=="},
    ]
    plain = rendered(user_message("a"), said(*parts), user_message("b"), reasoning=False)
    assert plain[1]["content"] == [text("So.")]


def test_foreign_unfinished_or_unsigned_reasoning_is_dropped() -> None:
    thought = Thinking("because", "c2ln")
    for other in (
        said(thought, "Yes", model="other"),
        said(thought, "Yes", stop="aborted"),
        said(thought, "Yes", stop="error"),
        said(thought, Thinking("more"), "Yes"),
        Message("assistant", (thought, Text("Yes"))),
        Message("assistant", (thought, Text("Yes")), origin=Origin("openai-completions", "p", "m")),
    ):
        assert rendered(user_message("a"), other, user_message("b"))[1]["content"] == [text("Yes")]
    unsigned = rendered(
        user_message("a"), said(Thinking("hm"), "Yes"), user_message("b"), unsigned=True
    )
    assert unsigned[1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": ""}


def test_reasoning_is_kept_only_at_turn_start() -> None:
    got = rendered(
        user_message("a"), said("One."), said(Thinking("hm", "c2ln"), "Two."), user_message("b")
    )
    assert got[1]["content"] == [text("One."), text("Two.")]


def test_opens_with_thought_depends_on_first_turn_of_work() -> None:
    thought = Thinking("hm", "c2ln")
    second = ToolCall("toolu_2", "ls", {})
    one, two = result("toolu_1", Text("1")), result("toolu_2", Text("2"))
    for history, opens in (
        ((user_message("a"),), True),
        ((user_message("a"), said("b"), user_message("c")), True),
        ((user_message("a"), said(thought, CALL), one), True),
        ((user_message("a"), said(CALL), one), False),
        ((user_message("a"), said(thought, CALL), one, said(second), two), True),
        ((user_message("a"), said(CALL), one, said(thought, second), two), False),
        ((user_message("a"), said(CALL), one, said("b"), user_message("c")), True),
        ((said(thought, CALL), one), True),
    ):
        assert opens_with_thought(turns().render(history)) is opens, history


def test_pictures_and_documents_render_in_place() -> None:
    pdf = Image("JVBERi0xLjQK", "application/octet-stream")
    notes = Image("aMOp", "text/markdown; charset=utf-8")
    got = rendered(
        user_message("see", PICTURE, pdf, notes),
        said(CALL),
        result("toolu_1", Text("shot"), PICTURE),
    )
    shown = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
    }
    assert got[0]["content"] == [
        text("see"),
        shown,
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"},
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "hé"},
        },
    ]
    assert got[2]["content"][0]["content"] == [text("shot"), shown]


@pytest.mark.parametrize(
    ("image", "media_type"),
    [
        (Image(PNG, "image/jpeg"), "image/png"),
        (Image(PNG[:8] + "\n" + PNG[8:], "image/png"), "image/png"),
        (Image("/9j/4AAQ", "image/png"), "image/jpeg"),
        (Image("UklGRiQAAABXRUJQVlA4", "image/jpeg"), "image/webp"),
        (Image("R0lGODlh", ""), "image/gif"),
        (Image("aGk=", "image/jpg"), "image/jpeg"),
        (Image("aGk=", "IMAGE/PNG; x=y"), "image/png"),
    ],
)
def test_picture_mime_comes_from_its_bytes(image: Image, media_type: str) -> None:
    block = rendered(user_message("", image))[0]["content"][0]
    assert block["source"]["media_type"] == media_type


@pytest.mark.parametrize(
    "image",
    [
        Image("aGk=", "image/svg+xml"),
        Image("aGk=", "audio/mp3"),
        Image("", "image/png"),
        Image("not base64!", "image/png"),
        Image("é", "image/png"),
        Image("aGk=", ""),
    ],
)
def test_unsupported_file_becomes_note(image: Image) -> None:
    assert rendered(user_message("", image))[0]["content"] == [text(UNREADABLE)]


def test_blind_model_gets_note_for_picture() -> None:
    got = rendered(user_message("see", PICTURE), said(CALL), result("toolu_1", PICTURE), sees=False)
    assert got[0]["content"][1] == text(UNSEEN)
    assert results(got[2]) == {"toolu_1": UNSEEN}


def test_model_made_picture_becomes_note() -> None:
    got = rendered(user_message("draw"), said("Here:", PICTURE), user_message("nice"))
    assert got[1]["content"] == [text("Here:"), text(SHOWN)]


def test_failed_result_flagged_unless_it_shows_picture() -> None:
    for content, flagged in (((Text("no"),), True), ((), True), ((Text("no"), PICTURE), False)):
        got = rendered(user_message("a"), said(CALL), result("toolu_1", *content, failed=True))
        assert got[2]["content"][0].get("is_error", False) is flagged


def test_non_finite_arguments_become_empty() -> None:
    for call in (
        ToolCall("c", "read", {}, broken='{"pa'),
        ToolCall("c", "read", {"x": float("nan")}),
    ):
        assert rendered(user_message("a"), said(call))[1]["content"][0]["input"] == {}


@pytest.mark.parametrize("call_id", ["", "call_1|fc_" + "x" * 400, "a b", "ü", "\ud800", "x" * 65])
def test_foreign_id_replaced_same_in_call_and_result(call_id: str) -> None:
    got = rendered(
        user_message("a"), said(ToolCall(call_id, "read", {})), result(call_id, Text("x"))
    )
    wire = got[1]["content"][0]["id"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", wire)
    assert results(got[2]) == {wire: "x"}


def test_tool_name_is_made_valid() -> None:
    for name, want in (("", "unknown"), ("a.b c", "a_b_c"), ("x" * 99, "x" * 64)):
        got = rendered(user_message("a"), said(ToolCall("c", name, {})))
        assert got[1]["content"][0]["name"] == want


def test_tools_get_unique_names_and_valid_schemas() -> None:
    specs = [
        ToolSpec("a.b", "One.", {"type": "object", "properties": {"x": {"type": "string"}}}),
        ToolSpec("a_b", "Two.", {"anyOf": [{"type": "object"}], "properties": {}}),
        ToolSpec("a b", "Three.", {}),
    ]
    named = wire_names(specs)
    assert {wire: spec.name for wire, spec in named.items()} == {
        "a_b": "a.b",
        "a_b_2": "a_b",
        "a_b_3": "a b",
    }
    listed = json.loads(tool_list(named))
    assert [tool["input_schema"] for tool in listed] == [
        {"type": "object", "properties": {"x": {"type": "string"}}},
        {"type": "object", "properties": {}},
        {"type": "object"},
    ]


# Any history at all. What the vendor accepts: its SDK's types, no field beside them, and the
# rules its documentation and its refusals tell.

BLOCKS: dict[str, tuple[Any, TypeAdapter[Any]]] = {
    name: (kind, TypeAdapter(kind))
    for name, kind in {
        "text": TextBlockParam,
        "image": ImageBlockParam,
        "document": DocumentBlockParam,
        "thinking": ThinkingBlockParam,
        "redacted_thinking": RedactedThinkingBlockParam,
        "tool_use": ToolUseBlockParam,
        "tool_result": ToolResultBlockParam,
    }.items()
}
ALLOWED = {"user": {"text", "image", "document", "tool_result"}}
ALLOWED["assistant"] = {"text", "thinking", "redacted_thinking", "tool_use"}
TOOLS: TypeAdapter[Any] = TypeAdapter(ToolParam)
WHOLE: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)


def exhaust(value: Any) -> None:
    """Pydantic checks an iterable only while it is read."""
    if isinstance(value, Mapping):
        for inner in value.values():
            exhaust(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for inner in value:
            exhaust(inner)


def check_block(block: Mapping[str, Any]) -> None:
    kind, adapter = BLOCKS[block["type"]]
    assert set(block) <= set(get_type_hints(kind)), block
    exhaust(adapter.validate_python(block))
    if block["type"] == "text":
        assert block["text"].strip()
    if block["type"] in {"image", "document"} and block["source"]["type"] == "base64":
        assert block["source"]["data"]
    if block["type"] == "tool_result":
        for inner in block["content"]:
            check_block(inner)
        if block.get("is_error"):
            assert {inner["type"] for inner in block["content"]} == {"text"}


def check_turns(messages: list[Any]) -> None:
    assert messages
    used: list[str] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        assert message["role"] == ("assistant" if index % 2 else "user"), "they take turns"
        blocks = message["content"]
        kinds = [block["type"] for block in blocks]
        assert kinds, "no turn is empty"
        assert set(kinds) <= ALLOWED[message["role"]]
        for block in blocks:
            check_block(block)
        answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert answers == waiting, "each call is answered in the next turn"
        assert kinds[: len(answers)] == ["tool_result"] * len(answers), "results come first"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        used += waiting
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call_id) for call_id in waiting)
    assert message["role"] == "user", "the last turn is the user's"
    assert len(set(used)) == len(used), "ids are unique"


def check_request(body: dict[str, Any]) -> None:
    exhaust(WHOLE.validate_python(body))
    known = set(get_type_hints(MessageCreateParamsStreaming))
    assert set(body) <= known | {"temperature"}, "which only models before its time take"
    check_turns(body["messages"])
    assert json.dumps(body).count('"cache_control"') <= 4
    names = [tool["name"] for tool in body.get("tools", ())]
    for tool in body.get("tools", ()):
        TOOLS.validate_python(tool)
        assert tool["input_schema"]["type"] == "object"
        assert not {"oneOf", "anyOf", "allOf"} & set(tool["input_schema"])
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool["name"])
    assert len(set(names)) == len(names)
    if any(b["type"] == "tool_use" for m in body["messages"] for b in m["content"]):
        assert names, "calls need tools"
    if "tool_choice" in body:
        assert names, "there must be something to choose from"
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled":
        assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]
        for message in body["messages"]:
            kinds = [block["type"] for block in message["content"]]
            if {"thinking", "redacted_thinking"} & set(kinds):
                assert kinds[0] in {"thinking", "redacted_thinking"}
    if thinking.get("type") in {"enabled", "adaptive"}:
        assert not {"temperature", "top_k", "top_p"} & set(body)


words = st.sampled_from(["", " ", "hi", "é\ud800", "two\nlines ", "\0"]) | st.text(max_size=3)
ids = st.sampled_from(["", "a", "b", "a_2", "long|" * 20]) | st.text(max_size=2)
mimes = st.sampled_from(
    ["image/png", "image/jpg", "image/svg+xml", "application/pdf", "text/x", ""]
)
images = st.builds(Image, st.sampled_from([PNG, "aGk=", "", "!", "/9j/"]), mimes)
content = st.lists(words.map(Text) | images, max_size=2).map(tuple)
arguments = st.sampled_from([{}, {"k": [1, None]}, {"n": float("inf")}])
calls = st.builds(
    ToolCall,
    ids,
    st.sampled_from(["", "read", "a.b"]) | st.text(max_size=2),
    arguments,
    broken=st.sampled_from(["", "{"]),
)
thoughts = st.builds(Thinking, words, st.sampled_from(["", "c2ln", "redacted:ZA==", "reasoning"]))
models = st.sampled_from(
    ["claude-haiku-4-5", "claude-opus-4-6", "claude-opus-5", "claude-opus-5-5", "MiniMax-M2"]
)
origins = st.builds(
    Origin,
    st.sampled_from(["anthropic-messages", "openai-completions"]),
    st.just("p"),
    models,
    st.sampled_from(["stop", "error", "aborted", "toolUse"]),
)
parts: st.SearchStrategy[tuple[Part, ...]] = st.lists(
    words.map(Text) | calls | thoughts | images, max_size=4
).map(tuple)
messages = st.one_of(
    st.builds(Message, st.just("user"), content),
    st.builds(Message, st.just("user"), parts),
    st.builds(Message, st.just("assistant"), parts, origin=st.none() | origins),
    st.builds(
        lambda call_id, parts, failed: Message(
            "tool", (ToolResult(call_id, "read", parts, is_error=failed),)
        ),
        ids,
        content,
        st.booleans(),
    ),
    st.just(Message("tool", ())),
)
schemas: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"type": "object"}, {"anyOf": [{}], "properties": {}}, {"type": "string"}]
)
tools = st.lists(
    st.builds(ToolSpec, st.sampled_from(["read", "a.b", "a_b", ""]), words, schemas), max_size=4
).map(tuple)
levels = st.sampled_from(get_args(ThinkLevel))
params: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.just(0.2),
        "max_tokens": st.sampled_from([None, 0, 1, 1500, 10**9]),
        "cacheRetention": st.sampled_from(["none", "short", "long", "?"]),
        "cache_control": st.just({"type": "ephemeral"}),
        "tool_choice": st.just({"type": "any"}),
        "messages": st.just([]),
        "system": st.just("x"),
    },
)
requests = st.builds(
    ModelRequest,
    models,
    words,
    st.lists(messages, max_size=12).map(tuple),
    tools,
    levels,
    st.sampled_from([None, 1, 1024, 2048, 2049, 64_000]),
    params,
)


@given(requests, st.booleans(), st.booleans(), st.booleans())
def test_any_history_renders_valid_request(
    request: ModelRequest, sees: bool, known: bool, thinks: bool
) -> None:
    model = ModelInfo("p", request.model, sees_images=sees, known=known, reasoning=thinks)
    check_request(json.loads(anthropic._AnthropicRequestBuilder(model, "p").build(request).body))


@given(st.lists(messages, max_size=12))
def test_earlier_turns_stay_identical_when_history_grows(history: list[Message]) -> None:
    """Turns do not change when others follow: what the vendor keeps of them stays good."""
    made = turns()
    asking = [*history, user_message("q")]
    before = [turn_json(turn) for turn in made.render(asking)]
    after = [turn_json(turn) for turn in made.render([*asking, said("x", CALL), user_message("y")])]
    assert after[: len(before)] == before


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
    first = [turn_json(turn) for turn in made.render(history)]
    gc.collect()  # else the collection of other tests' objects may fall into the measurement
    start = time.process_time()
    again = [turn_json(turn) for turn in made.render([*history, user_message("new")])]
    spent_s = time.process_time() - start
    assert again[:-1] == first[:-1]
    assert spent_s < 0.05, "2,000 known messages cost next to nothing"
