"""Approvals and questions that wait for a person, as the gateway reports them."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from homarus.cli.gateway_approver import CallMethod
from homarus.cli.tui.payload import read_count, read_items
from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.gateway.question_payloads import (
    ShownQuestion,
    make_resolve_params,
    parse_question,
    parse_question_list,
)

OUTCOMES: Final[Mapping[str, str]] = {
    "allow-once": "allowed once",
    "allow-always": "allowed for good",
    "deny": "denied",
}


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A tool call that waits for a yes or a no; `detail` is the exact plan."""

    id: str
    title: str
    detail: str
    always: str = ""  # what "always" would mean; empty where it is not offered
    agent_id: str = ""
    session_key: str = ""
    call_id: str = ""
    expires_ms: int = 0


Pending: TypeAlias = PendingApproval | ShownQuestion


def parse_approval(payload: Json) -> PendingApproval | None:
    """Return the approval of an event or a list; None for anything else."""
    request = payload.get("request") if isinstance(payload, dict) else None
    if not isinstance(payload, dict) or not isinstance(request, dict):
        return None
    return PendingApproval(
        str(payload.get("id")),
        str(request.get("title") or "Run this command?"),
        str(request.get("detail") or request.get("command") or ""),
        str(request.get("always") or ""),
        str(request.get("agentId") or ""),
        str(request.get("sessionKey") or ""),
        str(request.get("toolCallId") or ""),
        read_count(payload.get("expiresAtMs")),
    )


class PendingQuestions:
    """All that waits, of every session, oldest first."""

    def __init__(self, call: CallMethod) -> None:
        self._call = call
        self._pending: dict[str, Pending] = {}

    def of_session(self, session_key: str) -> list[Pending]:
        return [each for each in self._pending.values() if each.session_key == session_key]

    def count_elsewhere(self, session_key: str) -> int:
        """Return how many wait in other sessions."""
        return sum(each.session_key != session_key for each in self._pending.values())

    def waiting_calls(self) -> frozenset[str]:
        """Return the ids of the tool calls that wait."""
        found = (each for each in self._pending.values() if isinstance(each, PendingApproval))
        return frozenset(each.call_id for each in found if each.call_id)

    def sessions(self) -> frozenset[str]:
        return frozenset(each.session_key or "" for each in self._pending.values())

    async def load(self) -> None:
        """Load the pending approvals and questions; a client without the scope gets none."""
        try:
            approvals = await self._call("exec.approval.list", {})
            questions = parse_question_list(await self._call("question.list", {}))
        except HomarusError:
            return
        listed = map(parse_approval, read_items(approvals))
        found: Sequence[Pending | None] = [*listed, *questions]
        self._pending = {each.id: each for each in found if each}

    def on_event(self, name: str, payload: Json) -> str | None:
        """Handle an event; return what to say of an answer that came from elsewhere."""
        match name:
            case "exec.approval.requested":
                self._add(parse_approval(payload))
            case "question.requested":
                self._add(parse_question(payload))
            case "exec.approval.resolved" | "question.resolved":
                return self._resolved(payload if isinstance(payload, dict) else {})
            case _:
                return None
        return ""

    async def answer(self, pending: Pending, decision: str) -> None:
        """Answer one; raises when another answer came first."""
        self._pending.pop(pending.id, None)
        if isinstance(pending, PendingApproval):
            params: dict[str, Json] = {"id": pending.id, "decision": decision}
            await self._call("exec.approval.resolve", params)
        else:
            await self._call("question.resolve", make_resolve_params(pending.id, decision))

    def _add(self, pending: Pending | None) -> None:
        if pending:
            self._pending[pending.id] = pending

    def _resolved(self, payload: Mapping[str, Json]) -> str:
        found = self._pending.pop(str(payload.get("id")), None)
        if found is None:
            return ""
        if isinstance(found, ShownQuestion):
            return f"The question was {payload.get('status')}."
        outcome = OUTCOMES.get(str(payload.get("decision")), "not answered in time")
        by = str(payload.get("resolvedBy") or "")
        return f"{outcome} by {by}" if by else f"It was {outcome}."
