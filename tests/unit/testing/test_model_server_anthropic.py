"""The scripted server's Anthropic dialect: the official client understands it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import pytest

from homarus.testing.model_server import (
    CallTools,
    Cut,
    Fail,
    ModelServer,
    Overflow,
    Raw,
    ReportedUsage,
    Say,
    ScriptedAnswer,
    ScriptedCall,
    Stop,
    StreamFault,
    Think,
)
from homarus.testing.model_server.anthropic import SIGNATURE


@asynccontextmanager
async def played(
    *answers: ScriptedAnswer,
) -> AsyncIterator[tuple[anthropic.AsyncAnthropic, ModelServer]]:
    async with asyncio.timeout(60), ModelServer() as server:
        url = server.url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
            server.script(*answers)
            yield client, server


def asked(*turns: tuple[Any, Any]) -> list[Any]:
    return [{"role": role, "content": content} for role, content in turns]


async def stream(
    client: anthropic.AsyncAnthropic, messages: list[Any] | None = None
) -> anthropic.types.Message:
    async with client.messages.stream(
        model="m", max_tokens=9, messages=messages or asked(("user", "hi"))
    ) as events:
        return await events.get_final_message()


def content(message: anthropic.types.Message) -> list[Any]:
    return [block.model_dump(exclude_none=True) for block in message.content]


async def test_anthropic_sdk_reads_streamed_text_and_usage() -> None:
    steps: ScriptedAnswer = [Say(["Hé", "llo ", "🦞"]), ReportedUsage(20, 3, 5, 1)]
    async with played(steps) as (client, _):
        message: Any = await stream(client)
    assert content(message) == [{"type": "text", "text": "Héllo 🦞"}]
    assert (message.model, message.stop_reason) == ("m", "end_turn")
    usage = message.usage
    assert (usage.input_tokens, usage.output_tokens) == (15, 3)
    assert usage.cache_read_input_tokens == 5
    assert usage.output_tokens_details.thinking_tokens == 1


async def test_anthropic_sdk_reads_reasoning_text_and_calls_in_order() -> None:
    calls = CallTools(ScriptedCall("read", {"path": "a" * 30}, id="c1"), ScriptedCall("ls", {}))
    async with played([Think(["Hm", "m"]), Say("a"), Say("b"), calls]) as (client, _):
        message: Any = await stream(client)
    read, listed = message.content[2:]
    assert content(message)[:2] == [
        {"type": "thinking", "thinking": "Hmm", "signature": SIGNATURE},
        {"type": "text", "text": "ab"},
    ]
    assert (read.id, read.name, read.input) == ("c1", "read", {"path": "a" * 30})
    assert (listed.name, listed.input) == ("ls", {})
    assert message.stop_reason == "tool_use"


async def test_anthropic_sdk_sees_events_in_service_order() -> None:
    async with played([Think("a"), Say(["b", "c"])]) as (client, _server):
        events = await client.messages.create(
            model="m", max_tokens=9, messages=asked(("user", "hi")), stream=True
        )
        result = [event.type async for event in events]
    assert result == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_anthropic_sdk_reads_complete_answer_and_token_count() -> None:
    async with played(
        [Think("hm"), Say(["a", "b"]), CallTools(ScriptedCall("read", {"p": 1}))]
    ) as (client, _server):
        messages = asked(("user", "hi"))
        counted = await client.messages.count_tokens(model="m", messages=messages)
        assert counted.input_tokens > 0
        whole: Any = await client.messages.create(model="m", max_tokens=9, messages=messages)
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    assert whole.content[2].input == {"p": 1}
    assert whole.stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("filtered", "refusal")],
)
async def test_anthropic_sdk_reads_stop_reason(reason: Any, stop: str) -> None:
    async with played([Say("a"), Stop(reason)]) as (client, _):
        result: Any = await stream(client)
    assert result.stop_reason == stop


@pytest.mark.parametrize(
    ("step", "error", "kind"),
    [
        (Fail(400), anthropic.BadRequestError, "invalid_request_error"),
        (Fail(401), anthropic.AuthenticationError, "authentication_error"),
        (Fail(403), anthropic.PermissionDeniedError, "permission_error"),
        (Fail(404), anthropic.NotFoundError, "not_found_error"),
        (Fail(413), anthropic.APIStatusError, "request_too_large"),
        (Fail(429, retry_after="3"), anthropic.RateLimitError, "rate_limit_error"),
        (Fail(500), anthropic.InternalServerError, "api_error"),
        (Fail(529), anthropic.APIStatusError, "overloaded_error"),
        (Overflow(), anthropic.BadRequestError, "invalid_request_error"),
    ],
)
async def test_anthropic_sdk_raises_matching_error(
    step: Any, error: type[anthropic.APIStatusError], kind: str
) -> None:
    async with played([step]) as (client, _):
        with pytest.raises(error) as caught:
            await stream(client)
        raised = caught.value
    assert raised.status_code == getattr(step, "status", 400)
    assert raised.type == kind
    assert raised.api_message
    assert raised.response.headers.get("retry-after", "") == getattr(step, "retry_after", "")


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([Say("a"), StreamFault("Overloaded", "overloaded_error")], anthropic.APIStatusError),
        ([Say("a"), Cut()], httpx2.RemoteProtocolError),
        ([Say("a"), Cut("half-close")], httpx2.RemoteProtocolError),
        ([Say("a"), Cut("reset")], httpx2.ReadError),
        ([Say("a"), Raw(b"event: message_delta\ndata: {oops\n\n")], json.JSONDecodeError),
    ],
)
async def test_anthropic_sdk_notices_faults_midway(
    steps: ScriptedAnswer, error: type[Exception]
) -> None:
    async with played(steps) as (client, _server):
        with pytest.raises(error):
            await stream(client)


async def test_anthropic_markers_lead_through_tool_call() -> None:
    async with played() as (client, server):
        turns = asked(("user", 'T#7 MOCK:tool:read:{"p":1}§ MOCK:next MOCK:say:done§'))
        first = await stream(client, turns)
        call = first.content[0]
        assert isinstance(call, anthropic.types.ToolUseBlock)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "42"}
        turns += asked(("assistant", content(first)), ("user", [result]))
        second = await stream(client, turns)
        blocks, stats = content(second), [request.stats for request in server.requests]
    assert blocks == [{"type": "text", "text": "done"}]
    assert [(row["tag"], row["after_tool"]) for row in stats] == [("7", False), ("7", True)]
