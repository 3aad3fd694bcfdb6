"""Encode the outcome of a run as the result of `agent`, the gateway's method and the command."""

import json
import re
from typing import TYPE_CHECKING, Final

from homarus.core.errors import (
    BadRequestError,
    ContextOverflowError,
    HomarusError,
    ImageTooLargeError,
)
from homarus.core.event import encode_attempt
from homarus.core.message import Json, ToolCall, Usage

if TYPE_CHECKING:
    from homarus.agent.run import RunOutcome

# Failures that OpenClaw reports as an answer with an error in it; others fail the request.
_ANSWERED_KINDS: Final = frozenset(
    {"context_overflow", "compaction_failure", "role_ordering", "image_size"}
)
_ROLE_ORDER = re.compile(r"roles must alternate|incorrect role|comes immediately after", re.I)


def encode_result(run_id: str, outcome: "RunOutcome") -> dict[str, Json]:
    """Return the result of a run, with its reply or its error as `payloads`."""
    status, summary = ("error", str(outcome.error)) if outcome.error else ("ok", "completed")
    if is_answered(outcome):
        status, summary = "ok", "completed"
    result = {"payloads": _encode_payloads(outcome), "meta": _encode_meta(outcome)}
    return {"runId": run_id, "status": status, "summary": summary, "result": result}


def is_answered(outcome: "RunOutcome") -> bool:
    """Return whether the request of a run succeeds: with an answer, or with an error as one."""
    return outcome.error is None or error_kind(outcome) in _ANSWERED_KINDS


def error_kind(outcome: "RunOutcome") -> str:
    """Return the kind of a run's error by OpenClaw's names; else the error's code."""
    match outcome.error:
        case None:
            return ""
        case ContextOverflowError():
            return "compaction_failure" if outcome.has_compaction_failed else "context_overflow"
        case ImageTooLargeError():
            return "image_size"
        case BadRequestError() as error if _ROLE_ORDER.search(str(error)):
            return "role_ordering"
        case HomarusError() as error:
            return error.code


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as the model wrote them: JSON, if they are."""
    return call.broken or json.dumps(dict(call.args), ensure_ascii=False)


def _encode_payloads(outcome: "RunOutcome") -> list[Json]:
    payload: dict[str, Json] = {"text": outcome.text, "mediaUrl": next(iter(outcome.media), None)}
    if outcome.media:
        payload["mediaUrls"] = list(outcome.media)
    if outcome.reply_to:
        payload["replyToId"] = outcome.reply_to
    payloads = [payload] if outcome.text or outcome.media else []
    if outcome.error:
        from homarus.agent.reply.error_text import error_text

        text = error_text(outcome.error) or str(outcome.error)
        payloads.append({"text": text, "mediaUrl": None, "isError": True})
    return payloads


def _encode_meta(outcome: "RunOutcome") -> dict[str, Json]:
    provider, _, model = outcome.model.partition("/")
    meta: dict[str, Json] = {
        "durationMs": outcome.duration_ms,
        "agentMeta": {
            "sessionId": outcome.session_id,
            "provider": provider,
            "model": model,
            **_encode_usage(outcome.usage),
        },
        "aborted": outcome.status == "aborted",
    }
    if outcome.stop not in {"", "stop"}:  # OpenClaw has none after a complete answer
        meta["stopReason"] = outcome.stop
    if outcome.pending_calls:
        meta["pendingToolCalls"] = [
            {"id": each.id, "name": each.name, "arguments": arguments_text(each)}
            for each in outcome.pending_calls
        ]
    if outcome.error:
        meta["error"] = {"kind": error_kind(outcome), "message": str(outcome.error)}
    if outcome.attempts:
        meta["attempts"] = [encode_attempt(failed) for failed in outcome.attempts]
    return meta


def _encode_usage(usage: Usage) -> dict[str, Json]:
    last = {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "total": usage.total,
    }
    payload = {name: count for name, count in last.items() if count or not name.startswith("cache")}
    return {"usage": payload, "lastCallUsage": last, "promptTokens": usage.prompt}
