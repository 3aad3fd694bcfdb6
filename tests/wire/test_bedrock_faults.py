"""Whatever Bedrock sends, there is an answer or a typed error: nothing else, and no hanging."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.errors import (
    AuthFailed,
    BadRequest,
    ContentFiltered,
    ContextOverflow,
    ImageTooLarge,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamBroken,
    ThinkingRefused,
    Unreachable,
)
from homarus.core.message import Message, user
from homarus.providers import bedrock
from homarus.providers.base import Request
from homarus.testing.model_server import (
    Comments,
    Cut,
    Fail,
    Hold,
    LongLine,
    ModelServer,
    Overflow,
    Raw,
    Replay,
    Say,
    Shape,
    Step,
    Stop,
    Trouble,
)
from homarus.testing.model_server.bedrock import event, frame

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "bedrock").glob("*.jsonl"))
ASK = Request("m", "", (user("hi"),))
ENV = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}


def framed(name: str, payload: bytes) -> bytes:
    return frame({":message-type": "event", ":event-type": name}, payload)


def recorded(stream: Path) -> bytes:
    lines = map(json.loads, stream.read_text(encoding="utf-8").splitlines())
    return b"".join(framed(name, json.dumps(payload).encode()) for name, payload in lines)


valid = st.sampled_from(STREAMS).map(recorded)
spoiled = st.tuples(valid, st.integers(0, 3000), st.binary(max_size=6)).map(
    lambda given: given[0][: given[1]] + given[2] + given[0][given[1] + len(given[2]) :]
)
# Whole frames that lie about what they hold: every value where another kind is due.
odd = st.sampled_from([b"null", b"0", b"[]", b"{}", b'"x"', b"1e999", b"true", b"[1]"])
NAMES = ["contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"]
lies = st.one_of(
    odd.map(lambda v: b'{"contentBlockIndex":%b,"delta":%b,"start":%b}' % (v, v, v)),
    odd.map(lambda v: b'{"delta":{"text":%b},"start":{"toolUse":%b}}' % (v, v)),
    odd.map(lambda v: b'{"delta":{"toolUse":%b}}' % v),
    odd.map(lambda v: b'{"delta":{"toolUse":{"input":%b}},"start":{"image":%b}}' % (v, v)),
    odd.map(lambda v: b'{"delta":{"reasoningContent":%b}}' % v),
    odd.map(lambda v: b'{"delta":{"reasoningContent":{"text":%b,"signature":%b}}}' % (v, v)),
    odd.map(lambda v: b'{"delta":{"reasoningContent":{"redactedContent":%b}}}' % v),
    odd.map(lambda v: b'{"delta":{"image":{"source":{"bytes":%b}}}}' % v),
    odd.map(lambda v: b'{"start":{"toolUse":{"toolUseId":%b,"name":%b}}}' % (v, v)),
    odd.map(lambda v: b'{"stopReason":%b,"usage":%b}' % (v, v)),
    odd.map(lambda v: b'{"usage":{"inputTokens":%b,"cacheDetails":%b}}' % (v, v)),
    odd,
    st.sampled_from([b"", b"{", b"\xff", b'{"stopReason":"end_turn"}']),
)
END = event("messageStop", stopReason="end_turn")
lying = st.builds(
    lambda told, end: b"".join(told) + end,
    st.lists(st.builds(framed, st.sampled_from([*NAMES, "", "x"]), lies)),
    st.sampled_from([b"", END]),
)
strange = st.builds(
    lambda kind, name, payload: frame(
        {":message-type": kind, ":exception-type": name, ":error-code": name}, payload
    ),
    st.sampled_from(["exception", "error", "event", "?"]),
    st.sampled_from(["", "throttlingException", "ThrottlingException", "newException"]),
    lies,
)
bodies = st.one_of(spoiled, st.binary(max_size=200), lying, st.lists(strange).map(b"".join))
shapes = st.builds(
    Shape,
    piece_bytes=st.sampled_from([None, 7, 100]),
    cut_at_byte=st.none() | st.integers(0, 3000),
    framing=st.sampled_from(["chunked", "close"]),
    content_type=st.sampled_from(["text/event-stream", "application/json", "text/html", ""]),
)


async def ask(url: str, idle_s: float = 5) -> Message | ProviderError:
    provider = bedrock.create(bedrock.Settings("mock", url, idle_s=idle_s, env=ENV))
    message: Message | None = None
    try:
        async with asyncio.timeout(20):
            async for piece in provider.stream(ASK):
                assert message is None
                message = piece if isinstance(piece, Message) else None
    except ProviderError as exc:
        return exc
    finally:
        await provider.close()
    assert message is not None
    return message


def answered(*steps: Step, idle_s: float = 5) -> Message | ProviderError:
    async def main() -> Message | ProviderError:
        async with ModelServer() as server:
            server.script(list(steps))
            return await ask(server.url, idle_s)

    return asyncio.run(main())


@settings(max_examples=60, deadline=None)
@given(bodies, shapes)
def test_any_bytes_give_an_answer_or_a_typed_error(body: bytes, shape: Shape) -> None:
    got = answered(Replay(body), shape)
    if isinstance(got, ProviderError):
        assert got.message.startswith("mock/m: ")
        assert got.fix


HEAD = b"HTTP/1.1 200 OK\r\n"
STREAM = HEAD + b"Content-Type: application/vnd.amazon.eventstream\r\n"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", Unreachable),
        (b"SSH-2.0-OpenSSH_9.9\r\n", Unreachable),
        (STREAM + b"Transfer-Encoding: chunked\r\n\r\n5\r\n\0\0\0", StreamBroken),
        (STREAM + b"Content-Length: 100\r\n\r\n" + event("messageStart"), StreamBroken),
        (STREAM + b"Content-Length: 0\r\n\r\n", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\n{}", StreamBroken),
        (HEAD + b'Content-Type: application/json\r\n\r\n{"output":{"message":{}}}', StreamBroken),
        (HEAD + b"Content-Type: text/html\r\n\r\n<html>", BadRequest),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", BadRequest),
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


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Say("a"), Cut("close")], StreamBroken),
        ([Say("a"), Cut("reset")], StreamBroken),
        ([Say("a"), Cut("half-close")], StreamBroken),
        ([Say("a"), Shape(end=False)], StreamBroken),
        ([Say("a"), Raw(b"data: {}\n\n")], StreamBroken),
        ([Say("a"), LongLine(50_000_000)], StreamBroken),
        ([Say("a"), Comments()], StreamBroken),
        ([Say("a"), Stop("filtered")], ContentFiltered),
        ([Say("a"), Hold()], ProviderTimeout),
        ([Hold()], ProviderTimeout),
        ([Overflow()], ContextOverflow),
        ([Say("a"), Trouble("slow down", "throttlingException")], RateLimited),
        ([Say("a"), Trouble()], Overloaded),
    ],
)
def test_each_way_to_break_has_its_class(steps: list[Step], kind: type[ProviderError]) -> None:
    assert type(answered(*steps, idle_s=0.3)) is kind


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("guardrail_intervened", ContentFiltered),
        ("malformed_model_output", StreamBroken),
        ("malformed_tool_use", StreamBroken),
        ("model_context_window_exceeded", ContextOverflow),
    ],
)
def test_an_end_that_is_none_of_the_models_own_is_an_error(
    reason: str, kind: type[ProviderError]
) -> None:
    body = event("messageStart", role="assistant") + event("messageStop", stopReason=reason)
    assert type(answered(Replay(body))) is kind


@pytest.mark.parametrize(
    "delta",
    [
        {"image": {"source": {"bytes": "x"}}},
        {"reasoningContent": {"redactedContent": "é"}},
        {"toolUse": {"input": "{}"}},
        {"text": 3},
        "text",
    ],
)
def test_a_piece_of_the_wrong_kind_breaks_the_answer(delta: Any) -> None:
    body = event("contentBlockDelta", contentBlockIndex=0, delta=delta) + END
    assert type(answered(Replay(body))) is StreamBroken


def test_after_its_end_a_torn_connection_takes_nothing_away() -> None:
    body = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "all"})
    body += event("messageStop", stopReason="end_turn")
    rest = event("metadata", usage={"inputTokens": 1})
    got = answered(Replay(body + rest), Shape(cut_at_byte=len(body) + 5))
    assert isinstance(got, Message)
    assert got.text == "all"


# What the service is known to say, and what it means.
WORDS: list[tuple[int, str, str, type[ProviderError]]] = [
    (400, "ValidationException", "Input is too long for requested model.", ContextOverflow),
    (
        400,
        "ValidationException",
        "The model returned the following errors: prompt is too long: 209000 tokens > 200000",
        ContextOverflow,
    ),
    (
        400,
        "ValidationException",
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
        ContextOverflow,
    ),
    (
        400,
        "ValidationException",
        "Too many input tokens. Max input tokens: 8192, request input token count: 16230",
        ContextOverflow,
    ),
    (
        400,
        "ValidationException",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum",
        ImageTooLarge,
    ),
    (
        400,
        "ValidationException",
        "Invocation of model ID m with on-demand throughput isn't supported.",
        BadRequest,
    ),
    (400, "ValidationException", "thinking is not supported by this model", ThinkingRefused),
    (403, "AccessDeniedException", "You don't have access to the model.", AuthFailed),
    (
        403,
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
        AuthFailed,
    ),
    (
        403,
        "ExpiredTokenException",
        "The security token included in the request is expired",
        AuthFailed,
    ),
    (400, "ExpiredTokenException", "The security token is expired", AuthFailed),
    (404, "ResourceNotFoundException", "This model version has reached its end.", BadRequest),
    (408, "ModelTimeoutException", "Model has timed out in processing.", ProviderTimeout),
    (424, "ModelErrorException", "The system encountered an unexpected error.", Overloaded),
    (429, "ThrottlingException", "Too many tokens, please wait.", RateLimited),
    (429, "ThrottlingException", "Too many requests, please wait.", RateLimited),
    (429, "ModelNotReadyException", "The model is not ready for inference.", Overloaded),
    (500, "InternalServerException", "Internal failure.", Overloaded),
    (503, "ServiceUnavailableException", "Too many connections.", Overloaded),
]


@pytest.mark.parametrize(("status", "code", "words", "kind"), WORDS)
def test_a_refusal_has_its_class(
    status: int, code: str, words: str, kind: type[ProviderError]
) -> None:
    got = answered(Fail(status, words, code, retry_after="7"))
    assert type(got) is kind
    assert got.status == status
    assert words[:20] in got.message
    if isinstance(got, RateLimited):
        assert got.after_s == 7


@pytest.mark.parametrize(
    ("name", "fields", "kind"),
    [
        ("throttlingException", {"message": "slow down"}, RateLimited),
        ("ThrottlingException", {"Message": "slow down"}, RateLimited),
        ("modelStreamErrorException", {"originalMessage": "boom"}, Overloaded),
        ("validationException", {"message": "Input is too long"}, ContextOverflow),
        ("validationException", {"message": "bad"}, BadRequest),
        ("internalServerException", {}, Overloaded),
        ("serviceUnavailableException", {"message": "busy"}, Overloaded),
        ("accessDeniedException", {"message": "no"}, AuthFailed),
        ("modelTimeoutException", {"message": "late"}, ProviderTimeout),
        ("newException", {"message": "what"}, StreamBroken),
    ],
)
def test_an_exception_in_the_middle_of_a_stream_has_the_same_class(
    name: str, fields: dict[str, Any], kind: type[ProviderError]
) -> None:
    headers = {":message-type": "exception", ":exception-type": name}
    got = answered(Say("I was say"), Raw(frame(headers, json.dumps(fields).encode())))
    assert type(got) is kind


def test_an_error_without_a_shape_is_told_by_its_words() -> None:
    headers = {
        ":message-type": "error",
        ":error-code": "InternalError",
        ":error-message": "service unavailable",
    }
    assert type(answered(Raw(frame(headers, b"")))) is Overloaded
