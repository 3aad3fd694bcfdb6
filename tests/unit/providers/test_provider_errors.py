"""Converting vendors' errors into ours."""

import json
import time
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
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
)
from homarus.providers.provider_errors import (
    ErrorContext,
    error_from_response,
    error_from_vendor,
    problem_in,
    retry_after_s,
)

SUBJECT = ErrorContext("acme", "m-1", "https://api.acme.example/v1", ("sk-very-secret-key",))
NOW_MS = 1_800_000_000_000


def by_http(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_from_response(SUBJECT, status, raw, headers or {}, NOW_MS)


def told(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AuthError),
        (402, BillingError),
        (403, AuthError),
        (404, BadRequestError),
        (408, ProviderTimeoutError),
        (413, ContextOverflowError),
        (422, BadRequestError),
        (429, RateLimitError),
        (500, OverloadedError),
        (502, OverloadedError),
        (503, OverloadedError),
        (504, OverloadedError),
        (524, OverloadedError),
        (529, OverloadedError),
        (302, BadRequestError),
    ],
)
@pytest.mark.parametrize(
    "body", [b"", b"<html><title>Oh no</title></html>", b"{}", b"\xff{", b"[]"]
)
def test_status_alone_decides_class(status: int, kind: type[ProviderError], body: bytes) -> None:
    error = by_http(status, body)
    assert type(error) is kind
    assert error.status == status
    assert error.message.startswith("acme/m-1: ")
    assert error.fix


OVERFLOWS = [
    (
        400,
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted "
            "in 9000 tokens. Please reduce the length of the messages."
        ),
    ),
    (
        400,
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in"
            " 300000 tokens. Please reduce the length of the messages."
        ),
    ),
    (400, "Your input exceeds the context window of this model. Please adjust your input."),
    (
        400,
        (
            "the request exceeds the available context size. try increasing the context size or "
            "enable context shift"
        ),
    ),
    (
        400,
        ("request (9000 tokens) exceeds the available context size (4096 tokens), try increasing"),
    ),
    (400, "The decoder prompt (length 2136) is longer than the maximum model length of 2048."),
    (
        500,
        (
            "[address=0.0.0.0:43769] The decoder prompt (length 66501) is longer than the maximum"
            " model length of 65536."
        ),
    ),
    (
        400,
        (
            "The number of tokens to keep from the initial prompt is greater than the context "
            "length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context "
            "length"
        ),
    ),
    (
        400,
        (
            "Trying to keep the first 15857 tokens when context the overflows. However, the model"
            " is loaded with context length of only 4096 tokens, which is not enough."
        ),
    ),
    (400, "prompt too long; exceeded max context length by 120 tokens"),
    (400, "input length exceeds maximum context length"),
    (
        400,
        (
            "This endpoint's maximum context length is 128000 tokens. However, you requested "
            "about 150000 tokens (140000 of text input). Please reduce the length of either one"
        ),
    ),
    (400, "prompt is too long: 213462 tokens > 200000 maximum"),
    (
        400,
        ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)"),
    ),
    (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
    (400, "Please reduce the length of the messages or completion. Current length is 10000"),
    (
        400,
        (
            "Prompt contains 50000 tokens and 0 draft tokens, too large for model with 32768 "
            "maximum context length"
        ),
    ),
    (400, "prompt token count of 70000 exceeds the limit of 64000"),
    (400, "Invalid request: Your request exceeded model token limit : 8192 (requested: 9000)"),
    (400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
    (
        413,
        (
            "Request too large for model `x` in organization `o` on tokens per minute (TPM): "
            "Limit 6000, Requested 9000, please reduce your message size and try again."
        ),
    ),
]


@pytest.mark.parametrize(("status", "words"), OVERFLOWS, ids=[w[:40] for _, w in OVERFLOWS])
def test_overflow_wordings_raise_context_overflow(status: int, words: str) -> None:
    for body in (told(words), {"error": words}, {"detail": words}, {"message": words}):
        assert type(by_http(status, body)) is ContextOverflowError
    assert (
        type(error_from_vendor(SUBJECT, problem_in(told(words)), midway=True))
        is ContextOverflowError
    )


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, told("no", code="context_length_exceeded"), ContextOverflowError),
        (400, told("no", type="exceed_context_size_error", n_ctx=4096), ContextOverflowError),
        (429, told("You exceeded your current quota, please check your plan and billing details.",
                   type="insufficient_quota", code="insufficient_quota"), BillingError),
        (429, told("Quota exceeded for requests per minute", status="RESOURCE_EXHAUSTED"),
         RateLimitError),
        (429, told("Rate limit reached: Limit 30000, Used 29000, Requested 2000 tokens per min"),
         RateLimitError),
        (402, told("This request requires more credits, or fewer max_tokens."), BillingError),
        (400, told("Your credit balance is too low to access the API."), BillingError),
        (403, told("Insufficient Balance"), BillingError),
        (403, told("Rate limit exceeded for this key"), RateLimitError),
        (403, told("Too many requests from this address"), RateLimitError),
        (403, told("Country, region, or territory not supported"), AuthError),
        (403, told("Your chosen model requires moderation and your input was flagged"),
         ContentFilterError),
        (400, told("API key not valid. Please pass a valid API key.", code=400), AuthError),
        (400, told("Incorrect API key provided: x"), AuthError),
        (400, told("The response was filtered", code="content_filter"), ContentFilterError),
        (
            400,
            told("image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes"),
            ImageTooLargeError,
        ),
        (400, told("image dimensions exceed max allowed size: 8000 pixels"), ImageTooLargeError),
        (413, told("The image is too large"), ImageTooLargeError),
        (
            400,
            told("Invalid value: 'image_url'. This model does not support images."),
            BadRequestError,
        ),
        (400, told("max_tokens is too large: 99999"), BadRequestError),
        (
            400,
            told("reasoning_effort does not support 'xhigh' with this model"),
            ThinkingUnsupportedError,
        ),
        (400, [told("Invalid JSON payload", code=400, status="INVALID_ARGUMENT")], BadRequestError),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, BadRequestError),
        (404, told('model "x" not found, try pulling it first'), BadRequestError),
        (503, told("Loading model"), OverloadedError),
        (500, told("moderation service crashed"), OverloadedError),
    ],
)  # fmt: skip
def test_codes_and_words_refine_status(status: int, body: Any, kind: type[ProviderError]) -> None:
    assert type(by_http(status, body)) is kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (told("boom", type="server_error"), OverloadedError),
        (told("Provider disconnected", code=502), OverloadedError),
        (told("slow down", code=429), RateLimitError),
        (told("Rate limit exceeded"), RateLimitError),
        (told("Overloaded", type="overloaded_error"), OverloadedError),
        (told("Upstream idle timeout exceeded"), ProviderTimeoutError),
        (told("Failed to call a function.", type="invalid_request_error", code="tool_use_failed"),
         BadRequestError),
        ({"object": "error", "message": "nope", "type": "BadRequestError", "code": 400},
         BadRequestError),
        ({"error": "something strange"}, StreamError),
        ({"error": {"message": "Provider returned error", "code": 400, "metadata": {
            "raw": "prompt is too long: 300000 tokens > 200000 maximum"}}}, ContextOverflowError),
    ],
)  # fmt: skip
def test_stream_error_is_classified_like_response(body: Any, kind: type[ProviderError]) -> None:
    error = error_from_vendor(SUBJECT, problem_in(body), midway=True)
    assert type(error) is kind
    assert error.fix


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "99999999999"}, 86400.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": formatdate(NOW_MS / 1000 + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW_MS / 1000 - 90, usegmt=True)}, 0.0),
        ({"retry-after": "Mon, 99 Foo 2020 99:99:99 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after_reads_seconds_milliseconds_or_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after_s(headers, NOW_MS) == seconds
    error = by_http(429, told("slow down"), headers)
    assert isinstance(error, RateLimitError)
    assert error.after_s == seconds


def test_key_in_vendor_message_is_masked() -> None:
    error = by_http(401, told("Incorrect API key provided: sk-very-secret-key. Check it."))
    assert "sk-very-secret-key" not in str(error)
    assert "***" in error.message
    assert "sk-very-secret-key" not in repr(SUBJECT)


def test_message_is_one_bounded_visible_line() -> None:
    error = by_http(400, told("a\r\nb\x1b[31m\u202e" + "x" * 10_000))
    assert len(error.message) < 400
    assert "\n" not in error.message
    assert "\x1b" not in error.message
    assert "\u202e" not in error.message


def test_html_body_is_described_by_title() -> None:
    page = b"<!DOCTYPE html><html><head><title>502 Bad\nGateway</title></head>..."
    assert "a web page: 502 Bad Gateway" in by_http(502, page).message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "code", "type", "detail", "metadata", "raw", "msg"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(json_values, st.integers(400, 599))
def test_any_body_yields_an_error(body: Any, status: int) -> None:
    raw = json.dumps(body).encode()
    assert isinstance(error_from_response(SUBJECT, status, raw, {}, NOW_MS), ProviderError)
    assert isinstance(error_from_vendor(SUBJECT, problem_in(body), midway=True), ProviderError)


def test_hostile_bodies_are_classified_quickly() -> None:
    start = time.process_time()
    for word in ("exceed ", "image ", "request too large for ", "context ", "input tokens ", "a"):
        by_http(400, told(word * 10_000))
    by_http(400, b"[" * 60_000)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ('"thinking.type.enabled" is not supported for this model.', ThinkingUnsupportedError),
        ("adaptive thinking is not supported on this model", ThinkingUnsupportedError),
        ("This model does not support effort level 'xhigh'.", ThinkingUnsupportedError),
        (
            "Unsupported value: 'reasoning_effort' does not support 'minimal'.",
            ThinkingUnsupportedError,
        ),
        ("Unrecognized request argument supplied: reasoning_effort", ThinkingUnsupportedError),
        ("`reasoning_effort` must be one of `low`, `medium`, or `high`", ThinkingUnsupportedError),
        ("Thinking level MINIMAL is not supported for this model.", ThinkingUnsupportedError),
        ("Budget 0 is invalid. This model only works in thinking mode.", ThinkingUnsupportedError),
        ('"llama3.2:3b" does not support thinking', ThinkingUnsupportedError),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", BadRequestError),
        ("temperature is not supported with this model", BadRequestError),
    ],
)
def test_thinking_refusals_are_recognised(words: str, kind: type[ProviderError]) -> None:
    told_midway = problem_in(told(words, type="invalid_request_error"))
    assert type(by_http(400, told(words))) is kind
    assert type(error_from_vendor(SUBJECT, told_midway, midway=True)) is kind
    assert type(by_http(401, told(words))) is AuthError


def test_minute_window_and_month_limits_are_distinguished() -> None:
    words = "Number of input tokens has exceeded your per-minute rate limit"
    limit = told(words, type="rate_limit_error")
    assert type(by_http(429, limit)) is RateLimitError
    limit["error"]["details"] = {"error_code": "enforced_spend_limit_reached"}
    assert type(by_http(429, limit)) is BillingError
