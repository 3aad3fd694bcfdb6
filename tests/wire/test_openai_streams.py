"""Recorded-style streams of many vendors → the values they mean; the openai SDK is the oracle."""

import asyncio
import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai as sdk
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Message, user
from homarus.providers import openai
from homarus.providers.base import Request, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_reply import Reply
from homarus.providers.sse import EventReader
from homarus.testing.model_server import ModelServer, Replay, Shape

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "openai").glob("*.sse"))


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
    events = []
    for start, end in pairwise(edges):
        events += reader.feed(data[start:end])
    for event in (*events, *reader.end()):
        if event != "[DONE]":
            reply.add(json.loads(event))
    return reply


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


async def ask(url: str) -> Message:
    provider = openai.create(openai.Settings("mock", url))
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
def test_the_adapter_reads_a_vendors_stream_as_it_is_meant(stream: Path, shape: Shape) -> None:
    data = stream.read_bytes().replace(b"\r\n", b"\n")

    async def main() -> Message:
        async with ModelServer() as server:
            server.script([Replay(data), shape])
            return await ask(server.url)

    want = expected(stream)
    got = view(asyncio.run(main()))
    assert got == {key: want[key] for key in got}


def test_the_sdk_reads_the_same(stream: Path) -> None:
    want = expected(stream)
    if not want["sdk"]:
        pytest.skip("the SDK does not understand this vendor's habit")
    recorded = stream.read_bytes()

    async def main() -> None:
        async with (
            ModelServer() as server,
            sdk.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
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


@given(st.sampled_from(STREAMS), st.lists(st.integers(min_value=0), max_size=20), st.booleans())
def test_any_split_of_a_stream_gives_the_same_reply(
    stream: Path, cuts: list[int], crlf: bool
) -> None:
    data = stream.read_bytes().replace(b"\r\n", b"\n")
    if crlf:
        data = data.replace(b"\n", b"\r\n")
    reply, want = read(data, cuts), expected(stream)
    parts = Message("assistant", reply.message_parts())
    assert (parts.text, parts.thinking) == (want["text"], want["thinking"])
    assert [{"name": c.name, "args": c.args} for c in parts.calls] == want["calls"]
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
        if event != "[DONE]":
            reply.add(json.loads(event))
    got = Message("assistant", reply.message_parts())
    want = expected(stream)
    assert want["text"].startswith(got.text)
    assert want["thinking"].startswith(got.thinking)
    if reply.finish:
        assert got.text == want["text"]
        assert [c.args for c in got.calls] == [c["args"] for c in want["calls"]]
