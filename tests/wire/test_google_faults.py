"""Refusals and unfinished answers that only Gemini sends, and their classes."""

import json
from typing import Any

import pytest

from homarus.core.errors import (
    AuthError,
    BadRequestError,
    BillingError,
    ContentFilterError,
    ContextOverflowError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    ThinkingUnsupportedError,
)
from homarus.core.message import Message
from homarus.testing.model_server import BodyFraming, Fail, Replay
from tests.wire.harness import GOOGLE


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
        AuthError,
    ),
    (told(400, "INVALID_ARGUMENT", "It is wrong.", reason("API_KEY_INVALID")), AuthError),
    (told(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key."), AuthError),
    (told(401, "UNAUTHENTICATED", "Expected OAuth 2 access token."), AuthError),
    (told(403, "PERMISSION_DENIED", "Your API key was reported as leaked."), AuthError),
    (
        told(403, "PERMISSION_DENIED", "It is disabled.", reason("SERVICE_DISABLED")),
        AuthError,
    ),
    (
        told(403, "PERMISSION_DENIED", "It needs billing.", reason("BILLING_DISABLED")),
        BillingError,
    ),
    (
        told(
            400,
            "FAILED_PRECONDITION",
            "Gemini API free tier is not available in your country. Please enable billing on "
            "your project in Google AI Studio.",
        ),
        BillingError,
    ),
    (
        told(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."),
        BillingError,
    ),
    (told(429, "RESOURCE_EXHAUSTED", EXHAUSTED, QUOTA, RETRY), RateLimitError),
    (
        told(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
        RateLimitError,
    ),
    (
        told(
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed "
            "(1048576).",
        ),
        ContextOverflowError,
    ),
    (
        told(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."),
        ContextOverflowError,
    ),
    (
        told(
            400,
            "INVALID_ARGUMENT",
            'Invalid JSON payload received. Unknown name "foo": Cannot find field.',
            {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{}]},
        ),
        BadRequestError,
    ),
    (told(400, "FAILED_PRECONDITION", "User location is not supported."), BadRequestError),
    (
        told(
            400, "INVALID_ARGUMENT", "'minimal' is not a supported thinking level for this model."
        ),
        ThinkingUnsupportedError,
    ),
    (
        told(400, "INVALID_ARGUMENT", "The thinking budget 50 is invalid. Choose 512 to 24576."),
        ThinkingUnsupportedError,
    ),
    (told(404, "NOT_FOUND", "models/x is not found for API version v1beta."), BadRequestError),
    (told(499, "CANCELLED", "The operation was cancelled."), OverloadedError),
    (told(500, "INTERNAL", "An internal error has occurred."), OverloadedError),
    (told(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), OverloadedError),
    (told(504, "DEADLINE_EXCEEDED", "Deadline expired before operation."), ProviderTimeoutError),
]


@pytest.mark.parametrize(("body", "kind"), ERRORS, ids=lambda value: str(value)[:60])
def test_google_refusal_raises_its_class_as_response_and_in_stream(
    body: dict[str, Any], kind: type[ProviderError]
) -> None:
    text = json.dumps(body).encode()
    begun = b'data: {"candidates":[{"content":{"parts":[{"text":"I"}]}}]}\n\n'
    for steps in (
        [Fail(body["error"]["code"], body=text)],
        [Fail(body["error"]["code"], body=b"[" + text + b"\n]")],
        [Replay(begun + b"data: " + text + b"\n\n")],
        [Replay(begun + json.dumps(body, indent=2).encode() + b"\n")],
        [Replay(begun + json.dumps(body, indent=2).encode()), BodyFraming(newline=b"\r\n")],
        [Replay(b"[" + text + b"]"), BodyFraming(content_type="application/json")],
    ):
        got = GOOGLE.outcome(*steps)
        assert type(got) is kind, got
        assert got.status == body["error"]["code"]
        if isinstance(got, RateLimitError) and RETRY in body["error"].get("details", ()):
            assert got.after_s == 27.5


@pytest.mark.parametrize("delay", ["", "s", "x s", "NaNs", "inf", "-3s", 5, None, {}])
def test_google_invalid_retry_delay_is_ignored(delay: Any) -> None:
    body = told(429, "RESOURCE_EXHAUSTED", EXHAUSTED, {"retryDelay": delay}, "27.5s", None)
    got = GOOGLE.outcome(Fail(429, body=json.dumps(body).encode()))
    assert isinstance(got, RateLimitError)
    assert got.after_s in {None, 0.0}


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("SAFETY", ContentFilterError),
        ("RECITATION", ContentFilterError),
        ("BLOCKLIST", ContentFilterError),
        ("PROHIBITED_CONTENT", ContentFilterError),
        ("SPII", ContentFilterError),
        ("LANGUAGE", ContentFilterError),
        ("IMAGE_SAFETY", ContentFilterError),
        ("IMAGE_PROHIBITED_CONTENT", ContentFilterError),
        ("IMAGE_RECITATION", ContentFilterError),
        ("MALFORMED_FUNCTION_CALL", StreamError),
        ("UNEXPECTED_TOOL_CALL", StreamError),
        ("TOO_MANY_TOOL_CALLS", StreamError),
        ("MALFORMED_RESPONSE", StreamError),
        ("NO_IMAGE", StreamError),
        ("IMAGE_OTHER", StreamError),
        ("OTHER", StreamError),
        ("MISSING_THOUGHT_SIGNATURE", BadRequestError),
        ("FINISH_REASON_UNSPECIFIED", StreamError),
    ],
)
def test_google_abnormal_finish_raises_its_class(finish: str, kind: type[ProviderError]) -> None:
    candidate = {
        "content": {"parts": [{"text": "So"}], "role": "model"},
        "finishReason": finish,
        # Words of the model: they decide nothing.
        "finishMessage": "Malformed function call: print(rate limit exceeded, invalid api key)",
    }
    got = GOOGLE.outcome(
        Replay(b"data: " + json.dumps({"candidates": [candidate]}).encode() + b"\n\n")
    )
    assert type(got) is kind


@pytest.mark.parametrize("why", ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"])
def test_google_blocked_prompt_raises_content_filter(why: str) -> None:
    chunk = {"promptFeedback": {"blockReason": why}, "usageMetadata": {"promptTokenCount": 3}}
    got = GOOGLE.outcome(Replay(b"data: " + json.dumps(chunk).encode() + b"\n\n"))
    assert type(got) is ContentFilterError
    assert why in got.message


def test_google_unknown_finish_is_an_end() -> None:
    body = b'data: {"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"NEW"}]}\n\n'
    got = GOOGLE.outcome(Replay(body))
    assert isinstance(got, Message)
    assert got.text == "a"
