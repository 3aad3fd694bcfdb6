"""The messages provider, against the scripted server."""

from typing import Any

import pytest

from homarus.core.errors import (
    BadRequestError,
    ContentFilterError,
    ContextOverflowError,
    OverloadedError,
    ProviderError,
    StreamError,
)
from homarus.core.message import (
    Message,
    Origin,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    user_message,
)
from homarus.providers import anthropic
from homarus.providers.base import ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.testing.model_server import (
    BodyFraming,
    CallTools,
    ModelServer,
    Replay,
    Say,
    ScriptedCall,
    ScriptStep,
    Stop,
    StreamFault,
    Think,
)
from homarus.testing.model_server.anthropic import SIGNATURE
from tests.unit.providers.harness import ANTHROPIC, HELLO, answer, make_request

KEY = ANTHROPIC.key
message_of, error_of = ANTHROPIC.message_of, ANTHROPIC.error_of
served, received = ANTHROPIC.served, ANTHROPIC.received
body_of = ANTHROPIC.body_of
READ = ToolSpec("read", "Read.", {"type": "object", "properties": {}})
MARK = {"type": "ephemeral"}


# What is sent


async def test_request_body_has_system_messages_and_tools_with_cache_markers() -> None:
    body = await body_of(make_request(system="Be brief.", tools=(READ,), max_tokens=50))
    assert body == {
        "model": "m",
        "max_tokens": 50,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", "cache_control": MARK}],
            }
        ],
        "tools": [
            {
                "name": "read",
                "description": "Read.",
                "input_schema": {"type": "object", "properties": {}},
                "cache_control": MARK,
            }
        ],
    }


async def test_request_cache_markers_end_last_two_user_turns() -> None:
    history: list[Message] = []
    for n in range(4):
        call = ToolCall(f"c{n}", "read", {})
        history += [
            user_message(f"q{n}"),
            Message("assistant", (call,)),
            Message("tool", (ToolResult(call.id, "read", (Text("x"),)),)),
        ]
    body = await body_of(make_request(system="S", tools=(READ,), messages=tuple(history)))
    marks = [
        (index, at)
        for index, turn in enumerate(body["messages"])
        for at, block in enumerate(turn["content"])
        if "cache_control" in block
    ]
    last = len(body["messages"]) - 1
    assert marks == [(last - 2, len(body["messages"][last - 2]["content"]) - 1), (last, 0)]


@pytest.mark.parametrize(
    ("params", "marker"),
    [
        ({"cacheRetention": "short"}, MARK),
        ({"cacheRetention": "long"}, {"type": "ephemeral", "ttl": "1h"}),
        ({"cacheRetention": "none"}, None),
        ({"cache_control": {"type": "ephemeral"}}, None),
        ({"cacheRetention": 7}, MARK),
    ],
)
async def test_request_cache_retention_param_sets_marker_ttl(params: Any, marker: Any) -> None:
    body = await body_of(make_request(system="S", tools=(READ,), params=params))
    blocks = (body["system"][0], body["tools"][0], body["messages"][0]["content"][0])
    assert [block.get("cache_control") for block in blocks] == [marker] * 3
    assert "cacheRetention" not in body


async def test_request_max_tokens_default_to_model_limit_unless_lower() -> None:
    model = ModelInfo("mock", "m", max_tokens=9000)
    assert (await body_of(make_request(), model))["max_tokens"] == 9000
    assert (await body_of(make_request(max_tokens=5), model))["max_tokens"] == 5
    assert (await body_of(make_request(max_tokens=99_999), model))["max_tokens"] == 9000
    assert (await body_of(make_request(params={"max_tokens": 7}), model))["max_tokens"] == 7
    for odd in (None, 0, -1, "7", float("nan"), float("inf")):
        assert (await body_of(make_request(params={"max_tokens": odd}), model))[
            "max_tokens"
        ] == 9000
    assert (await body_of(make_request(max_tokens=99_999)))["max_tokens"] == 99_999


async def test_request_params_override_fields_and_null_removes_them() -> None:
    params = {"temperature": 0.2, "stop_sequences": ["END"], "messages": "no", "system": "no"}
    body = await body_of(make_request(system="S", params=params))
    assert (body["temperature"], body["stop_sequences"]) == (0.2, ["END"])
    assert body["system"][0]["text"] == "S"
    assert body["messages"][0]["role"] == "user"
    model = ModelInfo("mock", "m", reasoning=True)
    body = await body_of(
        make_request(thinking="high", max_tokens=5000, params={"thinking": None}), model
    )
    assert "thinking" not in body
    own = [{"type": "web_search_20250305", "name": "web_search"}]
    assert (await body_of(make_request(tools=(READ,), params={"tools": own})))["tools"] == own


async def test_request_thinking_for_reasoning_model_removes_sampling() -> None:
    request = make_request(thinking="medium", max_tokens=20_000, params={"temperature": 0.2})
    thinks = await body_of(request, ModelInfo("mock", "m", max_tokens=64_000, reasoning=True))
    assert thinks["thinking"] == {"type": "enabled", "budget_tokens": 8192}
    assert "temperature" not in thinks
    plain = await body_of(request, ModelInfo("mock", "m", max_tokens=64_000, reasoning=False))
    assert "thinking" not in plain
    assert plain["temperature"] == 0.2


async def test_request_unknown_claude_is_recognised_by_name() -> None:
    request = await received(make_request(model="claude-opus-5-5", thinking="high"))
    assert request.body["thinking"]["type"] == "adaptive"
    assert request.body["output_config"] == {"effort": "high"}
    assert request.headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"
    told = ModelInfo("mock", "claude-opus-4-6", reasoning=False)
    assert "thinking" not in await body_of(
        make_request(model="claude-opus-4-6", thinking="high"), told
    )


def thought(model: str) -> tuple[Message, ...]:
    origin = Origin("anthropic-messages", "mock", model, "toolUse")
    parts = (Thinking("hm", "c2ln"), ToolCall("c1", "read", {}))
    result = Message("tool", (ToolResult("c1", "read", (Text("x"),)),))
    return (user_message("q"), Message("assistant", parts, origin=origin), result)


async def test_request_reasoning_replayed_unless_binding_model_is_not_thinking() -> None:
    for model, level, replayed in (
        ("claude-opus-4-6", "high", True),
        ("claude-opus-4-6", "off", True),
        ("claude-haiku-5-5", "high", True),
        ("claude-haiku-5-5", "off", False),
        ("claude-opus-5-5", "off", True),
    ):
        body = await body_of(
            make_request(model=model, messages=thought(model), thinking=level, tools=(READ,))
        )
        kinds = [block["type"] for block in body["messages"][1]["content"]]
        assert ("thinking" in kinds) is replayed, (model, level)


async def test_request_thinking_budget_omitted_inside_foreign_tool_work() -> None:
    model = "claude-haiku-4-5"
    own = make_request(model=model, messages=thought(model), thinking="low", tools=(READ,))
    request = await received(own)
    assert request.body["thinking"]["type"] == "enabled"
    assert request.headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"
    others = make_request(model=model, messages=thought("gpt-5.2"), thinking="low", tools=(READ,))
    request = await received(others)
    assert "thinking" not in request.body
    assert "anthropic-beta" not in request.headers


async def test_request_calls_of_removed_tools_declare_those_tools() -> None:
    body = await body_of(make_request(messages=thought("m")))
    assert [tool["name"] for tool in body["tools"]] == ["read"]
    assert body["tool_choice"] == {"type": "none"}
    without = await body_of(make_request(tools=(READ,)), ModelInfo("mock", "m", calls_tools=False))
    assert "tools" not in without
    assert "tool_choice" not in without


async def test_request_headers_have_key_version_and_configured_ones() -> None:
    model = ModelInfo("mock", "m", headers={"X-Model": "yes", "Anthropic-Beta": "b, a"})
    headers = (
        await received(HELLO, model, headers={"X-Team": "t", "anthropic-beta": "a,c"})
    ).headers
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-version"] == "2023-06-01"
    assert (headers["x-team"], headers["x-model"]) == ("t", "yes")
    assert headers["anthropic-beta"] == "a,c,b"
    assert "authorization" not in headers
    older = (await received(HELLO, headers={"Anthropic-Version": "2024-01-01"})).headers
    assert older["anthropic-version"] == "2024-01-01"


async def test_request_oauth_token_sent_as_bearer_with_beta() -> None:
    headers = (
        await received(HELLO, key="sk-ant-oat01-token", headers={"anthropic-beta": "x"})
    ).headers
    assert headers["authorization"] == "Bearer sk-ant-oat01-token"
    assert headers["anthropic-beta"] == "oauth-2025-04-20,x"
    assert "x-api-key" not in headers


async def test_request_auth_header_setting_places_key() -> None:
    bearer = (await received(HELLO, auth_header=True)).headers
    assert bearer["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in bearer
    none = (await received(HELLO, auth_header=False, headers={"api-key": "k"})).headers
    assert not {"authorization", "x-api-key"} & set(none)


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/v1/", "/v1/messages"),
        ("/anthropic", "/anthropic/v1/messages"),
        ("/v1?key=a", "/v1/messages?key=a"),
    ],
)
async def test_request_base_url_with_or_without_v1_is_accepted(base: str, path: str) -> None:
    async with ModelServer() as server:
        url = server.url.removesuffix("/v1") + base
        provider = anthropic.create(anthropic.ProviderConnection("mock", url))
        await answer(provider)
        await provider.close()
        result = server.requests[0].path
    assert result == path


# What comes back


async def test_answer_replayed_in_next_request_is_accepted() -> None:
    steps: list[ScriptStep] = [
        Think(["Hm", "m."]),
        Say("Let me see."),
        CallTools(ScriptedCall("read", {"p": 1})),
    ]
    async with served(steps, [Say("42.")]) as (provider, server):
        first = await answer(provider, make_request(tools=(READ,)))
        result = Message("tool", (ToolResult(first.calls[0].id, "read", (Text("42"),)),))
        messages = (user_message("hi"), first, result)
        await answer(provider, make_request(messages=messages, tools=(READ,)))
        turns: Any = server.requests[1].body["messages"]
    assert [block["type"] for block in turns[1]["content"]] == ["thinking", "text", "tool_use"]
    assert turns[1]["content"][0] == {
        "type": "thinking",
        "thinking": "Hmm.",
        "signature": SIGNATURE,
    }
    assert turns[2]["content"][0]["tool_use_id"] == turns[1]["content"][2]["id"]


async def test_tool_name_invalid_on_wire_is_mapped_back() -> None:
    spec = ToolSpec("mcp.read", "Read.", {"type": "object"})
    message = await message_of(
        CallTools(ScriptedCall("mcp_read", {})), request=make_request(tools=(spec,))
    )
    assert [call.name for call in message.calls] == ["mcp.read"]


END = b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
HI = b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}\n\n'


@pytest.mark.parametrize(
    "tail",
    [
        END,
        END + b'data: {"type":"message_stop"}',
        b'data: {"type":"message_stop"}\n\ndata: {oops\n\n',
        END + b": bye\n\ndata: \n\n",
    ],
)
async def test_stream_end_is_stop_reason_or_final_event(tail: bytes) -> None:
    assert (await message_of(Replay(HI + tail))).text == "hi"


# What goes wrong


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Say("a"), StreamFault("Overloaded", "overloaded_error")], OverloadedError),
        ([Replay(b"")], StreamError),
        ([Replay(b"<html>"), BodyFraming(content_type="text/html")], BadRequestError),
        ([Say("I will"), Stop("filtered")], ContentFilterError),
    ],
)
async def test_stream_fault_raises_its_class(
    steps: list[ScriptStep], kind: type[ProviderError]
) -> None:
    assert type(await error_of(*steps)) is kind


async def test_refusal_error_contains_vendor_reason() -> None:
    details = b'{"type":"refusal","category":"bio","explanation":"This could do harm."}'
    ended = b'{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":%b}}'
    error = await error_of(Replay(HI + b"data: " + ended % details + b"\n\n"))
    assert isinstance(error, ContentFilterError)
    assert "This could do harm." in error.message


async def test_full_window_without_text_raises_context_overflow() -> None:
    full = END.replace(b"end_turn", b"model_context_window_exceeded")
    assert isinstance(await error_of(Replay(full)), ContextOverflowError)
    message = await message_of(Replay(HI + full))
    assert message.origin is not None
    assert (message.text, message.origin.stop) == ("hi", "length")
