"""One run: prepare the context, run the model loop, settle the outcome.

`execute` does all three in the session's lane and under its lease. The answer is settled in the
transaction that saves it, as the last step of the loop; a run without an answer, afterwards.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Literal

from homarus.agent.agent import Agent
from homarus.agent.context import memory_flush
from homarus.agent.context.compaction import MAX_PER_TURN, token_budget
from homarus.agent.context.image_scaling import fit_message, has_images
from homarus.agent.context.model_context import ModelContext
from homarus.agent.lane_release import LaneReleasingProvider
from homarus.agent.loop import LoopContext, run_late_calls, run_loop, unanswered_calls
from homarus.agent.loop_detection import LoopDetector
from homarus.agent.prompt.chat_context import NO_CHAT, session_chat_context
from homarus.agent.prompt.report import ReportContext
from homarus.agent.reply.error_text import error_text
from homarus.agent.reply.sender import LiveReplyHandle
from homarus.agent.run_journal import RunJournal
from homarus.agent.run_setup import (
    make_model_context,
    merge_messages,
    resolve_model,
    resolve_thinking,
)
from homarus.agent.services import RunServices
from homarus.agent.session_compaction import compact_with_hooks
from homarus.agent.spend_limit import with_spend_limit
from homarus.agent.taint import RunTaint
from homarus.agent.tool_runner import ToolRunner
from homarus.agent.usage_recorder import UsageRecordingProvider
from homarus.config.timezone import local_date
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
    UnavailableError,
)
from homarus.core.event import (
    AttemptFailed,
    CompactionEnded,
    CompactionStarted,
    Emitter,
    EventData,
    MessageSaved,
    RunEnded,
    RunStarted,
)
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.faults import fault_point
from homarus.core.lanes import LanePlace
from homarus.core.message import (
    Inbound,
    Media,
    Message,
    Origin,
    RunOptions,
    StopInfo,
    StoppedBy,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    redirect_reply,
    user_message,
)
from homarus.core.session_keys import agent_id_of, run_lane
from homarus.core.tasks import run_contained
from homarus.plugins.values import HookContext
from homarus.policy.restrictions import check_run_allowed
from homarus.policy.tool_call import CallerFacts
from homarus.providers.base import ModelRequest, Provider, SupportsPendingError
from homarus.sessions.chat_fields import session_name
from homarus.sessions.rejection import CONTENT_ERRORS, SUPERSEDED
from homarus.sessions.send_policy import is_muted
from homarus.sessions.session import Session
from homarus.sessions.transcript import (
    ends_with_resumption,
    results_in,
    resumption,
    resumption_text,
)
from homarus.store.journal import InboxRecord
from homarus.tools.registry import ToolRegistry

if TYPE_CHECKING:  # imported by the first run that answers a chat, or calls a tool
    from homarus.agent.media.run_media import RunMedia
    from homarus.agent.reply.builder import ReplyBuilder
    from homarus.agent.run_approvals import RunApprovals

log = logging.getLogger(__name__)

LEFT_OUT = "what was refused is left out of later requests"
_LOOP_TURNS = 10  # of the event loop, in which the outcome reaches those who wait for it
INTERRUPTED = "the run broke off"  # the error of a run that ends with the program


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended, with its reply as readers get it. Every run has exactly one.

    A suspended run waits for `approvals`; those who wait for the run get the outcome of the
    attempt that resumes it.
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
        self._services, self._records, self._text = services, records, text
        self._inbounds = [record.inbound for record in records if record.inbound]
        self._outcome = RunOutcome(self.id, key, "failed")
        self._attempts: list[AttemptFailed] = []
        self._publish = Emitter(self.id, key, services.bus.publish, services.clock.now_ms)
        self._started_s = services.clock.monotonic()
        self._scope: asyncio.Timeout | None = None  # while the run can be stopped
        self._is_stopped = False
        # Set by `execute` and `prepare`, in this order.
        self._journal: RunJournal
        self._place: LanePlace
        self._where = HookContext()
        self._session: Session | None = None
        self._provider: object = None  # as it was connected, without our wrappers
        self._builder: ReplyBuilder | None = None
        self._live: LiveReplyHandle | None = None
        self._chat = NO_CHAT
        self._groups = frozenset[str]()  # of tools, which rules may name
        self._taint = RunTaint(self._inbounds, self._transcript)
        self._context: ModelContext
        self._loop_context: LoopContext | None = None
        self._approvals: RunApprovals | None = None  # made by the first tool call
        self._media: RunMedia | None = None  # made for the first file
        self._resumed_calls: tuple[ToolCall, ...] = ()  # of an earlier attempt, without a result
        self._is_late = False  # it was suspended, and other turns followed

    # The life of a run

    async def execute(self) -> None:
        """Run in the session's lane, under its lease. Every failure becomes the outcome."""
        services, lane = self._services, f"session:{self.key}"
        async with services.lanes.enter(lane), services.store.journal.lease(lane) as lease:
            self._journal = RunJournal(services, self._records, lease, self._taint)
            try:
                await run_contained(f"run {self.key}", self._answer, self._record_crash)
                if self._outcome.status == "suspended":
                    await self._suspend()
                await self._save_failure()
                await self.settle()
            except asyncio.CancelledError:
                if services.is_shutting_down():
                    await self._journal.cancel_attempt()
                raise

    async def _answer(self) -> None:
        """Set the outcome: an answer, a failure, the deadline, or a person's stop."""
        services = self._services
        try:
            async with asyncio.timeout(0 if self._is_stopped else None) as scope:
                self._scope = scope
                async with services.lanes.open_place(run_lane(self.key)) as self._place:
                    await self._place.acquire(resumes=False)
                    self._outcome = await services.watchdog.run(
                        f"run {self.key}", self._prepare_and_loop, scope, grace_s=services.grace_s
                    )
        except TimeoutError:
            self._record_timeout()
        except RunSuspendedError:
            approvals = self._get_approvals().suspended_calls
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
        reply = await self.loop(self._loop_context)
        origin = reply.origin
        assert origin is not None  # noqa: S101 - a provider's Message says who wrote it
        cleaned = clean_message(reply)
        current = self._inbounds[-1].id if cleaned.reply_to_current and self._inbounds else ""
        return RunOutcome(
            self.id,
            self.key,
            "answered",
            text=cleaned.text,
            media=cleaned.media,
            reply_to=cleaned.reply_to or current,
            stop=origin.stop,
            model=f"{origin.provider}/{origin.model}",
            session_id=self._context.session.session_id,
            usage=origin.usage,
        )

    async def _suspend(self) -> None:
        """Record that the run waits for approvals; when that fails, the run has failed."""
        session = self._context.session
        calls = (*self._resumed_calls, *unanswered_calls(session.messages))
        waiting = {call.id: "" for call in calls} | self._get_approvals().suspended_calls
        try:
            await self._journal.suspend(session, waiting)
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
        if self._context.session.messages[-1].role != "user":
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
        provider = self._provider
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
            await self._journal.finish(self._context.session, reply)
        elif self._outcome.status == "aborted":
            await self._settle_failed("aborted", "")
        elif error := self._outcome.error:
            await self._settle_failed(str(error), error_text(error))

    async def _settle_failed(self, reason: str, text: str) -> None:
        await self._journal.settle_failed(reason, text, self._outcome.error)
        if self._approvals or self._records[0].state == "suspended":
            self._services.get_approvals().on_cancelled(self._journal.runs)

    def close(self) -> None:
        """Release what the run holds, and publish its end; a suspended one has not ended."""
        self._services.spend_limiter.end(self.id)
        if self._live:
            self._live.close()
        if self._attempts:
            self._outcome = replace(self._outcome, attempts=tuple(self._attempts))
        outcome = self._outcome
        if outcome.status == "suspended":
            return
        aborted = outcome.status == "aborted"
        self._publish(RunEnded(error=self._error_text, aborted=aborted, attempts=outcome.attempts))

    def report_end(self) -> RunOutcome:
        """Return the outcome; the `agent_end` hook is called when it has been delivered."""
        services = self._services
        duration_ms = round((services.clock.monotonic() - self._started_s) * 1000)
        if services.hooks.has("agent_end") and self._outcome.status != "suspended":
            messages = tuple(self._session.messages) if self._session else ()
            services.start_task(self._call_agent_end(messages, duration_ms))
        outcome = self._outcome
        if self._loop_context and not outcome.session_id:  # it has no answer
            session, model = self._context.session, self._context.model
            outcome = replace(
                outcome, session_id=session.session_id, model=f"{model.provider}/{model.id}"
            )
        return replace(outcome, duration_ms=duration_ms)

    async def _call_agent_end(self, messages: Sequence[Message], duration_ms: int) -> None:
        for _ in range(_LOOP_TURNS):
            await asyncio.sleep(0)
        hooks = self._services.hooks
        await hooks.agent_end(self._where, messages, self._error_text, duration_ms)

    @property
    def _error_text(self) -> str:
        outcome = self._outcome
        return str(outcome.error or (INTERRUPTED if outcome.status == "failed" else ""))

    def _transcript(self) -> Sequence[Message]:
        return self._session.messages if self._session else ()

    # Control from outside

    def stop(self) -> None:
        """Stop the run, also one that has not started yet."""
        self._is_stopped = True
        if self._scope and not self._scope.expired():
            self._scope.reschedule(0)

    def emit(self, data: EventData) -> None:
        """Publish an event, after the reply builder has read it."""
        if isinstance(data, AttemptFailed):
            self._attempts.append(data)
        if self._builder:
            typing = self._builder.feed(data)
            if self._live:
                self._live.update(typing=typing)
        self._publish(data)

    def annotate_stop(self, message: Message) -> Message:
        """Return the message with who stopped it, when a person cut it short."""
        origin = message.origin
        if origin is None or origin.stop != "aborted" or self.stopped_by is None:
            return message
        if self.stopped_by == "interrupt":
            return replace(message, origin=replace(origin, code=SUPERSEDED))
        return replace(message, origin=replace(origin, stopped=StopInfo(self.id, self.stopped_by)))

    # Preparation

    async def prepare(self) -> LoopContext:
        """Load the session, connect the model, save the question; return what the loop needs."""
        services, inbound = self._services, merge_messages(self._records, self._text)
        await services.discover_tools(agent_id_of(self.key))  # the agent's rules depend on them
        agent, options = services.get_agent(agent_id_of(self.key)), inbound.options
        all_tools = services.get_tools(agent.id)  # the first call imports them: before the deadline
        check_run_allowed(services.get_config(), agent.id, all_tools.known_groups)
        if self._scope and not self._is_stopped:
            timeout_s = options.timeout_s or agent.timeout_s
            self._scope.reschedule(asyncio.get_running_loop().time() + timeout_s)
        self._where = HookContext(
            agent.id, self.key, self.id, str(agent.workspace), inbound.address.channel
        )
        session = self._session = await self._open_session(inbound, agent)
        rules = services.get_config().session.send_policy
        muted = is_muted(rules, session.key, session.record.data, redirect_reply(inbound))
        self._journal.sender.configure(is_muted=muted)  # for errors before the builder is there
        provider, model = await services.connect(resolve_model(agent, session, options.model))
        self._provider = provider
        thinking = resolve_thinking(options.thinking or session.thinking or agent.thinking, model)
        self._configure_reply(session, inbound, agent, thinking, is_muted=muted)
        self.emit(RunStarted(model.provider, model.id, thinking))
        provider = with_spend_limit(provider, services.spend_limiter, model, self.id)
        provider = UsageRecordingProvider(provider, model.ref, self._journal.record_model_call)
        provider = LaneReleasingProvider(provider, self._place)
        self._chat = session_chat_context(
            services.get_config(), session, self._inbounds, find_traits=services.find_traits
        ).with_model(model.provider, model.id)
        self._groups = all_tools.known_groups
        self._chat = self._chat.with_prompt(options.extra_system_prompt).check_groups(self._groups)
        tools = self._chat.tools(all_tools, agent.rules)
        self._context = await make_model_context(
            services,
            session,
            agent,
            provider,
            model,
            thinking=thinking,
            chat=self._chat,
            tools=tools,
        )
        interrupted_calls = await self._resume(session)
        if interrupted_calls is None:
            interrupted_calls = frozenset()
            await self._save_question(inbound)
        fault_point("run.begun")
        runner = self._make_tool_runner(agent, tools, inbound, interrupted_calls, is_muted=muted)
        return self._make_loop_context(provider, tools, runner)

    async def _open_session(self, inbound: Inbound, agent: Agent) -> Session:
        """Load the session of a message; reset it first when it is stale."""
        services, where = self._services, self._where
        session = await services.sessions.load(self.key, agent.id, cwd=where.workspace)
        if self._records[0].entry:
            return session
        await services.hooks.message_received(where, inbound)
        previous_id = ""
        if not services.is_fresh(session, inbound):
            previous_id = session.session_id
            await services.hooks.session_end(where, previous_id, len(session.messages))
            await session.reset()
        if not session.is_used:
            await services.hooks.session_start(where, session.session_id, previous_id)
        return session

    def _configure_reply(
        self, session: Session, inbound: Inbound, agent: Agent, thinking: str, *, is_muted: bool
    ) -> None:
        services, is_resumed = self._services, bool(self._records[0].entry)
        new_session_id = "" if session.is_used or is_resumed else session.session_id
        inbound = redirect_reply(inbound)
        builder = services.make_builder(session, inbound, thinking, new_session_id)
        self._builder = builder
        if builder and not is_muted:
            # A hook may change or refuse the final text: then no preview may show it.
            has_hook = services.hooks.has("message_sending")
            get_preview = str if has_hook else lambda: builder.preview
            # What an earlier attempt has sent stands under the run's name: it is not shown again.
            is_new_name = builder.sends_on_save and is_resumed
            name = self._journal.attempt if is_new_name else self._journal.run
            interval_s = builder.settings.typing_interval_s
            inbounds = [redirect_reply(each) for each in self._inbounds]
            self._live = services.start_live_reply(inbounds, name, get_preview, interval_s)
        attach = partial(self._attach, agent) if services.messenger else None
        self._journal.sender.configure(builder, self._live, attach, is_muted=is_muted)

    async def _attach(self, agent: Agent, names: Sequence[str]) -> tuple[Media, ...]:
        """Resolve the files of a reply, by the access that the chat has when it is sent."""
        messenger, access = self._services.messenger, self._chat.file_access(agent.rules)
        access = replace(access, can_fetch=False)  # a fetch is a tool call: it has been decided
        if messenger is None:
            return ()
        if sandbox := self._services.open_sandbox(agent, self.key, access):
            from homarus.tools.attachments import attach_from_sandbox

            return await attach_from_sandbox(messenger.attach, names, sandbox, access)
        return await messenger.attach(names, agent.workspace, access)

    async def _resume(self, session: Session) -> frozenset[str] | None:
        """Resume an earlier attempt; return the tool calls it started that have no result.

        Returns None when the messages are new to the session, or when a person retries one that
        is not on the session's current path: then the question is saved again.
        """
        entries = [record.entry for record in self._records if record.entry]
        if not entries:
            return None
        open_calls = await self._journal.open_calls()
        extra_writes = self._journal.mark_running(session)
        saved: Sequence[Message] | None = await session.resume_turn(entries, extra_writes)
        if saved is not None:
            self._resumed_calls = unanswered_calls(session.messages)
        elif turn := await session.resume_suspended_turn(entries, self._journal.runs, extra_writes):
            saved, self._resumed_calls, self._is_late = turn.messages, turn.calls, True
        if self._records[0].state == "suspended":
            fault_point("approval.resumed")
        if saved is None and self._records[0].was_started:
            raise UnavailableError("the conversation went on without this message; send it again")
        if saved is None:
            return None
        if self._builder:
            for message in saved:
                self._builder.restore(message)
        return open_calls

    async def _save_question(self, inbound: Inbound) -> None:
        """Save the user message that the run starts with, and mark its records as running."""
        services, context, where = self._services, self._context, self._where
        session, model = context.session, context.model
        question, extra_writes = self._make_question(inbound), self._journal.mark_running(session)
        if inbound.images or inbound.media:
            media = self._get_media()
            question = await media.read_files(inbound, question, model)
            extra_writes = media.with_cleanup(extra_writes)
        added = await services.hooks.before_agent_start(where, question.text, session.messages)
        if added:
            question = replace(question, parts=(Text(f"{added}\n\n"), *question.parts))
        now_ms = services.clock.now_ms()
        report_context = ReportContext(
            self.key, session.session_id, model.provider, model.id, now_ms
        )
        await session.start_turn(
            await context.attach_images(question),
            provider=model.provider,
            model=model.id,
            thinking=context.thinking,
            api=context.api,
            window=model.window,
            inbound=inbound,
            extra_writes=extra_writes,
            extra_fields=services.composer.report_changes(report_context, session.record.data),
        )

    def _make_question(self, inbound: Inbound) -> Message:
        services = self._services
        at_ms = inbound.at_ms or services.clock.now_ms()
        question = user_message(
            services.format_message(self.key, inbound), *inbound.images, at_ms=at_ms
        )
        source = inbound.options.provenance
        return replace(question, provenance=source) if source else question

    def _make_tool_runner(
        self,
        agent: Agent,
        tools: ToolRegistry,
        inbound: Inbound,
        interrupted_calls: frozenset[str],
        *,
        is_muted: bool,
    ) -> ToolRunner:
        services = self._services
        return ToolRunner(
            agent=agent,
            tools=tools,
            inbound=inbound,
            where=self._where,
            journal=self._journal,
            repeats=LoopDetector(agent.loops),
            interrupted_calls=interrupted_calls,
            get_chat=lambda: self._chat,
            get_approvals=self._get_approvals,
            messenger=None if is_muted else services.messenger,
            sessions=services.store,
            hooks=services.hooks,
            emit=self.emit,
            now_ms=services.clock.now_ms,
            session_name=session_name(self._context.session.record.data, self.key),
            taint=self._taint,
            audit_log=services.audit,
            resolve_caller=partial(self._resolve_caller, inbound.options),
            open_sandbox=partial(services.open_sandbox, agent, self.key),
            describe_images=lambda question: self._get_media().describe_images(question),
        )

    def _resolve_caller(self, options: RunOptions, caller: CallerFacts) -> CallerFacts:
        """Return who makes a call, with the settings for commands as they are now."""
        from homarus.agent.caller import resolve_command_caller  # only for commands

        services, entry = self._services, self._context.session.record.data
        rules = services.read_exec_rules()
        return resolve_command_caller(
            caller, services.get_config(), rules, entry, options, services.find_traits
        )

    def _get_media(self) -> "RunMedia":
        """Return what reads the files of this run; most runs have none."""
        if self._media is None:
            from homarus.agent.media.run_media import RunMedia

            agent = self._context.agent
            self._media = RunMedia(
                self._services, self._journal, agent, self.key, lambda: self._context.model.ref
            )
        return self._media

    def _get_approvals(self) -> "RunApprovals":
        """Return the approvals of this run; most runs ask for none."""
        if self._approvals is None:
            from homarus.agent.run_approvals import RunApprovals

            services = self._services
            self._approvals = RunApprovals(
                services.get_approvals(),
                agent=self._where.agent,
                session=self.key,
                runs=self._journal.runs,
                inbound=merge_messages(self._records, self._text),
                is_owner=all(
                    record.inbound is not None and record.inbound.authority == "owner"
                    for record in self._records
                ),
                place=self._place,
                resumed_calls={call.id for call in self._resumed_calls},
                check_lease=self._journal.check_lease,
                wait_s=services.get_config().approvals.wait_seconds,
            )
        return self._approvals

    def _make_loop_context(
        self, provider: Provider, tools: ToolRegistry, runner: ToolRunner
    ) -> LoopContext:
        context = self._context

        def request(messages: tuple[Message, ...]) -> ModelRequest:
            runner.repeats.check_limit()
            return context.request(messages)

        async def save(messages: Sequence[Message]) -> None:
            self._set_calling_model(messages)
            annotated = [self.annotate_stop(message) for message in messages]
            await self._journal.save(context.session, annotated)

        return LoopContext(
            provider=provider,
            request=request,
            origin=Origin(provider.api, context.model.provider, context.model.id),
            call=runner.run,
            must_run_alone=tools.must_run_alone,
            steering=self._pop_steering,
            emit=self.emit,
            save=save,
            finish=self.settle,
            now_ms=self._services.clock.now_ms,
        )

    def _set_calling_model(self, messages: Sequence[Message]) -> None:
        """Set the model that calls tools, for its rules: it may be a fallback."""
        for message in messages:
            if message.calls and (origin := message.origin):
                self._chat = self._chat.with_model(origin.provider, origin.model)

    def _pop_steering(self) -> list[Message]:
        """Return the messages that steer the run; it answers them from now on.

        A tool that one of the senders may not use is not used for any of them.
        """
        messages = list[Message]()
        config, session = self._services.get_config(), self._context.session
        for record in self._services.pop_steering(self.key):
            if record.inbound:
                chat = session_chat_context(
                    config, session, [record.inbound], find_traits=self._services.find_traits
                )
                self._chat = self._chat.join(chat).check_groups(self._groups)
                self._taint.add_inbound(record.inbound)
                question = self._make_question(record.inbound)
                if has_images(question):  # rarely: this blocks the loop while they are scaled
                    question = fit_message(question, self._context.agent.image_max_px)
                messages.append(self._journal.add_steering(record, question))
        return messages

    # The model loop

    async def loop(self, loop_context: LoopContext) -> Message:
        """Run the model loop until it answers, compacting the context each time it overflows."""
        context = self._context
        context.check_window()
        if self._is_late:
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
        session, late_ids = self._context.session, [call.id for call in self._resumed_calls]
        try:
            await run_late_calls(loop_context, self._resumed_calls)
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
        question = self._records[0].preview
        text = resumption_text(question, unseen)
        await session.append(resumption(self.id, text), extra_writes=self._journal.check_lease)

    async def _compact(self) -> None:
        self._taint.search()
        self.emit(CompactionStarted())
        hooks, extra_writes = self._services.hooks, self._journal.check_lease
        await compact_with_hooks(self._context, hooks, self._where, extra_writes)
        self.emit(CompactionEnded(will_retry=True))

    async def _flush_memory_if_due(self, loop_context: LoopContext) -> None:
        """Have the agent save notes before its history is summarised."""
        context = self._context
        session, rules = context.session, context.agent.compaction
        *before, last = session.messages
        if not context.tools or not before or last.role != "user" or context.has_headroom:
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

        context, now_ms = self._context, self._services.clock.now_ms()
        rules = context.agent.compaction
        self._get_approvals().refusal = "no person is asked while notes are saved"
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
            self._get_approvals().refusal = ""


def _discard_event(_data: EventData) -> None:
    return None


async def _discard_messages(_messages: Sequence[Message] | Message) -> None:
    return None
