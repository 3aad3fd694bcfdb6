"""One run: prepare the context, run the model loop, settle the outcome.

`execute` does all three in the session's lane and under its lease. The answer is settled in the
transaction that saves it, as the last step of the loop; a run without an answer, afterwards.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from homarus.agent.context import memory_flush
from homarus.agent.context.compaction import MAX_PER_TURN, token_budget
from homarus.agent.loop import LoopContext, run_late_calls, run_loop, unanswered_calls
from homarus.agent.reply.error_text import error_text
from homarus.agent.run_journal import RunJournal
from homarus.agent.run_preparation import prepare_run
from homarus.agent.run_state import RunState
from homarus.agent.services import RunServices
from homarus.agent.session_compaction import compact_with_hooks
from homarus.config.timezone import local_date
from homarus.core.diagnostics import MessageProcessed, RunAttempted, RunTraced
from homarus.core.errors import (
    ContextOverflowError,
    HomarusError,
    LeaseLostError,
    ProviderError,
    ProviderTimeoutError,
    RunCrashedError,
    RunStuckError,
    RunSuspendedError,
    StoreError,
)
from homarus.core.event import (
    AttemptFailed,
    CompactionEnded,
    CompactionStarted,
    EventData,
    MessageSaved,
    RunEnded,
    RunSuspended,
)
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import (
    Json,
    Message,
    StopInfo,
    StoppedBy,
    ToolCall,
    ToolResult,
    Usage,
    user_message,
)
from homarus.core.session_keys import run_lane
from homarus.core.tasks import run_contained
from homarus.core.text import one_line
from homarus.providers.base import SupportsPendingError
from homarus.sessions.chat_fields import session_name
from homarus.sessions.rejection import CONTENT_ERRORS, SUPERSEDED
from homarus.sessions.run_queue import PREEMPTED
from homarus.sessions.transcript import (
    ends_with_resumption,
    results_in,
    resumption,
    resumption_text,
)
from homarus.store.journal import InboxRecord, Lease

log = logging.getLogger(__name__)

LEFT_OUT = "what was refused is left out of later requests"
_LOOP_TURNS = 10  # of the event loop, in which the outcome reaches those who wait for it
_HEARTBEAT_GRACE_S = 1.0  # for a heartbeat that ignores its cancellation
INTERRUPTED = "the run broke off"  # the error of a run that ends with the program


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended, with its reply as readers get it. Every run has exactly one.

    A suspended run waits for `approvals`; those who wait for the run get the outcome of the
    attempt that resumes it. One with `pending_calls` has ended: another run gets their results.
    """

    run_id: str
    session_key: str
    status: Literal["answered", "failed", "aborted", "suspended"]
    text: str = ""
    model: str = ""
    session_id: str = ""
    usage: Usage = field(default_factory=Usage)
    attempts: tuple[AttemptFailed, ...] = ()
    duration_ms: int = 0
    error: HomarusError | None = None
    media: tuple[str, ...] = ()
    reply_to: str = ""
    stop: str = ""
    has_compaction_failed: bool = False
    approvals: tuple[str, ...] = ()
    pending_calls: tuple[ToolCall, ...] = ()  # that the client must run
    total_usage: Usage = field(default_factory=Usage)  # of all model calls of this attempt


class Run:
    """One execution that answers accepted messages of a session.

    `text` stands for the messages when they were merged. `stopped_by` is set before a person
    stops the run.
    """

    def __init__(
        self, services: RunServices, key: str, records: Sequence[InboxRecord], text: str = ""
    ) -> None:
        self.id, self.key = records[0].id, key
        self.stopped_by: StoppedBy | None = None
        self._services = services
        self._state = RunState(services, key, records, text)
        self._outcome = RunOutcome(self.id, key, "failed")
        self._started_s = services.clock.monotonic()
        inbounds = self._state.inbounds
        self._lane = next((one.options.lane for one in inbounds), "") or run_lane(key)
        self._scope: asyncio.Timeout | None = None  # while the run can be stopped
        self._is_stopped = False
        self._loop_context: LoopContext | None = None  # set when the run is prepared

    # The life of a run

    async def execute(self) -> None:
        """Run in the session's lane, under its lease. Every failure becomes the outcome."""
        services, lane = self._services, f"session:{self.key}"
        self._state.trace.set_place(services.get_queue_place(self.key), self._lane)
        if services.diagnostics.is_active:
            attempt = self._state.records[0].attempts + 1
            services.diagnostics.publish(RunAttempted(self.key, self.id, attempt))
        async with services.lanes.enter(lane), services.store.journal.lease(lane) as lease:
            state = self._state
            state.journal = self._make_journal(lease)
            state.trace.mark("leased")
            try:
                await run_contained(f"run {self.key}", self._answer, self._record_crash)
                if self._outcome.status == "suspended":
                    await self._suspend()
                await self._save_failure()
                await self.settle()
            except asyncio.CancelledError:
                if services.is_shutting_down():
                    await state.journal.cancel_attempt()
                raise
            finally:
                state.journal.restore_notices()

    def _make_journal(self, lease: Lease) -> RunJournal:
        state, kind = self._state, RunJournal
        if state.heartbeat:
            from homarus.agent.heartbeat_journal import HeartbeatJournal  # with the first one

            kind = HeartbeatJournal
        journal = kind(self._services, state.records, lease, state.taint)
        journal.trace, state.trace.attempt = state.trace, lease.token
        return journal

    async def _answer(self) -> None:
        """Set the outcome: an answer, a failure, the deadline, or a person's stop."""
        services = self._services
        try:
            async with asyncio.timeout(0 if self._is_stopped else None) as scope:
                self._scope = scope
                async with services.lanes.open_place(self._lane) as self._state.place:
                    await self._state.place.acquire(resumes=False)
                    self._state.trace.mark("admitted")
                    grace_s = services.grace_s
                    if self._state.heartbeat:  # a person may wait for its end
                        grace_s = min(grace_s, _HEARTBEAT_GRACE_S)
                    self._outcome = await services.watchdog.run(
                        f"run {self.key}", self._prepare_and_loop, scope, grace_s=grace_s
                    )
        except TimeoutError:
            self._record_timeout()
        except RunSuspendedError:
            approvals = self._state.get_approvals().suspended_calls
            self._outcome = replace(
                self._outcome, status="suspended", approvals=tuple(approvals.values())
            )
        except HomarusError as exc:
            if exc.fix and exc.code in CONTENT_ERRORS and self._loop_context:
                exc.fix = f"{exc.fix}; {LEFT_OUT}"
            self._outcome = replace(self._outcome, error=exc)
        finally:
            self._scope = None

    async def _prepare_and_loop(self) -> RunOutcome:
        from homarus.agent.reply.reply_cleaner import clean_message

        # Returns the outcome instead of setting it: a run that was abandoned must not change it.
        self._loop_context = await self.prepare()
        delivery, loop = self._state.delivery, self.loop(self._loop_context)
        reply = await (delivery.run_during(loop) if delivery else loop)
        origin = reply.origin
        assert origin is not None  # noqa: S101 - a provider's Message says who wrote it
        cleaned = clean_message(reply)
        inbounds = self._state.inbounds
        current = inbounds[-1].id if cleaned.reply_to_current and inbounds else ""
        return RunOutcome(
            self.id,
            self.key,
            "answered",
            text=cleaned.text,
            media=cleaned.media,
            reply_to=cleaned.reply_to or current,
            stop="tool_calls" if (pending := self._client_calls(reply)) else origin.stop,
            pending_calls=pending,
            model=f"{origin.provider}/{origin.model}",
            session_id=self._state.context.session.session_id,
            usage=origin.usage,
        )

    def _client_calls(self, reply: Message) -> tuple[ToolCall, ...]:
        """Return the calls of the last message that the client must run."""
        return tuple(filter(self._state.is_client_call, reply.calls))

    async def _suspend(self) -> None:
        """Record that the run waits for approvals; when that fails, the run has failed."""
        session = self._state.context.session
        calls = (*self._state.resumed_calls, *unanswered_calls(session.messages))
        waiting = {call.id: "" for call in calls} | self._state.get_approvals().suspended_calls
        try:
            await self._state.journal.suspend(session, waiting)
        except StoreError as exc:
            log.exception("run %s could not be suspended", self.id)
            self._outcome = replace(self._outcome, status="failed", error=exc)

    async def _save_failure(self) -> None:
        """Save an empty answer with the error of a run whose question has no answer.

        Without it the next turn would leave out the question, as it does with one that a crash
        left without an answer.
        """
        loop_context, error = self._loop_context, self._outcome.error
        if loop_context is None or error is None or isinstance(error, (StoreError, RunStuckError)):
            return
        if self._state.context.session.messages[-1].role != "user":
            return
        origin = replace(loop_context.origin, stop="error", error=str(error), code=error.code)
        failure = Message("assistant", (), loop_context.now_ms(), origin)
        try:
            await loop_context.save([failure])
        except StoreError as exc:
            log.warning("run %s: its error is not in the transcript: %s", self.id, exc)
        else:
            loop_context.emit(MessageSaved(failure))

    def _record_timeout(self) -> None:
        if self._is_stopped:
            self._outcome = replace(self._outcome, status="aborted")
            return
        provider = self._state.provider
        cause: ProviderError | None = None
        if isinstance(provider, SupportsPendingError):
            cause = provider.pending_error()
        if cause is None or isinstance(cause, ProviderTimeoutError):
            reason = f": {cause.message}" if cause else ""
            cause = ProviderTimeoutError(
                f"the run took longer than its deadline{reason}",
                fix="raise agents.defaults.timeoutSeconds, or ask for less at once",
            )
        self._outcome = replace(self._outcome, error=cause)

    def _record_crash(self, exc: Exception) -> None:
        text = f"the run met a bug and broke off ({type(exc).__name__})"
        error = RunCrashedError(text, fix="homarus logs has the details")
        self._outcome = replace(self._outcome, error=error)

    async def settle(self, reply: Message | None = None) -> None:
        """Record the one outcome of the messages, and enqueue what their sender gets.

        The loop calls it with its last message, which is saved in the same transaction; without
        one it settles a run that was stopped or failed.
        """
        if reply is not None:
            pending = [call.id for call in self._client_calls(reply)]
            await self._state.journal.finish(self._state.context.session, reply, pending)
        elif self._outcome.status == "aborted":
            await self._settle_failed(PREEMPTED if self.stopped_by == "preempt" else "aborted", "")
        elif error := self._outcome.error:
            await self._settle_failed(str(error), error_text(error))

    async def _settle_failed(self, reason: str, text: str) -> None:
        await self._state.journal.settle_failed(reason, text, self._outcome.error)
        if self._state.has_approvals or self._state.records[0].state == "suspended":
            self._services.get_approvals().on_cancelled(self._state.journal.runs)

    def close(self) -> None:
        """Release what the run holds, and publish its end; a suspended one has not ended."""
        self._services.spend_limiter.end(self.id)
        if self._state.live:
            self._state.live.close()
        if self._state.attempts:
            self._outcome = replace(self._outcome, attempts=tuple(self._state.attempts))
        outcome = self._outcome
        if self._services.diagnostics.is_active:
            self._publish_diagnostics()
        if outcome.status == "suspended":
            self._state.publish(RunSuspended(outcome.approvals))
            return
        aborted = outcome.status == "aborted"
        ended = RunEnded(error=self._error_text, aborted=aborted, attempts=outcome.attempts)
        self._state.publish(ended)

    def _publish_diagnostics(self) -> None:
        trace, record, outcome = self._state.trace, self._state.records[0], self._outcome
        publish, data = self._services.diagnostics.publish, trace.snapshot()
        status = "cancelled" if outcome.status == "failed" and not outcome.error else outcome.status
        publish(RunTraced(self.id, self.key, record.channel, status, data))
        if status in {"suspended", "cancelled"}:
            return
        kinds: dict[str, Literal["completed", "skipped", "error"]] = {
            "answered": "completed",
            "aborted": "skipped",
        }
        kind = kinds.get(status, "error")
        duration_ms = round((self._services.clock.monotonic() - self._started_s) * 1000)
        reason = "aborted" if status == "aborted" else ""
        error = one_line(str(outcome.error or ""), 160)
        publish(
            MessageProcessed(
                record.channel, record.message_id, self.key, duration_ms, kind, reason, error
            )
        )

    def report_end(self) -> RunOutcome:
        """Return the outcome; the `agent_end` hook is called when it has been delivered."""
        services = self._services
        duration_ms = round((services.clock.monotonic() - self._started_s) * 1000)
        if services.hooks.has("agent_end") and self._outcome.status != "suspended":
            messages = tuple(self._state.transcript())
            services.start_task(self._call_agent_end(messages, duration_ms))
        outcome = self._outcome
        if self._loop_context and not outcome.session_id:  # it has no answer
            session, model = self._state.context.session, self._state.context.model
            outcome = replace(
                outcome, session_id=session.session_id, model=f"{model.provider}/{model.id}"
            )
        usage = self._state.journal.usage if self._loop_context else Usage()
        return replace(outcome, duration_ms=duration_ms, total_usage=usage)

    async def _call_agent_end(self, messages: Sequence[Message], duration_ms: int) -> None:
        for _ in range(_LOOP_TURNS):
            await asyncio.sleep(0)
        hooks = self._services.hooks
        await hooks.agent_end(self._state.where, messages, self._error_text, duration_ms)

    @property
    def _error_text(self) -> str:
        outcome = self._outcome
        return str(outcome.error or (INTERRUPTED if outcome.status == "failed" else ""))

    def trace(self) -> dict[str, Json]:
        """Return the trace of the run so far."""
        return self._state.trace.snapshot()

    # Control from outside

    def stop(self) -> None:
        """Stop the run, also one that has not started yet."""
        self._is_stopped = True
        if self._scope and not self._scope.expired():
            self._scope.reschedule(0)

    def annotate_stop(self, message: Message) -> Message:
        """Return the message with who stopped it, when a person cut it short."""
        origin = message.origin
        if origin is None or origin.stop != "aborted" or self.stopped_by is None:
            return message
        if self.stopped_by in {"interrupt", "preempt"}:
            return replace(message, origin=replace(origin, code=SUPERSEDED))
        return replace(message, origin=replace(origin, stopped=StopInfo(self.id, self.stopped_by)))

    # Preparation

    async def prepare(self) -> LoopContext:
        """Load the session, connect the model, save the question; return what the loop needs."""
        return await prepare_run(
            self._state,
            set_timeout=self._set_timeout,
            annotate_stop=self.annotate_stop,
            settle=self.settle,
        )

    def _set_timeout(self, timeout_s: float) -> None:
        if self._scope and not self._is_stopped:
            self._scope.reschedule(asyncio.get_running_loop().time() + timeout_s)

    # The model loop

    async def loop(self, loop_context: LoopContext) -> Message:
        """Run the model loop until it answers, compacting the context each time it overflows."""
        context = self._state.context
        context.check_window()
        if self._state.is_late:
            await self._run_late_calls(loop_context)
        await self._flush_memory_if_due(loop_context)
        for _ in range(MAX_PER_TURN):
            try:
                return await run_loop(loop_context, list(context.session.messages))
            except ContextOverflowError:
                if not context.agent.compaction.enabled:
                    raise
                try:
                    await self._compact()
                except ContextOverflowError:
                    self._outcome = replace(self._outcome, has_compaction_failed=True)
                    raise
        return await run_loop(loop_context, list(context.session.messages))

    async def _run_late_calls(self, loop_context: LoopContext) -> None:
        """Run the calls that waited while other turns followed; then have the model continue.

        Each result is shown next to its call. A note at the end, which the model answers, says
        so; it has the results whose calls were summarised meanwhile.
        """
        session, calls = self._state.context.session, self._state.resumed_calls
        late_ids = [call.id for call in calls]
        try:
            await run_late_calls(loop_context, calls)
        finally:
            path = await session.path()
            session.pair_messages(path)
        parts = session.messages[-1].parts
        if any(isinstance(part, ToolResult) and part.call_id in late_ids for part in parts):
            return  # no other turn followed
        if ends_with_resumption(path, self.id):
            return
        shown = {
            part.call_id
            for message in session.messages
            for part in message.parts
            if isinstance(part, ToolResult)
        }
        results = results_in(path)
        unseen = [results[id_] for id_ in late_ids if id_ in results and id_ not in shown]
        question = self._state.records[0].preview
        text = resumption_text(question, unseen)
        check_lease = self._state.journal.check_lease
        await session.append(resumption(self.id, text), extra_writes=check_lease)

    async def _compact(self) -> None:
        state, hooks = self._state, self._services.hooks
        state.taint.search()
        state.emit(CompactionStarted())
        await compact_with_hooks(state.context, hooks, state.where, state.journal.check_lease)
        state.emit(CompactionEnded(will_retry=True))

    async def _flush_memory_if_due(self, loop_context: LoopContext) -> None:
        """Have the agent save notes before its history is summarised."""
        context = self._state.context
        session, rules = context.session, context.agent.compaction
        *before, last = session.messages
        if (
            self._state.heartbeat
            or not context.tools
            or not before
            or last.role != "user"
            or context.has_headroom
        ):
            return
        rendered = context.render(session.messages)
        budget = token_budget(rules, rendered)
        if not memory_flush.is_due(rules, session.record.data, budget, rendered.tokens):
            return
        try:
            await self._flush_memory(loop_context)
        except LeaseLostError:
            raise
        except HomarusError as exc:  # a compaction without notes is better than no answer
            log.warning("%s: the memory flush failed: %s", session.key, exc)
        now_ms = self._services.clock.now_ms()
        await session.update(**memory_flush.flush_fields(session.record.data, now_ms))

    async def _flush_memory(self, loop_context: LoopContext) -> None:
        """Run a turn that is neither published nor saved: only what its tools do remains."""
        from homarus.memory.view import audience_of, folder_of  # only for a flush that is due

        context, now_ms = self._state.context, self._services.clock.now_ms()
        rules = context.agent.compaction
        self._state.get_approvals().refusal = "no person is asked while notes are saved"
        by_tool = any(spec.name == memory_flush.TOOL for spec in context.tools)
        folder = folder_of(audience_of(context.session.key))
        today = local_date(context.agent.timezone, now_ms)
        # Not the subject of a group: people who may not instruct the agent choose it.
        name = context.session.label or session_name({}, self.key)
        prompt = memory_flush.prompt(rules, today, by_tool=by_tool, folder=folder, session=name)
        hidden = replace(
            loop_context,
            request=lambda messages: replace(
                context.request(messages),
                system=f"{context.system}\n\n{memory_flush.system_addition(rules)}",
            ),
            steering=list,
            emit=_discard_event,
            save=_discard_messages,
            finish=_discard_messages,
        )
        messages = [*context.session.messages[:-1], user_message(prompt, at_ms=now_ms)]
        try:
            await run_loop(hidden, messages)
        finally:
            self._state.get_approvals().refusal = ""


def _discard_event(_data: EventData) -> None:
    return None


async def _discard_messages(_messages: Sequence[Message] | Message) -> None:
    return None
