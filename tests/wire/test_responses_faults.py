"""Whatever a Responses service sends, there is an answer or a typed error: nothing else."""

import asyncio
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.errors import ProviderError
from homarus.core.message import Message, user
from homarus.providers import responses
from homarus.providers.base import Request, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_reply import Malformed
from homarus.providers.responses_reply import Reply
from homarus.testing.model_server import ModelServer, Replay, Shape

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "responses").glob("*.sse"))
ASK = Request("m", "", (user("hi"),))

valid = st.sampled_from(STREAMS).map(Path.read_bytes)
spoiled = st.tuples(valid, st.integers(0, 9000), st.binary(max_size=6)).map(
    lambda given: given[0][: given[1]] + given[2] + given[0][given[1] + len(given[2]) :]
)
pieces = st.sampled_from(
    [
        b"data: ",
        b"\n\n",
        b"\r",
        b": c\n",
        b'{"type":"response.output_text.delta","output_index":0,"delta":"a"}',
        b'{"type":"response.completed","response":{"output":[]}}',
        b'{"type":"response.failed","response":null}',
        b'{"type":"error"}',
        b'{"type":',
        b"[DONE]",
        b"\xef\xbb\xbf",
        b"\xf0\x9f",
        b"event: x\n",
        b"null",
        b"{",
    ]
)
bodies = st.one_of(spoiled, st.binary(max_size=200), st.lists(pieces).map(b"".join))
shapes = st.builds(
    Shape,
    piece_bytes=st.sampled_from([None, 7, 100]),
    newline=st.sampled_from([b"\n", b"\r\n"]),
    cut_at_byte=st.none() | st.integers(0, 9000),
    framing=st.sampled_from(["chunked", "close"]),
    content_type=st.sampled_from(["text/event-stream", "application/json", "text/html", ""]),
)


async def ask(url: str) -> Message | ProviderError:
    provider = responses.create(responses.Settings("mock", url, idle_s=5))
    message: Message | None = None
    try:
        async with asyncio.timeout(10):
            async for piece in provider.stream(ASK):
                assert message is None
                message = piece if isinstance(piece, Message) else None
    except ProviderError as exc:
        return exc
    finally:
        await provider.close()
    assert message is not None
    return message


@settings(max_examples=150)
@given(bodies, shapes)
def test_any_bytes_give_an_answer_or_a_typed_error(body: bytes, shape: Shape) -> None:
    async def main() -> Message | ProviderError:
        async with ModelServer() as server:
            server.script([Replay(body), shape])
            return await ask(server.url)

    got = asyncio.run(main())
    if isinstance(got, ProviderError):
        assert got.message.startswith("mock/m: ")
        assert got.fix


def spoil(value: Any, path: list[int], other: Any) -> Any:
    """The same value with another in the place that a path leads to."""
    if not path or not isinstance(value, dict | list) or not value:
        return other
    key = list(value)[path[0] % len(value)] if isinstance(value, dict) else path[0] % len(value)
    spoiled: Any = dict(value) if isinstance(value, dict) else list(value)
    spoiled[key] = spoil(value[key], path[1:], other)
    return spoiled


EVENTS = [
    json.loads(line.removeprefix("data: "))
    for stream in STREAMS
    for line in stream.read_text().splitlines()
    if line.startswith("data: {")
]
others = st.sampled_from([None, 0, -1, 1e400, "", "x", [], [None], {}, {"text": 5}, True])
events = st.tuples(
    st.sampled_from(EVENTS), st.lists(st.integers(0, 40), min_size=1, max_size=5), others
).map(lambda given: spoil(*given))


@settings(max_examples=500)
@given(st.lists(events | st.sampled_from(EVENTS), max_size=12))
def test_events_with_any_field_of_any_kind_are_understood_or_malformed(
    some: list[dict[str, Any]],
) -> None:
    reply = Reply()
    for event in some:
        try:
            said = reply.add(event)
        except Malformed:
            return
        assert all(isinstance(delta, TextDelta | ThinkingDelta) and delta.text for delta in said)
    message = Message("assistant", reply.message_parts())
    ids = [call.id for call in message.calls]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert reply.usage(Price()).total >= 0
    assert reply.stop() in {"stop", "length", "toolUse"}
