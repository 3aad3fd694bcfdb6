"""The Responses provider, against the scripted server."""

import json
from dataclasses import replace
from typing import Any

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from homarus.core.errors import (
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
from homarus.core.message import Message, Text, Thinking, ToolResult, user_message
from homarus.providers import responses
from homarus.providers.base import ModelRequest, Provider, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.testing.model_server import (
    BodyFraming,
    CallTools,
    Fail,
    ModelServer,
    Raw,
    Replay,
    Say,
    ScriptedCall,
    ScriptStep,
    Think,
)
from tests.unit.providers.harness import HELLO, RESPONSES, answer, make_request

KEY = RESPONSES.key
message_of, error_of = RESPONSES.message_of, RESPONSES.error_of
served = RESPONSES.served
THINKER = ModelInfo("mock", "m", reasoning=True)
BODY = TypeAdapter(ResponseCreateParamsStreaming)


def event(kind: str, **fields: Any) -> Raw:
    return Raw(b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n")


async def body_of(request: ModelRequest, *models: ModelInfo, **settings: Any) -> dict[str, Any]:
    body = await RESPONSES.body_of(request, *models, **settings)
    BODY.validate_python(body)
    return body


# What is sent


async def test_request_body_has_instructions_input_tools_and_no_store() -> None:
    spec = ToolSpec("read", "Read.", {"type": "object", "properties": {}})
    body = await body_of(make_request(system="Be brief.", tools=(spec,), max_tokens=50))
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
    body = await body_of(make_request(thinking=thinking), THINKER)
    assert body["reasoning"] == {"effort": thinking, "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    plain = await body_of(make_request(thinking=thinking), ModelInfo("mock", "m"))
    assert not {"reasoning", "include"} & set(plain), "a model that does not think refuses both"


async def test_request_reasoning_model_includes_encrypted_content() -> None:
    body = await body_of(make_request(), THINKER)
    assert "reasoning" not in body
    assert body["include"] == ["reasoning.encrypted_content"]
    quirky = ModelInfo("mock", "m", reasoning=True, compat={"supportsReasoningEffort": False})
    assert "reasoning" not in await body_of(make_request(thinking="high"), quirky)


async def test_request_max_tokens_raised_to_service_minimum() -> None:
    assert (await body_of(make_request(max_tokens=1)))[
        "max_output_tokens"
    ] == responses.MIN_OUTPUT_TOKENS


async def test_request_params_override_fields_and_null_removes_them() -> None:
    params = {"temperature": 0.2, "max_output_tokens": 70, "store": None, "input": "no"}
    body = await body_of(make_request(max_tokens=50, params=params))
    assert (body["temperature"], body["max_output_tokens"]) == (0.2, 70)
    assert "store" not in body
    assert body["input"][0]["role"] == "user"
    hosted = [{"type": "web_search"}]
    spec = ToolSpec("read", "Read.", {"type": "object"})
    assert (await body_of(make_request(tools=(spec,), params={"tools": hosted})))["tools"] == hosted


async def test_request_strict_tools_follow_compat() -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    request = make_request(tools=(ToolSpec("read", "Read.", closed),))
    for said, sent in ((True, True), (False, None)):
        model = ModelInfo("mock", "m", compat={"supportsStrictMode": said})

        async def scene(provider: Provider, server: ModelServer) -> Any:
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
        await answer(provider, make_request(messages=(user_message("hi"), said, result)))
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
        request = make_request(messages=(user_message("hi"), first, user_message("go")))
        with pytest.raises(StreamError, match="without now"):  # whose policy is to try again
            await answer(provider, request)
        second = await answer(provider, request)
        later = replace(second, at_ms=second.at_ms + 1)
        await answer(
            provider, make_request(messages=(*request.messages, later, user_message("on")))
        )
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


DELTA = event("response.output_text.delta", output_index=0, delta="hi").data
END = event("response.completed", response={"output": []}).data


@pytest.mark.parametrize("tail", [END, END + b"data: {oops\n\n", b"data: [DONE]\n\n", END[:-2]])
async def test_stream_end_is_full_response_or_done(tail: bytes) -> None:
    assert (await message_of(Replay(DELTA + tail))).text == "hi"


# What goes wrong


def failed(code: str, message: str = "It broke.") -> Raw:
    error = {"code": code, "message": message}
    return event("response.failed", response={"status": "failed", "error": error, "output": []})


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
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
        ([Raw(b'data: {"choices":[]}\n\n')], StreamError),
        ([event("response.output_item.added", item=5)], StreamError),
        ([Replay(b'{"output":[],"status":"queued"}'), BodyFraming(content_type="application/json")],
         StreamError),
        ([Say("abc"), BodyFraming(cut_at_byte=3000)], StreamError),
    ],
)  # fmt: skip
async def test_stream_fault_raises_its_class(
    steps: list[ScriptStep], kind: type[ProviderError]
) -> None:
    assert type(await error_of(*steps)) is kind
