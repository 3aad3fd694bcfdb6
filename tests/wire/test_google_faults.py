"""Refusals and unfinished answers that only Gemini sends, and their classes."""

import json
from typing import Any

import pytest

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
)
from homarus.core.message import Message
from homarus.testing.model_server import Fail, Replay, Shape
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
        [Replay(begun + json.dumps(body, indent=2).encode()), Shape(newline=b"\r\n")],
        [Replay(b"[" + text + b"]"), Shape(content_type="application/json")],
    ):
        got = GOOGLE.outcome(*steps)
        assert type(got) is kind, got
        assert got.status == body["error"]["code"]
        if isinstance(got, RateLimited) and RETRY in body["error"].get("details", ()):
            assert got.after_s == 27.5


@pytest.mark.parametrize("delay", ["", "s", "x s", "NaNs", "inf", "-3s", 5, None, {}])
def test_google_invalid_retry_delay_is_ignored(delay: Any) -> None:
    body = told(429, "RESOURCE_EXHAUSTED", EXHAUSTED, {"retryDelay": delay}, "27.5s", None)
    got = GOOGLE.outcome(Fail(429, body=json.dumps(body).encode()))
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
    assert type(got) is ContentFiltered
    assert why in got.message


def test_google_unknown_finish_is_an_end() -> None:
    body = b'data: {"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"NEW"}]}\n\n'
    got = GOOGLE.outcome(Replay(body))
    assert isinstance(got, Message)
    assert got.text == "a"
