"""What every adapter of server-sent events does alike, against the scripted server."""

import asyncio
import logging
import socket
import subprocess
import sys
import tracemalloc
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
from homarus.core.message import Usage, user_message
from homarus.providers.base import TextDelta, ToolSpec
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
    ReportedUsage,
    Say,
    ScriptedCall,
    ScriptStep,
    Stop,
    StreamFault,
    Think,
    WaitForTest,
)
from tests.unit.providers.harness import (
    ANTHROPIC,
    GOOGLE,
    HELLO,
    OPENAI,
    RESPONSES,
    SSE_WIRES,
    WireClient,
    answer,
    make_request,
)

every_wire = pytest.mark.parametrize("wire", SSE_WIRES, ids=str)


@every_wire
async def test_request_tools_omitted_for_model_without_tools(wire: WireClient) -> None:
    request = make_request(tools=(ToolSpec("read", "Read.", {"type": "object"}),))
    assert "tools" in await wire.body_of(request)
    assert "tools" not in await wire.body_of(request, ModelInfo("mock", "m", calls_tools=False))


@pytest.mark.parametrize(
    ("wire", "path"),
    [
        (OPENAI, "/v1/chat/completions?api-version=2026-01-01"),
        (RESPONSES, "/v1/responses?api-version=2026-01-01"),
        (ANTHROPIC, "/v1/messages?api-version=2026-01-01"),
        (GOOGLE, "/v1/models/m:streamGenerateContent?alt=sse&api-version=2026-01-01"),
    ],
    ids=str,
)
async def test_request_query_in_base_url_is_kept(wire: WireClient, path: str) -> None:
    async with ModelServer() as server:
        provider = wire.create(f"{server.url}/?api-version=2026-01-01")
        await answer(provider)
        await provider.close()
        assert server.requests[0].path == path


@every_wire
async def test_large_request_arrives_complete(wire: WireClient) -> None:
    text = "🦞 " * 500_000
    body = await wire.body_of(make_request(messages=(user_message(text),)))
    assert text in _texts(body)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in _texts(each)]


@every_wire
async def test_answer_usage_and_cost_are_counted(wire: WireClient) -> None:
    price = Price(input=1.0, output=2.0, cache_read=0.5)
    message = await wire.message_of(
        Say("x"), ReportedUsage(1000, 100, 600, 40), models=(ModelInfo("mock", "m", price=price),)
    )
    assert message.origin is not None
    usage = message.origin.usage
    assert usage == Usage(400, 100, 600, 0, 40, usage.cost)
    assert usage.cost == pytest.approx((400 * 1.0 + 100 * 2.0 + 600 * 0.5) / 1e6)
    assert message.at_ms == FakeClock().now_ms()


@every_wire
@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_answer_stop_reason_is_mapped(wire: WireClient, reason: Any) -> None:
    message = await wire.message_of(Say("x"), Stop(reason))
    assert message.origin is not None
    assert message.origin.stop == reason


@pytest.mark.parametrize("wire", [OPENAI, RESPONSES, ANTHROPIC], ids=str)
async def test_answer_invalid_arguments_kept_as_broken(wire: WireClient) -> None:
    message = await wire.message_of(
        CallTools(ScriptedCall("read", '{"path": "a'), ScriptedCall("ls", {"a": "é" * 50}))
    )
    assert [(c.name, c.args, c.broken) for c in message.calls] == [
        ("read", {}, '{"path": "a'),
        ("ls", {"a": "é" * 50}, ""),
    ]


@every_wire
@pytest.mark.parametrize(
    "shape",
    [
        BodyFraming(piece_bytes=1),
        BodyFraming(piece_bytes=3),
        BodyFraming(newline=b"\r\n"),
        BodyFraming(newline=b"\r"),
        BodyFraming(newline=b"\r\n", piece_bytes=1, bom=True),
        BodyFraming(newline=b"\r\n", piece_bytes=3, bom=True),
        BodyFraming(framing="close"),
        BodyFraming(content_type="text/event-stream; charset=utf-8"),
        BodyFraming(content_type="application/json"),
        BodyFraming(content_type="text/plain"),
        BodyFraming(content_type=""),
    ],
)
async def test_answer_in_any_byte_split_is_read(wire: WireClient, shape: BodyFraming) -> None:
    steps = (
        Think("Hmm é"),
        Say(["Grüße ", "🦞", "!"]),
        CallTools(ScriptedCall("read", {"p": "ü"})),
    )
    message = await wire.message_of(*steps, Comments(times=3), shape)
    assert (message.thinking, message.text) == ("Hmm é", "Grüße 🦞!")
    assert [c.args for c in message.calls] == [{"p": "ü"}]


@pytest.mark.parametrize("wire", [OPENAI, RESPONSES, ANTHROPIC], ids=str)
async def test_answer_not_streamed_is_read(wire: WireClient) -> None:
    steps = (
        Think("hm"),
        Say(["a", "b"]),
        CallTools(ScriptedCall("read", {"p": 1})),
        ReportedUsage(9, 3),
    )
    message = await wire.message_of(*steps, request=make_request(params={"stream": False}))
    assert (message.text, message.thinking) == ("ab", "hm")
    assert [(c.name, c.args) for c in message.calls] == [("read", {"p": 1})]
    assert message.origin is not None
    assert (message.origin.usage.total, message.origin.stop) == (12, "toolUse")


@every_wire
async def test_stream_cut_after_end_keeps_answer(wire: WireClient) -> None:
    assert (await wire.message_of(Raw(wire.answer), Cut())).text == "hi"
    hanging = await wire.message_of(Raw(wire.answer), HangUntilDisconnect(), idle_s=0.05)
    assert hanging.text == "hi"


@every_wire
async def test_empty_answer_is_returned(wire: WireClient) -> None:
    message = await wire.message_of()
    assert message.parts == ()
    assert message.origin is not None
    assert message.origin.stop == "stop"


@every_wire
async def test_stream_first_text_yielded_before_rest_arrives(wire: WireClient) -> None:
    async with wire.served() as (provider, server):
        gate = asyncio.Event()
        server.script([Say("first"), WaitForTest(gate), Say(" second")])
        texts = []
        async for piece in provider.stream(HELLO):
            if isinstance(piece, TextDelta):
                texts.append(piece.text)
                gate.set()
    assert texts == ["first", " second"]


@every_wire
@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Fail(401)], AuthError),
        ([Fail(403)], AuthError),
        ([Fail(429)], RateLimitError),
        ([Overflow()], ContextOverflowError),
        ([Fail(500)], OverloadedError),
        ([Fail(503)], OverloadedError),
        ([Fail(529)], OverloadedError),
        ([Fail(400)], BadRequestError),
        ([Fail(404)], BadRequestError),
        ([Fail(302, headers={"Location": "http://127.0.0.1:1/"})], BadRequestError),
        ([Fail(500, body=b"\xff\x00<html>")], OverloadedError),
        ([Fail(503, body=b"<html><title>Bad gateway</title>")], OverloadedError),
        ([Say("a"), StreamFault()], OverloadedError),
        ([Say("a"), StreamFault("slow down", "rate_limit_exceeded")], RateLimitError),
        ([Say("a"), Stop("filtered")], ContentFilterError),
        ([Say("a"), Raw(b"data: {oops\n\n")], StreamError),
        ([Raw(b"data: [1]\n\n")], StreamError),
        ([Say("a"), Raw(b"data: 7\n\n")], StreamError),
        ([Raw(b"data: null\n\n")], StreamError),
        ([Raw(b"data: " + b"[" * 200_000 + b"\n\n")], StreamError),
        ([Say("a"), Cut()], StreamError),
        ([Say("a"), Cut("reset")], StreamError),
        ([Say("a"), Cut("half-close")], StreamError),
        ([Cut("half-close")], StreamError),
        ([Say("a"), BodyFraming(end=False)], StreamError),
        ([BodyFraming(end=False, framing="close")], StreamError),
        ([Say("abc"), BodyFraming(cut_at_byte=100)], StreamError),
        ([BodyFraming(cut_at_byte=0)], StreamError),
        ([LongLine(20 * 1024 * 1024)], StreamError),
        ([Say("a"), BodyFraming(content_type="text/html")], BadRequestError),
    ],
)
async def test_stream_fault_raises_its_class(
    wire: WireClient, steps: list[ScriptStep], kind: type[ProviderError]
) -> None:
    assert type(await wire.error_of(*steps)) is kind


@every_wire
@pytest.mark.parametrize("after", ["2.5", "7"])
async def test_rate_limit_error_has_retry_after(wire: WireClient, after: str) -> None:
    error = await wire.error_of(Fail(429, retry_after=after))
    assert isinstance(error, RateLimitError)
    assert error.after_s == float(after)


@every_wire
async def test_silent_server_times_out_before_and_after_first_byte(wire: WireClient) -> None:
    for steps in (
        [HangUntilDisconnect()],
        [Say("a"), HangUntilDisconnect()],
        [Comments(times=3), HangUntilDisconnect()],
    ):
        error = await wire.error_of(*steps, idle_s=0.05)
        assert type(error) is ProviderTimeoutError
        assert "0.05 s" in error.message


@every_wire
async def test_keep_alives_extend_idle_limit_not_deadline(wire: WireClient) -> None:
    async with wire.served([Comments(every_s=0.01)], idle_s=0.1) as (provider, server):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await answer(provider)
        await server.requests[0].ended.wait()
        assert server.requests[0].outcome == "client left"


@every_wire
async def test_endless_line_uses_bounded_memory(wire: WireClient) -> None:
    async with wire.served() as (provider, server):
        await answer(provider)  # everything is imported and connected
        server.script([Say("a"), LongLine(50 * 1024 * 1024)])
        tracemalloc.start()
        with pytest.raises(StreamError):
            await answer(provider)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 48 * 1024 * 1024


@every_wire
async def test_connections_reused_after_answers_and_errors(wire: WireClient) -> None:
    async with wire.served([Say("a")], [Fail(429)], [Say("b")]) as (provider, server):
        await answer(provider)
        with pytest.raises(RateLimitError):
            await answer(provider)
        await answer(provider)
        assert len(server._tasks) == 1


@every_wire
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
        "http://127.0.0.1:1/v1beta",
        "http://127.0.0.1:99999/v1",
        "http://127.0.0.1:x/v1",
        "http://127.0.0.1:0/v1",
    ],
)
async def test_invalid_address_raises_unreachable(wire: WireClient, url: str) -> None:
    with pytest.raises(UnreachableError) as caught:
        await answer(wire.create(url, connect_s=5))
    assert caught.value.fix


@every_wire
async def test_closed_port_raises_unreachable(wire: WireClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://user:hunter2secret@127.0.0.1:{port}/v1?key=topsecret"
    with pytest.raises(UnreachableError, match=f"127.0.0.1:{port}/v1 running") as caught:
        await answer(wire.create(url))
    assert "secret" not in str(caught.value)


@every_wire
async def test_immediate_disconnect_raises_unreachable(wire: WireClient) -> None:
    def disconnect(_reader: Any, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(disconnect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = wire.create(f"http://127.0.0.1:{port}")
    with pytest.raises(UnreachableError):
        await answer(provider)
    await provider.close()
    server.close()


@every_wire
@pytest.mark.parametrize("key", ["sk-\u2026cut", "sk-a\nX-Evil: 1", "sk-\x00"])
async def test_unsendable_key_is_refused(wire: WireClient, key: str) -> None:
    with pytest.raises(AuthError) as caught:
        await answer(wire.create("http://127.0.0.1:1/v1", api_key=key))
    assert key not in str(caught.value)


@every_wire
async def test_unsendable_header_is_named(wire: WireClient) -> None:
    with pytest.raises(BadRequestError, match="X-Bad"):
        await answer(wire.create("http://127.0.0.1:1/v1", headers={"X-Bad": "a\r\nb"}))


@every_wire
async def test_key_and_request_never_shown_or_logged(
    wire: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for status in (400, 401):
        await wire.error_of(Fail(status, message=f"bad key {wire.key}"))
    request = make_request(messages=(user_message("a private question"),))
    await wire.message_of(Say("x"), request=request)
    settings = wire.module.ProviderConnection(
        "mock", "http://h", wire.key, headers={"api-key": "hdr-secret"}
    )
    shown = caplog.text + repr(settings) + repr(wire.module.create(settings))
    for secret in (wire.key, "hdr-secret", "a private question"):
        assert secret not in shown


@every_wire
async def test_proxy_is_not_used_for_loopback(
    wire: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert (await wire.message_of(Say("direct"))).text == "direct"


@every_wire
def test_provider_creation_imports_no_http_library_or_sdk(wire: WireClient) -> None:
    heavy = ("httpx2", "h11", "anyio", "pydantic", "anthropic", "google.genai", "openai")
    code = (
        f"import sys; from homarus.providers import {wire} as wire;"
        "wire.create(wire.ProviderConnection('x', 'https://api.example/v1', 'k'));"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
