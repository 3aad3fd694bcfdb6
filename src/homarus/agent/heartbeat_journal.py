"""The journal of a heartbeat's run: what is different from the run of a person's message.

An acknowledgement is not sent, and its turn is left on a branch of the transcript: the session
continues as if there had been no heartbeat, and does not count as used. An alert stays, and the
session's record has its text, so that the next heartbeat does not repeat it. No one waits for a
heartbeat: one that fails or is preempted sends nothing, and gives its notices back.

The reason in the inbox record says what came of it: `ok-token`, `ok-empty`, `duplicate`,
`alerts-disabled`, `no-target`, `muted`, `preempted`; "" for an alert that was sent.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from homarus.agent.reply.reply_cleaner import clean_message
from homarus.agent.reply.wording import failed_tool_notice
from homarus.agent.run_journal import RunJournal
from homarus.agent.services import RunServices
from homarus.agent.taint import RunTaint
from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import HeartbeatOptions, Json, Message
from homarus.core.session_keys import agent_id_of
from homarus.core.silent_reply import ACK_WORD, is_silent_text, strip_heartbeat_ack
from homarus.sessions.notices import NO_NOTICES, ClaimedNotices
from homarus.sessions.rejection import CONTENT_ERRORS
from homarus.sessions.run_queue import PREEMPTED
from homarus.sessions.session import ExtraWrites, Session
from homarus.sessions.transcript import decode_message
from homarus.store.base import Transaction, TranscriptEntry
from homarus.store.journal import InboxRecord, Lease, OutboxRecord, SettledState

log = logging.getLogger(__name__)

LAST_TEXT: Final = "lastHeartbeatText"
LAST_SENT_AT: Final = "lastHeartbeatSentAt"
HeartbeatVerdict: TypeAlias = Literal["ok-token", "ok-empty", "duplicate", "alert"]


@dataclass(frozen=True, slots=True)
class JudgedReply:
    """What the answer of a heartbeat is, and the text of an alert."""

    verdict: HeartbeatVerdict
    text: str = ""


def judge_reply(reply: Message, options: HeartbeatOptions, failed_tool: str = "") -> JudgedReply:
    """Return whether an answer is an acknowledgement, an alert, or one that was sent before.

    `failed_tool` is the tool whose failure an answer without a text reports.
    """
    cleaned = clean_message(reply)
    ack = strip_heartbeat_ack(cleaned.text, heartbeat=True, max_chars=options.ack_max_chars)
    is_silent = cleaned.silent or is_silent_text(cleaned.text)
    if not cleaned.media:
        if ack.found and ack.skip:
            return JudgedReply("ok-token")
        if is_silent or ack.skip:
            notice = failed_tool_notice(failed_tool) if failed_tool and not is_silent else ""
            return JudgedReply("alert", notice) if notice else JudgedReply("ok-empty")
        if options.last_alert and ack.text.strip() == options.last_alert:
            return JudgedReply("duplicate", ack.text)
    return JudgedReply("alert", ack.text.strip())


class HeartbeatJournal(RunJournal):
    """Writes what the run of a heartbeat does, under its lease."""

    is_use = False
    purpose = "heartbeat"

    def __init__(
        self,
        services: RunServices,
        records: Sequence[InboxRecord],
        lease: Lease,
        taint: RunTaint | None = None,
    ) -> None:
        super().__init__(services, records, lease, taint)
        inbound = records[0].inbound
        self._options = (inbound and inbound.options.heartbeat) or HeartbeatOptions()
        self._has_target = inbound is not None and bool(inbound.options.deliver_to)
        self._question = records[0].entry
        self._sessions = services.sessions
        self._session: Session | None = None
        if taint and (held := self._notices.find_held(self.run)):
            taint.add_notices(held.notices)

    def mark_running(self, session: Session, claimed: ClaimedNotices = NO_NOTICES) -> ExtraWrites:
        """Return what marks the heartbeat as running; its notices stay stored until it ends."""
        self._session = session
        mark = super().mark_running(session, claimed)

        def extra_writes(transaction: Transaction, entries: Sequence[TranscriptEntry]) -> None:
            if entries:
                self._question = entries[-1].id
            mark(transaction, entries)

        return extra_writes

    def _take_notices(self, transaction: Transaction, claimed: ClaimedNotices) -> None:
        claimed.hold(transaction, self.run)

    def drop_claim(self, claimed: ClaimedNotices) -> None:
        """Keep the notices of the question until the heartbeat ends."""
        super().drop_claim(claimed)
        self._notices.set_held(self.run, claimed)

    async def finish(
        self, session: Session, reply: Message, client_call_ids: Sequence[str] = ()
    ) -> None:
        """Commit the answer, the outcome and the alert, if it is one, in one transaction."""
        judged = judge_reply(reply, self._options, self.sender.failed_tool)
        outbox, why = await self._build_records(judged, reply)
        usage, self._usage = self._usage, []
        state: SettledState = "answered" if judged.verdict == "alert" or outbox else "silent"

        def extra_writes(transaction: Transaction, entries: Sequence[TranscriptEntry]) -> None:
            at_ms = self._now_ms()
            transaction.settle(
                self._ids, self._lease, state, at_ms=at_ms, why=why, reply=entries[-1].id
            )
            transaction.add_usage(*usage)
            transaction.add_audit(*audit)
            transaction.enqueue(*outbox)
            if held := self._notices.find_held(self.run):
                held.delete(transaction)
            self._add_trace(transaction, state, why)
            write_end(transaction)

        fields: dict[str, Json] = {}
        is_sent = judged.verdict == "alert" and bool(outbox)
        if is_sent:
            fields = {LAST_TEXT: judged.text, LAST_SENT_AT: self._now_ms()}
        is_kept = judged.verdict == "alert" and not self._options.session
        async with self._on_run_end(self._run_end(self._ids, usage, reply=reply)) as write_end:
            with self._audit.storing() as audit:
                if is_kept:
                    await session.append(
                        reply, extra_writes=extra_writes, extra_fields=fields, is_use=is_sent
                    )
                else:
                    await session.leave_turn(
                        self._question, reply, extra_writes=extra_writes, extra_fields=fields
                    )
        fault_point("heartbeat.saved")
        self._notices.drop_held(self.run)
        self._wake_outbox(outbox)

    async def _build_records(
        self, judged: JudgedReply, reply: Message
    ) -> tuple[Sequence[OutboxRecord], str]:
        """Return what is sent, and the reason for the inbox record."""
        if judged.verdict != "alert":
            shows_ok = self._options.shows_ok and judged.verdict != "duplicate"
            outbox = await self.sender.records_for_text(ACK_WORD) if shows_ok else []
            return outbox, judged.verdict
        if not self._has_target:
            return (), "no-target"
        if not self._options.shows_alerts:
            return (), "alerts-disabled"
        status, outbox = await self.sender.records_for_reply(reply)
        return outbox, "" if status == "answered" else "muted"

    async def settle_failed(
        self,
        reason: str,
        text: str,
        error: HomarusError | None = None,
        state: SettledState = "reported",
    ) -> None:
        """Settle a heartbeat without an answer; its notices are pending again, nothing is sent."""
        del text
        if reason == PREEMPTED:
            state = "silent"
        elif error:
            log.warning("the heartbeat of %s failed: %s", self._first.session, reason)
        await super().settle_failed(reason, "", error, state)
        if _is_refused(error):
            self._notices.drop_held(self.run)
        else:
            self._notices.release(self.run)

    async def _build_error_records(self, text: str) -> Sequence[OutboxRecord]:
        """Return nothing: an incomplete heartbeat is not shown."""
        return ()

    async def _commit_failure(
        self, write: Callable[[Transaction], None], error: HomarusError | None
    ) -> None:
        """Commit the end of the run; a turn without tool calls is left on a branch."""
        held, session, key = self._notices.find_held(self.run), self._session, self._first.session
        if session is None and self._question:  # it was stopped before its session was loaded
            session = await self._sessions.load(key, agent_id_of(key))

        def extra_writes(transaction: Transaction, _entries: Sequence[TranscriptEntry]) -> None:
            write(transaction)
            if held and _is_refused(error):
                held.delete(transaction)

        if session and self._question and not await self._has_calls(session):
            await session.leave_turn(self._question, extra_writes=extra_writes)
            return
        async with self._store.transaction() as transaction:
            extra_writes(transaction, ())

    async def _has_calls(self, session: Session) -> bool:
        """Return whether the run has called tools: later turns must know what it did."""
        path = await session.path()
        first = next((n for n, one in enumerate(path) if one.id == self._question), len(path))
        messages = (decode_message(entry) for entry in path[first:])
        return any(message.calls for message in messages if message)


def _is_refused(error: HomarusError | None) -> bool:
    """Return whether the content of the request was refused: the same notices fail again."""
    return error is not None and error.code in CONTENT_ERRORS
