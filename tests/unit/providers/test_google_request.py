"""Messages → Gemini's contents."""

import gc
import json
import re
import time
from typing import Any, get_args

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

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
from homarus.providers.base import ModelRequest, ThinkLevel, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.providers.conversation import (
    GO_ON,
    INTERRUPTED,
    NO_OUTPUT,
    NO_TEXT,
    PICTURES,
    SHOWN,
    UNSEEN,
)
from homarus.providers.google import _GeminiRequestBuilder
from homarus.providers.google_request import (
    API,
    BEGAN,
    LEFT_OUT,
    PICTURES_BELOW,
    UNSIGNED,
    GeminiMessageRenderer,
    tool_list,
    wire_name,
)

PICTURE = Image("aGk=", "image/png")
SHOWN_PICTURE = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
CALL = ToolCall("fc-1", "read", {"path": "é"}, signature="c2ln")
SIGNED = {"name": "read", "args": {"path": "é"}, "id": "fc-1"}


def turns(*, sees: bool = True, draws: bool = False, signs: bool = True) -> GeminiMessageRenderer:
    return GeminiMessageRenderer(
        provider="p", model="m", sees_images=sees, draws=draws, signs=signs
    )


def rendered(*messages: Message, **how: bool) -> list[Any]:
    return [json.loads(turn) for turn in turns(**how).render(messages)]


def said(*parts: Part | str, stop: Any = "stop", model: str = "m", api: str = API) -> Message:
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message("assistant", made, origin=Origin(api, "p", model, stop))


def result(call_id: str, *content: Text | Image, name: str = "read", bad: bool = False) -> Message:
    return Message("tool", (ToolResult(call_id, name, content, is_error=bad),))


def texts(contents: list[Any]) -> list[tuple[str, list[str]]]:
    return [(turn["role"], [part.get("text", "…") for part in turn["parts"]]) for turn in contents]


def test_conversation_renders_turn_by_turn() -> None:
    assert rendered(
        user_message("read it"),
        said("Looking.", CALL),
        result("fc-1", Text("42")),
        said("It is 42."),
        user_message("thanks"),
    ) == [
        {"role": "user", "parts": [{"text": "read it"}]},
        {
            "role": "model",
            "parts": [{"text": "Looking."}, {"functionCall": SIGNED, "thoughtSignature": "c2ln"}],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "read", "id": "fc-1", "response": {"output": "42"}}}
            ],
        },
        {"role": "model", "parts": [{"text": "It is 42."}]},
        {"role": "user", "parts": [{"text": "thanks"}]},
    ]


def test_results_follow_call_order_and_later_text() -> None:
    calls = [ToolCall(i, f"t{i}", {}) for i in "abc"]
    got = rendered(
        user_message("go"),
        said(*calls),
        user_message("hurry"),
        result("c", Text("C"), bad=True),
        result("a", Text("A"), name="wrong"),
        user_message("up"),
    )
    assert [turn["role"] for turn in got] == ["user", "model", "user"]
    answers = [part.get("functionResponse") for part in got[2]["parts"][:3]]
    assert [(a["name"], a["response"]) for a in answers] == [
        ("ta", {"output": "A"}),
        ("tb", {"error": INTERRUPTED}),
        ("tc", {"error": "C"}),
    ]
    assert got[2]["parts"][3:] == [{"text": "hurry"}, {"text": "up"}]


def test_orphan_and_second_results_are_dropped() -> None:
    got = rendered(
        result("fc-1", Text("too early")),
        user_message("hi"),
        said(CALL),
        result("fc-1", Text("first")),
        result("fc-1", Text("second")),
        result("other", Text("nobody asked")),
    )
    found = [part["functionResponse"]["response"] for part in got[2]["parts"]]
    assert found == [{"output": "first"}]


def test_repeated_id_result_belongs_to_nearest_call() -> None:
    got = rendered(said(CALL), result("fc-1", Text("one")), said(CALL), result("fc-1", Text("two")))
    found = [
        part["functionResponse"]["response"]["output"]
        for turn in got
        for part in turn["parts"]
        if "functionResponse" in part
    ]
    assert found == ["one", "two"]


def test_turns_alternate_and_user_is_first_and_last() -> None:
    assert texts(
        rendered(said("a"), said("b"), user_message("c"), user_message("d"), said("e"))
    ) == [
        ("user", [BEGAN]),
        ("model", ["a", "b"]),
        ("user", ["c", "d"]),
        ("model", ["e"]),
        ("user", [GO_ON]),
    ]
    assert texts(rendered()) == [("user", [NO_TEXT])]


def test_empty_answers_are_dropped() -> None:
    nothing = (said(stop="error"), said(Thinking("hm", "c2ln")), said("", Text("", "c2ln")))
    assert texts(rendered(user_message("a"), *nothing, user_message("b"))) == [("user", ["a", "b"])]
    half = rendered(user_message("a"), said("half an", stop="aborted"), user_message("b"))
    assert texts(half)[1] == ("model", ["half an"])


def test_empty_text_is_never_sent() -> None:
    got = rendered(user_message(""), said(CALL), result("fc-1"))
    assert got[0]["parts"] == [{"text": NO_TEXT}]
    assert got[2]["parts"][0]["functionResponse"]["response"] == {"output": NO_OUTPUT}


def test_signatures_replayed_in_parts_to_their_author() -> None:
    parts = (Thinking("why", "dGg="), Thinking("unsigned"), Text("So", "dHg="), CALL)
    (_, model, _) = rendered(user_message("x"), said(*parts))
    assert model["parts"] == [
        {"text": "why", "thought": True, "thoughtSignature": "dGg="},
        {"text": "So", "thoughtSignature": "dHg="},
        {"functionCall": SIGNED, "thoughtSignature": "c2ln"},
    ]
    for other in (said(*parts, model="other"), said(*parts, stop="aborted")):
        (_, model, _) = rendered(user_message("x"), other)
        assert model["parts"] == [
            {"text": "So"},
            {"functionCall": SIGNED, "thoughtSignature": UNSIGNED},
        ]
        (_, model, _) = rendered(user_message("x"), other, signs=False)
        assert model["parts"][1] == {"functionCall": SIGNED}


def test_parallel_calls_only_first_is_signed() -> None:
    more = ToolCall("fc-2", "ls", {})
    (_, model, _) = rendered(user_message("x"), said(more, ToolCall("fc-3", "ls", {})))
    assert [part.get("thoughtSignature") for part in model["parts"]] == [UNSIGNED, None]
    (_, model, _) = rendered(user_message("x"), said(CALL, more))
    assert [part.get("thoughtSignature") for part in model["parts"]] == ["c2ln", None]


@pytest.mark.parametrize("signature", ["not base64!", "reasoning_content", "a", "é", "c2ln\n", "="])
def test_invalid_signature_is_not_sent(signature: str) -> None:
    parts = (Thinking("t", signature), Text("x", signature), ToolCall("a", "b", {}, "", signature))
    (_, model, _) = rendered(user_message("x"), said(*parts))
    assert model["parts"] == [
        {"text": "x"},
        {"functionCall": {"name": "b", "args": {}, "id": "a"}, "thoughtSignature": UNSIGNED},
    ]


def test_only_google_ids_are_replayed() -> None:
    for message in (said(ToolCall("call_0123", "ls", {})), said(CALL, api="anthropic-messages")):
        got = rendered(user_message("x"), message, result(message.calls[0].id, Text("y")))
        assert "id" not in got[1]["parts"][0]["functionCall"]
        assert "id" not in got[2]["parts"][0]["functionResponse"]
        assert got[2]["parts"][0]["functionResponse"]["response"] == {"output": "y"}


def test_repeated_call_is_made_once() -> None:
    got = rendered(
        user_message("x"), said(CALL, ToolCall("fc-1", "ls", {})), result("fc-1", Text("y"))
    )
    assert [len(turn["parts"]) for turn in got] == [1, 1, 1]


def test_pictures_render_with_user_or_behind_results() -> None:
    got = rendered(
        user_message("see", PICTURE),
        said(CALL, ToolCall("b", "ls", {})),
        result("b", PICTURE),
        result("fc-1", Text("shot"), PICTURE),
        user_message("well?"),
    )
    assert got[0]["parts"] == [{"text": "see"}, SHOWN_PICTURE]
    responses = [part["functionResponse"]["response"] for part in got[2]["parts"][:2]]
    assert responses == [{"output": "shot"}, {"output": PICTURES_BELOW}]
    assert got[2]["parts"][2:] == [
        {"text": PICTURES},
        SHOWN_PICTURE,
        SHOWN_PICTURE,
        {"text": "well?"},
    ]


def test_blind_model_gets_note_for_picture() -> None:
    got = rendered(user_message("see", PICTURE), said(CALL), result("fc-1", PICTURE), sees=False)
    assert got[0]["parts"] == [{"text": "see"}, {"text": UNSEEN}]
    assert got[2]["parts"][0]["functionResponse"]["response"] == {"output": UNSEEN}
    assert len(got[2]["parts"]) == 1


@pytest.mark.parametrize(
    ("image", "mime"),
    [
        (Image("aGk=", "image/jpg"), "image/jpeg"),
        (Image("aGk=", " IMAGE/PNG; q=1"), "image/png"),
        (Image("a\nGk=\n", "image/webp"), "image/webp"),
        (Image("aGk=", "application/pdf"), "application/pdf"),
        (Image("aGk=", "text/csv"), "text/csv"),
        (Image("aGk=", "image/gif"), None),
        (Image("aGk=", "application/zip"), None),
        (Image("aGk=", ""), None),
        (Image("", "image/png"), None),
        (Image("aGk", "image/png"), None),
        (Image("data:image/png;base64,aGk=", "image/png"), None),
        (Image("é", "image/png"), None),
    ],
)
def test_documents_render_like_pictures_or_as_note(image: Image, mime: str | None) -> None:
    part = rendered(Message("user", (image,)))[0]["parts"][0]
    assert part == (
        {"inlineData": {"mimeType": mime, "data": "aGk="}} if mime else {"text": LEFT_OUT}
    )


def test_drawn_pictures_replayed_to_drawing_model() -> None:
    (_, model, _) = rendered(user_message("x"), said("Here:", PICTURE))
    assert model["parts"] == [{"text": "Here:"}, {"text": SHOWN}]
    (_, model, _) = rendered(user_message("x"), said(PICTURE), draws=True)
    assert model["parts"] == [{**SHOWN_PICTURE, "thoughtSignature": UNSIGNED}]
    (_, model, _) = rendered(user_message("x"), said(PICTURE), draws=True, signs=False)
    assert model["parts"] == [SHOWN_PICTURE]


@pytest.mark.parametrize(
    "name", ["", "a b", "1st", "a" * 65, "ü", "a/b", "\ud800", "mcp:files:read"]
)
def test_invalid_tool_names_get_unique_valid_ones(name: str) -> None:
    made = wire_name(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", made)
    assert made == wire_name(name)
    assert made != wire_name(name + "x")
    got = rendered(user_message("x"), said(ToolCall("a", name, {})), result("a", name=name))
    assert got[1]["parts"][0]["functionCall"]["name"] == made
    assert got[2]["parts"][0]["functionResponse"]["name"] == made


def test_valid_tool_names_are_kept() -> None:
    for name in ("read", "_x", "a.b-c", "a" * 64):
        assert wire_name(name) == name


def test_tools_declared_once_with_schemas() -> None:
    nothing = ToolSpec("now", "The time.", {"type": "object", "properties": {}})
    spec = ToolSpec(
        "read",
        "Read.",
        {"properties": {"path": {"type": "string"}}, "additionalProperties": False, "$schema": "x"},
    )
    second = ToolSpec("read", "Another of this name.", {})
    assert json.loads(tool_list([nothing, spec, second])) == [
        {
            "functionDeclarations": [
                {"name": "now", "description": "The time."},
                {
                    "name": "read",
                    "description": "Read.",
                    "parameters": {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}},
                },
            ]
        }
    ]


def test_non_finite_arguments_become_null() -> None:
    args = {"n": float("nan"), "deep": [{"i": float("inf"), "ok": 1.5}], "s": "\ud800"}
    (_, model, _) = rendered(user_message("x"), said(ToolCall("a", "t", args)))
    assert model["parts"][0]["functionCall"]["args"] == {
        "n": None,
        "deep": [{"i": None, "ok": 1.5}],
        "s": "?",
    }


some_text = st.sampled_from(["", "hi", "é\ud800", "two\nlines"])
signatures = st.sampled_from(["", "c2ln", "no good", UNSIGNED])
ids = st.sampled_from(["", "a", "b", "call_1", "long|" * 20])
names = st.sampled_from(["", "read", "a.b", "1 x"])
images = st.builds(
    Image,
    st.sampled_from(["aGk=", "", "!", "aGk"]),
    st.sampled_from(["image/png", "image/gif", "application/pdf", ""]),
)
content = st.lists(some_text.map(Text) | images, max_size=2).map(tuple)
calls = st.builds(
    ToolCall,
    ids,
    names,
    st.sampled_from([{}, {"k": [1, None]}, {"n": float("nan")}]),
    broken=st.sampled_from(["", "{"]),
    signature=signatures,
)
thoughts = st.builds(Thinking, some_text, signatures)
origins = st.builds(
    Origin,
    st.sampled_from([API, "x"]),
    st.just("p"),
    st.sampled_from(["m", "n"]),
    st.sampled_from(["stop", "error", "aborted", "toolUse"]),
)
parts = st.lists(st.builds(Text, some_text, signatures) | calls | thoughts | images, max_size=4)
messages = st.one_of(
    st.builds(Message, st.just("user"), content),
    st.builds(Message, st.just("assistant"), parts.map(tuple), origin=st.none() | origins),
    st.builds(
        lambda call_id, name, parts, bad: Message("tool", (ToolResult(call_id, name, parts, bad),)),
        ids,
        names,
        content,
        st.booleans(),
    ),
    st.just(Message("tool", ())),
)


@given(st.lists(messages, max_size=12), st.booleans(), st.booleans(), st.booleans())
def test_any_history_renders_contents_vendor_accepts(
    history: list[Message], sees: bool, draws: bool, signs: bool
) -> None:
    got = rendered(*history, sees=sees, draws=draws, signs=signs)
    for turn in got:
        types.Content.model_validate(turn)
    roles = [turn["role"] for turn in got]
    assert roles == ["user", "model"] * (len(roles) // 2) + ["user"], "they alternate"
    asked: list[Any] = []
    for turn in got:
        responses = [p["functionResponse"] for p in turn["parts"] if "functionResponse" in p]
        assert [(r["name"], r.get("id")) for r in responses] == asked, "each call is answered next"
        assert all("functionResponse" in part for part in turn["parts"][: len(asked)])
        made = [part for part in turn["parts"] if "functionCall" in part]
        asked = [(p["functionCall"]["name"], p["functionCall"].get("id")) for p in made]
        assert turn["role"] == "model" or not made
        if made and signs:
            assert "thoughtSignature" in made[0]
        assert turn["parts"], "no turn is empty"
        for part in turn["parts"]:
            assert part.get("text") != "" or "thoughtSignature" in part, "no part is empty"
    assert asked == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "string", "object", "#/x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "anyOf", "$ref", "enum", "a", ""]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
tools = st.lists(
    st.builds(
        ToolSpec,
        names,
        some_text,
        st.dictionaries(st.sampled_from(["type", "properties", "anyOf", "allOf"]), values),
    ),
    max_size=4,
).map(tuple)
requests = st.builds(
    ModelRequest,
    st.sampled_from(["gemini-3-flash", "gemini-2.5-pro", "models/x", "m", "gemini-3-image"]),
    some_text,
    st.lists(messages, max_size=5).map(tuple),
    tools,
    st.sampled_from(get_args(ThinkLevel)),
    st.none() | st.integers(1, 10**6),
    st.sampled_from([{}, {"temperature": 0.5, "max_tokens": 5, "stop": ["x"]}, {"topP": None}]),
)


@given(requests, st.booleans(), st.booleans())
def test_any_request_is_accepted_by_vendor(
    request: ModelRequest, thinks: bool, known: bool
) -> None:
    model = ModelInfo("p", request.model, reasoning=thinks, sees_images=True, known=known)
    body = json.loads(_GeminiRequestBuilder(model, "p").body(request))
    for content in body.pop("contents"):
        types.Content.model_validate(content)
    for tool in body.pop("tools", ()):
        declared = types.Tool.model_validate(tool).function_declarations or []
        assert len({spec.name for spec in declared}) == len(declared) > 0
    types.GenerationConfig.model_validate(body.pop("generationConfig", {}))
    types.Content.model_validate(body.pop("systemInstruction", {}))
    assert body == {}


def test_long_history_is_rendered_once() -> None:
    history = [
        message
        for n in range(500)
        for message in (
            user_message(f"question {n} " * 20),
            said(ToolCall(f"c{n}", "read", {"path": "x" * 200}, signature="c2ln" * 100)),
            result(f"c{n}", Text("line\n" * 100)),
            said("answer " * 50),
        )
    ]
    made = turns()
    first = made.render(history)
    gc.collect()  # else the collection of other tests' objects may fall into the measurement
    start = time.process_time()
    again = made.render([*history, user_message("new")])
    spent_s = time.process_time() - start
    assert again[:-1] == first[:-1]
    assert spent_s < 0.1, "2,000 known messages cost next to nothing"
