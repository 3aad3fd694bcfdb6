"""The vendors' own libraries are the oracles: they read our recordings as our adapters do."""

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic as anthropic_sdk
import boto3
import openai as openai_sdk
import pytest
from botocore.config import Config
from google import genai
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import (
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseOutputItemDoneEvent,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseReasoningTextDeltaEvent,
    ResponseRefusalDeltaEvent,
    ResponseTextDeltaEvent,
)

from homarus.core.message import Message
from homarus.providers.anthropic_stream import REDACTED
from homarus.providers.catalog import Price
from homarus.providers.sse import EventReader
from homarus.testing.model_server import BodyFraming, ModelServer, Replay
from tests.wire.harness import (
    ANTHROPIC,
    BEDROCK,
    GOOGLE,
    OPENAI,
    RESPONSES,
    Wire,
    expected,
)


def recordings(wire: Wire) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("stream", wire.streams, ids=lambda path: path.stem)


@recordings(OPENAI)
def test_openai_sdk_reads_recording_as_adapter(stream: Path) -> None:
    want = expected(stream)
    if not want["sdk"]:
        pytest.skip("the SDK does not understand this vendor's habit")
    recorded = stream.read_bytes()

    async def main() -> None:
        async with (
            ModelServer() as server,
            openai_sdk.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
        ):
            server.script([Replay(recorded)])
            text, usage = "", None
            names: dict[int, str | None] = {}
            arguments: dict[int, list[str]] = {}
            chunks = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            async for chunk in chunks:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    for call in choice.delta.tool_calls or ():
                        assert call.function is not None
                        names.setdefault(call.index, call.function.name)
                        arguments.setdefault(call.index, []).append(call.function.arguments or "")
            calls = [
                {"name": name, "args": json.loads("".join(arguments[index]))}
                for index, name in names.items()
            ]
            assert (text, calls) == (want["text"], want["calls"])
            if usage is not None and want.get("sdk_usage", True):
                ours = want["usage"]
                prompt = sum(ours.get(k, 0) for k in ("input", "cache_read", "cache_write"))
                assert (usage.prompt_tokens, usage.completion_tokens) == (prompt, ours["output"])

    asyncio.run(main())


def anthropic_block(block: Any) -> dict[str, Any] | None:
    """Return a block of the SDK as the recordings describe it."""
    match block.type:
        case "text":
            return {"text": block.text}
        case "thinking":
            return {"thinking": block.thinking, "signature": block.signature}
        case "redacted_thinking":
            return {"thinking": "", "signature": REDACTED + block.data}
        case "tool_use":
            return {"call": block.name, "args": block.input}
        case _:
            return None


@recordings(ANTHROPIC)
def test_anthropic_sdk_reads_recording_as_adapter(stream: Path) -> None:
    want = expected(stream)
    if not want["sdk"]:
        pytest.skip("the SDK does not understand this service's habit")
    data = stream.read_bytes()

    async def main() -> anthropic_sdk.types.Message:
        async with ModelServer() as server:
            server.script([Replay(data)])
            url = server.url.removesuffix("/v1")
            async with (
                anthropic_sdk.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client,
                client.messages.stream(
                    model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
                ) as events,
            ):
                return await events.get_final_message()

    message = asyncio.run(main())
    parts = [part for part in want["parts"] if not part.get("broken")]
    understood = [part for part in map(anthropic_block, message.content) if part]
    assert [part for part in understood if part in parts] == parts
    assert len(understood) == len(want["parts"])
    ours = want["usage"]
    usage = message.usage
    assert (usage.input_tokens, usage.output_tokens) == (ours["input"], ours["output"])
    assert (usage.cache_read_input_tokens or 0) == ours.get("cache_read", 0)
    assert (usage.cache_creation_input_tokens or 0) == ours.get("cache_write", 0)


@recordings(GOOGLE)
def test_google_json_list_is_read_as_the_stream(stream: Path) -> None:
    """Without `alt=sse`, as some who stand in for Google answer: one JSON list of all chunks."""
    events = EventReader().feed(GOOGLE.recorded(stream))
    body = b"[" + b",\r\n".join(event.encode() for event in events) + b"]"
    message = GOOGLE.outcome(Replay(body), BodyFraming(content_type="application/json"))
    assert isinstance(message, Message)
    GOOGLE.check(message, expected(stream))


@recordings(GOOGLE)
def test_google_sdk_reads_recording_as_adapter(stream: Path) -> None:
    want, recorded = expected(stream), stream.read_bytes()

    async def main() -> list[types.GenerateContentResponse]:
        async with ModelServer() as server:
            root = server.url.removesuffix("/v1")
            options = types.HttpOptions(base_url=root, api_version="v1beta")
            server.script([Replay(recorded)])
            async with genai.Client(api_key="k", http_options=options).aio as client:
                chunks = await client.models.generate_content_stream(model="m", contents="hi")
                return [chunk async for chunk in chunks]

    chunks = asyncio.run(main())
    parts = [part for chunk in chunks for part in chunk.parts or ()]
    texts = [part for part in parts if part.text is not None]
    assert "".join(p.text or "" for p in texts if not p.thought) == want["text"]
    assert "".join(p.text or "" for p in texts if p.thought) == want["thinking"]
    calls = [
        {
            "name": part.function_call.name,
            "args": part.function_call.args or {},
            **({"id": part.function_call.id} if part.function_call.id else {}),
            "signature": base64.b64encode(part.thought_signature or b"").decode(),
        }
        for part in parts
        if part.function_call
    ]
    assert calls == want["calls"]
    blobs = [part.inline_data for part in parts if part.inline_data]
    assert want["images"] == [
        {"mime": blob.mime_type, "data": base64.b64encode(blob.data or b"").decode()}
        for blob in blobs
    ]
    usage = next((c.usage_metadata for c in reversed(chunks) if c.usage_metadata), None)
    if usage is not None:
        ours = want["usage"]
        assert usage.total_token_count == sum(
            ours.get(name, 0) for name in ("input", "cache_read", "output")
        )


@recordings(RESPONSES)
def test_responses_sdk_reads_recording_as_adapter(stream: Path) -> None:
    want = expected(stream)
    if not want["sdk"]:
        pytest.skip("the SDK leaves it to its user to put this together")
    recorded = stream.read_bytes()

    async def main() -> None:
        async with (
            ModelServer() as server,
            openai_sdk.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
        ):
            server.script([Replay(recorded)])
            text, thought, calls, last = "", "", [], None
            async for event in await client.responses.create(model="m", input="hi", stream=True):
                match event:
                    case ResponseTextDeltaEvent() | ResponseRefusalDeltaEvent():
                        text += event.delta
                    case (
                        ResponseReasoningSummaryTextDeltaEvent() | ResponseReasoningTextDeltaEvent()
                    ):
                        thought += event.delta
                    case ResponseOutputItemDoneEvent(item=ResponseFunctionToolCall() as call):
                        calls.append({"name": call.name, "args": json.loads(call.arguments)})
                    case ResponseCompletedEvent() | ResponseIncompleteEvent():
                        last = event.response
            assert (text, calls) == (want["text"], want["calls"])
            assert thought == want["thinking"].replace("\n\n", ""), "paragraphs are our own"
            assert last is not None
            assert last.usage is not None
            ours = want["usage"]
            prompt = sum(ours.get(k, 0) for k in ("input", "cache_read", "cache_write"))
            assert (last.usage.input_tokens, last.usage.output_tokens) == (prompt, ours["output"])

    asyncio.run(main())


@given(st.sampled_from(RESPONSES.streams), st.data())
def test_responses_lost_events_are_recovered_from_the_final_one(
    stream: Path, data: st.DataObject
) -> None:
    *some, last = (event for (event,) in RESPONSES.events(RESPONSES.recorded(stream)))
    if not last["response"]["output"]:
        return
    want, reply = expected(stream), RESPONSES.assembler()
    for event in some:
        if data.draw(st.booleans()):
            reply.add(event)
    reply.add(last)
    got = Message("assistant", reply.message_parts())
    assert got.text == want["text"]
    assert got.thinking == want["thinking"]
    assert [c.args for c in got.calls] == [c["args"] for c in want["calls"]]


def converse_blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of an answer as boto3 gives them, in our words."""
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        if start := event.get("contentBlockStart"):
            blocks[start["contentBlockIndex"]] = dict(start["start"])
        if delta := event.get("contentBlockDelta"):
            block = blocks.setdefault(delta["contentBlockIndex"], {})
            for kind, value in delta["delta"].items():
                block.setdefault(kind, {})
                block.setdefault("pieces", []).append((kind, value))
    return [made for _, block in sorted(blocks.items()) if (made := _converse_block(block))]


def _converse_block(block: dict[str, Any]) -> dict[str, Any] | None:
    pieces = block.get("pieces", [])
    if "text" in block:
        return {"text": "".join(value for kind, value in pieces if kind == "text")}
    if "reasoningContent" in block:
        thoughts = [value for _, value in pieces]
        if any("redactedContent" in thought for thought in thoughts):
            whole = b"".join(thought["redactedContent"] for thought in thoughts)
            return {"thinking": "", "signature": REDACTED + base64.b64encode(whole).decode()}
        return {
            "thinking": "".join(thought.get("text", "") for thought in thoughts),
            "signature": "".join(thought.get("signature", "") for thought in thoughts),
        }
    if "image" in block:
        whole = b"".join(value["source"]["bytes"] for _, value in pieces)
        mime = f"image/{block['image']['format']}"
        return {"image": base64.b64encode(whole).decode(), "mime": mime}
    tool = block.get("toolUse")
    if not tool or "type" in tool:
        return None
    args = "".join(value["input"] for _, value in pieces)
    try:
        return {"call": tool["name"], "args": json.loads(args or "{}")}
    except ValueError:
        return {"call": tool["name"], "args": {}, "broken": args}


@recordings(BEDROCK)
def test_boto3_reads_recording_as_adapter(stream: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        async with ModelServer() as server:
            server.script([Replay(BEDROCK.recorded(stream))])
            session = boto3.Session("AKID", "secret", region_name="us-east-1")
            config = Config(retries={"total_max_attempts": 1})
            client = session.client("bedrock-runtime", endpoint_url=server.url, config=config)

            def asked() -> list[dict[str, Any]]:
                turns = [{"role": "user", "content": [{"text": "hi"}]}]
                return list(client.converse_stream(modelId="m", messages=turns)["stream"])

            return await asyncio.to_thread(asked)

    events, want = asyncio.run(main()), expected(stream)
    assert converse_blocks(events) == want["parts"]
    usage, ours = events[-1]["metadata"]["usage"], want["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (ours["input"], ours["output"])
    assert usage.get("cacheReadInputTokens", 0) == ours.get("cache_read", 0)
    assert usage.get("cacheWriteInputTokens", 0) == ours.get("cache_write", 0)


def test_bedrock_usage_with_hour_cache_costs_more() -> None:
    stream = next(path for path in BEDROCK.streams if path.stem == "cache-hour")
    usage = BEDROCK.read(BEDROCK.recorded(stream)).usage(Price(0, 0, 0, 1_000_000))
    assert usage.cost == pytest.approx(20 + 1.6 * 80)
