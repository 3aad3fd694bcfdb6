"""The Gemini provider, against the scripted server."""

import asyncio
import logging
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from homarus.config.schema import Config
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
from homarus.core.message import Message, Text, ToolResult, Usage, user_message
from homarus.providers import google, openai
from homarus.providers.base import ModelRequest, Provider, TextDelta, ToolSpec
from homarus.providers.catalog import VENDORS, ModelInfo, Price
from homarus.providers.google_request import wire_name
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
from homarus.testing.model_server.google import SIGNATURE
from tests.unit.providers.builders import first_of

KEY = "AIza-test-0123456789"
HELLO = ModelRequest("m", "Be brief.", (user_message("hi"),))
READ = ToolSpec("read", "Read.", {"properties": {"path": {"type": "string"}}})


def asked(**fields: Any) -> ModelRequest:
    return ModelRequest(**{"model": "m", "system": "", "messages": (user_message("hi"),), **fields})


async def answer(provider: Provider, request: ModelRequest = HELLO) -> Message:
    async for piece in provider.stream(request):
        if isinstance(piece, Message):
            return piece
    raise AssertionError("no Message came")


@asynccontextmanager
async def served(
    *answers: list[ScriptStep],
    models: tuple[ModelInfo, ...] = (),
    **settings: Any,
) -> AsyncIterator[tuple[google.GoogleProvider, ModelServer]]:
    async with asyncio.timeout(60), ModelServer() as server:
        server.script(*answers)
        made = google.ProviderConnection("mock", server.url, KEY)
        made = replace(made, **settings)
        provider = google.create(made, models=models, clock=FakeClock())
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


async def received(request: ModelRequest, *models: ModelInfo, **settings: Any) -> Any:
    async with served(models=models, **settings) as (provider, server):
        await answer(provider, request)
        return server.requests[0]


async def body_of(request: ModelRequest, *models: ModelInfo, **settings: Any) -> dict[str, Any]:
    body: dict[str, Any] = (await received(request, *models, **settings)).body
    return body


# What is sent


async def test_request_body_has_system_contents_tools_and_limits() -> None:
    body = await body_of(asked(system="Be brief.", tools=(READ,), max_tokens=50))
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {"maxOutputTokens": 50},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "read",
                        "description": "Read.",
                        "parameters": {
                            "type": "OBJECT",
                            "properties": {"path": {"type": "STRING"}},
                        },
                    }
                ]
            }
        ],
    }
    assert await body_of(asked()) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-flash", "models/gemini-3-flash"),
        ("models/gemini-3-flash", "models/gemini-3-flash"),
        ("tunedModels/mine", "tunedModels/mine"),
        ("google/x?key=1#y", "models/google%2Fx%3Fkey%3D1%23y"),
        ("模型", "models/%E6%A8%A1%E5%9E%8B"),
    ],
)
async def test_request_model_in_path_and_key_in_header(model: str, path: str) -> None:
    request = await received(asked(model=model))
    assert request.path == f"/v1/{path}:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == KEY
    assert "authorization" not in request.headers


async def test_request_auth_header_setting_places_key() -> None:
    bearer = (await received(HELLO, auth_header=True)).headers
    assert bearer["authorization"] == f"Bearer {KEY}"
    assert "x-goog-api-key" not in bearer
    own = (
        await received(HELLO, ModelInfo("mock", "m", headers={"X-Model": "yes"}), auth_header=False)
    ).headers
    assert not {"authorization", "x-goog-api-key"} & set(own)
    assert own["x-model"] == "yes"


async def test_request_query_in_base_url_is_kept() -> None:
    async with ModelServer() as server:
        provider = google.create(google.ProviderConnection("mock", f"{server.url}/?tenant=a"))
        await answer(provider)
        await provider.close()
        result = server.requests[0].path
    assert result == "/v1/models/m:streamGenerateContent?alt=sse&tenant=a"


@pytest.mark.parametrize(
    ("model", "thinking", "sent"),
    [
        (ModelInfo("mock", "gemini-3-flash", reasoning=True), "off", {"thinkingLevel": "minimal"}),
        (
            ModelInfo("mock", "gemini-3-flash", reasoning=True),
            "high",
            {"thinkingLevel": "high", "includeThoughts": True},
        ),
        (
            ModelInfo("mock", "gemini-2.5-flash", known=False),
            "low",
            {"thinkingBudget": 2048, "includeThoughts": True},
        ),
        (ModelInfo("mock", "gemini-2.5-flash", reasoning=False), "low", None),
        (ModelInfo("mock", "gemini-2.0-flash", known=False), "high", None),
        (ModelInfo("mock", "mine", reasoning=True), "off", None),
    ],
)
async def test_request_thinking_for_reasoning_model(
    model: ModelInfo, thinking: Any, sent: dict[str, Any] | None
) -> None:
    body = await body_of(asked(model=model.id, thinking=thinking), model)
    assert body.get("generationConfig", {}).get("thinkingConfig") == sent


async def test_request_params_override_fields_and_null_removes_them() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    params = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 7,
        "generationConfig": {"seed": 5, "thinkingConfig": None},
        "safetySettings": safety,
        "contents": "no",
        "cacheRetention": "long",
        "systemInstruction": None,
    }
    model = ModelInfo("mock", "gemini-3-flash", reasoning=True)
    body = await body_of(asked(model=model.id, system="S", max_tokens=50, params=params), model)
    assert body == {
        "generationConfig": {"maxOutputTokens": 7, "temperature": 0.2, "topP": 0.9, "seed": 5},
        "safetySettings": safety,
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    }


async def test_request_own_tools_param_replaces_tools() -> None:
    search: list[Any] = [{"googleSearch": {}}]
    assert (await body_of(asked(tools=(READ,), params={"tools": search})))["tools"] == search
    assert "tools" not in await body_of(asked(tools=(READ,), params={"tools": None}))
    assert "tools" not in await body_of(
        asked(tools=(READ,)), ModelInfo("mock", "m", calls_tools=False)
    )


async def test_large_request_arrives_complete() -> None:
    text = "🦞 " * 500_000
    body = await body_of(asked(messages=(user_message(text),)))
    assert body["contents"][0]["parts"][0]["text"] == text


# What comes back


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


async def test_signed_call_and_result_are_replayed() -> None:
    spec = ToolSpec("my files:read", "Read.", {"properties": {"path": {"type": "string"}}})
    request = ModelRequest("gemini-3-flash", "", (user_message("go"),), (spec,))

    async def scene(provider: google.GoogleProvider, server: ModelServer) -> Any:
        name = wire_name(spec.name)
        calls = (ScriptedCall(name, {"path": "a"}, id="g1"), ScriptedCall(name, {"path": "b"}))
        server.script([Think("hm"), CallTools(*calls)], [Say("done")])
        asking = await answer(provider, request)
        assert [call.name for call in asking.calls] == ["my files:read"] * 2
        results = [
            Message("tool", (ToolResult(call.id, call.name, (Text(call.args["path"]),)),))
            for call in reversed(asking.calls)
        ]
        await answer(provider, replace(request, messages=(user_message("go"), asking, *results)))
        return [request.body for request in server.requests]

    async with served() as (provider, server):
        first, second = await scene(provider, server)
    name = first["tools"][0]["functionDeclarations"][0]["name"]
    assert second["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {
                    "functionCall": {"name": name, "args": {"path": "a"}, "id": "g1"},
                    "thoughtSignature": SIGNATURE,
                },
                {"functionCall": {"name": name, "args": {"path": "b"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": name, "id": "g1", "response": {"output": "a"}}},
                {"functionResponse": {"name": name, "response": {"output": "b"}}},
            ],
        },
    ]


@pytest.mark.parametrize(
    "shape",
    [
        BodyFraming(piece_bytes=1),
        BodyFraming(newline=b"\r\n"),
        BodyFraming(newline=b"\r\n", piece_bytes=3, bom=True),
        BodyFraming(framing="close"),
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


async def test_stream_cut_after_end_keeps_answer() -> None:
    chunk = (
        b'data: {"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}\n\n'
    )
    assert (await message_of(Raw(chunk), Cut())).text == "hi"
    assert (await message_of(Raw(chunk), HangUntilDisconnect(), idle_s=0.05)).text == "hi"


async def test_empty_answer_is_returned() -> None:
    message = await message_of()
    assert message.parts == ()
    assert message.origin is not None
    assert message.origin.stop == "stop"


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


# What goes wrong


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Fail(401)], AuthError),
        ([Fail(403)], AuthError),
        ([Overflow()], ContextOverflowError),
        ([Fail(500)], OverloadedError),
        ([Fail(503)], OverloadedError),
        ([Fail(504)], ProviderTimeoutError),
        ([Fail(404)], BadRequestError),
        ([Fail(400)], BadRequestError),
        ([Fail(302, headers={"Location": "http://127.0.0.1:1/"})], BadRequestError),
        ([Fail(500, body=b"\xff\x00<html>")], OverloadedError),
        ([Say("a"), StreamFault()], OverloadedError),
        ([Say("a"), StreamFault("slow down", "rate_limit_exceeded")], RateLimitError),
        (
            [Say("a"), StreamFault("The input token count exceeds the maximum", "x")],
            ContextOverflowError,
        ),
        ([Say("a"), Stop("filtered")], ContentFilterError),
        ([Say("a"), Raw(b"data: {oops\n\n")], StreamError),
        ([Raw(b"data: [1]\n\n")], StreamError),
        ([Raw(b"data: null\n\n")], StreamError),
        ([Raw(b"data: " + b"[" * 200_000 + b"\n\n")], StreamError),
        ([Raw(b'data: {"candidates":5}\n\n')], StreamError),
        ([Say("a"), Cut()], StreamError),
        ([Say("a"), Cut("reset")], StreamError),
        ([Say("a"), Cut("half-close")], StreamError),
        ([Say("a"), BodyFraming(end=False)], StreamError),
        ([BodyFraming(end=False, framing="close")], StreamError),
        ([Say("abc"), BodyFraming(cut_at_byte=100)], StreamError),
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


async def test_keep_alives_extend_idle_limit_not_deadline() -> None:
    async with served([Comments(every_s=0.01)], idle_s=0.1) as (provider, server):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await answer(provider)
        await server.requests[0].ended.wait()
        assert server.requests[0].outcome == "client left"


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


@pytest.mark.parametrize("url", ["not a url", "", "http://[::1", "http://127.0.0.1:1/v1beta"])
async def test_invalid_address_raises_unreachable(url: str) -> None:
    with pytest.raises(UnreachableError) as caught:
        await answer(google.create(google.ProviderConnection("mock", url, connect_s=5)))
    assert caught.value.fix


async def test_key_and_request_never_shown_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await error_of(Fail(400, message=f"bad key {KEY}"))
    await message_of(Say("x"), request=asked(messages=(user_message("a private question"),)))
    settings = google.ProviderConnection("mock", "http://h", KEY)
    shown = caplog.text + repr(settings) + repr(google.create(settings))
    for secret in (KEY, "a private question"):
        assert secret not in shown


def test_provider_creation_imports_no_http_library() -> None:
    code = (
        "import sys; from homarus.providers import google;"
        "google.create(google.ProviderConnection('x', 'https://api.example/v1beta', 'k'));"
        "print([m for m in ('httpx2', 'h11', 'anyio', 'pydantic', 'google.genai')"
        " if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


# Who is asked over this wire


def connected(config: dict[str, Any], model: str = "google/gemini-3-flash-preview") -> Provider:
    made = Config.model_validate({"models": {"providers": config}})
    return first_of(model, made, {"GEMINI_API_KEY": KEY})[0]


def test_google_vendor_uses_own_api_and_address() -> None:
    provider = connected({})
    assert isinstance(provider, google.GoogleProvider)
    assert provider._settings.base_url == "https://generativelanguage.googleapis.com/v1beta"
    assert provider._settings.api_key == KEY
    assert VENDORS["google"].api == google.API
    bare = connected({"google": {"baseUrl": "https://generativelanguage.googleapis.com/"}})
    assert isinstance(bare, google.GoogleProvider)
    assert bare._settings.base_url == "https://generativelanguage.googleapis.com/v1beta"


def test_google_openai_address_uses_chat_api() -> None:
    url = "https://generativelanguage.googleapis.com/v1beta/openai/"
    assert isinstance(connected({"google": {"baseUrl": url}}), openai.OpenAIProvider)
    told = {"google": {"baseUrl": url, "api": "google-generative-ai"}}
    assert isinstance(connected(told), google.GoogleProvider)


def test_any_provider_may_declare_gemini_api() -> None:
    entry = {"baseUrl": "http://10.0.0.1/v1beta", "api": "google-generative-ai"}
    provider = connected({"mine": {**entry, "models": [{"id": "x"}]}}, "mine/x")
    assert isinstance(provider, google.GoogleProvider)
    assert provider._settings.base_url == "http://10.0.0.1/v1beta"
