"""The chat-completions provider, against the scripted server."""

import asyncio
import json
import logging
import socket
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
    UnreachableError,
)
from homarus.core.message import Message, Usage, user_message
from homarus.providers import openai
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

KEY = "sk-test-0123456789"
HELLO = ModelRequest("m", "Be brief.", (user_message("hi"),))


def asked(**fields: Any) -> ModelRequest:
    return ModelRequest(**{"model": "m", "system": "", "messages": (user_message("hi"),), **fields})


async def answer(provider: openai.OpenAIProvider, request: ModelRequest = HELLO) -> Message:
    async for piece in provider.stream(request):
        if isinstance(piece, Message):
            return piece
    raise AssertionError("no Message came")


@asynccontextmanager
async def served(
    *answers: list[ScriptStep],
    models: tuple[ModelInfo, ...] = (),
    **settings: Any,
) -> AsyncIterator[tuple[openai.OpenAIProvider, ModelServer]]:
    async with asyncio.timeout(60), ModelServer() as server:
        server.script(*answers)
        made = openai.ProviderConnection("mock", server.url, KEY, **settings)
        provider = openai.create(made, models=models, clock=FakeClock())
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


async def body_of(request: ModelRequest, *models: ModelInfo, **settings: Any) -> dict[str, Any]:
    async with served(models=models, **settings) as (provider, server):
        await answer(provider, request)
        body: dict[str, Any] = server.requests[0].body
    return body


# What is sent


async def test_request_body_has_system_messages_tools_and_usage_option() -> None:
    spec = ToolSpec("read", "Read.", {"type": "object", "properties": {}})
    body = await body_of(asked(system="Be brief.", tools=(spec,), max_tokens=50))
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Read.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


async def test_compat_flags_change_role_limit_and_options() -> None:
    model = ModelInfo(
        "mock", "m", reasoning=True, compat={"maxTokensField": "max_completion_tokens"}
    )
    flags = {
        "supportsDeveloperRole": True,
        "supportsStore": True,
        "supportsUsageInStreaming": False,
    }
    request = asked(system="S", max_tokens=5, thinking="high")
    body = await body_of(request, model, compat=flags)
    assert body["messages"][0]["role"] == "developer"
    assert body["max_completion_tokens"] == 5
    assert body["store"] is False
    assert body["reasoning_effort"] == "high"
    assert "stream_options" not in body


@pytest.mark.parametrize(
    ("compat", "thinking", "sent"),
    [
        ({}, "off", {}),
        ({}, "minimal", {"reasoning_effort": "minimal"}),
        ({"supportsReasoningEffort": False}, "low", {}),
        ({"thinkingFormat": "zai"}, "low", {"thinking": {"type": "enabled"}}),
        ({"thinkingFormat": "zai"}, "off", {"thinking": {"type": "disabled"}}),
        ({"thinkingFormat": "qwen"}, "low", {"enable_thinking": True}),
        ({"thinkingFormat": "qwen"}, "off", {"enable_thinking": False}),
    ],
)
async def test_request_thinking_follows_compat_format(
    compat: dict[str, Any], thinking: Any, sent: dict[str, Any]
) -> None:
    model = ModelInfo("mock", "m", reasoning=True, compat=compat)
    body = await body_of(asked(thinking=thinking), model)
    asked_for = {
        k: body[k] for k in ("reasoning_effort", "thinking", "enable_thinking") if k in body
    }
    assert asked_for == sent
    plain = await body_of(
        asked(thinking=thinking), ModelInfo("mock", "m", reasoning=False, compat=compat)
    )
    assert not {"reasoning_effort", "thinking", "enable_thinking"} & set(plain)


async def test_request_params_override_fields_and_null_removes_them() -> None:
    params = {"temperature": 0.2, "max_tokens": 7, "stream_options": None, "messages": "no"}
    body = await body_of(asked(max_tokens=50, params=params))
    assert (body["temperature"], body["max_tokens"]) == (0.2, 7)
    assert "stream_options" not in body
    assert body["messages"] == [{"role": "user", "content": "hi"}]


async def test_request_tools_omitted_for_model_without_tools() -> None:
    spec = ToolSpec("read", "Read.", {"type": "object"})
    assert "tools" not in await body_of(
        asked(tools=(spec,)), ModelInfo("mock", "m", calls_tools=False)
    )


async def test_request_headers_have_key_and_configured_ones() -> None:
    async def scene(provider: openai.OpenAIProvider, server: ModelServer) -> Any:
        await answer(provider)
        return server.requests[0].headers

    model = ModelInfo("mock", "m", headers={"X-Model": "yes"})
    async with served(models=(model,), headers={"X-Team": "a", "user-agent": "mine"}) as (
        provider,
        server,
    ):
        headers = await scene(provider, server)
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (headers["x-team"], headers["x-model"], headers["user-agent"]) == ("a", "yes", "mine")
    async with served(headers={"api-key": "k"}, auth_header=False) as (provider, server):
        without = await scene(provider, server)
    assert "authorization" not in without
    assert without["api-key"] == "k"


async def test_request_query_in_base_url_is_kept() -> None:
    async with ModelServer() as server:
        settings = openai.ProviderConnection("mock", f"{server.url}/?api-version=2026-01-01")
        provider = openai.create(settings)
        await answer(provider)
        await provider.close()
        result = server.requests[0].path
    assert result == "/v1/chat/completions?api-version=2026-01-01"


async def test_large_request_arrives_complete() -> None:
    text = "🦞 " * 500_000
    body = await body_of(asked(messages=(user_message(text),)))
    assert body["messages"][0]["content"] == text


# What comes back


async def test_answer_usage_and_cost_are_counted() -> None:
    price = Price(input=1.0, output=2.0, cache_read=0.5)
    message = await message_of(
        Say("x"), ReportedUsage(1000, 100, 600, 40), models=(ModelInfo("mock", "m", price=price),)
    )
    assert message.origin is not None
    cost = (400 * 1.0 + 100 * 2.0 + 600 * 0.5) / 1e6
    usage = message.origin.usage
    assert usage == Usage(400, 100, 600, 0, 40, usage.cost)
    assert usage.cost == pytest.approx(cost)
    assert message.at_ms == FakeClock().now_ms()


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_answer_stop_reason_is_mapped(reason: Any) -> None:
    message = await message_of(Say("x"), Stop(reason))
    assert message.origin is not None
    assert message.origin.stop == reason


async def test_answer_invalid_arguments_kept_as_broken() -> None:
    message = await message_of(
        CallTools(ScriptedCall("read", '{"path": "a'), ScriptedCall("ls", {"a": "é" * 50}))
    )
    assert [(c.name, c.args, c.broken) for c in message.calls] == [
        ("read", {}, '{"path": "a'),
        ("ls", {"a": "é" * 50}, ""),
    ]


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
        BodyFraming(content_type="text/plain"),
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
    assert message.origin.usage.total == 12
    assert message.origin.stop == "toolUse"


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"data: [DONE]",
        b"data: [DONE]\n\n",
        b"data: [DONE]\n\ndata: {oops\n\n",
        b": bye\n\ndata: \n\n",
    ],
)
async def test_stream_end_is_finish_reason_or_done(tail: bytes) -> None:
    chunk = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
    assert (await message_of(Replay(chunk + tail))).text == "hi"
    if b"DONE" in tail:
        unfinished = chunk.replace(b'"stop"', b"null")
        assert (await message_of(Replay(unfinished + tail))).text == "hi"


async def test_stream_cut_after_end_keeps_answer() -> None:
    chunk = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
    assert (await message_of(Raw(chunk), Cut())).text == "hi"
    assert (await message_of(Raw(chunk), HangUntilDisconnect(), idle_s=0.05)).text == "hi"


async def test_empty_answer_is_returned() -> None:
    message = await message_of()
    assert message.parts == ()
    assert message.origin is not None
    assert message.origin.stop == "stop"


# What goes wrong


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Fail(401)], AuthError),
        ([Overflow()], ContextOverflowError),
        ([Fail(500)], OverloadedError),
        ([Fail(529)], OverloadedError),
        ([Fail(404)], BadRequestError),
        ([Fail(302, headers={"Location": "http://127.0.0.1:1/"})], BadRequestError),
        ([Fail(500, body=b"\xff\x00<html>")], OverloadedError),
        ([Say("a"), StreamFault()], OverloadedError),
        ([Say("a"), StreamFault("slow down", "rate_limit_exceeded")], RateLimitError),
        (
            [Say("a"), StreamFault("This model's maximum context length is 5", "x")],
            ContextOverflowError,
        ),
        ([Say("a"), Raw(b'error: {"code":500,"message":"x"}\n\n')], OverloadedError),
        ([Say("a"), Stop("filtered")], ContentFilterError),
        ([Say("a"), Raw(b"data: {oops\n\n")], StreamError),
        ([Raw(b"data: [1]\n\n")], StreamError),
        ([Raw(b"data: " + b"[" * 200_000 + b"\n\n")], StreamError),
        ([Raw(b'data: {"choices":5}\n\n')], StreamError),
        ([Say("a"), Cut()], StreamError),
        ([Say("a"), Cut("reset")], StreamError),
        ([Say("a"), Cut("half-close")], StreamError),
        ([Cut("half-close")], StreamError),
        ([Say("a"), BodyFraming(end=False)], StreamError),
        ([BodyFraming(end=False, framing="close")], StreamError),
        ([Say("abc"), BodyFraming(cut_at_byte=300)], StreamError),
        ([BodyFraming(cut_at_byte=0)], StreamError),
        ([LongLine(20 * 1024 * 1024)], StreamError),
        ([Say("a"), BodyFraming(content_type="text/html")], BadRequestError),
    ],
)
async def test_stream_fault_raises_its_class(
    steps: list[ScriptStep], kind: type[ProviderError]
) -> None:
    assert type(await error_of(*steps)) is kind


async def test_rate_limit_error_has_retry_after() -> None:
    error = await error_of(Fail(429, retry_after="2.5"))
    assert isinstance(error, RateLimitError)
    assert error.after_s == 2.5


async def test_silent_server_times_out_before_and_after_first_byte() -> None:
    for steps in (
        [HangUntilDisconnect()],
        [Say("a"), HangUntilDisconnect()],
        [Comments(times=3), HangUntilDisconnect()],
    ):
        error = await error_of(*steps, idle_s=0.05)
        assert type(error) is ProviderTimeoutError
        assert "0.05 s" in error.message


async def test_keep_alives_extend_idle_limit_not_deadline() -> None:
    async with served([Comments(every_s=0.01)], idle_s=0.1) as (provider, server):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await answer(provider)
        await server.requests[0].ended.wait()
        assert server.requests[0].outcome == "client left"


async def test_stream_first_text_yielded_before_rest_arrives() -> None:
    async with served() as (provider, server):
        gate = asyncio.Event()
        server.script([Say("first"), WaitForTest(gate), Say(" second")])
        said = []
        async for piece in provider.stream(HELLO):
            if isinstance(piece, TextDelta):
                said.append(piece.text)
                gate.set()
        assert said == ["first", " second"]


async def test_endless_line_uses_bounded_memory() -> None:
    async with served() as (provider, server):
        await answer(provider)  # everything is imported and connected
        server.script([LongLine(50 * 1024 * 1024)])
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


@pytest.mark.parametrize(
    "url",
    [
        "http://name.invalid/v1",
        "ftp://127.0.0.1/v1",
        "not a url",
        "",
        "http://",
        "http://[::1",
        "http://" + "a" * 300 + ".example/v1",
        "http://exa mple/v1",
        "http://127.0.0.1:99999/v1",
        "http://127.0.0.1:x/v1",
        "http://127.0.0.1:0/v1",
    ],
)
async def test_invalid_address_raises_unreachable(url: str) -> None:
    provider = openai.create(openai.ProviderConnection("mock", url, connect_s=5))
    with pytest.raises(UnreachableError) as caught:
        await answer(provider)
    assert caught.value.fix


async def test_closed_port_raises_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://user:hunter2secret@127.0.0.1:{port}/v1?key=topsecret"
    with pytest.raises(UnreachableError, match=f"127.0.0.1:{port}/v1 running") as caught:
        await answer(openai.create(openai.ProviderConnection("mock", url)))
    assert "secret" not in str(caught.value)


async def test_immediate_disconnect_raises_unreachable() -> None:
    def hang_up(_reader: Any, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = openai.create(openai.ProviderConnection("mock", f"http://127.0.0.1:{port}"))
    with pytest.raises(UnreachableError):
        await answer(provider)
    await provider.close()
    server.close()


@pytest.mark.parametrize("key", ["sk-\u2026cut", "sk-a\nX-Evil: 1", "sk-\x00"])
async def test_unsendable_key_is_refused(key: str) -> None:
    provider = openai.create(openai.ProviderConnection("mock", "http://127.0.0.1:1/v1", key))
    with pytest.raises(AuthError) as caught:
        await answer(provider)
    assert key not in str(caught.value)


async def test_unsendable_header_is_named() -> None:
    settings = openai.ProviderConnection(
        "mock", "http://127.0.0.1:1/v1", headers={"X-Bad": "a\r\nb"}
    )
    with pytest.raises(BadRequestError, match="X-Bad"):
        await answer(openai.create(settings))


async def test_key_and_request_never_shown_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await error_of(Fail(401, message=f"bad key {KEY}"))
    await message_of(Say("x"), request=asked(messages=(user_message("a private question"),)))
    settings = openai.ProviderConnection("mock", "http://h", KEY, headers={"api-key": "hdr-secret"})
    shown = caplog.text + repr(settings) + repr(openai.create(settings))
    for secret in (KEY, "hdr-secret", "a private question"):
        assert secret not in shown


async def test_proxy_is_not_used_for_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert (await message_of(Say("direct"))).text == "direct"


def test_provider_creation_imports_no_http_library() -> None:
    code = (
        "import sys; from homarus.providers import openai;"
        "openai.create(openai.ProviderConnection('x', 'https://api.example/v1', 'k'));"
        "print([m for m in ('httpx2', 'h11', 'anyio', 'pydantic') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


async def test_request_body_is_json_for_any_model_name() -> None:
    body = await body_of(asked(model='we"ird\n模型'))
    assert json.loads(json.dumps(body))["model"] == 'we"ird\n模型'
