"""What one run works with, from its messages to the model context of its loop.

`Run` makes the state, `run_preparation` sets what is found for it step by step; the loop, the tool
calls and the settlement of the run read it. A run that fails halfway has what was set until then.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from homarus.agent.agent import Agent
from homarus.agent.client_tools import make_is_client_call
from homarus.agent.context.image_scaling import fit_message, has_images
from homarus.agent.context.model_context import ModelContext
from homarus.agent.prompt.chat_context import NO_CHAT, session_chat_context
from homarus.agent.reply.sender import LiveReplyHandle
from homarus.agent.run_journal import RunJournal
from homarus.agent.run_setup import merge_messages
from homarus.agent.run_trace import RunTrace
from homarus.agent.services import RunServices
from homarus.agent.taint import RunTaint
from homarus.agent.usage_recorder import ProviderCall
from homarus.core.diagnostics import ModelUsed, SessionActivity, SessionStateChanged
from homarus.core.event import AttemptFailed, Emitter, EventData
from homarus.core.fast_dataclass import replace
from homarus.core.lanes import LanePlace
from homarus.core.message import (
    HeartbeatOptions,
    Inbound,
    Media,
    Message,
    RunOptions,
    ToolCall,
    user_message,
)
from homarus.plugins.values import HookContext
from homarus.policy.tool_call import CallerFacts
from homarus.sessions.notices import ClaimedNotices, prepend_notices
from homarus.sessions.session import Session
from homarus.store.journal import InboxRecord

if TYPE_CHECKING:  # imported by the first run that answers a chat, or calls a tool
    from homarus.agent.media.run_media import RunMedia
    from homarus.agent.reply.block_delivery import BlockDelivery
    from homarus.agent.reply.builder import ReplyBuilder
    from homarus.agent.run_approvals import RunApprovals
    from homarus.agent.skills.run_skills import RunSkills


class RunState:
    """The state of one run. `text` stands for its messages when they were merged."""

    def __init__(
        self, services: RunServices, key: str, records: Sequence[InboxRecord], text: str = ""
    ) -> None:
        self.id, self.key = records[0].id, key
        self.services, self.records, self.text = services, records, text
        self.inbounds = [record.inbound for record in records if record.inbound]
        self.attempts: list[AttemptFailed] = []
        self.publish = Emitter(self.id, key, services.bus.publish, services.clock.now_ms)
        client = next((one.options.client for one in self.inbounds), None)
        self.is_client_call = make_is_client_call(client)
        self.taint = RunTaint(self.inbounds, self.transcript)
        self.trace = RunTrace(self.id, key, tuple(one.id for one in records), services.clock)
        if self.inbounds:
            self.trace.set_origin(self.inbounds[0])
        # Set by `Run.execute`, in this order.
        self.journal: RunJournal
        self.place: LanePlace
        # Set by `run_preparation`, in this order.
        self.where = HookContext()
        self.session: Session | None = None
        self.provider: object = None  # as it was connected, without our wrappers
        self.builder: ReplyBuilder | None = None
        self.live: LiveReplyHandle | None = None
        self.delivery: BlockDelivery | None = None  # of streamed blocks
        self.chat = NO_CHAT
        self.groups = frozenset[str]()  # of tools, which rules may name
        self.skills: RunSkills
        self.context: ModelContext
        self.resumed_calls: tuple[ToolCall, ...] = ()  # of an earlier attempt, without a result
        self.is_late = False  # it was suspended, and other turns followed
        self._approvals: RunApprovals | None = None  # made by the first tool call
        self._media: RunMedia | None = None  # made for the first file

    def emit(self, data: EventData) -> None:
        """Publish an event, after the reply builder has read it."""
        if isinstance(data, AttemptFailed):
            self.attempts.append(data)
        self.trace.on_event(data)
        if self.builder:
            typing = self.builder.feed(data)
            if self.live:
                self.live.update(typing=typing)
            if self.delivery:
                self.delivery.on_event(data)
        self.publish(data)

    def record_model_call(self, call: ProviderCall) -> None:
        """Record a model call: its usage is written with the next transaction of the run."""
        self.journal.record_model_call(call)
        self.trace.on_model_call(call)
        if self.services.diagnostics.is_active:
            self.services.diagnostics.publish(self._describe_call(call))

    def _publish_wait(self, state: SessionActivity) -> None:
        if self.services.diagnostics.is_active:
            before: SessionActivity = "processing" if state == "waiting" else "waiting"
            reason = "approval" if state == "waiting" else ""
            event = SessionStateChanged(self.key, before, state, 0, reason)
            self.services.diagnostics.publish(event)

    def _describe_call(self, call: ProviderCall) -> ModelUsed:
        usage = call.usage
        counts = {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
        }
        context = {"limit": self.context.model.window, "used": self.context.request_tokens}
        return ModelUsed(
            self.key,
            self.where.channel,
            call.provider,
            call.model,
            {**counts, "total": sum(counts.values())},
            usage.cost,
            call.duration_ms,
            call.ttfb_ms,
            context,
            call.error,
        )

    def transcript(self) -> Sequence[Message]:
        """Return the messages of the session; none before it is loaded."""
        return self.session.messages if self.session else ()

    @property
    def has_approvals(self) -> bool:
        """Whether the run has asked for approvals, or may have."""
        return self._approvals is not None

    # The messages of the run

    @property
    def heartbeat(self) -> HeartbeatOptions | None:
        """The options of a heartbeat; None for any other run."""
        return self.inbounds[0].options.heartbeat if self.inbounds else None

    def claim_notices(self) -> ClaimedNotices:
        """Claim the pending notices for the next message of the run."""
        own = self.heartbeat
        claimed = self.services.notices.claim((own and own.session) or self.key)
        self.taint.add_notices(claimed.notices)
        return claimed

    def make_question(self, inbound: Inbound, claimed: ClaimedNotices) -> Message:
        """Return a message, after notices, as the user message that the model reads."""
        services = self.services
        at_ms = inbound.at_ms or services.clock.now_ms()
        text = prepend_notices(claimed.notices, services.format_message(self.key, inbound))
        question = user_message(text, *inbound.images, at_ms=at_ms)
        source = inbound.options.provenance
        return replace(question, provenance=source) if source else question

    def pop_steering(self) -> list[Message]:
        """Return the messages that steer the run; it answers them from now on.

        A tool that one of the senders may not use is not used for any of them.
        """
        messages = list[Message]()
        config, session = self.services.get_config(), self.context.session
        for record in self.services.pop_steering(self.key):
            if record.inbound:
                chat = session_chat_context(
                    config, session, [record.inbound], find_traits=self.services.find_traits
                )
                self.chat = self.chat.join(chat).check_groups(self.groups)
                self.taint.add_inbound(record.inbound)
                claimed = self.claim_notices()
                question = self.make_question(record.inbound, claimed)
                if has_images(question):  # rarely: this blocks the loop while they are scaled
                    question = fit_message(question, self.context.agent.image_max_px)
                messages.append(self.journal.add_steering(record, question, claimed))
        return messages

    # What replies and tool calls ask for

    def set_calling_model(self, messages: Sequence[Message]) -> None:
        """Set the model that calls tools, for its rules: it may be a fallback."""
        for message in messages:
            if message.calls and (origin := message.origin):
                self.chat = self.chat.with_model(origin.provider, origin.model)

    async def attach_files(self, agent: Agent, names: Sequence[str]) -> tuple[Media, ...]:
        """Resolve the files of a reply, by the access that the chat has when it is sent."""
        messenger, access = self.services.messenger, self.chat.file_access(agent.rules)
        access = replace(access, can_fetch=False)  # a fetch is a tool call: it has been decided
        if messenger is None:
            return ()
        if sandbox := self.services.open_sandbox(agent, self.key, access):
            from homarus.tools.attachments import attach_from_sandbox

            return await attach_from_sandbox(messenger.attach, names, sandbox, access)
        return await messenger.attach(names, agent.workspace, access)

    def resolve_caller(self, options: RunOptions, caller: CallerFacts) -> CallerFacts:
        """Return who makes a call, with the settings for commands as they are now."""
        from homarus.agent.caller import resolve_command_caller  # only for commands

        services, entry = self.services, self.context.session.record.data
        rules = services.read_exec_rules()
        return resolve_command_caller(
            caller, services.get_config(), rules, entry, options, services.find_traits
        )

    def get_media(self) -> "RunMedia":
        """Return what reads the files of this run; most runs have none."""
        if self._media is None:
            from homarus.agent.media.run_media import RunMedia

            agent = self.context.agent
            self._media = RunMedia(
                self.services, self.journal, agent, self.key, lambda: self.context.model.ref
            )
        return self._media

    def get_approvals(self) -> "RunApprovals":
        """Return the approvals of this run; most runs ask for none."""
        if self._approvals is None:
            from homarus.agent.run_approvals import RunApprovals

            services = self.services
            self._approvals = RunApprovals(
                services.get_approvals(),
                agent=self.where.agent,
                session=self.key,
                runs=self.journal.runs,
                inbound=merge_messages(self.records, self.text),
                is_owner=all(
                    record.inbound is not None and record.inbound.authority == "owner"
                    for record in self.records
                ),
                place=self.place,
                resumed_calls={call.id for call in self.resumed_calls},
                check_lease=self.journal.check_lease,
                wait_s=services.get_config().approvals.wait_seconds,
                on_wait=self._publish_wait,
            )
        return self._approvals
