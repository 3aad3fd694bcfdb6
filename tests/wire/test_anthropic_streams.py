"""Recorded-style streams → the values they mean; the anthropic SDK is the oracle."""

import asyncio
import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic as sdk
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Message, Part, Text, Thinking, ToolCall, user
from homarus.providers import anthropic
from homarus.providers.anthropic_reply import REDACTED, Reply
from homarus.providers.base import Request, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.sse import EventReader
from homarus.testing.model_server import ModelServer, Replay, Shape

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "anthropic").glob("*.sse"))


@pytest.fixture(params=STREAMS, ids=lambda path: path.stem)
def stream(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def expected(stream: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stream.with_suffix(".json").read_text())
    return found


def read(data: bytes, cuts: list[int]) -> Reply:
    """The reply in a recorded stream, read in the pieces between `cuts`."""
    reader, reply = EventReader(), Reply()
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in pairwise(edges):
        for event in reader.feed(data[start:end]):
            reply.add(json.loads(event))
    for event in reader.end():
        reply.add(json.loads(event))
    return reply


def view(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"text": text}
        case Thinking(text, signature):
            return {"thinking": text, "signature": signature}
        case ToolCall():
            broken = {"broken": part.broken} if part.broken else {}
            return {"call": part.name, "args": dict(part.args), **broken}
        case _:
            raise AssertionError(part)


async def ask(url: str) -> Message:
    provider = anthropic.create(anthropic.Settings("mock", url))
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
    assert (message.text, message.thinking) == (said, thought)
    return message


@pytest.mark.parametrize("shape", [Shape(), Shape(piece_bytes=1), Shape(newline=b"\r\n", bom=True)])
def test_the_adapter_reads_a_stream_as_it_is_meant(stream: Path, shape: Shape) -> None:
    data = stream.read_bytes()

    async def main() -> Message:
        async with ModelServer() as server:
            server.script([Replay(data), shape])
            return await ask(server.url)

    message, want = asyncio.run(main()), expected(stream)
    assert message.origin is not None
    assert [view(part) for part in message.parts] == want["parts"]
    assert message.origin.stop == want["stop"]
    assert {k: v for k, v in asdict(message.origin.usage).items() if v} == want["usage"]


def told(block: Any) -> dict[str, Any] | None:
    """A block as the SDK understands it, in our words."""
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


def test_the_sdk_reads_the_same(stream: Path) -> None:
    want = expected(stream)
    if not want["sdk"]:
        pytest.skip("the SDK does not understand this service's habit")
    data = stream.read_bytes()

    async def main() -> sdk.types.Message:
        async with ModelServer() as server:
            server.script([Replay(data)])
            url = server.url.removesuffix("/v1")
            async with (
                sdk.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client,
                client.messages.stream(
                    model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
                ) as events,
            ):
                return await events.get_final_message()

    message = asyncio.run(main())
    parts = [part for part in want["parts"] if not part.get("broken")]
    understood = [part for part in map(told, message.content) if part]
    assert [part for part in understood if part in parts] == parts
    assert len(understood) == len(want["parts"])
    ours = want["usage"]
    usage = message.usage
    assert (usage.input_tokens, usage.output_tokens) == (ours["input"], ours["output"])
    assert (usage.cache_read_input_tokens or 0) == ours.get("cache_read", 0)
    assert (usage.cache_creation_input_tokens or 0) == ours.get("cache_write", 0)


@given(st.sampled_from(STREAMS), st.lists(st.integers(min_value=0), max_size=20), st.booleans())
def test_any_split_of_a_stream_gives_the_same_reply(
    stream: Path, cuts: list[int], crlf: bool
) -> None:
    data = stream.read_bytes()
    if crlf:
        data = data.replace(b"\n", b"\r\n")
    reply, want = read(data, cuts), expected(stream)
    assert [view(part) for part in reply.message_parts()] == want["parts"]
    usage = {k: v for k, v in asdict(reply.usage(Price())).items() if v}
    assert (reply.done, reply.stop(), usage) == (True, want["stop"], want["usage"])


@given(st.sampled_from(STREAMS), st.data())
def test_a_stream_cut_anywhere_never_gives_a_different_answer(
    stream: Path, data: st.DataObject
) -> None:
    """What is read of a cut stream is a beginning of the whole: nothing is made up."""
    whole = stream.read_bytes()
    reader, reply = EventReader(), Reply()
    for event in reader.feed(whole[: data.draw(st.integers(0, len(whole)))]):
        reply.add(json.loads(event))
    want = expected(stream)
    got = Message("assistant", reply.message_parts())
    said = Message("assistant", read(whole, []).message_parts())
    assert said.text.startswith(got.text)
    assert said.thinking.startswith(got.thinking)
    if reply.finish:
        assert [view(part) for part in got.parts] == want["parts"]
