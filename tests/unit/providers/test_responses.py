"""The Responses provider, against the scripted server."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from homarus.core.errors import (
    AuthFailed,
    BadRequest,
    ContentFiltered,
    ContextOverflow,
    ImageTooLarge,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamBroken,
    ThinkingRefused,
)
from homarus.core.message import Message, Text, Thinking, ToolReturn, Usage, user
from homarus.providers import responses
from homarus.providers.base import Request, TextDelta, ToolSpec
from homarus.providers.catalog import Model, Price
from homarus.testing.clock import FakeClock
from homarus.testing.model_server import (
    Call,
    CallTools,
    Comments,
    Cut,
    Fail,
    Gate,
    Hold,
    LongLine,
    ModelServer,
    Overflow,
    Raw,
    Replay,
    Say,
    Shape,
    Step,
    Stop,
    Think,
    Tokens,
    Trouble,
)

KEY = "sk-test-0123456789"
HELLO = Request("m", "Be brief.", (user("hi"),))
THINKER = Model("mock", "m", reasoning=True)
BODY = TypeAdapter(ResponseCreateParamsStreaming)


def asked(**fields: Any) -> Request:
    return Request(**{"model": "m", "system": "", "messages": (user("hi"),), **fields})


async def answer(provider: responses.Responses, request: Request = HELLO) -> Message:
    async for piece in provider.stream(request):
        if isinstance(piece, Message):
            return piece
    raise AssertionError("no Message came")


def served(
    scene: Callable[[responses.Responses, ModelServer], Awaitable[Any]],
    *answers: list[Step],
    models: tuple[Model, ...] = (),
    **settings: Any,
) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60), ModelServer() as server:
            server.script(*answers)
            made = responses.Settings("mock", server.url, KEY, **settings)
            provider = responses.create(made, models=models, clock=FakeClock())
            try:
                return await scene(provider, server)
            finally:
                await provider.close()

    return asyncio.run(main())


def message_of(*steps: Step, request: Request = HELLO, **settings: Any) -> Message:
    async def scene(provider: responses.Responses, server: ModelServer) -> Message:
        return await answer(provider, request)

    message: Message = served(scene, list(steps), **settings)
    return message


def error_of(*steps: Step, **settings: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        message_of(*steps, **settings)
    error = caught.value
    assert error.message.startswith("mock/m: "), "an error names provider and model"
    assert error.fix, "an error says what to do"
    assert KEY not in str(error)
    return error


def body_of(request: Request, *models: Model, **settings: Any) -> dict[str, Any]:
    async def scene(provider: responses.Responses, server: ModelServer) -> Any:
        await answer(provider, request)
        return server.requests[0].body

    body: dict[str, Any] = served(scene, models=models, **settings)
    BODY.validate_python(body)
    return body


def event(kind: str, **fields: Any) -> Raw:
    return Raw(b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n")


# What is sent


def test_request_body_has_instructions_input_tools_and_no_store() -> None:
    spec = ToolSpec("read", "Read.", {"type": "object", "properties": {}})
    body = body_of(asked(system="Be brief.", tools=(spec,), max_tokens=50))
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
def test_request_thinking_asks_for_summary(thinking: Any) -> None:
    body = body_of(asked(thinking=thinking), THINKER)
    assert body["reasoning"] == {"effort": thinking, "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    plain = body_of(asked(thinking=thinking), Model("mock", "m"))
    assert not {"reasoning", "include"} & set(plain), "a model that does not think refuses both"


def test_request_reasoning_model_includes_encrypted_content() -> None:
    body = body_of(asked(), THINKER)
    assert "reasoning" not in body
    assert body["include"] == ["reasoning.encrypted_content"]
    quirky = Model("mock", "m", reasoning=True, compat={"supportsReasoningEffort": False})
    assert "reasoning" not in body_of(asked(thinking="high"), quirky)


def test_request_max_tokens_raised_to_service_minimum() -> None:
    assert body_of(asked(max_tokens=1))["max_output_tokens"] == responses.MIN_OUTPUT_TOKENS


def test_request_params_override_fields_and_null_removes_them() -> None:
    params = {"temperature": 0.2, "max_output_tokens": 70, "store": None, "input": "no"}
    body = body_of(asked(max_tokens=50, params=params))
    assert (body["temperature"], body["max_output_tokens"]) == (0.2, 70)
    assert "store" not in body
    assert body["input"][0]["role"] == "user"
    hosted = [{"type": "web_search"}]
    spec = ToolSpec("read", "Read.", {"type": "object"})
    assert body_of(asked(tools=(spec,), params={"tools": hosted}))["tools"] == hosted


def test_request_tools_omitted_for_model_without_tools() -> None:
    spec = ToolSpec("read", "Read.", {"type": "object"})
    assert "tools" not in body_of(asked(tools=(spec,)), Model("mock", "m", calls_tools=False))


def test_request_strict_tools_follow_compat() -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    request = asked(tools=(ToolSpec("read", "Read.", closed),))
    for said, sent in ((True, True), (False, None)):
        model = Model("mock", "m", compat={"supportsStrictMode": said})

        async def scene(provider: responses.Responses, server: ModelServer) -> Any:
            await answer(provider, request)
            return server.requests[0].body["tools"][0].get("strict")

        assert served(scene, models=(model,)) is sent


def test_reasoning_replayed_with_results_of_its_calls() -> None:
    async def scene(provider: responses.Responses, server: ModelServer) -> Any:
        server.script([Think("Look first."), CallTools(Call("read", {"p": 1}, id="call_9"))])
        server.script([Say("Done.")])
        said = await answer(provider, HELLO)
        result = Message("tool", (ToolReturn("call_9", "read", (Text("42"),)),))
        await answer(provider, asked(messages=(user("hi"), said, result)))
        return said, server.requests[1].body["input"]

    said, sent = served(scene, models=(THINKER,))
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
def test_refused_reasoning_is_omitted_afterwards(words: str) -> None:
    async def scene(provider: responses.Responses, server: ModelServer) -> Any:
        server.script([Think("hm"), Say("a")], [Fail(400, words)], [Think("so"), Say("b")], [])
        first = await answer(provider)
        request = asked(messages=(user("hi"), first, user("go")))
        with pytest.raises(StreamBroken, match="without now"):  # whose policy is to try again
            await answer(provider, request)
        second = await answer(provider, request)
        later = replace(second, at_ms=second.at_ms + 1)
        await answer(provider, asked(messages=(*request.messages, later, user("on"))))
        sent = [[i["type"] for i in r.body["input"]] for r in server.requests[1:]]
        return [kinds.count("reasoning") for kinds in sent]

    assert served(scene, models=(THINKER,)) == [1, 0, 1]


def test_refusal_unrelated_to_reasoning_is_raised() -> None:
    assert type(error_of(Fail(400, FOREIGN))) is BadRequest


def test_refused_thinking_level_raises_its_class() -> None:
    for words, param in (
        ("Unsupported value: 'xhigh' is not supported with this model.", "reasoning.effort"),
        ("Your organization must be verified for that.", "reasoning.summary"),
    ):
        told = {"message": words, "code": "unsupported_value", "param": param, "type": "x"}
        step = Fail(400, body=json.dumps({"error": told}).encode())
        assert type(error_of(step)) is ThinkingRefused


def test_request_headers_have_key_and_path_is_method() -> None:
    async def scene(provider: responses.Responses, server: ModelServer) -> Any:
        await answer(provider)
        return server.requests[0]

    received = served(scene, models=(Model("mock", "m", headers={"X-Model": "yes"}),))
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["x-model"] == "yes"
    assert received.path == "/v1/responses"


# What comes back


def test_answer_usage_and_cost_are_counted() -> None:
    price = Price(input=1.0, output=2.0, cache_read=0.5)
    message = message_of(
        Say("x"), Tokens(1000, 100, 600, 40), models=(Model("mock", "m", price=price),)
    )
    assert message.origin is not None
    usage = message.origin.usage
    assert usage == Usage(400, 100, 600, 0, 40, usage.cost)
    assert usage.cost == pytest.approx((400 * 1.0 + 100 * 2.0 + 600 * 0.5) / 1e6)
    assert message.at_ms == FakeClock().now_ms()


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_answer_stop_reason_is_mapped(reason: Any) -> None:
    message = message_of(Say("x"), Stop(reason))
    assert message.origin is not None
    assert message.origin.stop == reason


def test_answer_invalid_arguments_kept_as_broken() -> None:
    message = message_of(CallTools(Call("read", '{"path": "a'), Call("ls", {"a": "é" * 50})))
    assert [(c.name, c.args, c.broken) for c in message.calls] == [
        ("read", {}, '{"path": "a'),
        ("ls", {"a": "é" * 50}, ""),
    ]


@pytest.mark.parametrize(
    "shape",
    [
        Shape(piece_bytes=1),
        Shape(newline=b"\r"),
        Shape(newline=b"\r\n", piece_bytes=1, bom=True),
        Shape(framing="close"),
        Shape(content_type="application/json"),
        Shape(content_type=""),
    ],
)
def test_answer_in_any_byte_split_is_read(shape: Shape) -> None:
    steps = (Think("Hmm é"), Say(["Grüße ", "🦞", "!"]), CallTools(Call("read", {"p": "ü"})))
    message = message_of(*steps, Comments(times=3), shape)
    assert (message.thinking, message.text) == ("Hmm é", "Grüße 🦞!")
    assert [c.args for c in message.calls] == [{"p": "ü"}]


def test_answer_not_streamed_is_read() -> None:
    request = asked(params={"stream": False})
    steps = (Think("hm"), Say(["a", "b"]), CallTools(Call("read", {"p": 1})), Tokens(9, 3))
    message = message_of(*steps, request=request)
    assert (message.text, message.thinking) == ("ab", "hm")
    assert [(c.name, c.args) for c in message.calls] == [("read", {"p": 1})]
    assert message.origin is not None
    assert (message.origin.usage.total, message.origin.stop) == (12, "toolUse")


DELTA = event("response.output_text.delta", output_index=0, delta="hi").data
END = event("response.completed", response={"output": []}).data


@pytest.mark.parametrize("tail", [END, END + b"data: {oops\n\n", b"data: [DONE]\n\n", END[:-2]])
def test_stream_end_is_full_response_or_done(tail: bytes) -> None:
    assert message_of(Replay(DELTA + tail)).text == "hi"


def test_stream_cut_after_end_keeps_answer() -> None:
    assert message_of(Raw(DELTA), Raw(END), Cut()).text == "hi"
    assert message_of(Raw(DELTA), Raw(END), Hold(), idle_s=0.05).text == "hi"


def test_empty_answer_is_returned() -> None:
    message = message_of()
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
        ([Fail(401)], AuthFailed),
        ([Overflow()], ContextOverflow),
        ([Fail(500)], Overloaded),
        ([Fail(404)], BadRequest),
        ([Say("a"), Trouble()], Overloaded),
        ([Say("a"), Trouble("slow down", "rate_limit_exceeded")], RateLimited),
        ([event("error", error={"code": "context_length_exceeded"})], ContextOverflow),
        ([event("error", message="who knows", code=None)], StreamBroken),
        ([failed("server_error")], Overloaded),
        ([failed("rate_limit_exceeded")], RateLimited),
        ([failed("context_length_exceeded")], ContextOverflow),
        ([failed("invalid_prompt")], BadRequest),
        ([failed("invalid_prompt", "flagged as violating our usage policy")], ContentFiltered),
        ([failed("bio_policy")], ContentFiltered),
        ([failed("image_content_policy_violation")], ContentFiltered),
        ([failed("image_file_too_large")], ImageTooLarge),
        ([failed("image_too_large")], ImageTooLarge),
        ([failed("image_parse_error")], BadRequest),
        ([failed("failed_to_download_image")], BadRequest),
        ([failed("vector_store_timeout")], ProviderTimeout),
        ([event("response.failed", response=None)], StreamBroken),
        ([event("response.cancelled", response={"status": "cancelled"})], StreamBroken),
        ([Say("a"), Stop("filtered")], ContentFiltered),
        ([Say("a"), Raw(b"data: {oops\n\n")], StreamBroken),
        ([Raw(b"data: [1]\n\n")], StreamBroken),
        ([Raw(b"data: " + b"[" * 200_000 + b"\n\n")], StreamBroken),
        ([Raw(b'data: {"choices":[]}\n\n')], StreamBroken),
        ([event("response.output_item.added", item=5)], StreamBroken),
        ([Replay(b'{"output":[],"status":"queued"}'), Shape(content_type="application/json")],
         StreamBroken),
        ([Say("a"), Cut()], StreamBroken),
        ([Say("a"), Cut("reset")], StreamBroken),
        ([Say("a"), Shape(end=False)], StreamBroken),
        ([Shape(end=False, framing="close")], StreamBroken),
        ([Say("abc"), Shape(cut_at_byte=3000)], StreamBroken),
        ([LongLine(20 * 1024 * 1024)], StreamBroken),
        ([Say("a"), Shape(content_type="text/html")], BadRequest),
    ],
)  # fmt: skip
def test_stream_fault_raises_its_class(steps: list[Step], kind: type[ProviderError]) -> None:
    assert type(error_of(*steps)) is kind


def test_rate_limit_error_has_retry_after() -> None:
    error = error_of(Fail(429, retry_after="2.5"))
    assert isinstance(error, RateLimited)
    assert error.after_s == 2.5


def test_silent_server_times_out_before_and_after_first_byte() -> None:
    for steps in ([Hold()], [Say("a"), Hold()], [Comments(times=3), Hold()]):
        assert type(error_of(*steps, idle_s=0.05)) is ProviderTimeout


def test_stream_first_text_yielded_before_rest_arrives() -> None:
    async def scene(provider: responses.Responses, server: ModelServer) -> None:
        gate = asyncio.Event()
        server.script([Say("first"), Gate(gate), Say(" second")])
        said = []
        async for piece in provider.stream(HELLO):
            if isinstance(piece, TextDelta):
                said.append(piece.text)
                gate.set()
        assert said == ["first", " second"]

    served(scene)


def test_connections_reused_after_answers_and_errors() -> None:
    async def scene(provider: responses.Responses, server: ModelServer) -> int:
        await answer(provider)
        with pytest.raises(RateLimited):
            await answer(provider)
        await answer(provider)
        return len(server._tasks)

    assert served(scene, [Say("a")], [Fail(429)], [Say("b")]) == 1


def test_provider_creation_imports_no_http_library() -> None:
    code = (
        "import sys; from homarus.providers import responses;"
        "responses.create(responses.Settings('x', 'https://api.example/v1', 'k'));"
        "print([m for m in ('httpx2', 'h11', 'anyio', 'pydantic') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
