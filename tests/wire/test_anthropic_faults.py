"""Whatever a service sends, there is an answer or a typed error: nothing else, and no hanging."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.errors import (
    AuthFailed,
    BadRequest,
    BillingFailed,
    ContentFiltered,
    ContextOverflow,
    ImageTooLarge,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamBroken,
    Unreachable,
)
from homarus.core.message import Message, user
from homarus.providers import anthropic
from homarus.providers.base import Request
from homarus.testing.model_server import Fail, ModelServer, Replay, Say, Shape, Step, Trouble

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "anthropic").glob("*.sse"))
ASK = Request("m", "", (user("hi"),))

valid = st.sampled_from(STREAMS).map(Path.read_bytes)
spoiled = st.tuples(valid, st.integers(0, 4000), st.binary(max_size=6)).map(
    lambda given: given[0][: given[1]] + given[2] + given[0][given[1] + len(given[2]) :]
)
# Events that lie about their own shape: every value where another kind is due.
odd = st.sampled_from([b"null", b"0", b"[]", b"{}", b'"x"', b"1e999", b"true"])
events = st.one_of(
    odd.map(lambda v: b'{"type":"content_block_delta","index":%b,"delta":%b}' % (v, v)),
    odd.map(lambda v: b'{"type":"content_block_delta","index":0,"delta":{"type":%b}}' % v),
    odd.map(
        lambda v: b'{"type":"content_block_delta","delta":{"type":"text_delta","text":%b}}' % v
    ),
    odd.map(lambda v: b'{"type":"content_block_start","index":%b,"content_block":%b}' % (v, v)),
    odd.map(
        lambda v: b'{"type":"content_block_start","content_block":{"type":"tool_use","id":%b}}' % v
    ),
    odd.map(lambda v: b'{"type":"message_start","message":%b}' % v),
    odd.map(lambda v: b'{"type":"message_start","message":{"usage":{"input_tokens":%b}}}' % v),
    odd.map(lambda v: b'{"type":"message_delta","delta":{"stop_reason":%b},"usage":%b}' % (v, v)),
    odd.map(lambda v: b'{"type":"message_delta","delta":{"stop_details":%b}}' % v),
    odd.map(lambda v: b'{"type":"message","content":%b,"stop_reason":"end_turn"}' % v),
    odd.map(lambda v: b'{"type":"error","error":%b}' % v),
    odd.map(lambda v: b'{"type":%b}' % v),
    odd,
    st.sampled_from([b'{"type":"message_stop"}', b'{"type":"ping"}', b"{", b""]),
)
lying = st.lists(events.map(lambda e: b"data: " + e + b"\n\n")).map(b"".join)
bodies = st.one_of(spoiled, st.binary(max_size=200), lying)
shapes = st.builds(
    Shape,
    piece_bytes=st.sampled_from([None, 7, 100]),
    newline=st.sampled_from([b"\n", b"\r\n"]),
    cut_at_byte=st.none() | st.integers(0, 3000),
    framing=st.sampled_from(["chunked", "close"]),
    content_type=st.sampled_from(["text/event-stream", "application/json", "text/html", ""]),
)


async def ask(url: str) -> Message | ProviderError:
    provider = anthropic.create(anthropic.Settings("mock", url, idle_s=5))
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


def answered(*steps: Step) -> Message | ProviderError:
    async def main() -> Message | ProviderError:
        async with ModelServer() as server:
            server.script(list(steps))
            return await ask(server.url)

    return asyncio.run(main())


@settings(max_examples=250)
@given(bodies, shapes)
def test_any_bytes_give_an_answer_or_a_typed_error(body: bytes, shape: Shape) -> None:
    got = answered(Replay(body), shape)
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
        (SSE + b"Transfer-Encoding: chunked\r\n\r\n5\r\ndat", StreamBroken),
        (SSE + b"Content-Length: 100\r\n\r\ndata: {}\n\n", StreamBroken),
        (SSE + b"Content-Length: 10\r\n\r\ndata: {}\n\n", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\n{}", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\nnull", StreamBroken),
        (HEAD + b'Content-Type: application/json\r\n\r\n{"choices":[]}', StreamBroken),
    ],
)
def test_what_is_hardly_an_answer_has_a_class_too(answer: bytes, kind: type[ProviderError]) -> None:
    async def main() -> Message | ProviderError:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        got = await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        server.close()
        return got

    assert type(asyncio.run(main())) is kind


# What the vendor is known to say, and what it means.
WORDS: list[tuple[int, str, str, type[ProviderError]]] = [
    (
        400,
        "invalid_request_error",
        "prompt is too long: 213021 tokens > 200000 maximum",
        ContextOverflow,
    ),
    (
        400,
        "invalid_request_error",
        (
            "input length and `max_tokens` exceed context limit: 188240 + 64000 > 200000, decrease"
            " input length or `max_tokens` and try again"
        ),
        ContextOverflow,
    ),
    (
        400,
        "invalid_request_error",
        (
            "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes >"
            " 5242880 bytes"
        ),
        ImageTooLarge,
    ),
    (
        400,
        "invalid_request_error",
        (
            "messages.2.content.0.image.source.base64.data: At least one of the image dimensions"
            " exceed max allowed size: 8000 pixels"
        ),
        ImageTooLarge,
    ),
    (
        400,
        "invalid_request_error",
        (
            "Your credit balance is too low to access the Anthropic API. Please go to Plans &"
            " Billing to upgrade or purchase credits."
        ),
        BillingFailed,
    ),
    (
        400,
        "invalid_request_error",
        "You have reached your specified API usage limits. You will regain access on 2026-12-01.",
        BillingFailed,
    ),
    (400, "invalid_request_error", "Output blocked by content filtering policy", ContentFiltered),
    (400, "invalid_request_error", "This organization has been disabled.", AuthFailed),
    (
        400,
        "invalid_request_error",
        (
            '"thinking.type.enabled" is not supported for this model. Use'
            ' "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
        ),
        BadRequest,
    ),
    (
        400,
        "invalid_request_error",
        "messages.1: `tool_use` ids were found without `tool_result` blocks",
        BadRequest,
    ),
    (401, "authentication_error", "invalid x-api-key", AuthFailed),
    (401, "authentication_error", "OAuth token has expired.", AuthFailed),
    (402, "billing_error", "Your payment could not be processed.", BillingFailed),
    (403, "permission_error", "Your API key may not use this resource.", AuthFailed),
    (404, "not_found_error", "model: claude-nothing", BadRequest),
    (413, "request_too_large", "Request exceeds the maximum size", ContextOverflow),
    (429, "rate_limit_error", "Number of input tokens has exceeded your rate limit", RateLimited),
    (
        429,
        "rate_limit_error",
        (
            "This request would exceed your organization's rate limit of 30,000 input tokens per"
            " minute. Please reduce the prompt length or the maximum tokens requested."
        ),
        RateLimited,
    ),
    (500, "api_error", "Internal server error", Overloaded),
    (504, "timeout_error", "The request took too long.", Overloaded),
    (529, "overloaded_error", "Overloaded", Overloaded),
]


@pytest.mark.parametrize(("status", "code", "words", "kind"), WORDS)
def test_a_refusal_has_its_class(
    status: int, code: str, words: str, kind: type[ProviderError]
) -> None:
    got = answered(Fail(status, words, code, retry_after="7"))
    assert isinstance(got, kind)
    assert got.status == status
    if isinstance(got, RateLimited):
        assert got.after_s == 7


@pytest.mark.parametrize(("status", "code", "words", "kind"), WORDS)
def test_an_error_in_the_middle_of_a_stream_has_the_same_class(
    status: int, code: str, words: str, kind: type[ProviderError]
) -> None:
    got = answered(Say("I was say"), Trouble(words, code))
    if status == 504:
        kind = ProviderTimeout
    assert isinstance(got, kind)
