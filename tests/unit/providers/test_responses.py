"""The Responses provider, against the scripted server."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from homarus.core.errors import (
    AuthError,
    BadRequestError,
    ContentFilterError,
    ContextOverflowError,
    ImageTooLargeError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    ThinkingUnsupportedError,
)
from homarus.core.message import Message, Text, Thinking, ToolResult, Usage, user_message
from homarus.providers import responses
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
THINKER = ModelInfo("mock", "m", reasoning=True)
BODY = TypeAdapter(ResponseCreateParamsStreaming)


def asked(**fields: Any) -> ModelRequest:
    return ModelRequest(**{"model": "m", "system": "", "messages": (user_message("hi"),), **fields})


async def answer(provider: responses.ResponsesProvider, request: ModelRequest = HELLO) -> Message:
    async for piece in provider.stream(request):
        if isinstance(piece, Message):
            return piece
    raise AssertionError("no Message came")


@asynccontextmanager
async def served(
    *answers: list[ScriptStep],
    models: tuple[ModelInfo, ...] = (),
    **settings: Any,
) -> AsyncIterator[tuple[responses.ResponsesProvider, ModelServer]]:
    async with asyncio.timeout(60), ModelServer() as server:
        server.script(*answers)
        made = responses.ProviderConnection("mock", server.url, KEY, **settings)
        provider = responses.create(made, models=models, clock=FakeClock())
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
    BODY.validate_python(body)
    return body


def event(kind: str, **fields: Any) -> Raw:
    return Raw(b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n")


# What is sent


async def test_request_body_has_instructions_input_tools_and_no_store() -> None:
    spec = ToolSpec("read", "Read.", {"type": "object", "properties": {}})
    body = await body_of(asked(system="Be brief.", tools=(spec,), max_tokens=50))
    assert body == {
        "model": "m",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "max_output_tokens": 50,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
        ],
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Read.",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            }
        ],
    }


@pytest.mark.parametrize("thinking", ["minimal", "low", "medium", "high", "xhigh"])
async def test_request_thinking_asks_for_summary(thinking: Any) -> None:
    body = await body_of(asked(thinking=thinking), THINKER)
    assert body["reasoning"] == {"effort": thinking, "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    plain = await body_of(asked(thinking=thinking), ModelInfo("mock", "m"))
    assert not {"reasoning", "include"} & set(plain), "a model that does not think refuses both"


async def test_request_reasoning_model_includes_encrypted_content() -> None:
    body = await body_of(asked(), THINKER)
    assert "reasoning" not in body
    assert body["include"] == ["reasoning.encrypted_content"]
    quirky = ModelInfo("mock", "m", reasoning=True, compat={"supportsReasoningEffort": False})
    assert "reasoning" not in await body_of(asked(thinking="high"), quirky)


async def test_request_max_tokens_raised_to_service_minimum() -> None:
    assert (await body_of(asked(max_tokens=1)))["max_output_tokens"] == responses.MIN_OUTPUT_TOKENS


async def test_request_params_override_fields_and_null_removes_them() -> None:
    params = {"temperature": 0.2, "max_output_tokens": 70, "store": None, "input": "no"}
    body = await body_of(asked(max_tokens=50, params=params))
    assert (body["temperature"], body["max_output_tokens"]) == (0.2, 70)
    assert "store" not in body
    assert body["input"][0]["role"] == "user"
    hosted = [{"type": "web_search"}]
    spec = ToolSpec("read", "Read.", {"type": "object"})
    assert (await body_of(asked(tools=(spec,), params={"tools": hosted})))["tools"] == hosted


async def test_request_tools_omitted_for_model_without_tools() -> None:
    spec = ToolSpec("read", "Read.", {"type": "object"})
    assert "tools" not in await body_of(
        asked(tools=(spec,)), ModelInfo("mock", "m", calls_tools=False)
    )


async def test_request_strict_tools_follow_compat() -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    request = asked(tools=(ToolSpec("read", "Read.", closed),))
    for said, sent in ((True, True), (False, None)):
        model = ModelInfo("mock", "m", compat={"supportsStrictMode": said})

        async def scene(provider: responses.ResponsesProvider, server: ModelServer) -> Any:
            await answer(provider, request)
            return server.requests[0].body["tools"][0].get("strict")

        async with served(models=(model,)) as (provider, server):
            result: Any = await scene(provider, server)
        assert result is sent


async def test_reasoning_replayed_with_results_of_its_calls() -> None:
    async with served(models=(THINKER,)) as (provider, server):
        server.script(
            [Think("Look first."), CallTools(ScriptedCall("read", {"p": 1}, id="call_9"))]
        )
        server.script([Say("Done.")])
        said = await answer(provider, HELLO)
        result = Message("tool", (ToolResult("call_9", "read", (Text("42"),)),))
        await answer(provider, asked(messages=(user_message("hi"), said, result)))
        sent = server.requests[1].body["input"]
    (thought,) = [part for part in said.parts if isinstance(part, Thinking)]
    assert thought.text == "Look first."
    assert [item["type"] for item in sent] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert sent[1]["encrypted_content"] == json.loads(thought.signature)["encrypted_content"]
    assert sent[1]["id"].startswith("rs_")
    assert (sent[2]["call_id"], sent[3]["output"]) == ("call_9", "42")


FOREIGN = (
    "The encrypted content for item rs_00000001 could not be verified. "
    "Reason: Encrypted content organization_id did not match the target organization."
)


@pytest.mark.parametrize(
    "words",
    [
        FOREIGN,
        "Item with id 'rs_68' not found. Items are not persisted when `store` is set to false.",
        "Item 'rs_68' of type 'reasoning' was provided without its required following item.",
    ],
)
async def test_refused_reasoning_is_omitted_afterwards(words: str) -> None:
    async with served(models=(THINKER,)) as (provider, server):
        server.script([Think("hm"), Say("a")], [Fail(400, words)], [Think("so"), Say("b")], [])
        first = await answer(provider)
        request = asked(messages=(user_message("hi"), first, user_message("go")))
        with pytest.raises(StreamError, match="without now"):  # whose policy is to try again
            await answer(provider, request)
        second = await answer(provider, request)
        later = replace(second, at_ms=second.at_ms + 1)
        await answer(provider, asked(messages=(*request.messages, later, user_message("on"))))
        sent = [[i["type"] for i in r.body["input"]] for r in server.requests[1:]]
        result: Any = [kinds.count("reasoning") for kinds in sent]
    assert result == [1, 0, 1]


async def test_refusal_unrelated_to_reasoning_is_raised() -> None:
    assert type(await error_of(Fail(400, FOREIGN))) is BadRequestError


async def test_refused_thinking_level_raises_its_class() -> None:
    for words, param in (
        ("Unsupported value: 'xhigh' is not supported with this model.", "reasoning.effort"),
        ("Your organization must be verified for that.", "reasoning.summary"),
    ):
        told = {"message": words, "code": "unsupported_value", "param": param, "type": "x"}
        step = Fail(400, body=json.dumps({"error": told}).encode())
        assert type(await error_of(step)) is ThinkingUnsupportedError


async def test_request_headers_have_key_and_path_is_method() -> None:
    async with served(models=(ModelInfo("mock", "m", headers={"X-Model": "yes"}),)) as (
        provider,
        server,
    ):
        await answer(provider)
        received: Any = server.requests[0]
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["x-model"] == "yes"
    assert received.path == "/v1/responses"


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
        BodyFraming(newline=b"\r"),
        BodyFraming(newline=b"\r\n", piece_bytes=1, bom=True),
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


DELTA = event("response.output_text.delta", output_index=0, delta="hi").data
END = event("response.completed", response={"output": []}).data


@pytest.mark.parametrize("tail", [END, END + b"data: {oops\n\n", b"data: [DONE]\n\n", END[:-2]])
async def test_stream_end_is_full_response_or_done(tail: bytes) -> None:
    assert (await message_of(Replay(DELTA + tail))).text == "hi"


async def test_stream_cut_after_end_keeps_answer() -> None:
    assert (await message_of(Raw(DELTA), Raw(END), Cut())).text == "hi"
    assert (await message_of(Raw(DELTA), Raw(END), HangUntilDisconnect(), idle_s=0.05)).text == "hi"


async def test_empty_answer_is_returned() -> None:
    message = await message_of()
    assert message.parts == ()
    assert message.origin is not None
    assert message.origin.stop == "stop"


# What goes wrong


def failed(code: str, message: str = "It broke.") -> Raw:
    error = {"code": code, "message": message}
    return event("response.failed", response={"status": "failed", "error": error, "output": []})


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Fail(401)], AuthError),
        ([Overflow()], ContextOverflowError),
        ([Fail(500)], OverloadedError),
        ([Fail(404)], BadRequestError),
        ([Say("a"), StreamFault()], OverloadedError),
        ([Say("a"), StreamFault("slow down", "rate_limit_exceeded")], RateLimitError),
        ([event("error", error={"code": "context_length_exceeded"})], ContextOverflowError),
        ([event("error", message="who knows", code=None)], StreamError),
        ([failed("server_error")], OverloadedError),
        ([failed("rate_limit_exceeded")], RateLimitError),
        ([failed("context_length_exceeded")], ContextOverflowError),
        ([failed("invalid_prompt")], BadRequestError),
        ([failed("invalid_prompt", "flagged as violating our usage policy")], ContentFilterError),
        ([failed("bio_policy")], ContentFilterError),
        ([failed("image_content_policy_violation")], ContentFilterError),
        ([failed("image_file_too_large")], ImageTooLargeError),
        ([failed("image_too_large")], ImageTooLargeError),
        ([failed("image_parse_error")], BadRequestError),
        ([failed("failed_to_download_image")], BadRequestError),
        ([failed("vector_store_timeout")], ProviderTimeoutError),
        ([event("response.failed", response=None)], StreamError),
        ([event("response.cancelled", response={"status": "cancelled"})], StreamError),
        ([Say("a"), Stop("filtered")], ContentFilterError),
        ([Say("a"), Raw(b"data: {oops\n\n")], StreamError),
        ([Raw(b"data: [1]\n\n")], StreamError),
        ([Raw(b"data: " + b"[" * 200_000 + b"\n\n")], StreamError),
        ([Raw(b'data: {"choices":[]}\n\n')], StreamError),
        ([event("response.output_item.added", item=5)], StreamError),
        ([Replay(b'{"output":[],"status":"queued"}'), BodyFraming(content_type="application/json")],
         StreamError),
        ([Say("a"), Cut()], StreamError),
        ([Say("a"), Cut("reset")], StreamError),
        ([Say("a"), BodyFraming(end=False)], StreamError),
        ([BodyFraming(end=False, framing="close")], StreamError),
        ([Say("abc"), BodyFraming(cut_at_byte=3000)], StreamError),
        ([LongLine(20 * 1024 * 1024)], StreamError),
        ([Say("a"), BodyFraming(content_type="text/html")], BadRequestError),
    ],
)  # fmt: skip
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
        assert type(await error_of(*steps, idle_s=0.05)) is ProviderTimeoutError


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


async def test_connections_reused_after_answers_and_errors() -> None:
    async with served([Say("a")], [Fail(429)], [Say("b")]) as (provider, server):
        await answer(provider)
        with pytest.raises(RateLimitError):
            await answer(provider)
        await answer(provider)
        result = len(server._tasks)
    assert result == 1


def test_provider_creation_imports_no_http_library() -> None:
    code = (
        "import sys; from homarus.providers import responses;"
        "responses.create(responses.ProviderConnection('x', 'https://api.example/v1', 'k'));"
        "print([m for m in ('httpx2', 'h11', 'anyio', 'pydantic') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
