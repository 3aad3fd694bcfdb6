"""Messages → a request of Bedrock's Converse; botocore's own validation is the oracle."""

import base64
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

import botocore.session
import pytest
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator
from hypothesis import given, settings
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
from homarus.providers import bedrock
from homarus.providers.anthropic_blocks import BEGINNING
from homarus.providers.base import ModelRequest, ThinkLevel, ToolSpec
from homarus.providers.bedrock_request import (
    MAX_DEPTH,
    MAX_DOCUMENTS,
    MAX_PICTURES,
    OLD_FILE,
    OLD_PICTURE,
    ConverseTurnBuilder,
    encode_converse,
    is_shallow,
    messages,
)
from homarus.providers.catalog import ModelInfo
from homarus.providers.conversation import (
    GO_ON,
    INTERRUPTED,
    NO_OUTPUT,
    NO_TEXT,
    PICTURE_BELOW,
    PICTURES,
    UNSEEN,
)

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
CALL = ToolCall("tooluse_1", "read", {"path": "é"})
HAIKU = "anthropic.claude-haiku-4-5-20251001-v1:0"
LLAMA = "meta.llama4-maverick-17b-instruct-v1:0"


def rendered(*given: Message, rich: bool = True, sees: bool = True) -> list[Any]:
    turns = ConverseTurnBuilder(provider="p", model="m", sees_images=sees)
    return messages(turns.build(given), rich=rich)


def asked(request: ModelRequest, **known: Any) -> dict[str, Any]:
    model = ModelInfo("p", request.model, **{"known": False, **known})
    return encode_converse(bedrock._ConverseRequestBuilder(model, "p").build(request)[0])


def said(*parts: Part | str, stop: Any = "stop", model: str = "m") -> Message:
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message("assistant", made, origin=Origin(bedrock.API, "p", model, stop))


def result(call_id: str, *content: Text | Image, failed: bool = False) -> Message:
    return Message("tool", (ToolResult(call_id, "read", content, is_error=failed),))


def test_conversation_renders_turn_by_turn() -> None:
    assert rendered(
        user_message("read it"),
        said(Thinking("hm", "c2ln"), "Looking.", CALL),
        result("tooluse_1", Text("42"), failed=True),
        said("It is 42."),
    ) == [
        {"role": "user", "content": [{"text": "read it"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
                {"text": "Looking."},
                {"toolUse": {"toolUseId": "tooluse_1", "name": "read", "input": {"path": "é"}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "tooluse_1",
                        "content": [{"text": "42"}],
                        "status": "error",
                    }
                }
            ],
        },
        {"role": "assistant", "content": [{"text": "It is 42."}]},
        {"role": "user", "content": [{"text": GO_ON}]},
    ]


def test_call_without_result_gets_one_and_orphans_are_dropped() -> None:
    got = rendered(said(CALL), result("other", Text("x")), user_message("go on"))
    assert got[0] == {"role": "user", "content": [{"text": BEGINNING}]}
    answer = got[2]["content"]
    assert answer[0]["toolResult"]["content"] == [{"text": INTERRUPTED}]
    assert answer[1:] == [{"text": "go on"}]


def test_reasoning_replayed_only_signed_and_to_its_author() -> None:
    def kept(*parts: Part | str, model: str = "m") -> list[Any]:
        turns = rendered(user_message("a"), said(*parts, model=model))
        return [next(iter(block)) for block in turns[1]["content"]]

    assert kept(Thinking("hm", "c2ln"), "x") == ["reasoningContent", "text"]
    assert kept(Thinking("hm"), "x") == ["text"]
    assert kept(Thinking("hm", "c2ln"), "x", model="other") == ["text"]
    assert kept(Thinking("", "redacted:ZA=="), "x") == ["reasoningContent", "text"]
    assert kept(Thinking("", "redacted:!"), "x") == ["text"]


def test_files_are_bytes_of_declared_format() -> None:
    [turn] = rendered(user_message("", Image(PNG, "image/jpeg"), Image(PDF, "application/pdf")))
    picture, document, words = turn["content"]
    assert picture == {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n\x1a\n"}}}
    assert document["document"]["source"] == {"bytes": b"%PDF-1.7"}
    assert words == {"text": NO_TEXT}, "a document without words is refused"
    note = base64.b64encode(b"a note").decode()
    assert rendered(user_message("see", Image(note, "text/markdown")))[0]["content"][1:] == [
        {"text": "a note"}
    ]


def test_tool_pictures_render_in_result_or_behind_all_results() -> None:
    history = (
        user_message("a"),
        said(CALL, ToolCall("tooluse_2", "ls", {})),
        result("tooluse_1", Image(PNG, "image/png"), failed=True),
        result("tooluse_2"),
    )
    rich = rendered(*history)[2]["content"]
    assert [next(iter(b["toolResult"]["content"][0])) for b in rich] == ["image", "text"]
    plain = rendered(*history, rich=False)[2]["content"]
    assert [b["toolResult"]["content"] for b in plain[:2]] == [
        [{"text": PICTURE_BELOW}],
        [{"text": NO_OUTPUT}],
    ]
    assert plain[2] == {"text": PICTURES}
    assert "image" in plain[3]
    assert "status" not in plain[0]["toolResult"], "only some models know it"


def test_blind_model_gets_note_for_picture() -> None:
    assert rendered(user_message("", Image(PNG, "image/png")), sees=False)[0]["content"] == [
        {"text": UNSEEN}
    ]


def test_only_newest_pictures_and_documents_are_sent() -> None:
    many = [
        user_message("", Image(PNG, "image/png"), Image(PDF, "application/pdf")) for _ in range(30)
    ]
    content = rendered(*many)[0]["content"]
    assert sum("image" in block for block in content) == MAX_PICTURES
    assert sum("document" in block for block in content) == MAX_DOCUMENTS
    assert content[:2] == [{"text": OLD_PICTURE}, {"text": OLD_FILE}]
    names = [block["document"]["name"] for block in content if "document" in block]
    assert names == [f"document {n}" for n in range(26, 31)], "they keep their names as they age"


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": [value]}
    return value


def test_too_deep_values_become_empty() -> None:
    assert is_shallow(deep(MAX_DEPTH // 2 - 1))
    assert not is_shallow(deep(MAX_DEPTH))
    history = (user_message("a"), said(ToolCall("c", "read", deep(200))), user_message("b"))
    tool = ToolSpec("read", "", {"type": "object", "properties": deep(200)})
    got = asked(ModelRequest(HAIKU, "", history, (tool,)))
    assert got["messages"][1]["content"][0]["toolUse"]["input"] == {}
    spec = got["toolConfig"]["tools"][0]["toolSpec"]
    assert spec["inputSchema"] == {"json": {"type": "object"}}
    assert spec["description"] == "read", "which may not be empty"
    check_request(got)


def test_removed_tools_listed_while_their_calls_remain() -> None:
    history = (user_message("a"), said(CALL), result("tooluse_1", Text("x")))
    got = asked(ModelRequest(HAIKU, "", history))
    assert [t["toolSpec"]["name"] for t in got["toolConfig"]["tools"] if "toolSpec" in t] == [
        "read"
    ]
    assert "toolConfig" not in asked(ModelRequest(HAIKU, "", (user_message("a"),)))


def points(got: Mapping[str, Any]) -> dict[str, int]:
    """How many cache points stand where."""
    found = {name: json.dumps(got.get(name), default=str).count("cachePoint") for name in got}
    return {name: count for name, count in found.items() if count}


def test_cache_points_mark_stable_prefix_for_supporting_models() -> None:
    tools = (ToolSpec("read", "Read.", {}),)
    history = (
        user_message("a"),
        said(CALL),
        result("tooluse_1", Text("x")),
        said("b"),
        user_message("c"),
    )
    ask = ModelRequest(HAIKU, "Be brief.", history, tools)
    assert points(asked(ask)) == {"messages": 2, "system": 1, "toolConfig": 1}
    assert asked(ask)["messages"][-1]["content"][-1] == {"cachePoint": {"type": "default"}}
    for model in (LLAMA, "anthropic.claude-3-5-sonnet-20241022-v2:0", "amazon.nova-pro-v1:0"):
        assert points(asked(ModelRequest(model, "Be brief.", history, tools))) == {}
    none = ModelRequest(HAIKU, "", history, tools, params={"cacheRetention": "none"})
    assert points(asked(none)) == {}
    long = ModelRequest(HAIKU, "", (user_message("a"),), params={"cacheRetention": "long"})
    assert asked(long)["messages"][0]["content"][-1]["cachePoint"]["ttl"] == "1h"


@pytest.mark.parametrize(
    ("model", "level", "extra"),
    [
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "high", None),
        (LLAMA, "high", None),
        (HAIKU, "off", None),
        (
            "us.anthropic.claude-3-7-sonnet-20250219-v1:0",
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        (
            HAIKU,
            "medium",
            {
                "thinking": {"type": "enabled", "budget_tokens": 7168},
                "anthropic_beta": ["interleaved-thinking-2025-05-14"],
            },
        ),
        (
            "global.anthropic.claude-opus-4-6-v1",
            "high",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        (
            "anthropic.claude-opus-5-5",
            "low",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "low"},
            },
        ),
    ],
)
def test_thinking_fields_follow_claude_generation(
    model: str, level: ThinkLevel, extra: Any
) -> None:
    got = asked(
        ModelRequest(model, "", (user_message("a"),), thinking=level, params={"temperature": 0.5})
    )
    assert got.get("additionalModelRequestFields") == extra
    assert ("temperature" in got.get("inferenceConfig", {})) == (extra is None)
    if extra and "budget_tokens" in extra["thinking"]:
        assert extra["thinking"]["budget_tokens"] < got["inferenceConfig"]["maxTokens"]


def test_binding_claude_gets_no_earlier_reasoning() -> None:
    model = "anthropic.claude-opus-5-5"
    history = (user_message("a"), said(Thinking("hm", "c2ln"), "x", model=model), user_message("b"))
    got = asked(ModelRequest(model, "", history, thinking="low"))
    assert "reasoningContent" not in json.dumps(got["messages"])


def test_inference_profile_recognised_by_model_name() -> None:
    arn = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc"
    ask = ModelRequest(arn, "", (user_message("a"),), thinking="high")
    assert points(asked(ask, name="Claude Sonnet 4.6")) == {"messages": 1}
    assert points(asked(ask)) == {}


def test_params_are_sorted_into_converse_sections() -> None:
    params = {
        "max_tokens": 99,
        "top_p": 0.5,
        "stop": "END",
        "top_k": 5,
        "guardrailConfig": {"guardrailIdentifier": "abc", "guardrailVersion": "1"},
        "inferenceConfig": {"temperature": 0.1},
        "additionalModelRequestFields": {"extra": 1},
        "messages": [],
        "serviceTier": None,
    }
    got = asked(ModelRequest(LLAMA, "", (user_message("a"),), max_tokens=5, params=params))
    assert got["inferenceConfig"] == {
        "maxTokens": 99,
        "topP": 0.5,
        "stopSequences": ["END"],
        "temperature": 0.1,
    }
    assert got["additionalModelRequestFields"] == {"top_k": 5, "extra": 1}
    assert got["guardrailConfig"]["guardrailVersion"] == "1"
    assert "serviceTier" not in got
    assert len(got["messages"]) == 1
    check_request(got)


def test_max_tokens_capped_at_known_model_limit() -> None:
    ask = ModelRequest(LLAMA, "", (user_message("a"),), max_tokens=10_000)
    assert asked(ask, known=True, max_tokens=4096)["inferenceConfig"] == {"maxTokens": 4096}
    assert asked(ask)["inferenceConfig"] == {"maxTokens": 10_000}
    assert "inferenceConfig" not in asked(ModelRequest(LLAMA, "", (user_message("a"),)))


@cache
def operation() -> Any:
    service = botocore.session.Session().get_service_model("bedrock-runtime")
    return service.operation_model("ConverseStream")


def check_request(got: dict[str, Any]) -> None:
    """The library accepts it, and so do the rules that it does not know."""
    report = ParamValidator().validate(got, operation().input_shape)
    assert not report.has_errors(), report.generate_report()
    body = create_serializer("rest-json").serialize_to_request(got, operation())["body"]
    sent = json.loads(body, parse_constant=pytest.fail)
    json.dumps(sent, ensure_ascii=False).encode("utf-8")  # fails on half of a surrogate pair
    check_turns(got["messages"])
    assert sum(points(got).values()) <= 4
    tools = [
        t["toolSpec"]["name"] for t in got.get("toolConfig", {}).get("tools", ()) if "toolSpec" in t
    ]
    assert len(set(tools)) == len(tools)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in tools)
    if any("toolUse" in block for m in got["messages"] for block in m["content"]):
        assert tools, "calls need tools"


def check_turns(turns: list[Any]) -> None:
    used: list[str] = []
    waiting: list[str] = []
    for index, turn in enumerate(turns):
        assert turn["role"] == ("assistant" if index % 2 else "user"), "they take turns"
        content = turn["content"]
        assert content, "no turn is empty"
        assert "cachePoint" not in content[0]
        answers = [b["toolResult"]["toolUseId"] for b in content if "toolResult" in b]
        assert answers == waiting, "each call is answered in the next turn"
        assert all("toolResult" in block for block in content[: len(answers)]), "and first"
        for block in content:
            check_block(block, turn["role"])
        waiting = [b["toolUse"]["toolUseId"] for b in content if "toolUse" in b]
        used += waiting
    assert turns[-1]["role"] == "user"
    assert len(set(used)) == len(used), "ids are unique"


ALLOWED = {
    "user": {"text", "image", "document", "toolResult", "cachePoint"},
    "assistant": {"text", "toolUse", "reasoningContent"},
}


def check_block(block: Any, role: str) -> None:
    [kind] = block
    assert kind in ALLOWED[role]
    match kind:
        case "text":
            assert block["text"].strip(), "no text is blank"
        case "toolUse":
            assert re.fullmatch(r"[a-zA-Z0-9_.:-]{1,64}", block["toolUse"]["toolUseId"])
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["toolUse"]["name"])
            assert isinstance(block["toolUse"]["input"], dict)
        case "toolResult":
            assert block["toolResult"]["content"], "no result is empty"
            for inner in block["toolResult"]["content"]:
                check_block(inner, "user")


words = st.sampled_from(["", " ", "hi", "é\ud800", "two\nlines ", "\0"]) | st.text(max_size=3)
ids = st.sampled_from(["", "a", "b", "a_2", "long|" * 20]) | st.text(max_size=2)
mimes = st.sampled_from(
    ["image/png", "image/jpg", "image/svg+xml", "application/pdf", "text/x", ""]
)
images = st.builds(Image, st.sampled_from([PNG, PDF, "aGk=", "", "!", "/9j/", "IA=="]), mimes)
content = st.lists(words.map(Text) | images, max_size=2).map(tuple)
arguments = st.sampled_from([{}, {"k": [1, None]}, {"n": float("inf")}, deep(90), {"\ud800": "x"}])
calls = st.builds(
    ToolCall,
    ids,
    st.sampled_from(["", "read", "a.b"]) | st.text(max_size=2),
    arguments,
    broken=st.sampled_from(["", "{"]),
)
thoughts = st.builds(
    Thinking, words, st.sampled_from(["", "c2ln", "redacted:ZA==", "redacted:?", "é\ud800"])
)
models = st.sampled_from(
    [HAIKU, LLAMA, "anthropic.claude-opus-4-6-v1", "anthropic.claude-opus-5-5", "amazon.nova-pro"]
)
origins = st.builds(
    Origin,
    st.sampled_from([bedrock.API, "openai-completions"]),
    st.just("p"),
    models,
    st.sampled_from(["stop", "error", "aborted", "toolUse"]),
)
parts: st.SearchStrategy[tuple[Part, ...]] = st.lists(
    words.map(Text) | calls | thoughts | images, max_size=4
).map(tuple)
history = st.lists(
    st.one_of(
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
    ),
    max_size=12,
).map(tuple)
schemas: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"type": "object"}, {"anyOf": [{}], "properties": {}}, {"type": "string"}, deep(90)]
)
tools = st.lists(
    st.builds(ToolSpec, st.sampled_from(["read", "a.b", "a_b", ""]), words, schemas), max_size=4
).map(tuple)
params: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.just(0.2),
        "max_tokens": st.sampled_from([None, 0, 1, 1500, 10**9]),
        "cacheRetention": st.sampled_from(["none", "short", "long", "?"]),
        "messages": st.just([]),
    },
)
requests = st.builds(
    ModelRequest,
    models,
    words,
    history,
    tools,
    st.sampled_from(get_args(ThinkLevel)),
    st.sampled_from([None, 1, 1024, 2048, 2049, 64_000]),
    params,
)


@settings(max_examples=300)
@given(requests, st.booleans(), st.booleans(), st.booleans())
def test_any_history_renders_request_botocore_accepts(
    request: ModelRequest, sees: bool, known: bool, thinks: bool
) -> None:
    got = asked(request, sees_images=sees, known=known, reasoning=thinks)
    check_request(got)
    thinking = got.get("additionalModelRequestFields", {}).get("thinking", {})
    if thinking.get("type") == "enabled":
        assert 1024 <= thinking["budget_tokens"] < got["inferenceConfig"]["maxTokens"]
    if thinking.get("type") in {"enabled", "adaptive"}:
        assert "temperature" not in got.get("inferenceConfig", {})
