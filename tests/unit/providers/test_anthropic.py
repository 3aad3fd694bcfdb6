"""The messages provider, against the scripted server."""

import asyncio
import logging
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from homarus.core.errors import (
    AuthError,
    BadRequestError,
    ContentFilterError,
    ContextOverflowError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
)
from homarus.core.message import (
    Message,
    Origin,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    user_message,
)
from homarus.providers import anthropic
from homarus.providers.base import ModelRequest, TextDelta, ToolSpec
from homarus.providers.catalog import ModelInfo, Price
from homarus.testing.clock import FakeClock
from homarus.testing.model_server import (
    BodyFraming,
    CallTools,
    Comments,
    Cut,
    Fail,
    HangUntilDisconnect,
    LongLine,
    ModelServer,
    Overflow,
    Raw,
    Replay,
    ReportedUsage,
    Say,
    ScriptedCall,
    ScriptStep,
    Stop,
    StreamFault,
    Think,
    WaitForTest,
)
from homarus.testing.model_server.anthropic import SIGNATURE

KEY = "sk-ant-api03-0123456789"
HELLO = ModelRequest("m", "Be brief.", (user_message("hi"),))
READ = ToolSpec("read", "Read.", {"type": "object", "properties": {}})
MARK = {"type": "ephemeral"}


def asked(**fields: Any) -> ModelRequest:
    return ModelRequest(**{"model": "m", "system": "", "messages": (user_message("hi"),), **fields})


async def answer(provider: anthropic.AnthropicProvider, request: ModelRequest = HELLO) -> Message:
    async for piece in provider.stream(request):
        if isinstance(piece, Message):
            return piece
    raise AssertionError("no Message came")


@asynccontextmanager
async def served(
    *answers: list[ScriptStep],
    models: tuple[ModelInfo, ...] = (),
    key: str = KEY,
    **settings: Any,
) -> AsyncIterator[tuple[anthropic.AnthropicProvider, ModelServer]]:
    async with asyncio.timeout(60), ModelServer() as server:
        server.script(*answers)
        made = anthropic.ProviderConnection("mock", server.url, key, **settings)
        provider = anthropic.create(made, models=models, clock=FakeClock())
        try:
            yield provider, server
        finally:
            await provider.close()


async def message_of(*steps: ScriptStep, request: ModelRequest = HELLO, **settings: Any) -> Message:
    async with served(list(steps), **settings) as (provider, _server):
        message: Message = await answer(provider, request)
    return message


async def error_of(*steps: ScriptStep, **settings: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await message_of(*steps, **settings)
    error = caught.value
    assert error.message.startswith("mock/m: "), "an error names provider and model"
    assert error.fix, "an error says what to do"
    assert KEY not in str(error)
    return error


async def sent(request: ModelRequest, *models: ModelInfo, **settings: Any) -> Any:
    """The request as the server got it."""
    async with served(models=models, **settings) as (provider, server):
        await answer(provider, request)
        return server.requests[0]


async def body_of(request: ModelRequest, *models: ModelInfo, **settings: Any) -> dict[str, Any]:
    body: dict[str, Any] = (await sent(request, *models, **settings)).body
    return body


# What is sent


async def test_request_body_has_system_messages_and_tools_with_cache_markers() -> None:
    body = await body_of(asked(system="Be brief.", tools=(READ,), max_tokens=50))
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
    body = await body_of(asked(system="S", tools=(READ,), messages=tuple(history)))
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
    body = await body_of(asked(system="S", tools=(READ,), params=params))
    blocks = (body["system"][0], body["tools"][0], body["messages"][0]["content"][0])
    assert [block.get("cache_control") for block in blocks] == [marker] * 3
    assert "cacheRetention" not in body


async def test_request_max_tokens_default_to_model_limit_unless_lower() -> None:
    model = ModelInfo("mock", "m", max_tokens=9000)
    assert (await body_of(asked(), model))["max_tokens"] == 9000
    assert (await body_of(asked(max_tokens=5), model))["max_tokens"] == 5
    assert (await body_of(asked(max_tokens=99_999), model))["max_tokens"] == 9000
    assert (await body_of(asked(params={"max_tokens": 7}), model))["max_tokens"] == 7
    for odd in (None, 0, -1, "7", float("nan"), float("inf")):
        assert (await body_of(asked(params={"max_tokens": odd}), model))["max_tokens"] == 9000
    assert (await body_of(asked(max_tokens=99_999)))["max_tokens"] == 99_999


async def test_request_params_override_fields_and_null_removes_them() -> None:
    params = {"temperature": 0.2, "stop_sequences": ["END"], "messages": "no", "system": "no"}
    body = await body_of(asked(system="S", params=params))
    assert (body["temperature"], body["stop_sequences"]) == (0.2, ["END"])
    assert body["system"][0]["text"] == "S"
    assert body["messages"][0]["role"] == "user"
    model = ModelInfo("mock", "m", reasoning=True)
    body = await body_of(asked(thinking="high", max_tokens=5000, params={"thinking": None}), model)
    assert "thinking" not in body
    own = [{"type": "web_search_20250305", "name": "web_search"}]
    assert (await body_of(asked(tools=(READ,), params={"tools": own})))["tools"] == own


async def test_request_thinking_for_reasoning_model_removes_sampling() -> None:
    request = asked(thinking="medium", max_tokens=20_000, params={"temperature": 0.2})
    thinks = await body_of(request, ModelInfo("mock", "m", max_tokens=64_000, reasoning=True))
    assert thinks["thinking"] == {"type": "enabled", "budget_tokens": 8192}
    assert "temperature" not in thinks
    plain = await body_of(request, ModelInfo("mock", "m", max_tokens=64_000, reasoning=False))
    assert "thinking" not in plain
    assert plain["temperature"] == 0.2


async def test_request_unknown_claude_is_recognised_by_name() -> None:
    received = await sent(asked(model="claude-opus-5-5", thinking="high"))
    assert received.body["thinking"]["type"] == "adaptive"
    assert received.body["output_config"] == {"effort": "high"}
    assert received.headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"
    told = ModelInfo("mock", "claude-opus-4-6", reasoning=False)
    assert "thinking" not in await body_of(asked(model="claude-opus-4-6", thinking="high"), told)


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
            asked(model=model, messages=thought(model), thinking=level, tools=(READ,))
        )
        kinds = [block["type"] for block in body["messages"][1]["content"]]
        assert ("thinking" in kinds) is replayed, (model, level)


async def test_request_thinking_budget_omitted_inside_foreign_tool_work() -> None:
    model = "claude-haiku-4-5"
    own = asked(model=model, messages=thought(model), thinking="low", tools=(READ,))
    received = await sent(own)
    assert received.body["thinking"]["type"] == "enabled"
    assert received.headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"
    others = asked(model=model, messages=thought("gpt-5.2"), thinking="low", tools=(READ,))
    received = await sent(others)
    assert "thinking" not in received.body
    assert "anthropic-beta" not in received.headers


async def test_request_calls_of_removed_tools_declare_those_tools() -> None:
    body = await body_of(asked(messages=thought("m")))
    assert [tool["name"] for tool in body["tools"]] == ["read"]
    assert body["tool_choice"] == {"type": "none"}
    without = await body_of(asked(tools=(READ,)), ModelInfo("mock", "m", calls_tools=False))
    assert "tools" not in without
    assert "tool_choice" not in without


async def test_request_headers_have_key_version_and_configured_ones() -> None:
    model = ModelInfo("mock", "m", headers={"X-Model": "yes", "Anthropic-Beta": "b, a"})
    headers = (await sent(HELLO, model, headers={"X-Team": "t", "anthropic-beta": "a,c"})).headers
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-version"] == "2023-06-01"
    assert (headers["x-team"], headers["x-model"]) == ("t", "yes")
    assert headers["anthropic-beta"] == "a,c,b"
    assert "authorization" not in headers
    older = (await sent(HELLO, headers={"Anthropic-Version": "2024-01-01"})).headers
    assert older["anthropic-version"] == "2024-01-01"


async def test_request_oauth_token_sent_as_bearer_with_beta() -> None:
    headers = (await sent(HELLO, key="sk-ant-oat01-token", headers={"anthropic-beta": "x"})).headers
    assert headers["authorization"] == "Bearer sk-ant-oat01-token"
    assert headers["anthropic-beta"] == "oauth-2025-04-20,x"
    assert "x-api-key" not in headers


async def test_request_auth_header_setting_places_key() -> None:
    bearer = (await sent(HELLO, auth_header=True)).headers
    assert bearer["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in bearer
    none = (await sent(HELLO, auth_header=False, headers={"api-key": "k"})).headers
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
        first = await answer(provider, asked(tools=(READ,)))
        result = Message("tool", (ToolResult(first.calls[0].id, "read", (Text("42"),)),))
        messages = (user_message("hi"), first, result)
        await answer(provider, asked(messages=messages, tools=(READ,)))
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
        CallTools(ScriptedCall("mcp_read", {})), request=asked(tools=(spec,))
    )
    assert [call.name for call in message.calls] == ["mcp.read"]


async def test_answer_usage_and_cost_are_counted() -> None:
    price = Price(input=1.0, output=2.0, cache_read=0.5)
    message = await message_of(
        Say("x"), ReportedUsage(1000, 100, 600, 40), models=(ModelInfo("mock", "m", price=price),)
    )
    assert message.origin is not None
    usage = message.origin.usage
    assert usage == Usage(400, 100, 600, 0, 40, usage.cost)
    assert usage.cost == pytest.approx((400 * 1.0 + 100 * 2.0 + 600 * 0.5) / 1e6)
    assert message.at_ms == FakeClock().now_ms()


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_answer_stop_reason_is_mapped(reason: Any) -> None:
    message = await message_of(Say("x"), Stop(reason))
    assert message.origin is not None
    assert message.origin.stop == reason


@pytest.mark.parametrize(
    "shape",
    [
        BodyFraming(piece_bytes=1),
        BodyFraming(piece_bytes=3),
        BodyFraming(newline=b"\r\n"),
        BodyFraming(newline=b"\r"),
        BodyFraming(newline=b"\r\n", piece_bytes=1, bom=True),
        BodyFraming(framing="close"),
        BodyFraming(content_type="text/event-stream; charset=utf-8"),
        BodyFraming(content_type="application/json"),
        BodyFraming(content_type=""),
    ],
)
async def test_answer_in_any_byte_split_is_read(shape: BodyFraming) -> None:
    steps = (
        Think("Hmm é"),
        Say(["Grüße ", "🦞", "!"]),
        CallTools(ScriptedCall("read", {"p": "ü"})),
    )
    message = await message_of(*steps, Comments(times=3), shape)
    assert (message.thinking, message.text) == ("Hmm é", "Grüße 🦞!")
    assert [c.args for c in message.calls] == [{"p": "ü"}]


async def test_answer_not_streamed_is_read() -> None:
    request = asked(params={"stream": False})
    steps = (
        Think("hm"),
        Say(["a", "b"]),
        CallTools(ScriptedCall("read", {"p": 1})),
        ReportedUsage(9, 3),
    )
    message = await message_of(*steps, request=request)
    assert (message.text, message.thinking) == ("ab", "hm")
    assert [(c.name, c.args) for c in message.calls] == [("read", {"p": 1})]
    assert message.origin is not None
    assert (message.origin.usage.total, message.origin.stop) == (12, "toolUse")


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


async def test_stream_cut_after_end_keeps_answer() -> None:
    assert (await message_of(Raw(HI + END), Cut())).text == "hi"
    assert (await message_of(Raw(HI + END), HangUntilDisconnect(), idle_s=0.05)).text == "hi"


async def test_stream_first_text_yielded_before_rest_arrives() -> None:
    gate = asyncio.Event()
    async with served([Say("one"), WaitForTest(gate), Say("two")]) as (provider, _server):
        said = []
        async for piece in provider.stream(HELLO):
            if isinstance(piece, TextDelta):
                said.append(piece.text)
                gate.set()
        result = said
    assert result == ["one", "two"]


# What goes wrong


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Fail(401)], AuthError),
        ([Fail(404)], BadRequestError),
        ([Fail(429)], RateLimitError),
        ([Fail(529)], OverloadedError),
        ([Overflow()], ContextOverflowError),
        ([Fail(503, body=b"<html><title>Bad gateway</title>")], OverloadedError),
        ([Say("a"), StreamFault("Overloaded", "overloaded_error")], OverloadedError),
        ([Say("a"), StreamFault()], OverloadedError),
        ([Say("a"), Cut()], StreamError),
        ([Say("a"), Cut("reset")], StreamError),
        ([Say("a"), Cut("half-close")], StreamError),
        ([Say("a"), BodyFraming(end=False)], StreamError),
        ([Say("a"), Raw(b"data: {oops\n\n")], StreamError),
        ([Say("a"), Raw(b"data: 7\n\n")], StreamError),
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


async def test_rate_limit_error_has_retry_after() -> None:
    error = await error_of(Fail(429, retry_after="7"))
    assert isinstance(error, RateLimitError)
    assert error.after_s == 7


async def test_silent_server_times_out_before_and_after_first_byte() -> None:
    for steps in ([HangUntilDisconnect()], [Say("a"), HangUntilDisconnect()]):
        assert isinstance(await error_of(*steps, idle_s=0.05), ProviderTimeoutError)


async def test_endless_line_uses_bounded_memory() -> None:
    async with served([Say("a"), LongLine(50 << 20)]) as (provider, _server):
        tracemalloc.start()
        with pytest.raises(StreamError):
            await answer(provider)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        result = peak
    assert result < 48 * 1024 * 1024


async def test_connections_reused_after_answers_and_errors() -> None:
    async with served([Say("a")], [Fail(429)], [Say("b")]) as (provider, server):
        await answer(provider)
        with pytest.raises(RateLimitError):
            await answer(provider)
        await answer(provider)
        result = len(server._tasks)
    assert result == 1


async def test_key_and_request_never_shown_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await error_of(Fail(401, message=f"bad key {KEY}"))
    await message_of(Say("x"), request=asked(messages=(user_message("a private question"),)))
    settings = anthropic.ProviderConnection(
        "mock", "http://h", KEY, headers={"api-key": "hdr-secret"}
    )
    shown = caplog.text + repr(settings) + repr(anthropic.create(settings))
    for secret in (KEY, "hdr-secret", "a private question"):
        assert secret not in shown


def test_provider_creation_imports_no_http_library_or_sdk() -> None:
    code = (
        "import sys; from homarus.providers import anthropic;"
        "anthropic.create(anthropic.ProviderConnection('x', 'https://api.example', 'k'));"
        "print([m for m in ('httpx2', 'anyio', 'pydantic', 'anthropic') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
