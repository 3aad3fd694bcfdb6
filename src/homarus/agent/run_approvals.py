"""The approvals of one run: ask once per call, wait a little, then end the run suspended."""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from homarus.agent.approval_ports import encode_address
from homarus.agent.approval_service import ApprovalService
from homarus.core.diagnostics import SessionActivity
from homarus.core.errors import HomarusError, RunSuspendedError
from homarus.core.lanes import LanePlace
from homarus.core.message import Inbound, Json
from homarus.core.text import one_line
from homarus.policy.approvals import ApprovalAnswer, ApprovalQuestion
from homarus.store.approvals import ApprovalRecord
from homarus.store.journal import JournalTransaction

log = logging.getLogger(__name__)

CHANGED: Final = (
    "{tool} denied: what would run now is not what the approval {id} was asked for;"
    " a new call asks again"
)
UNREACHABLE: Final = (
    "{tool} denied: it needs a person's approval, and no approver can be reached; connect a client"
    " with the scope operator.approvals, or set approvals.exec to ask in a chat"
)
NO_PERSON: Final = (
    "the question was not asked: no person can be reached now; decide yourself, or ask in your"
    " answer"
)


class RunApprovals:
    """Implements the port `Approvals` for one attempt at a run.

    `is_owner`: the owner sent every message of the run, and may approve in their chat.
    `resumed_calls` were made by an earlier attempt and have no result: what was asked about them
    is not asked again. `on_wait` is called when the run starts and stops waiting. `check_lease`
    makes the transaction fail that would save an approval for a run which another one has taken
    over. Without a `place`, none is given up while a person is asked; with `expires_ms`, the
    approval can be answered for this time at most.
    """

    def __init__(
        self,
        service: ApprovalService,
        *,
        agent: str,
        session: str,
        runs: Sequence[str],
        inbound: Inbound,
        place: LanePlace | None,
        resumed_calls: Collection[str],
        check_lease: Callable[[JournalTransaction], None],
        wait_s: float,
        is_owner: bool = False,
        expires_ms: int | None = None,
        on_wait: Callable[[SessionActivity], None] = lambda _state: None,
    ) -> None:
        self._on_wait = on_wait
        self._service, self._agent, self._session, self._runs = service, agent, session, runs
        self._inbound, self._place, self._wait_s = inbound, place, wait_s
        self._is_owner, self._expires_ms = is_owner, expires_ms
        self._resumed_calls, self._check_lease = set(resumed_calls), check_lease
        self._allowed: dict[str, ApprovalRecord] = {}  # by call, until the call starts
        self.suspended_calls: dict[str, str] = {}  # the id of the approval by call
        self.refusal = ""  # why nothing can be asked now

    async def request(self, call_id: str, question: ApprovalQuestion) -> ApprovalAnswer:
        """Return the answer for a call; raises RunSuspendedError when it does not come soon."""
        if self.refusal:
            return ApprovalAnswer(None, self.refusal)
        record = await self._find(call_id)
        if record is None:
            record = self._make_record(call_id, question)
            if not await self._service.add(record, extra_writes=self._check_lease):
                return _fallback_answer(question)
        elif record.digest != question.digest:
            await self._service.cancel(record)
            return ApprovalAnswer(
                None, CHANGED.format(tool=question.tool, id=record.id), approval_id=record.id
            )
        if record.state == "pending":
            record = await self._wait(record)
        if record.state == "pending":
            self.suspended_calls[call_id] = record.id
            raise RunSuspendedError(f"the call waits for approval {record.id}")
        return self._answer(call_id, question, record)

    def pop_allowed(self, call_id: str) -> ApprovalRecord | None:
        """Return the approval that allows a call, once: it is used when the call starts."""
        return self._allowed.pop(call_id, None)

    async def _find(self, call_id: str) -> ApprovalRecord | None:
        """Return the approval that an earlier attempt asked for."""
        if call_id not in self._resumed_calls:
            return None
        self._resumed_calls.discard(call_id)  # a model may use an id again in a later call
        for run in self._runs:
            if record := await self._service.find(run, call_id):
                return record
        return None

    def _make_record(self, call_id: str, question: ApprovalQuestion) -> ApprovalRecord:
        inbound, always = self._inbound, {"always": question.always} if question.always else {}
        request: dict[str, Json] = {
            **question.wire,
            "title": question.title,
            "detail": question.detail,
            "reason": question.reason,
            "agentId": self._agent,
            "sessionKey": self._session,
            "toolCallId": call_id,
            **always,
        }
        return self._service.make_record(
            agent=self._agent,
            session=self._session,
            run=self._runs[0],
            call_id=call_id,
            tool=question.tool,
            requester=f"{inbound.address.channel}:{inbound.sender}",
            request=request,
            digest=question.digest,
            timeout_ms=self._expires_ms,
            extra={
                "address": encode_address(inbound.address),
                "messageId": "" if inbound.is_internal else inbound.id,
                "isOwner": self._is_owner,
                **({"holder": inbound.metadata.holder} if inbound.metadata.holder else {}),
            },
        )

    async def _wait(self, record: ApprovalRecord) -> ApprovalRecord:
        """Wait for the answer, without a place in the lane of runs that work."""
        self._service.track(record)
        if self._place:
            self._place.release()
        self._on_wait("waiting")
        try:
            answered = await self._service.wait(record.id, self._wait_s)
        finally:
            self._on_wait("processing")
        if answered.state != "pending" and self._place:
            await self._place.acquire()
        return answered

    def _answer(
        self, call_id: str, question: ApprovalQuestion, record: ApprovalRecord
    ) -> ApprovalAnswer:
        by, named = record.resolved_by, one_line(record.resolved_by, 60) or "a person"
        if question.on_answer:
            return _answer_question(question.on_answer, record, named)
        match record.state, record.decision:
            case "allowed", "allow-once" | "allow-always" as decision if not record.used_ms:
                if decision == "allow-always" and question.allow_always:
                    _save_always(question.allow_always, record)
                self._allowed[call_id] = record
                return ApprovalAnswer(decision, by=by, approval_id=record.id)
            case "denied", _:
                why = f"{question.tool} denied: {named} denied it (approval {record.id})"
                return ApprovalAnswer("deny", why, by, record.id)
            case "expired", _:
                why = f"{question.tool} denied: the approval expired without an answer"
            case "allowed", _:
                why = f"{question.tool} denied: the approval {record.id} was used before"
            case _:
                why = f"{question.tool} denied: the request for approval was cancelled"
        return ApprovalAnswer(None, why, by, record.id)


def _fallback_answer(question: ApprovalQuestion) -> ApprovalAnswer:
    """Return what holds where no approver can be reached."""
    if question.on_answer:
        return ApprovalAnswer(None, NO_PERSON)
    if question.is_allowed_by_fallback:
        return ApprovalAnswer("allow-once", by="askFallback")
    return ApprovalAnswer(None, UNREACHABLE.format(tool=question.tool))


def _answer_question(
    on_answer: Callable[[str], None], record: ApprovalRecord, named: str
) -> ApprovalAnswer:
    """Return what became of a question; its call only returns the answer, however often it runs."""
    match record.state:
        case "allowed":
            on_answer(record.answer)
            return ApprovalAnswer("allow-once", by=record.resolved_by, approval_id=record.id)
        case "denied":
            why = f"{named} dismissed the question without an answer"
        case "expired":
            why = "the question expired without an answer"
        case _:
            why = "the question was cancelled"
    return ApprovalAnswer(None, why, record.resolved_by, record.id)


def _save_always(allow_always: Callable[[], None], record: ApprovalRecord) -> None:
    try:
        allow_always()
    except (OSError, HomarusError) as exc:
        log.warning("approval %s runs now, and “always” could not be saved: %s", record.id, exc)
