"""Recorded-style streams of the Responses wire → what they mean; the openai SDK is the oracle."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai as sdk
import pytest
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

from homarus.core.message import Image, Message, Text, Thinking, user
from homarus.providers import responses
from homarus.providers.base import Request, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.responses_reply import Reply
from homarus.providers.sse import EventReader
from homarus.testing.model_server import ModelServer, Replay, Shape

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "responses").glob("*.sse"))


@pytest.fixture(params=STREAMS, ids=lambda path: path.stem)
def stream(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def expected(stream: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stream.with_suffix(".json").read_text())
    return found


def view(message: Message) -> dict[str, Any]:
    assert message.origin is not None
    usage = {k: v for k, v in asdict(message.origin.usage).items() if v}
    return {
        "text": message.text,
        "thinking": message.thinking,
        "calls": [{"name": c.name, "args": dict(c.args)} for c in message.calls],
        "stop": message.origin.stop,
        "usage": usage,
    }


def kept(message: Message) -> dict[str, Any]:
    """What must come back with the next request, and what is neither text nor call."""
    thoughts = [p.signature for p in message.parts if isinstance(p, Thinking)]
    phases = [p.signature for p in message.parts if isinstance(p, Text) and p.signature]
    return {
        "signed": [json.loads(signature)["id"] for signature in thoughts if signature],
        "phases": [json.loads(signature)["phase"] for signature in phases],
        "images": [asdict(part) for part in message.parts if isinstance(part, Image)],
    }


async def ask(url: str) -> tuple[str, str, Message]:
    provider = responses.create(responses.Settings("mock", url))
    said, thought, message = "", "", None
    async for piece in provider.stream(Request("m", "", (user("hi"),))):
        match piece:
            case TextDelta(text):
                said += text
            case ThinkingDelta(text):
                thought += text
            case Message():
                message = piece
    await provider.close()
    assert message is not None
    return said, thought, message


@pytest.mark.parametrize("shape", [Shape(), Shape(piece_bytes=1), Shape(newline=b"\r\n", bom=True)])
def test_the_adapter_reads_a_stream_as_it_is_meant(stream: Path, shape: Shape) -> None:
    data = stream.read_bytes()

    async def main() -> tuple[str, str, Message]:
        async with ModelServer() as server:
            server.script([Replay(data), shape])
            return await ask(server.url)

    want = expected(stream)
    said, thought, message = asyncio.run(main())
    got = view(message)
    assert got == {key: want[key] for key in got}
    assert kept(message) == {key: want.get(key, []) for key in ("signed", "phases", "images")}
    assert (said, thought) == (want.get("streamed", want["text"]), want["thinking"])


def test_the_sdk_reads_the_same(stream: Path) -> None:
    want = expected(stream)
    if not want["sdk"]:
        pytest.skip("the SDK leaves it to its user to put this together")
    recorded = stream.read_bytes()

    async def main() -> None:
        async with (
            ModelServer() as server,
            sdk.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
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


def events_in(data: bytes, cuts: list[int]) -> Iterator[dict[str, Any]]:
    """The events of a stream that is read in the pieces between `cuts`."""
    reader = EventReader()
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in pairwise(edges):
        for event in reader.feed(data[start:end]):
            if event != "[DONE]":
                yield json.loads(event)


@given(st.sampled_from(STREAMS), st.lists(st.integers(min_value=0), max_size=20), st.booleans())
def test_any_split_of_a_stream_gives_the_same_reply(
    stream: Path, cuts: list[int], crlf: bool
) -> None:
    data = stream.read_bytes()
    reply, want = Reply(), expected(stream)
    for event in events_in(data.replace(b"\n", b"\r\n") if crlf else data, cuts):
        reply.add(event)
    parts = Message("assistant", reply.message_parts())
    assert (parts.text, parts.thinking) == (want["text"], want["thinking"])
    assert [{"name": c.name, "args": c.args} for c in parts.calls] == want["calls"]
    usage = {k: v for k, v in asdict(reply.usage(Price())).items() if v}
    assert (reply.stop(), usage) == (want["stop"], want["usage"])


@given(st.sampled_from(STREAMS), st.data())
def test_a_stream_cut_anywhere_never_gives_a_different_answer(
    stream: Path, data: st.DataObject
) -> None:
    """What is read of a cut stream is a beginning of the whole, and is not taken for it."""
    want, whole = expected(stream), stream.read_bytes()
    reply = Reply()
    for event in events_in(whole[: data.draw(st.integers(0, len(whole)))], []):
        reply.add(event)
    got = Message("assistant", reply.message_parts())
    if reply.status:
        assert (got.text, got.thinking) == (want["text"], want["thinking"])
        assert [c.args for c in got.calls] == [c["args"] for c in want["calls"]]
    elif "streamed" not in want:
        assert want["text"].startswith(got.text)
        assert want["thinking"].startswith(got.thinking)


@given(st.sampled_from(STREAMS), st.data())
def test_events_lost_on_the_way_cost_nothing_when_the_end_tells_all(
    stream: Path, data: st.DataObject
) -> None:
    *some, last = events_in(stream.read_bytes(), [])
    if not last["response"]["output"]:
        return
    want, reply = expected(stream), Reply()
    for event in some:
        if data.draw(st.booleans()):
            reply.add(event)
    reply.add(last)
    got = Message("assistant", reply.message_parts())
    assert got.text == want["text"]
    assert got.thinking == want["thinking"]
    assert [c.args for c in got.calls] == [c["args"] for c in want["calls"]]
