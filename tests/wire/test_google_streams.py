"""Recorded-style streams of Gemini's → the values they mean; the google-genai SDK is the oracle."""

import asyncio
import base64
import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from google import genai
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Image, Message, Text, user
from homarus.providers import google
from homarus.providers.base import Request, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.google_reply import Reply
from homarus.providers.sse import EventReader
from homarus.testing.model_server import ModelServer, Replay, Shape

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "google").glob("*.sse"))


@pytest.fixture(params=STREAMS, ids=lambda path: path.stem)
def stream(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def expected(stream: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stream.with_suffix(".json").read_text())
    return found


def plain(stream: Path) -> bytes:
    return stream.read_bytes().replace(b"\r\n", b"\n")


def read(data: bytes, cuts: list[int]) -> Reply:
    """The reply in a recorded stream, read in the pieces between `cuts`."""
    reader, reply = EventReader(), Reply()
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    events = []
    for start, end in pairwise(edges):
        events += reader.feed(data[start:end])
    for event in (*events, *reader.end()):
        reply.add(json.loads(event))
    return reply


def check(message: Message, want: dict[str, Any]) -> None:
    assert (message.text, message.thinking) == (want["text"], want["thinking"])
    assert [(c.name, c.args, c.signature, c.broken) for c in message.calls] == [
        (c["name"], c["args"], c["signature"], "") for c in want["calls"]
    ]
    for call, wanted in zip(message.calls, want["calls"], strict=True):
        assert call.id == wanted.get("id", call.id)
        assert call.id
    images = [part for part in message.parts if isinstance(part, Image)]
    assert [{"mime": i.mime, "data": i.data} for i in images] == want["images"]
    signed = [part.signature for part in message.parts if isinstance(part, Text)]
    assert "".join(signed) == want.get("text_signature", "")


async def ask(url: str) -> Message:
    provider = google.create(google.Settings("mock", url))
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
    async def main() -> Message:
        async with ModelServer() as server:
            server.script([Replay(plain(stream)), shape])
            return await ask(server.url)

    message, want = asyncio.run(main()), expected(stream)
    check(message, want)
    assert message.origin is not None
    assert message.origin.stop == want["stop"]
    assert {k: v for k, v in asdict(message.origin.usage).items() if v} == want["usage"]


def test_the_same_answer_in_one_piece_reads_the_same(stream: Path) -> None:
    """Without `alt=sse`, as some who stand in for Google answer: one JSON list of all chunks."""
    events = EventReader().feed(plain(stream))
    body = b"[" + b",\r\n".join(event.encode() for event in events) + b"]"

    async def main() -> Message:
        async with ModelServer() as server:
            server.script([Replay(body), Shape(content_type="application/json")])
            return await ask(server.url)

    check(asyncio.run(main()), expected(stream))


def test_the_sdk_reads_the_same(stream: Path) -> None:
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


@given(st.sampled_from(STREAMS), st.lists(st.integers(min_value=0), max_size=20), st.booleans())
def test_any_split_of_a_stream_gives_the_same_reply(
    stream: Path, cuts: list[int], crlf: bool
) -> None:
    data = plain(stream)
    if crlf:
        data = data.replace(b"\n", b"\r\n")
    reply, want = read(data, cuts), expected(stream)
    check(Message("assistant", reply.message_parts()), want)
    usage = {k: v for k, v in asdict(reply.usage(Price())).items() if v}
    assert (reply.stop(), usage) == (want["stop"], want["usage"])


@given(st.sampled_from(STREAMS), st.data())
def test_a_stream_cut_anywhere_never_gives_a_different_answer(
    stream: Path, data: st.DataObject
) -> None:
    """What is read of a cut stream is a beginning of the whole: nothing is made up."""
    whole = stream.read_bytes()
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    reader, reply = EventReader(), Reply()
    for event in reader.feed(cut):
        reply.add(json.loads(event))
    got = Message("assistant", reply.message_parts())
    want = expected(stream)
    assert want["text"].startswith(got.text)
    assert want["thinking"].startswith(got.thinking)
    assert [c.args for c in got.calls] == [c["args"] for c in want["calls"][: len(got.calls)]]
    if reply.finish and "every-chunk" not in stream.stem:
        check(got, want)
