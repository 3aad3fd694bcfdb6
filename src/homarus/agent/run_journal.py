"""The journal of one run: every save is one transaction with the state of the messages it answers.

A run answers the message it started with, those merged with it, and those that steered it. Each
transaction of a run checks its lease and records what belongs to it: the tool calls that have a
result, the steering messages, and at the end the outcome together with the reply's outbox records.
A run that lost its lease cannot write any more.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from homarus.agent.reply.sender import ReplySender
from homarus.agent.run_trace import RunTrace
from homarus.agent.services import RunServices
from homarus.agent.taint import RunTaint
from homarus.agent.usage_recorder import ProviderCall, Purpose, run_purpose, to_usage_record
from homarus.core.errors import HomarusError, LeaseLostError, StoreError
from homarus.core.faults import fault_point
from homarus.core.message import Message, ToolResult, Usage
from homarus.core.session_keys import is_subagent
from homarus.core.text import one_line
from homarus.sessions.client_turn import client_calls
from homarus.sessions.notices import NO_NOTICES, ClaimedNotices
from homarus.sessions.run_end import RunEnd
from homarus.sessions.session import ExtraWrites, Session
from homarus.sessions.transcript import NewEntry, steering_copy, suspension
from homarus.store.approvals import ApprovalRecord
from homarus.store.base import Transaction, TranscriptEntry, UsageRecord
from homarus.store.journal import (
    UNFINISHED_ANSWER,
    InboxRecord,
    JournalTransaction,
    Lease,
    OutboxRecord,
    SettledState,
)

log = logging.getLogger(__name__)

_MAX_REASON_CHARS = 300


class RunJournal:
    """Writes what one run does, under its lease."""

    is_use = True  # what the run does counts as a use of its session
    purpose: Purpose | None = None  # of its model calls; None: by the session's key

    def __init__(
        self,
        services: RunServices,
        records: Sequence[InboxRecord],
        lease: Lease,
        taint: RunTaint | None = None,
    ) -> None:
        self._store, self._lease = services.store, lease
        self._on_run_end, self._taint = services.on_run_end, taint or RunTaint()
        self._on_enqueued, self._on_unsettled = services.on_enqueued, services.on_unsettled
        self._now_ms, self._audit = services.clock.now_ms, services.audit
        self._first = records[0]
        self._ids = [record.id for record in records]
        self._runs = {record.run or record.id for record in records}  # that worked on them before
        self._open_calls: frozenset[str] = frozenset()
        self._steering: dict[int, InboxRecord] = {}  # by id() of the message made of it
        self._copies: set[int] = set()  # id() of messages that get a run of their own
        self._usage: list[UsageRecord] = []  # of model calls, not yet written
        self.usage = Usage()  # of all model calls of this attempt
        self.trace: RunTrace | None = None  # stored with the end of the attempt
        self._notices = services.notices
        self._claims: dict[int, ClaimedNotices] = {}  # by id() of what is not saved
        self.sender = ReplySender(
            records[0],
            lease,
            build_reply=services.build_reply,
            hooks=services.hooks,
            now_ms=self._now_ms,
        )

    @property
    def run(self) -> str:
        return self._first.id

    @property
    def runs(self) -> tuple[str, ...]:
        """The run and those that worked on its messages before, under other names."""
        return (self.run, *sorted(self._runs - {self.run}))

    @property
    def attempt(self) -> str:
        """The unique name of this attempt at the run."""
        return f"{self.run}:{self._lease.token}"

    def _add_trace(self, transaction: JournalTransaction, outcome: str, error: str = "") -> None:
        if self.trace:
            transaction.add_trace(self.trace.to_record(outcome, error))

    def record_model_call(self, call: ProviderCall) -> None:
        """Add the usage of a model call to the next transaction."""
        self.usage += call.usage
        first, purpose = self._first, self.purpose or run_purpose(self._first.session)
        self._usage.append(
            to_usage_record(
                call, self.run, first.session, self._now_ms(), purpose=purpose,
                channel=first.channel,
            )
        )  # fmt: skip

    def mark_running(self, session: Session, claimed: ClaimedNotices = NO_NOTICES) -> ExtraWrites:
        """Return what marks the messages as running, with the entry of a new question.

        The notices that the question has are deleted with it.
        """
        session_id = session.session_id

        def extra_writes(transaction: Transaction, entries: Sequence[TranscriptEntry]) -> None:
            entry = entries[-1].id if entries else ""
            transaction.mark_running(
                self._ids, self._lease, run=self.run, session_id=session_id, entry=entry
            )
            for call_id in self._open_calls:  # they may belong to a run by another name
                transaction.call_started(self.run, self._lease, call_id)
            self._take_notices(transaction, claimed)

        return extra_writes

    def _take_notices(self, transaction: Transaction, claimed: ClaimedNotices) -> None:
        claimed.delete(transaction)

    def add_claim(self, claimed: ClaimedNotices) -> None:
        """Track the notices of a question until it is saved."""
        self._claims[id(claimed)] = claimed

    def drop_claim(self, claimed: ClaimedNotices) -> None:
        """Stop tracking the notices of a question: it is saved."""
        self._claims.pop(id(claimed), None)

    def restore_notices(self) -> None:
        """Give back the notices of messages that the run has not saved."""
        for claimed in self._claims.values():
            self._notices.restore(claimed)
        self._claims.clear()

    def add_steering(
        self, record: InboxRecord, message: Message, claimed: ClaimedNotices = NO_NOTICES
    ) -> Message:
        """Have this run answer a steering message from the moment it is saved."""
        if claimed.notices:
            self._claims[id(message)] = claimed
        if record.id:
            self._steering[id(message)] = record
        else:  # it only steers: a run of its own answers it
            self._copies.add(id(message))
        return message

    async def save(self, session: Session, messages: Sequence[Message]) -> None:
        """Append messages of the run to the transcript, together with what is sent of them."""
        outbox = await self.sender.records_for_saved(messages)
        usage, self._usage = self._usage, []
        items = list[Message | NewEntry]()
        for message in messages:
            if id(message) in self._copies:
                items.append(steering_copy(self.run))
            items.append(message)

        def extra_writes(transaction: Transaction, entries: Sequence[TranscriptEntry]) -> None:
            transaction.check_lease(self._ids, self._lease)
            transaction.add_usage(*usage)
            transaction.add_audit(*audit)
            for item, entry in zip(items, entries, strict=True):
                if isinstance(item, Message):
                    self._record_message(transaction, session, item, entry)
            self.sender.mark_answer(transaction)
            transaction.enqueue(*outbox)

        with self._audit.storing() as audit:
            await session.append(*items, extra_writes=extra_writes, is_use=self.is_use)
        self._copies.difference_update(map(id, messages))
        self._wake_outbox(outbox)
        for message in messages:
            self._claims.pop(id(message), None)
            if record := self._steering.pop(id(message), None):
                self._ids.append(record.id)
        if messages[-1].role == "tool":
            fault_point("tool.saved")

    def _record_message(
        self, transaction: Transaction, session: Session, message: Message, entry: TranscriptEntry
    ) -> None:
        if record := self._steering.get(id(message)):
            location = {"session_id": session.session_id, "entry": entry.id}
            transaction.mark_running([record.id], self._lease, run=self.run, **location)
        if claimed := self._claims.get(id(message)):
            claimed.delete(transaction)
        for part in message.parts:
            if isinstance(part, ToolResult):
                transaction.call_ended(self.run, self._lease, part.call_id)

    def check_lease(
        self, transaction: JournalTransaction, _entries: Sequence[TranscriptEntry] = ()
    ) -> None:
        """Fail the transaction when this run has lost its lease."""
        transaction.check_lease(self._ids, self._lease)

    async def mark_call_started(self, call_id: str, approval: ApprovalRecord | None = None) -> None:
        """Record that a tool which must not run twice is about to start, by an approval of it.

        Raises ConflictError when the approval does not allow it any more.
        """
        with self._audit.storing() as audit:
            async with self._store.transaction() as transaction:
                if approval:
                    transaction.use_approval(approval.id, approval.digest, at_ms=self._now_ms())
                transaction.call_started(self.run, self._lease, call_id)
                transaction.add_audit(*audit)
        fault_point("tool.started")

    async def open_calls(self) -> frozenset[str]:
        """Return the calls that earlier attempts started and that have no result."""
        calls = [await self._store.journal.open_calls(run) for run in self._runs]
        self._open_calls = frozenset().union(*calls)
        return self._open_calls - {UNFINISHED_ANSWER}

    async def has_sent(self) -> bool:
        """Return whether an earlier attempt at the run has sent something of its messages."""
        records = await self._store.journal.outbox_records(run=self.run)
        return any(record.id.removeprefix(f"{self.run}:").isdigit() for record in records)

    async def enqueue_blocks(self, outbox: Sequence[OutboxRecord]) -> None:
        """Enqueue blocks of an answer that is being written, in a transaction of their own."""
        async with self._store.journal.transaction() as transaction:
            transaction.check_lease(self._ids, self._lease)
            self.sender.mark_answer(transaction)
            transaction.enqueue(*outbox)
        fault_point("block.saved")
        self._wake_outbox(outbox)

    async def announce_restart(self) -> None:
        """Announce in the chat that the answer starts again, if blocks of it were sent before.

        The notice is enqueued in the transaction that deletes the reason for it, so that the chat
        gets it once, also when this attempt is interrupted too.
        """
        if UNFINISHED_ANSWER not in self._open_calls:
            return
        from homarus.agent.reply.wording import ANSWER_RESTARTED

        outbox = await self.sender.records_for_text(ANSWER_RESTARTED)
        async with self._store.journal.transaction() as transaction:
            transaction.check_lease(self._ids, self._lease)
            transaction.call_ended(self.run, self._lease, UNFINISHED_ANSWER)
            transaction.enqueue(*outbox)
        self._wake_outbox(outbox)

    async def finish(
        self, session: Session, reply: Message, client_call_ids: Sequence[str] = ()
    ) -> None:
        """Commit the reply, the outcome and the outbox records in one transaction.

        The reply may have calls for the client; one that has others too was saved before.
        """
        status, outbox = await self.sender.records_for_reply(reply)
        usage, self._usage = self._usage, []
        items: list[Message | NewEntry] = [reply]
        saved_id = ""
        if client_call_ids:
            status = "answered"
            items.append(client_calls(self.run, client_call_ids))
            if any(message is reply for message in session.messages):
                saved_id = await session.entry_of_calls(client_call_ids)
                del items[0]

        def extra_writes(transaction: Transaction, entries: Sequence[TranscriptEntry]) -> None:
            reply_id, at_ms = saved_id or entries[0].id, self._now_ms()
            self.sender.mark_answer(transaction)
            transaction.settle(self._ids, self._lease, status, at_ms=at_ms, reply=reply_id)
            transaction.add_usage(*usage)
            transaction.add_audit(*audit)
            transaction.enqueue(*outbox)
            self._add_trace(transaction, status)
            write_end(transaction)

        end = self._run_end(self._ids, usage, reply=reply)
        async with self._on_run_end(end) as write_end:
            with self._audit.storing() as audit:
                await session.append(*items, extra_writes=extra_writes)
        fault_point("reply.saved")
        self._wake_outbox(outbox)

    async def suspend(self, session: Session, approvals: Mapping[str, str]) -> None:
        """Record that the run waits for the approvals of these calls; this attempt is over."""
        usage, self._usage = self._usage, []

        def extra_writes(transaction: Transaction, _entries: Sequence[TranscriptEntry]) -> None:
            transaction.suspend(self._ids, self._lease)
            transaction.add_usage(*usage)
            transaction.add_audit(*audit)
            self._add_trace(transaction, "suspended")

        with self._audit.storing() as audit:
            entry = suspension(self.run, approvals)
            await session.append(entry, extra_writes=extra_writes, is_use=self.is_use)

    async def cancel_attempt(self) -> None:
        """Record that a clean stop of the program cancelled this attempt: it does not count."""
        try:
            async with self._store.journal.transaction() as transaction:
                transaction.cancel_attempt(self._ids, self._lease)
                self._add_trace(transaction, "cancelled")
        except StoreError as exc:  # then it counts, as after a crash
            log.warning("run %s was stopped, and that could not be written down: %s", self.run, exc)

    def _wake_outbox(self, outbox: Sequence[OutboxRecord]) -> None:
        self.sender.on_enqueued()
        if outbox:
            self._on_enqueued()

    def _run_end(
        self,
        ids: Sequence[str],
        usage: Sequence[UsageRecord],
        *,
        reply: Message | None = None,
        error: HomarusError | None = None,
        reason: str = "",
    ) -> RunEnd:
        key, taint = self._first.session, self._taint
        sources = taint.sources if is_subagent(key) else ()  # only a parent session reads them
        return RunEnd(key, tuple(ids), reply, error, reason, tuple(usage), sources)

    async def settle_failed(
        self,
        reason: str,
        text: str,
        error: HomarusError | None = None,
        state: SettledState = "reported",
    ) -> None:
        """Settle the messages as reported: the sender gets `text`, the journal `reason`.

        This includes the messages that steered the run, whether they were saved or not.
        """
        ids = [*self._ids, *(record.id for record in self._steering.values())]
        outbox = await self._build_error_records(text)
        end = self._run_end(ids, self._usage, error=error, reason=reason)

        def write(transaction: Transaction) -> None:
            at_ms, why = self._now_ms(), one_line(reason, _MAX_REASON_CHARS)
            # A message of an earlier process may not have been started under this lease.
            transaction.mark_running(ids, self._lease, run=self.run)
            transaction.settle(ids, self._lease, state, at_ms=at_ms, why=why)
            transaction.cancel_approvals(self.runs, at_ms=at_ms)
            transaction.add_usage(*self._usage)
            transaction.add_audit(*audit)
            transaction.enqueue(*outbox)
            self._add_trace(transaction, "failed" if error else "aborted", reason)
            write_end(transaction)

        try:
            with self._audit.storing() as audit:
                async with self._on_run_end(end) as write_end:
                    await self._commit_failure(write, error)
        except LeaseLostError:
            return  # the run that holds the lease now settles them
        except StoreError:
            log.exception("run %s ended, and that could not be written down", self.run)
            self._on_unsettled(ids)
            return
        self._wake_outbox(outbox)

    async def _build_error_records(self, text: str) -> Sequence[OutboxRecord]:
        return await self.sender.records_for_error(text)

    async def _commit_failure(
        self, write: Callable[[Transaction], None], _error: HomarusError | None
    ) -> None:
        async with self._store.transaction() as transaction:
            write(transaction)
