"""Approvals as clients of the gateway get them, in answers and in events."""

from homarus.core.event import ApprovalRequested, ApprovalResolved, Event
from homarus.core.message import Json
from homarus.gateway.question_payloads import encode_answer, encode_question
from homarus.store.approvals import QUESTION, ApprovalRecord

_OPENCLAW_FIELDS = (
    "command",
    "cwd",
    "host",
    "security",
    "ask",
    "agentId",
    "resolvedPath",
    "sessionKey",
)


def show_pending(record: ApprovalRecord) -> dict[str, Json]:
    """Return a pending approval, as the event `exec.approval.requested` has it."""
    return _pending(
        record.id, record.tool, dict(record.request), record.created_ms, record.expires_ms
    )


def show_resolved(record: ApprovalRecord) -> dict[str, Json]:
    """Return an approval or a question that ended: how, when, and who answered it."""
    return {
        **show_pending(record),
        "kind": "question" if record.is_question else "approval",
        "state": record.state,
        "decision": record.answer or record.decision or None,
        "resolvedBy": record.resolved_by or None,
        "resolvedAtMs": record.resolved_ms or None,
    }


def show_decision(record: ApprovalRecord) -> dict[str, Json]:
    """Return an approval that is resolved; without an answer, the decision is null."""
    return {
        "id": record.id,
        "decision": record.decision or None,
        "createdAtMs": record.created_ms,
        "expiresAtMs": record.expires_ms,
    }


def encode_approval_event(event: Event) -> tuple[str, dict[str, Json]] | None:
    """Return the name and payload of the event about an approval; None for other events."""
    match event.data:
        case ApprovalRequested(approval_id, _tool, request, created_ms, expires_ms) if (
            request.get("kind") == QUESTION
        ):
            payload = encode_question(approval_id, request, created_ms, expires_ms)
            return "question.requested", payload
        case ApprovalResolved(approval_id, state, decision, _by, is_question=True):
            outcome = encode_answer(
                decision if state == "allowed" else "", is_expired=state == "expired"
            )
            return "question.resolved", {"id": approval_id, **outcome}
        case ApprovalRequested(approval_id, tool, request, created_ms, expires_ms):
            payload = _pending(approval_id, tool, dict(request), created_ms, expires_ms)
            return "exec.approval.requested", payload
        case ApprovalResolved(approval_id, _state, decision, by):
            resolved = {"id": approval_id, "decision": decision or None, "resolvedBy": by or None}
            return "exec.approval.resolved", {**resolved, "ts": event.ts_ms}
        case _:
            return None


def show_question(record: ApprovalRecord) -> dict[str, Json]:
    """Return a question that waits, as the event `question.requested` has it."""
    return encode_question(record.id, record.request, record.created_ms, record.expires_ms)


def _pending(
    approval_id: str, tool: str, request: dict[str, Json], created_ms: int, expires_ms: int
) -> dict[str, Json]:
    """Return the fields; those of OpenClaw's requests are there, null if they are not known."""
    known = {name: request.get(name) for name in _OPENCLAW_FIELDS}
    known["command"] = request.get("command") or request.get("detail") or tool
    return {
        "id": approval_id,
        "request": {**known, **request, "command": known["command"], "tool": tool},
        "createdAtMs": created_ms,
        "expiresAtMs": expires_ms,
    }
