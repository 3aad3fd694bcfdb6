"""The scripted server's Gemini dialect: the official client understands it."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from homarus.testing.model_server import (
    BodyFraming,
    CallTools,
    Fail,
    ModelServer,
    Overflow,
    ReportedUsage,
    Say,
    ScriptedAnswer,
    ScriptedCall,
    ScriptStep,
    Stop,
    StreamFault,
    Think,
)
from homarus.testing.model_server.google import MODEL, SIGNATURE


@asynccontextmanager
async def played(*answers: ScriptedAnswer) -> AsyncIterator[tuple[Any, ModelServer]]:
    async with asyncio.timeout(60), ModelServer() as server:
        server.script(*answers)
        root = server.url.removesuffix("/v1")
        options = types.HttpOptions(base_url=root, api_version="v1beta")
        async with genai.Client(api_key="k", http_options=options).aio as client:
            yield client.models, server


async def stream(models: Any, contents: Any = "hi") -> list[types.GenerateContentResponse]:
    chunks = await models.generate_content_stream(model="m", contents=contents)
    return [chunk async for chunk in chunks]


def parts_of(chunks: list[types.GenerateContentResponse]) -> list[types.Part]:
    return [part for chunk in chunks for part in chunk.parts or ()]


def finish_of(chunk: types.GenerateContentResponse) -> str:
    assert chunk.candidates is not None
    assert chunk.candidates[0].finish_reason is not None
    return chunk.candidates[0].finish_reason.value


async def test_google_sdk_reads_streamed_text_reasoning_and_usage() -> None:
    steps: list[ScriptStep] = [Think("Hm"), Say(["Hé", "llo ", "🦞"]), ReportedUsage(20, 3, 5, 1)]
    async with played(steps) as (models, _):
        chunks: Any = await stream(models)
    parts = parts_of(chunks)
    assert "".join(p.text or "" for p in parts if not p.thought) == "Héllo 🦞"
    assert [p.text for p in parts if p.thought] == ["Hm"]
    assert finish_of(chunks[-1]) == "STOP"
    usage = chunks[-1].usage_metadata
    assert (usage.prompt_token_count, usage.total_token_count) == (20, 23)
    assert (usage.candidates_token_count, usage.thoughts_token_count) == (2, 1)
    assert usage.cached_content_token_count == 5


async def test_google_sdk_reads_calls_with_ids_and_signatures() -> None:
    steps = [
        CallTools(ScriptedCall("read", {"path": "é"}, id="c1"), ScriptedCall("ls", '{"all": true}'))
    ]
    async with played(steps) as (models, _):
        chunks: Any = await stream(models)
    calls = [part for part in parts_of(chunks) if part.function_call]
    made = [part.function_call for part in calls if part.function_call]
    assert [(call.name, call.args, call.id) for call in made] == [
        ("read", {"path": "é"}, "c1"),
        ("ls", {"all": True}, None),
    ]
    assert calls[0].thought_signature == base64.b64decode(SIGNATURE)
    assert calls[1].thought_signature is None


async def test_google_sdk_reads_complete_answer() -> None:
    steps: list[ScriptStep] = [
        Think("hm"),
        Say(["a", "b"]),
        CallTools(ScriptedCall("read", {"p": 1})),
        Stop("length"),
    ]
    async with played(steps) as (models, server):
        whole, request = await models.generate_content(model="m", contents="hi"), server.requests[0]
    assert [part.text for part in whole.parts[:2]] == ["hm", "ab"]
    assert whole.function_calls[0].args == {"p": 1}
    assert finish_of(whole) == "MAX_TOKENS"
    assert request.path == "/v1beta/models/m:generateContent"


@pytest.mark.parametrize(
    ("step", "kind", "code", "status"),
    [
        (Fail(400), errors.ClientError, 400, "INVALID_ARGUMENT"),
        (Fail(401), errors.ClientError, 401, "UNAUTHENTICATED"),
        (Fail(429, retry_after="2"), errors.ClientError, 429, "RESOURCE_EXHAUSTED"),
        (Fail(418, message="tea", code="TEAPOT"), errors.ClientError, 418, "TEAPOT"),
        (Overflow(), errors.ClientError, 400, "INVALID_ARGUMENT"),
        (Fail(503), errors.ServerError, 503, "UNAVAILABLE"),
    ],
)
async def test_google_sdk_reads_errors(
    step: Any, kind: type[errors.APIError], code: int, status: str
) -> None:
    with pytest.raises(kind) as caught:
        async with played([step]) as (models, _):
            await stream(models)
    assert (caught.value.code, caught.value.status) == (code, status)


@pytest.mark.parametrize("shape", [BodyFraming(), BodyFraming(newline=b"\r\n")])
async def test_google_sdk_reads_error_midway(shape: BodyFraming) -> None:
    async with played([Say("so far"), StreamFault("oops"), shape]) as (models, _server):
        chunks = await models.generate_content_stream(model="m", contents="hi")
        assert (await anext(chunks)).text == "so far"
        with pytest.raises(errors.ServerError) as caught:
            await anext(chunks)
        assert caught.value.message == "oops"


async def test_google_markers_find_question_among_results() -> None:
    call = types.Part.from_function_call(name="read", args={})
    back = types.Part.from_function_response(name="read", response={"output": "x"})
    asking = "MOCK:tool:read:{}§ MOCK:next MOCK:say:after§"
    contents = [
        types.Content(role="user", parts=[types.Part(text=asking)]),
        types.Content(role="model", parts=[call]),
        types.Content(role="user", parts=[back]),
    ]
    async with played() as (models, server):
        (first, *_), said = await stream(models, asking), await stream(models, contents)
        assert first.function_calls is not None
        assert first.function_calls[0].name == "read"
        assert said[0].text == "after"
        assert [request.stats["after_tool"] for request in server.requests] == [False, True]


async def test_google_models_and_token_counts_are_served() -> None:
    async def scene(models: Any, _server: ModelServer) -> Any:
        listed = [model.name async for model in await models.list()]
        counted = await models.count_tokens(model="m", contents="hello there")
        return listed, counted.total_tokens

    async with played() as (models, _server):
        listed, counted = await scene(models, _server)
    assert listed == [f"models/{MODEL}"]
    assert counted > 0
