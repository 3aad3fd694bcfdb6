"""Whatever a service sends, there is an answer or a typed error: nothing else, and no hanging."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.errors import ProviderError, StreamBroken, Unreachable
from homarus.core.message import Message, user
from homarus.providers import openai
from homarus.providers.base import Request
from homarus.testing.model_server import ModelServer, Replay, Shape

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "openai").glob("*.sse"))
ASK = Request("m", "", (user("hi"),))

valid = st.sampled_from(STREAMS).map(Path.read_bytes)
spoiled = st.tuples(valid, st.integers(0, 4000), st.binary(max_size=6)).map(
    lambda given: given[0][: given[1]] + given[2] + given[0][given[1] + len(given[2]) :]
)
pieces = st.sampled_from(
    [
        b"data: ",
        b"\n\n",
        b"\r",
        b": c\n",
        b'{"choices":[{"delta":{"content":"a"}}]}',
        b'{"choices":[{"finish_reason":"stop"}]}',
        b'{"error":',
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
    cut_at_byte=st.none() | st.integers(0, 3000),
    framing=st.sampled_from(["chunked", "close"]),
    content_type=st.sampled_from(["text/event-stream", "application/json", "text/html", ""]),
)


async def ask(url: str) -> Message | ProviderError:
    provider = openai.create(openai.Settings("mock", url, idle_s=5))
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


HEAD = b"HTTP/1.1 200 OK\r\n"
SSE = HEAD + b"Content-Type: text/event-stream\r\n"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", Unreachable),
        (b"SSH-2.0-OpenSSH_9.9\r\n", Unreachable),
        (b"\x15\x03\x01\x00\x02\x02\x50", Unreachable),
        (b"HTTP/1.1 200", Unreachable),
        (HEAD + b"X: " + b"y" * 200_000, Unreachable),
        (SSE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", StreamBroken),
        (SSE + b"Transfer-Encoding: chunked\r\n\r\n5\r\ndat", StreamBroken),
        (SSE + b"Content-Length: 100\r\n\r\ndata: {}\n\n", StreamBroken),
        (SSE + b"Content-Length: 10\r\n\r\ndata: {}\n\n", StreamBroken),
        (SSE + b"Content-Encoding: gzip\r\n\r\nnot gzip at all", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\n", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\n{}", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\nnull", StreamBroken),
    ],
)
def test_what_is_hardly_http_has_a_class_too(answer: bytes, kind: type[ProviderError]) -> None:
    async def main() -> Message | ProviderError:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        got = await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        server.close()
        return got

    assert type(asyncio.run(main())) is kind


def test_a_compressed_answer_is_read() -> None:
    import gzip

    stream = next(path for path in STREAMS if path.stem == "openai-text").read_bytes()
    packed = gzip.compress(stream)

    async def main() -> Message | ProviderError:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(SSE + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + packed)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        got = await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        server.close()
        return got

    got = asyncio.run(main())
    assert isinstance(got, Message)
    assert got.text.startswith("The capital of France")
