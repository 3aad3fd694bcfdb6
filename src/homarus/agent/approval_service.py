"""Approvals: request them, answer them once, let them expire, and resume the runs that wait.

An approval is a record in the journal. It is saved together with the messages that ask for it, so
that a crash leaves both or neither. Exactly one answer wins. A run that waits too long for an
answer ends suspended; the answer, the expiry or the cancellation of its approval resumes it.

    record = await service.resolve("3f2a", "allow-once", ApproverIdentity("telegram:42"))

The service is built with the first approval of the process (`App.approvals`).
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import uuid4

from homarus.agent.approval_ports import ApprovalPorts, ApproverIdentity, InProcessApprover
from homarus.core.bus import Bus
from homarus.core.clock import Clock
from homarus.core.errors import (
    AmbiguousApprovalError,
    ApprovalError,
    ApprovalExpiredError,
    ApprovalResolvedError,
    ForeignApprovalError,
    StoreError,
    UnknownApprovalError,
    UserError,
)
from homarus.core.event import ApprovalRequested, ApprovalResolved, Event, EventData
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Json
from homarus.core.tasks import run_contained
from homarus.core.text import one_line
from homarus.policy.approvals import DECISIONS
from homarus.store.approvals import ANSWER, ENDED_STATES, ApprovalRecord, ApprovalState
from homarus.store.audit import AuditEntry, AuditLog
from homarus.store.journal import InboxRecord, Journal, JournalTransaction, OutboxRecord

log = logging.getLogger(__name__)

EXTERNAL_TIMEOUT_MS: Final = 120_000
MIN_PREFIX_CHARS: Final = 4
RETRY_S: Final = 5.0  # before an answer or expiry that could not be saved is tried again
_SEARCHED: Final = 500  # resolved approvals in which the start of an id is searched
EXPIRED_NOTICE: Final = "Approval {id} expired without an answer, so this was not done: {title}"
EXPIRED_QUESTION: Final = "Question {id} expired without an answer: {title}"
MAX_ANSWER_CHARS: Final = 2_000


# Starts a task with a name; None when the program is ending.
StartNamedTask: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None]


@dataclass(frozen=True, slots=True)
class ApprovalServices:
    """What the service is given from outside.

    `resume_run` starts a suspended run of a session again, and ignores any other. `build_notice`
    makes a message to the sender of an inbox record, under a name that is unique to it.
    """

    journal: Journal
    bus: Bus
    clock: Clock
    spawn: StartNamedTask
    ports: ApprovalPorts
    build_notice: Callable[[InboxRecord, str, str], Sequence[OutboxRecord]]
    on_enqueued: Callable[[], None]
    resume_run: Callable[[str, str], None]
    get_expiry_s: Callable[[], float]
    audit: AuditLog


@dataclass(slots=True)
class _PendingApproval:
    record: ApprovalRecord
    resolved: asyncio.Future[ApprovalRecord]
    expires_at_s: float  # by the monotonic clock: setting the wall clock changes nothing
    prompts: list[asyncio.Task[None]] = field(default_factory=list)


class ApprovalService:
    """The approvals of the program. Every answer goes through `resolve`."""

    def __init__(self, services: ApprovalServices) -> None:
        self._services, self._journal = services, services.journal
        self._clock = services.clock
        self._pending: dict[str, _PendingApproval] = {}
        self._expiry_worker: asyncio.Task[None] | None = None
        self._sleep: asyncio.Task[None] | None = None  # of the worker, until the next expiry

    async def start(self) -> None:
        """Track the approvals that an earlier process left pending; the due ones expire."""
        for record in await self._journal.approvals("pending"):
            self.track(record)

    def close(self) -> None:
        """Stop the expiry worker and the questions at the terminal; the records stay pending."""
        for task in (self._expiry_worker, *(t for p in self._pending.values() for t in p.prompts)):
            if task:
                task.cancel()

    # Requests

    def make_record(
        self,
        *,
        agent: str,
        session: str,
        requester: str,
        request: Mapping[str, Json],
        digest: str,
        tool: str = "exec",
        run: str = "",
        call_id: str = "",
        record_id: str = "",
        timeout_ms: int | None = None,
        extra: Mapping[str, Json] | None = None,
    ) -> ApprovalRecord:
        """Return a pending approval that is not saved yet."""
        now_ms, expires_in_ms = self._clock.now_ms(), round(self._services.get_expiry_s() * 1000)
        if timeout_ms is not None:
            expires_in_ms = min(expires_in_ms, max(timeout_ms, 0))
        return ApprovalRecord(
            id=record_id or str(uuid4()),
            agent=agent,
            session=session,
            run=run,
            call_id=call_id,
            tool=tool,
            requester=requester,
            digest=digest,
            request=request,
            created_ms=now_ms,
            expires_ms=now_ms + expires_in_ms,
            extra=extra or {},
        )

    async def add(
        self,
        record: ApprovalRecord,
        *,
        extra_writes: Callable[[JournalTransaction], None] = lambda _transaction: None,
        needs_approver: bool = True,
    ) -> bool:
        """Save an approval together with its prompts, and ask.

        Returns False, and saves nothing, when no approver can be reached.
        """
        ports = self._services.ports
        prompts = ports.build_prompts(record)
        if needs_approver and not prompts and not ports.is_reachable(record):
            return False
        async with self._journal.transaction() as transaction:
            extra_writes(transaction)
            transaction.add_approval(record)
            transaction.enqueue(*prompts)
        fault_point("approval.asked")
        if prompts:
            self._services.on_enqueued()
        await self._services.audit.write(self._audit_entry(record, "requested"))
        times = (record.created_ms, record.expires_ms)
        self._publish(record, ApprovalRequested(record.id, record.tool, record.request, *times))
        self.track(record)
        return True

    async def request_external(
        self,
        request: Mapping[str, Json],
        *,
        agent: str,
        session: str,
        requester: str,
        digest: str,
        record_id: str = "",
        timeout_ms: int = EXTERNAL_TIMEOUT_MS,
    ) -> ApprovalRecord:
        """Ask about a command that a client of the gateway runs itself if it is allowed.

        An approver may connect while the client waits, so that none needs to be reachable now.
        Raises UserError when the id is in use.
        """
        if record_id and await self._journal.approval(record_id):
            raise UserError(
                f"approval {one_line(record_id, 60)} exists already", fix="use a new id"
            )
        record = self.make_record(
            agent=agent,
            session=session,
            requester=requester,
            request=request,
            digest=digest,
            record_id=record_id,
            timeout_ms=timeout_ms,
        )
        await self.add(record, needs_approver=False)
        return record

    def track(self, record: ApprovalRecord) -> None:
        """Expire a pending approval in time, and ask the person at the terminal about it."""
        if record.id in self._pending:
            return
        future: asyncio.Future[ApprovalRecord] = asyncio.get_running_loop().create_future()
        left_s = (record.expires_ms - self._clock.now_ms()) / 1000
        pending = _PendingApproval(record, future, self._clock.monotonic() + left_s)
        self._pending[record.id] = pending
        self._wake_expiry_worker()
        for approver in self._services.ports.approvers:
            if approver.is_reachable(record) and approver.identity.can_approve(record):
                name = f"approval {record.id}"
                ask = run_contained(name, partial(self._ask, approver, record), lambda _exc: None)
                if task := self._services.spawn(ask, name):
                    pending.prompts.append(task)

    async def _ask(self, approver: InProcessApprover, record: ApprovalRecord) -> None:
        given = await approver.ask(record)
        while given or record.is_question:
            try:
                if record.is_question and given:
                    await self.answer(record.id, given, approver.identity)
                else:
                    await self.resolve(record.id, given or "deny", approver.identity)
            except ApprovalError as exc:
                log.info("the answer at the terminal came too late: %s", exc)
            except StoreError as exc:  # the person has answered, and is not asked again
                log.warning("approval %s: the answer could not be saved: %s", record.id, exc)
                await self._clock.sleep(RETRY_S)
                continue
            return

    async def wait(self, record_id: str, timeout_s: float | None = None) -> ApprovalRecord:
        """Return the approval once it is not pending any more; after a timeout, as it is then.

        Raises UnknownApprovalError.
        """
        if pending := self._pending.get(record_id):
            futures: list[asyncio.Future[Any]] = [pending.resolved]
            if timeout_s is not None:
                timer = self._services.spawn(self._clock.sleep(timeout_s), f"wait {record_id}")
                if timer is None:  # the program is ending
                    return pending.record
                futures.append(timer)
            try:
                await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in futures[1:]:
                    each.cancel()
            return pending.resolved.result() if pending.resolved.done() else pending.record
        record = await self._journal.approval(record_id)
        if record is None:
            raise _unknown(record_id)
        return record

    # Answers

    async def list_pending(self, session: str | None = None) -> Sequence[ApprovalRecord]:
        """Return the approvals that can be answered now, oldest first."""
        records = await self._journal.approvals("pending", session=session)
        return [record for record in records if record.expires_ms > self._now_ms(record)]

    async def list_resolved(
        self, limit: int, session: str | None = None
    ) -> Sequence[ApprovalRecord]:
        """Return the approvals that ended last, newest first."""
        records = await self._journal.approvals(*ENDED_STATES, session=session, limit=limit)
        return list(reversed(records))

    async def get(self, id_or_prefix: str) -> ApprovalRecord:
        """Return an approval by its id, or by a start of its id that no other one has.

        Raises UnknownApprovalError or AmbiguousApprovalError. Pending ones are searched first.
        """
        wanted = id_or_prefix.strip().lower()
        if record := await self._journal.approval(id_or_prefix.strip()):
            return record
        if len(wanted) < MIN_PREFIX_CHARS:
            raise _unknown(id_or_prefix)
        records = await self._journal.approvals("pending")
        found = [each for each in records if each.id.lower().startswith(wanted)]
        if not found:
            records = await self._journal.approvals(limit=_SEARCHED)
            found = [each for each in records if each.id.lower().startswith(wanted)]
        if not found:
            raise _unknown(id_or_prefix)
        if len(found) > 1:
            raise AmbiguousApprovalError(
                f"{len(found)} approvals have an id that starts with {one_line(wanted, 40)}",
                fix="write more of the id",
            )
        return found[0]

    async def find(self, run: str, call_id: str) -> ApprovalRecord | None:
        """Return the newest approval of a call of a run."""
        return await self._journal.find_approval(run, call_id)

    async def resolve(
        self, id_or_prefix: str, decision: str, by: ApproverIdentity
    ) -> ApprovalRecord:
        """Answer an approval, once; return it as it is stored then. `deny` dismisses a question.

        Raises an ApprovalError when it is unknown, resolved, expired or not for this approver, and
        UserError for a decision that is unknown or not offered.
        """
        if decision not in DECISIONS:
            raise UserError(
                f"{one_line(str(decision), 40)!r} is no decision",
                fix=f"use {', '.join(DECISIONS)}",
            )
        record = await self._get_own(id_or_prefix, by)
        if record.is_question and decision != "deny":
            raise UserError(
                f"{record.id} is a question, which is not allowed or denied",
                fix=f"answer it: {describe_answers(record)}",
            )
        if decision == "allow-always" and record.run and not record.request.get("always"):
            raise UserError(
                f"approval {record.id} cannot be given for always", fix="use allow-once or deny"
            )
        state: ApprovalState = "denied" if decision == "deny" else "allowed"
        return await self._resolve(record, state, decision, by)

    async def answer(self, id_or_prefix: str, text: str, by: ApproverIdentity) -> ApprovalRecord:
        """Answer a question, once: by a choice, its number, or a text where that is accepted.

        Raises an ApprovalError as `resolve` does, and UserError for what is no answer to it.
        """
        record = await self._get_own(id_or_prefix, by)
        if not record.is_question:
            raise UserError(
                f"{record.id} is no question", fix=f"allow or deny it: {', '.join(DECISIONS)}"
            )
        answer = parse_answer(record, text)
        if answer is None:
            raise UserError(
                f"{one_line(text, 60)!r} does not answer question {record.id[:8]}",
                fix=describe_answers(record),
            )
        return await self._resolve(record, "allowed", f"{ANSWER}{answer}", by)

    def open_questions(self) -> Sequence[ApprovalRecord]:
        """Return the questions that wait for an answer, newest first."""
        return [one.record for one in self._pending.values() if one.record.is_question][::-1]

    async def _get_own(self, id_or_prefix: str, by: ApproverIdentity) -> ApprovalRecord:
        record = await self.get(id_or_prefix)
        if not by.can_approve(record):
            raise ForeignApprovalError(
                f"approval {record.id} is not yours to answer", fix="its owner answers it"
            )
        return record

    async def _resolve(
        self, record: ApprovalRecord, state: ApprovalState, decision: str, by: ApproverIdentity
    ) -> ApprovalRecord:
        if stored := await self._end(record, state, decision, by.name):
            return stored
        if record.state == "pending":
            await self._end(record, "expired")  # unless another answer was first
        raise _refusal(await self._journal.approval(record.id) or record)

    async def cancel(self, record: ApprovalRecord) -> None:
        """Cancel a pending approval: what it was asked for has changed."""
        await self._end(record, "cancelled")

    def on_suspended(self, session: str, run: str, record_ids: Sequence[str]) -> None:
        """Resume a run at once when one of its approvals was answered while it was suspended."""
        if not all(record_id in self._pending for record_id in record_ids):
            self._services.resume_run(session, run)

    def on_cancelled(self, runs: Sequence[str]) -> None:
        """Stop asking for runs that were stopped: the journal has their approvals as cancelled."""
        now_ms = self._clock.now_ms()
        for pending in [one for one in self._pending.values() if one.record.run in runs]:
            record = replace(pending.record, state="cancelled", resolved_ms=now_ms)
            self._on_resolved(record)
            self._services.audit.record(self._audit_entry(record, "cancelled"))

    async def _end(
        self, record: ApprovalRecord, state: ApprovalState, decision: str = "", by: str = ""
    ) -> ApprovalRecord | None:
        """Resolve a pending approval together with its notices; None when it cannot be."""
        now_ms = self._now_ms(record)
        ended = replace(record, state=state, decision=decision, resolved_by=by, resolved_ms=now_ms)
        notices = [*self._services.ports.build_notices(ended)]
        if state == "expired" and record.run:
            notices += await self._expiry_notice(ended)
        stored = await self._journal.resolve_approval(
            record.id, state, decision=decision, by=by, at_ms=now_ms, outbox=notices
        )
        if stored is None:
            return None
        fault_point("approval.answered")
        if notices:
            self._services.on_enqueued()
        self._on_resolved(stored)
        await self._services.audit.write(self._audit_entry(stored, stored.state))
        return stored

    async def _expiry_notice(self, record: ApprovalRecord) -> Sequence[OutboxRecord]:
        """Return the message to the person whose message led to the call."""
        message = await self._journal.inbox_record(record.run)
        if message is None:
            return ()
        title = one_line(str(record.request.get("command") or record.request.get("title") or ""))
        wording = EXPIRED_QUESTION if record.is_question else EXPIRED_NOTICE
        text = wording.format(id=record.id[:8], title=title or record.tool)
        return self._services.build_notice(message, f"{record.id}:expired", text)

    def _on_resolved(self, record: ApprovalRecord) -> None:
        """Tell everyone who waits, and resume the run."""
        pending = self._pending.pop(record.id, None)
        if pending:
            if not pending.resolved.done():
                pending.resolved.set_result(record)
            for task in pending.prompts:
                if task is not asyncio.current_task():
                    task.cancel()
            self._wake_expiry_worker()
        self._publish(
            record,
            ApprovalResolved(
                record.id,
                record.state,
                record.answer or record.decision,
                record.resolved_by,
                is_question=record.is_question,
            ),
        )
        for callback in self._services.ports.on_resolved:
            callback(record)
        if record.run:
            self._services.resume_run(record.session, record.run)

    def _publish(self, record: ApprovalRecord, data: EventData) -> None:
        now_ms = self._clock.now_ms()
        self._services.bus.publish(Event(record.run, record.session, 0, now_ms, data))

    def _audit_entry(self, record: ApprovalRecord, event: str) -> AuditEntry:
        data: dict[str, Json] = {
            "id": record.id,
            "event": event,
            "digest": record.digest,
            "requester": record.requester,
            "decision": record.decision,
            "by": record.resolved_by,
        }
        where = (record.agent, record.session, record.tool)
        return AuditEntry(self._clock.now_ms(), "approval", *where, data)

    # Expiry

    def _now_ms(self, record: ApprovalRecord) -> int:
        """Return the time, not affected by a wall clock that was set while the approval waits."""
        pending = self._pending.get(record.id)
        if pending is None:
            return self._clock.now_ms()
        return record.expires_ms - math.ceil(
            (pending.expires_at_s - self._clock.monotonic()) * 1000
        )

    def _wake_expiry_worker(self) -> None:
        """Have the worker wait for the earliest expiry; there is none without an approval."""
        if self._sleep:
            self._sleep.cancel()
        if self._expiry_worker is None and self._pending:
            self._expiry_worker = self._services.spawn(self._expire_in_time(), "approval expiry")

    async def _expire_in_time(self) -> None:
        try:
            while self._pending:
                due_s = min(one.expires_at_s for one in self._pending.values())
                wait_s = due_s - self._clock.monotonic()
                if wait_s <= 0 and await self._expire_due():
                    continue
                wait_s = wait_s if wait_s > 0 else RETRY_S
                self._sleep = self._services.spawn(self._clock.sleep(wait_s), "approval expiry")
                if self._sleep is None:  # the program is ending
                    return
                try:
                    await asyncio.wait([self._sleep])
                finally:
                    self._sleep.cancel()
                    self._sleep = None
        finally:
            self._expiry_worker = None

    async def _expire_due(self) -> bool:
        """Expire what is due; False when that could not be saved."""
        for pending in list(self._pending.values()):
            record = pending.record
            if pending.expires_at_s > self._clock.monotonic():
                continue
            try:
                is_ended = await self._end(record, "expired")
                if is_ended is None:  # it was resolved by another way
                    self._on_resolved(await self._journal.approval(record.id) or record)
            except StoreError as exc:
                log.warning("approval %s expired, and that could not be saved: %s", record.id, exc)
                return False
        return True


def _unknown(name: str) -> UnknownApprovalError:
    return UnknownApprovalError(
        f"there is no approval {one_line(name, 60)!r}", fix="homarus approvals list shows them"
    )


def parse_answer(record: ApprovalRecord, text: str) -> str | None:
    """Return the choice that a text or a number stands for, or the text; None if it is no answer.

    A button sends `choice-` and the number.
    """
    given, choices = text.strip(), record.choices
    number = given.removeprefix("choice-")
    if number.isascii() and number.isdigit() and 1 <= int(number) <= len(choices):
        return choices[int(number) - 1]
    for choice in choices:
        if given.casefold() == choice.casefold():
            return choice
    return given[:MAX_ANSWER_CHARS] if given and record.takes_text else None


def describe_answers(record: ApprovalRecord) -> str:
    """Return how a question can be answered, in one line."""
    numbered = [f"{number} {choice}" for number, choice in enumerate(record.choices, 1)]
    return ", ".join([*numbered, *(["any text"] if record.takes_text else [])])


def _refusal(record: ApprovalRecord) -> ApprovalError:
    """Return why an approval cannot be answered any more."""
    name = "question" if record.is_question else "approval"
    if record.state == "expired":
        return ApprovalExpiredError(
            f"{name} {record.id} has expired", fix="ask the agent to try again"
        )
    if record.state == "cancelled":
        return ApprovalResolvedError(f"{name} {record.id} was cancelled")
    by = one_line(record.resolved_by, 60) or "another person"
    return ApprovalResolvedError(
        f"{name} {record.id} was already answered by {by}:"
        f" {one_line(record.answer or record.decision, 200)}"
    )
