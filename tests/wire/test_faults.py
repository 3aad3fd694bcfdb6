"""Whatever a service sends, there is an answer or a typed error: nothing else, and no hanging."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.errors import (
    AuthError,
    BadRequestError,
    BillingError,
    ContentFilterError,
    ContextOverflowError,
    ImageTooLargeError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    ThinkingUnsupportedError,
    UnreachableError,
)
from homarus.core.message import Message
from homarus.testing.model_server import BodyFraming, Fail, Replay, Say, StreamFault
from homarus.testing.model_server.bedrock import event, frame
from tests.wire.harness import ANTHROPIC, BEDROCK, WIRES, Wire, framed

# Pieces of which bodies are made that look almost like a stream of the wire.
SSE_PIECES = [
    b"data: ", b"\n\n", b"\r", b": c\n", b"\xef\xbb\xbf", b"\xf0\x9f", b"event: x\n", b"null", b"{"
]  # fmt: skip
PIECES = {
    "openai": [
        b'{"choices":[{"delta":{"content":"a"}}]}',
        b'{"choices":[{"finish_reason":"stop"}]}',
        b'{"error":',
        b"[DONE]",
    ],
    "responses": [
        b'{"type":"response.output_text.delta","output_index":0,"delta":"a"}',
        b'{"type":"response.completed","response":{"output":[]}}',
        b'{"type":"response.failed","response":null}',
        b'{"type":"error"}',
        b'{"type":',
        b"[DONE]",
    ],
    "google": [
        b'{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}',
        b'{"candidates":[{"finishReason":"STOP"}]}',
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"args":5}}]}}]}',
        b'{"promptFeedback":{"blockReason":[1]}}',
        b'{"error":',
        b'{"usageMetadata":7}',
        b"[",
        b"]",
    ],
}
# Events that lie about their own shape: every value where another kind is due.
odd = st.sampled_from([b"null", b"0", b"[]", b"{}", b'"x"', b"1e999", b"true", b"[1]"])
anthropic_events = st.one_of(
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
anthropic_lies = st.lists(anthropic_events.map(lambda e: b"data: " + e + b"\n\n")).map(b"".join)
CONVERSE_EVENTS = [
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
    "metadata",
]
converse_lies = st.one_of(
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
converse_lying = st.builds(
    lambda told, end: b"".join(told) + end,
    st.lists(st.builds(framed, st.sampled_from([*CONVERSE_EVENTS, "", "x"]), converse_lies)),
    st.sampled_from([b"", END]),
)
converse_exceptions = st.builds(
    lambda kind, name, payload: frame(
        {":message-type": kind, ":exception-type": name, ":error-code": name}, payload
    ),
    st.sampled_from(["exception", "error", "event", "?"]),
    st.sampled_from(["", "throttlingException", "ThrottlingException", "newException"]),
    converse_lies,
)


def bodies(wire: Wire) -> st.SearchStrategy[bytes]:
    """Return recordings with other bytes in a place, noise, and events that are almost right."""
    spoiled = st.tuples(
        st.sampled_from(wire.streams).map(wire.recorded),
        st.integers(0, 9000 if wire.name == "responses" else 4000),
        st.binary(max_size=6),
    ).map(lambda given: given[0][: given[1]] + given[2] + given[0][given[1] + len(given[2]) :])
    if wire is BEDROCK:
        lying = converse_lying | st.lists(converse_exceptions).map(b"".join)
    elif wire is ANTHROPIC:
        lying = anthropic_lies
    else:
        lying = st.lists(st.sampled_from([*SSE_PIECES, *PIECES[wire.name]])).map(b"".join)
    return st.one_of(spoiled, st.binary(max_size=200), lying)


def shapes(wire: Wire) -> st.SearchStrategy[BodyFraming]:
    return st.builds(
        BodyFraming,
        piece_bytes=st.sampled_from([None, 7, 100]),
        newline=st.sampled_from([b"\n", b"\r\n"] if wire.is_sse else [b"\n"]),
        cut_at_byte=st.none() | st.integers(0, 9000 if wire.name == "responses" else 3000),
        framing=st.sampled_from(["chunked", "close"]),
        content_type=st.sampled_from(["text/event-stream", "application/json", "text/html", ""]),
    )


EXAMPLES = {"anthropic": 250, "bedrock": 60}


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_any_body_yields_message_or_typed_error(wire: Wire) -> None:
    @settings(max_examples=EXAMPLES.get(wire.name, 150), deadline=None)
    @given(bodies(wire), shapes(wire))
    def check(body: bytes, shape: BodyFraming) -> None:
        got = wire.outcome(Replay(body), shape)
        if isinstance(got, ProviderError):
            assert got.message.startswith("mock/m: ")
            assert got.fix

    check()


HEAD = b"HTTP/1.1 200 OK\r\n"
SSE = HEAD + b"Content-Type: text/event-stream\r\n"
STREAM = HEAD + b"Content-Type: application/vnd.amazon.eventstream\r\n"
JSON = HEAD + b"Content-Type: application/json\r\n\r\n"
BROKEN_HTTP: list[tuple[bytes, type[ProviderError]]] = [
    (b"", UnreachableError),
    (b"SSH-2.0-OpenSSH_9.9\r\n", UnreachableError),
    (b"\x15\x03\x01\x00\x02\x02\x50", UnreachableError),
    (b"HTTP/1.1 200", UnreachableError),
    (HEAD + b"X: " + b"y" * 200_000, UnreachableError),
    (JSON + b"{}", StreamError),
]
BROKEN_SSE: list[tuple[bytes, type[ProviderError]]] = [
    (SSE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", StreamError),
    (SSE + b"Transfer-Encoding: chunked\r\n\r\n5\r\ndat", StreamError),
    (SSE + b"Content-Length: 100\r\n\r\ndata: {}\n\n", StreamError),
    (SSE + b"Content-Length: 10\r\n\r\ndata: {}\n\n", StreamError),
    (SSE + b"Content-Encoding: gzip\r\n\r\nnot gzip at all", StreamError),
    (JSON, StreamError),
    (JSON + b"null", StreamError),
    (JSON + b"[]", StreamError),
    (JSON + b"[[]]", StreamError),
    (JSON + b'{"choices":[]}', StreamError),
]
BROKEN_CONVERSE: list[tuple[bytes, type[ProviderError]]] = [
    (STREAM + b"Transfer-Encoding: chunked\r\n\r\n5\r\n\0\0\0", StreamError),
    (STREAM + b"Content-Length: 100\r\n\r\n" + event("messageStart"), StreamError),
    (STREAM + b"Content-Length: 0\r\n\r\n", StreamError),
    (JSON + b'{"output":{"message":{}}}', StreamError),
    (HEAD + b"Content-Type: text/html\r\n\r\n<html>", BadRequestError),
    (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", BadRequestError),
]


@pytest.mark.parametrize(
    ("wire", "answer", "kind"),
    [
        pytest.param(wire, *case, id=f"{wire}-{number}")
        for wire in WIRES
        for number, case in enumerate(
            [*BROKEN_HTTP, *(BROKEN_SSE if wire.is_sse else BROKEN_CONVERSE)]
        )
    ],
)
def test_broken_http_raises_its_class(wire: Wire, answer: bytes, kind: type[ProviderError]) -> None:
    assert type(wire.outcome_of_bytes(answer)) is kind


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire.is_sse], ids=str)
def test_compressed_answer_is_read(wire: Wire) -> None:
    plain = wire.recorded(wire.streams[0])
    head = SSE + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n"
    got = wire.outcome_of_bytes(head + gzip.compress(plain))
    assert isinstance(got, Message)
    assert got.text == Message("assistant", wire.read(plain).message_parts()).text


# Refusals of the vendors, and their classes.
ANTHROPIC_WORDS: list[tuple[int, str, str, type[ProviderError]]] = [
    (
        400,
        "invalid_request_error",
        "prompt is too long: 213021 tokens > 200000 maximum",
        ContextOverflowError,
    ),
    (
        400,
        "invalid_request_error",
        (
            "input length and `max_tokens` exceed context limit: 188240 + 64000 > 200000, decrease"
            " input length or `max_tokens` and try again"
        ),
        ContextOverflowError,
    ),
    (
        400,
        "invalid_request_error",
        (
            "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes >"
            " 5242880 bytes"
        ),
        ImageTooLargeError,
    ),
    (
        400,
        "invalid_request_error",
        (
            "messages.2.content.0.image.source.base64.data: At least one of the image dimensions"
            " exceed max allowed size: 8000 pixels"
        ),
        ImageTooLargeError,
    ),
    (
        400,
        "invalid_request_error",
        (
            "Your credit balance is too low to access the Anthropic API. Please go to Plans &"
            " Billing to upgrade or purchase credits."
        ),
        BillingError,
    ),
    (
        400,
        "invalid_request_error",
        "You have reached your specified API usage limits. You will regain access on 2026-12-01.",
        BillingError,
    ),
    (
        400,
        "invalid_request_error",
        "Output blocked by content filtering policy",
        ContentFilterError,
    ),
    (400, "invalid_request_error", "This organization has been disabled.", AuthError),
    (
        400,
        "invalid_request_error",
        (
            '"thinking.type.enabled" is not supported for this model. Use'
            ' "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
        ),
        BadRequestError,
    ),
    (
        400,
        "invalid_request_error",
        "messages.1: `tool_use` ids were found without `tool_result` blocks",
        BadRequestError,
    ),
    (401, "authentication_error", "invalid x-api-key", AuthError),
    (401, "authentication_error", "OAuth token has expired.", AuthError),
    (402, "billing_error", "Your payment could not be processed.", BillingError),
    (403, "permission_error", "Your API key may not use this resource.", AuthError),
    (404, "not_found_error", "model: claude-nothing", BadRequestError),
    (413, "request_too_large", "Request exceeds the maximum size", ContextOverflowError),
    (
        429,
        "rate_limit_error",
        "Number of input tokens has exceeded your rate limit",
        RateLimitError,
    ),
    (
        429,
        "rate_limit_error",
        (
            "This request would exceed your organization's rate limit of 30,000 input tokens per"
            " minute. Please reduce the prompt length or the maximum tokens requested."
        ),
        RateLimitError,
    ),
    (500, "api_error", "Internal server error", OverloadedError),
    (504, "timeout_error", "The request took too long.", OverloadedError),
    (529, "overloaded_error", "Overloaded", OverloadedError),
]
BEDROCK_WORDS: list[tuple[int, str, str, type[ProviderError]]] = [
    (400, "ValidationException", "Input is too long for requested model.", ContextOverflowError),
    (
        400,
        "ValidationException",
        "The model returned the following errors: prompt is too long: 209000 tokens > 200000",
        ContextOverflowError,
    ),
    (
        400,
        "ValidationException",
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
        ContextOverflowError,
    ),
    (
        400,
        "ValidationException",
        "Too many input tokens. Max input tokens: 8192, request input token count: 16230",
        ContextOverflowError,
    ),
    (
        400,
        "ValidationException",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum",
        ImageTooLargeError,
    ),
    (
        400,
        "ValidationException",
        "Invocation of model ID m with on-demand throughput isn't supported.",
        BadRequestError,
    ),
    (
        400,
        "ValidationException",
        "thinking is not supported by this model",
        ThinkingUnsupportedError,
    ),
    (403, "AccessDeniedException", "You don't have access to the model.", AuthError),
    (
        403,
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
        AuthError,
    ),
    (
        403,
        "ExpiredTokenException",
        "The security token included in the request is expired",
        AuthError,
    ),
    (400, "ExpiredTokenException", "The security token is expired", AuthError),
    (404, "ResourceNotFoundException", "This model version has reached its end.", BadRequestError),
    (408, "ModelTimeoutException", "Model has timed out in processing.", ProviderTimeoutError),
    (424, "ModelErrorException", "The system encountered an unexpected error.", OverloadedError),
    (429, "ThrottlingException", "Too many tokens, please wait.", RateLimitError),
    (429, "ThrottlingException", "Too many requests, please wait.", RateLimitError),
    (429, "ModelNotReadyException", "The model is not ready for inference.", OverloadedError),
    (500, "InternalServerException", "Internal failure.", OverloadedError),
    (503, "ServiceUnavailableException", "Too many connections.", OverloadedError),
]
REFUSALS = [
    *(pytest.param(ANTHROPIC, *words, id=f"anthropic-{words[0]}") for words in ANTHROPIC_WORDS),
    *(pytest.param(BEDROCK, *words, id=f"bedrock-{words[0]}") for words in BEDROCK_WORDS),
]


@pytest.mark.parametrize(("wire", "status", "code", "words", "kind"), REFUSALS)
def test_refusal_raises_its_class(
    wire: Wire, status: int, code: str, words: str, kind: type[ProviderError]
) -> None:
    got = wire.outcome(Fail(status, words, code, retry_after="7"))
    assert isinstance(got, kind)
    assert type(got) is kind or wire is ANTHROPIC
    assert got.status == status
    assert words[:20] in got.message
    if isinstance(got, RateLimitError):
        assert got.after_s == 7


@pytest.mark.parametrize(("status", "code", "words", "kind"), ANTHROPIC_WORDS)
def test_anthropic_error_inside_stream_raises_same_class(
    status: int, code: str, words: str, kind: type[ProviderError]
) -> None:
    got = ANTHROPIC.outcome(Say("I was say"), StreamFault(words, code))
    assert isinstance(got, ProviderTimeoutError if status == 504 else kind)
