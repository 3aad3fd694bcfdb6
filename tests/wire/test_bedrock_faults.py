"""Errors, ends and frames that only Bedrock sends, and their classes."""

import json
from typing import Any

import pytest

from homarus.core.errors import (
    AuthFailed,
    BadRequest,
    ContentFiltered,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamBroken,
)
from homarus.core.message import Message
from homarus.testing.model_server import (
    Comments,
    Cut,
    Hold,
    LongLine,
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
from tests.wire.harness import BEDROCK

END = event("messageStop", stopReason="end_turn")


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
def test_bedrock_broken_stream_raises_its_class(
    steps: list[Step], kind: type[ProviderError]
) -> None:
    assert type(BEDROCK.outcome(*steps, idle_s=0.3)) is kind


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("guardrail_intervened", ContentFiltered),
        ("malformed_model_output", StreamBroken),
        ("malformed_tool_use", StreamBroken),
        ("model_context_window_exceeded", ContextOverflow),
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
    assert type(BEDROCK.outcome(Replay(body))) is StreamBroken


def test_bedrock_cut_after_end_keeps_answer() -> None:
    body = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "all"})
    body += event("messageStop", stopReason="end_turn")
    rest = event("metadata", usage={"inputTokens": 1})
    got = BEDROCK.outcome(Replay(body + rest), Shape(cut_at_byte=len(body) + 5))
    assert isinstance(got, Message)
    assert got.text == "all"


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
    assert type(BEDROCK.outcome(Raw(frame(headers, b"")))) is Overloaded
