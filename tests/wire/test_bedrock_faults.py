"""Errors, ends and frames that only Bedrock sends, and their classes."""

import json
from typing import Any

import pytest

from homarus.core.errors import (
    AuthError,
    BadRequestError,
    ContentFilterError,
    ContextOverflowError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
)
from homarus.core.message import Message
from homarus.testing.model_server import (
    BodyFraming,
    Comments,
    Cut,
    HangUntilDisconnect,
    LongLine,
    Overflow,
    Raw,
    Replay,
    Say,
    ScriptStep,
    Stop,
    StreamFault,
)
from homarus.testing.model_server.bedrock import event, frame
from tests.wire.harness import BEDROCK

END = event("messageStop", stopReason="end_turn")


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Say("a"), Cut("close")], StreamError),
        ([Say("a"), Cut("reset")], StreamError),
        ([Say("a"), Cut("half-close")], StreamError),
        ([Say("a"), BodyFraming(end=False)], StreamError),
        ([Say("a"), Raw(b"data: {}\n\n")], StreamError),
        ([Say("a"), LongLine(50_000_000)], StreamError),
        ([Say("a"), Comments()], StreamError),
        ([Say("a"), Stop("filtered")], ContentFilterError),
        ([Say("a"), HangUntilDisconnect()], ProviderTimeoutError),
        ([HangUntilDisconnect()], ProviderTimeoutError),
        ([Overflow()], ContextOverflowError),
        ([Say("a"), StreamFault("slow down", "throttlingException")], RateLimitError),
        ([Say("a"), StreamFault()], OverloadedError),
    ],
)
def test_bedrock_broken_stream_raises_its_class(
    steps: list[ScriptStep], kind: type[ProviderError]
) -> None:
    assert type(BEDROCK.outcome(*steps, idle_s=0.3)) is kind


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("guardrail_intervened", ContentFilterError),
        ("malformed_model_output", StreamError),
        ("malformed_tool_use", StreamError),
        ("model_context_window_exceeded", ContextOverflowError),
    ],
)
def test_bedrock_abnormal_stop_raises_its_class(reason: str, kind: type[ProviderError]) -> None:
    body = event("messageStart", role="assistant") + event("messageStop", stopReason=reason)
    assert type(BEDROCK.outcome(Replay(body))) is kind


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
def test_bedrock_delta_of_wrong_kind_raises_stream_error(delta: Any) -> None:
    body = event("contentBlockDelta", contentBlockIndex=0, delta=delta) + END
    assert type(BEDROCK.outcome(Replay(body))) is StreamError


def test_bedrock_cut_after_end_keeps_answer() -> None:
    body = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "all"})
    body += event("messageStop", stopReason="end_turn")
    rest = event("metadata", usage={"inputTokens": 1})
    got = BEDROCK.outcome(Replay(body + rest), BodyFraming(cut_at_byte=len(body) + 5))
    assert isinstance(got, Message)
    assert got.text == "all"


@pytest.mark.parametrize(
    ("name", "fields", "kind"),
    [
        ("throttlingException", {"message": "slow down"}, RateLimitError),
        ("ThrottlingException", {"Message": "slow down"}, RateLimitError),
        ("modelStreamErrorException", {"originalMessage": "boom"}, OverloadedError),
        ("validationException", {"message": "Input is too long"}, ContextOverflowError),
        ("validationException", {"message": "bad"}, BadRequestError),
        ("internalServerException", {}, OverloadedError),
        ("serviceUnavailableException", {"message": "busy"}, OverloadedError),
        ("accessDeniedException", {"message": "no"}, AuthError),
        ("modelTimeoutException", {"message": "late"}, ProviderTimeoutError),
        ("newException", {"message": "what"}, StreamError),
    ],
)
def test_bedrock_exception_in_stream_raises_its_class(
    name: str, fields: dict[str, Any], kind: type[ProviderError]
) -> None:
    headers = {":message-type": "exception", ":exception-type": name}
    got = BEDROCK.outcome(Say("I was say"), Raw(frame(headers, json.dumps(fields).encode())))
    assert type(got) is kind


def test_bedrock_error_without_type_classified_by_text() -> None:
    headers = {
        ":message-type": "error",
        ":error-code": "InternalError",
        ":error-message": "service unavailable",
    }
    assert type(BEDROCK.outcome(Raw(frame(headers, b"")))) is OverloadedError
