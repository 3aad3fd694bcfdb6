"""Recorded-style streams → the values they mean; botocore is the oracle.

A stream is kept as one event per line, name and payload; the frames around them are the server's.
"""

import asyncio
import base64
import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Image, Message, Part, Text, Thinking, ToolCall, user
from homarus.providers import bedrock
from homarus.providers.anthropic_reply import REDACTED
from homarus.providers.base import Request, TextDelta, ThinkingDelta
from homarus.providers.bedrock_reply import Reply
from homarus.providers.catalog import Price
from homarus.providers.eventstream import FrameReader
from homarus.testing.model_server import ModelServer, Replay, Shape
from homarus.testing.model_server.bedrock import frame

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "bedrock").glob("*.jsonl"))
ENV = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


@pytest.fixture(params=STREAMS, ids=lambda path: path.stem)
def stream(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def recorded(stream: Path) -> bytes:
    events = [json.loads(line) for line in stream.read_text(encoding="utf-8").splitlines()]
    headers = {":message-type": "event"}
    return b"".join(
        frame({**headers, ":event-type": name}, json.dumps(payload).encode())
        for name, payload in events
    )


def expected(stream: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stream.with_suffix(".json").read_text(encoding="utf-8"))
    return found


def view(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"text": text}
        case Thinking(text, signature):
            return {"thinking": text, "signature": signature}
        case Image(data, mime):
            return {"image": data, "mime": mime}
        case ToolCall():
            broken = {"broken": part.broken} if part.broken else {}
            return {"call": part.name, "args": dict(part.args), **broken}
        case _:
            raise AssertionError(part)


def read(data: bytes, cuts: list[int]) -> Reply:
    """The reply in a recorded stream, read in the pieces between `cuts`."""
    reader, reply = FrameReader(), Reply()
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in pairwise(edges):
        for one in reader.feed(data[start:end]):
            reply.add(one.headers[":event-type"], json.loads(one.payload))
    return reply


async def ask(url: str) -> Message:
    provider = bedrock.create(bedrock.Settings("mock", url, env=ENV))
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


@pytest.mark.parametrize("shape", [Shape(), Shape(piece_bytes=1), Shape(framing="close")])
def test_the_adapter_reads_a_stream_as_it_is_meant(stream: Path, shape: Shape) -> None:
    async def main() -> Message:
        async with ModelServer() as server:
            server.script([Replay(recorded(stream)), shape])
            return await ask(server.url)

    message, want = asyncio.run(main()), expected(stream)
    assert message.origin is not None
    assert [view(part) for part in message.parts] == want["parts"]
    assert message.origin.stop == want["stop"]
    assert {k: v for k, v in asdict(message.origin.usage).items() if v} == want["usage"]


def told(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
    return [made for _, block in sorted(blocks.items()) if (made := _told(block))]


def _told(block: dict[str, Any]) -> dict[str, Any] | None:
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


def test_boto3_reads_the_same(stream: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        async with ModelServer() as server:
            server.script([Replay(recorded(stream))])
            session = boto3.Session("AKID", "secret", region_name="us-east-1")
            config = Config(retries={"total_max_attempts": 1})
            client = session.client("bedrock-runtime", endpoint_url=server.url, config=config)

            def asked() -> list[dict[str, Any]]:
                turns = [{"role": "user", "content": [{"text": "hi"}]}]
                return list(client.converse_stream(modelId="m", messages=turns)["stream"])

            return await asyncio.to_thread(asked)

    events, want = asyncio.run(main()), expected(stream)
    assert told(events) == want["parts"]
    usage, ours = events[-1]["metadata"]["usage"], want["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (ours["input"], ours["output"])
    assert usage.get("cacheReadInputTokens", 0) == ours.get("cache_read", 0)
    assert usage.get("cacheWriteInputTokens", 0) == ours.get("cache_write", 0)


@given(st.sampled_from(STREAMS), st.lists(st.integers(min_value=0), max_size=20))
def test_any_split_of_a_stream_gives_the_same_reply(stream: Path, cuts: list[int]) -> None:
    reply, want = read(recorded(stream), cuts), expected(stream)
    assert [view(part) for part in reply.message_parts()] == want["parts"]
    usage = {k: v for k, v in asdict(reply.usage(Price())).items() if v}
    assert (reply.stop(), usage) == (want["stop"], want["usage"])


@given(st.sampled_from(STREAMS), st.data())
def test_a_stream_cut_anywhere_never_gives_a_different_answer(
    stream: Path, data: st.DataObject
) -> None:
    """What is read of a cut stream is a beginning of the whole: nothing is made up."""
    whole = recorded(stream)
    reply = read(whole[: data.draw(st.integers(0, len(whole)))], [])
    said = Message("assistant", read(whole, []).message_parts())
    if reply.finish:
        assert [view(part) for part in reply.message_parts()] == expected(stream)["parts"]
    else:
        got = Message("assistant", tuple(p for p in reply.message_parts() if isinstance(p, Text)))
        assert said.text.startswith(got.text)


def test_an_hour_in_the_cache_costs_more() -> None:
    stream = next(path for path in STREAMS if path.stem == "cache-hour")
    usage = read(recorded(stream), []).usage(Price(0, 0, 0, 1_000_000))
    assert usage.cost == pytest.approx(20 + 1.6 * 80)
