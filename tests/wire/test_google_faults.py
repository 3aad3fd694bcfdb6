"""Whatever comes over Gemini's wire, there is an answer or a typed error, and no hanging."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.errors import (
    AuthFailed,
    BadRequest,
    BillingFailed,
    ContentFiltered,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamBroken,
    ThinkingRefused,
    Unreachable,
)
from homarus.core.message import Message, user
from homarus.providers import google
from homarus.providers.base import Request
from homarus.testing.model_server import Fail, ModelServer, Replay, Shape, Step

STREAMS = sorted((Path(__file__).parents[1] / "data" / "wire" / "google").glob("*.sse"))
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
        b'{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}',
        b'{"candidates":[{"finishReason":"STOP"}]}',
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"args":5}}]}}]}',
        b'{"promptFeedback":{"blockReason":[1]}}',
        b'{"error":',
        b'{"usageMetadata":7}',
        b"[",
        b"]",
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
    provider = google.create(google.Settings("mock", url, idle_s=5))
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


def answer_to(*steps: Step) -> Message | ProviderError:
    async def main() -> Message | ProviderError:
        async with ModelServer() as server:
            server.script(list(steps))
            return await ask(server.url)

    return asyncio.run(main())


@settings(max_examples=150)
@given(bodies, shapes)
def test_any_bytes_give_an_answer_or_a_typed_error(body: bytes, shape: Shape) -> None:
    got = answer_to(Replay(body), shape)
    if isinstance(got, ProviderError):
        assert got.message.startswith("mock/m: ")
        assert got.fix


def told(code: int, status: str, message: str, *details: Any) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    return {"error": {**error, **({"details": list(details)} if details else {})}}


def reason(word: str) -> dict[str, Any]:
    kind = "type.googleapis.com/google.rpc.ErrorInfo"
    return {"@type": kind, "reason": word, "domain": "googleapis.com"}


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "27.5s"}
QUOTA = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}],
}
EXHAUSTED = "You exceeded your current quota, please check your plan and billing details."
ERRORS: list[tuple[dict[str, Any], type[ProviderError]]] = [
    (
        told(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            reason("API_KEY_INVALID"),
        ),
        AuthFailed,
    ),
    (told(400, "INVALID_ARGUMENT", "It is wrong.", reason("API_KEY_INVALID")), AuthFailed),
    (told(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key."), AuthFailed),
    (told(401, "UNAUTHENTICATED", "Expected OAuth 2 access token."), AuthFailed),
    (told(403, "PERMISSION_DENIED", "Your API key was reported as leaked."), AuthFailed),
    (
        told(403, "PERMISSION_DENIED", "It is disabled.", reason("SERVICE_DISABLED")),
        AuthFailed,
    ),
    (
        told(403, "PERMISSION_DENIED", "It needs billing.", reason("BILLING_DISABLED")),
        BillingFailed,
    ),
    (
        told(
            400,
            "FAILED_PRECONDITION",
            "Gemini API free tier is not available in your country. Please enable billing on "
            "your project in Google AI Studio.",
        ),
        BillingFailed,
    ),
    (
        told(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."),
        BillingFailed,
    ),
    (told(429, "RESOURCE_EXHAUSTED", EXHAUSTED, QUOTA, RETRY), RateLimited),
    (
        told(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
        RateLimited,
    ),
    (
        told(
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed "
            "(1048576).",
        ),
        ContextOverflow,
    ),
    (
        told(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."),
        ContextOverflow,
    ),
    (
        told(
            400,
            "INVALID_ARGUMENT",
            'Invalid JSON payload received. Unknown name "foo": Cannot find field.',
            {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{}]},
        ),
        BadRequest,
    ),
    (told(400, "FAILED_PRECONDITION", "User location is not supported."), BadRequest),
    (
        told(
            400, "INVALID_ARGUMENT", "'minimal' is not a supported thinking level for this model."
        ),
        ThinkingRefused,
    ),
    (
        told(400, "INVALID_ARGUMENT", "The thinking budget 50 is invalid. Choose 512 to 24576."),
        ThinkingRefused,
    ),
    (told(404, "NOT_FOUND", "models/x is not found for API version v1beta."), BadRequest),
    (told(499, "CANCELLED", "The operation was cancelled."), Overloaded),
    (told(500, "INTERNAL", "An internal error has occurred."), Overloaded),
    (told(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), Overloaded),
    (told(504, "DEADLINE_EXCEEDED", "Deadline expired before operation."), ProviderTimeout),
]


@pytest.mark.parametrize(("body", "kind"), ERRORS, ids=lambda value: str(value)[:60])
def test_each_refusal_has_its_class_at_the_door_and_midway(
    body: dict[str, Any], kind: type[ProviderError]
) -> None:
    text = json.dumps(body).encode()
    begun = b'data: {"candidates":[{"content":{"parts":[{"text":"I"}]}}]}\n\n'
    for steps in (
        [Fail(body["error"]["code"], body=text)],
        [Fail(body["error"]["code"], body=b"[" + text + b"\n]")],
        [Replay(begun + b"data: " + text + b"\n\n")],
        [Replay(begun + json.dumps(body, indent=2).encode() + b"\n")],
        [Replay(begun + json.dumps(body, indent=2).encode()), Shape(newline=b"\r\n")],
        [Replay(b"[" + text + b"]"), Shape(content_type="application/json")],
    ):
        got = answer_to(*steps)
        assert type(got) is kind, got
        assert got.status == body["error"]["code"]
        if isinstance(got, RateLimited) and RETRY in body["error"].get("details", ()):
            assert got.after_s == 27.5


@pytest.mark.parametrize("delay", ["", "s", "x s", "NaNs", "inf", "-3s", 5, None, {}])
def test_a_delay_that_is_none_is_no_delay(delay: Any) -> None:
    body = told(429, "RESOURCE_EXHAUSTED", EXHAUSTED, {"retryDelay": delay}, "27.5s", None)
    got = answer_to(Fail(429, body=json.dumps(body).encode()))
    assert isinstance(got, RateLimited)
    assert got.after_s in {None, 0.0}


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("SAFETY", ContentFiltered),
        ("RECITATION", ContentFiltered),
        ("BLOCKLIST", ContentFiltered),
        ("PROHIBITED_CONTENT", ContentFiltered),
        ("SPII", ContentFiltered),
        ("LANGUAGE", ContentFiltered),
        ("IMAGE_SAFETY", ContentFiltered),
        ("IMAGE_PROHIBITED_CONTENT", ContentFiltered),
        ("IMAGE_RECITATION", ContentFiltered),
        ("MALFORMED_FUNCTION_CALL", StreamBroken),
        ("UNEXPECTED_TOOL_CALL", StreamBroken),
        ("TOO_MANY_TOOL_CALLS", StreamBroken),
        ("MALFORMED_RESPONSE", StreamBroken),
        ("NO_IMAGE", StreamBroken),
        ("IMAGE_OTHER", StreamBroken),
        ("OTHER", StreamBroken),
        ("MISSING_THOUGHT_SIGNATURE", BadRequest),
        ("FINISH_REASON_UNSPECIFIED", StreamBroken),
    ],
)
def test_each_end_that_is_none_has_its_class(finish: str, kind: type[ProviderError]) -> None:
    candidate = {
        "content": {"parts": [{"text": "So"}], "role": "model"},
        "finishReason": finish,
        # Words of the model: they decide nothing.
        "finishMessage": "Malformed function call: print(rate limit exceeded, invalid api key)",
    }
    got = answer_to(Replay(b"data: " + json.dumps({"candidates": [candidate]}).encode() + b"\n\n"))
    assert type(got) is kind


@pytest.mark.parametrize("why", ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"])
def test_a_question_that_is_refused_is_a_filter(why: str) -> None:
    chunk = {"promptFeedback": {"blockReason": why}, "usageMetadata": {"promptTokenCount": 3}}
    got = answer_to(Replay(b"data: " + json.dumps(chunk).encode() + b"\n\n"))
    assert type(got) is ContentFiltered
    assert why in got.message


def test_an_end_nobody_has_heard_of_is_an_end() -> None:
    body = b'data: {"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"NEW"}]}\n\n'
    got = answer_to(Replay(body))
    assert isinstance(got, Message)
    assert got.text == "a"


HEAD = b"HTTP/1.1 200 OK\r\n"
SSE = HEAD + b"Content-Type: text/event-stream\r\n"


def spoken(answer: bytes) -> Message | ProviderError:
    """What comes of these very bytes."""

    async def main() -> Message | ProviderError:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        got = await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1beta")
        server.close()
        return got

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", Unreachable),
        (b"HTTP/1.1 200", Unreachable),
        (SSE + b"Transfer-Encoding: chunked\r\n\r\n5\r\ndat", StreamBroken),
        (SSE + b"Content-Length: 100\r\n\r\ndata: {}\n\n", StreamBroken),
        (SSE + b"Content-Length: 10\r\n\r\ndata: {}\n\n", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\n", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\n[]", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\n{}", StreamBroken),
        (HEAD + b"Content-Type: application/json\r\n\r\n[[]]", StreamBroken),
    ],
)
def test_what_is_hardly_an_answer_has_a_class_too(answer: bytes, kind: type[ProviderError]) -> None:
    assert type(spoken(answer)) is kind


def test_a_compressed_answer_is_read() -> None:
    stream = next(path for path in STREAMS if path.stem == "gemini25-text").read_bytes()
    head = SSE + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n"
    got = spoken(head + gzip.compress(stream))
    assert isinstance(got, Message)
    assert got.text.startswith("The capital of Norway")
