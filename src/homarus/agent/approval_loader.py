"""Make the approvals of a program when they are first needed.

Most runs ask for no approval, so neither the service nor what asks in chats is imported before.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from homarus.agent.approval_ports import ApprovalPorts
from homarus.config.schema import Config
from homarus.core.bus import Bus
from homarus.core.clock import Clock
from homarus.core.errors import HomarusError
from homarus.core.event import Event, RunEnded
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address
from homarus.store.approvals import ApprovalRecord
from homarus.store.audit import AuditLog
from homarus.store.journal import BuildReply, InboxRecord, Journal, OutboxRecord
from homarus.tools.tool import Messenger

if TYPE_CHECKING:
    import asyncio

    from homarus.agent.approval_prompts import ChatPrompts
    from homarus.agent.approval_service import ApprovalService
    from homarus.config.schema import ApprovalTargetConfig


@dataclass(frozen=True, slots=True)
class ApprovalSources:
    """What approvals are made with; `spawn` starts a task, unless the program is ending."""

    journal: Journal
    bus: Bus
    clock: Clock
    audit: AuditLog
    messenger: Messenger
    get_config: Callable[[], Config]
    spawn: "Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None]"
    build_reply: BuildReply
    build_notice: Callable[[InboxRecord, str, str], Sequence[OutboxRecord]]
    can_edit: Callable[[Address], bool]
    on_enqueued: Callable[[], None]
    resume_run: Callable[[str, str], None]


class ApprovalLoader:
    """The approvals of a program, and what asks for them in chats."""

    def __init__(self, sources: ApprovalSources) -> None:
        self._sources = sources
        self._service: ApprovalService | None = None
        self._prompts: ChatPrompts | None = None
        self.ports = ApprovalPorts()
        self.ports.prompts.append(lambda record: self.prompts().build(record))
        self.ports.on_resolved.append(self._show_outcome)

    def service(self) -> "ApprovalService":
        """Return the approvals of the program."""
        if self._service is None:
            from homarus.agent.approval_service import ApprovalService, ApprovalServices

            given = self._sources
            self._service = ApprovalService(
                ApprovalServices(
                    journal=given.journal,
                    bus=given.bus,
                    clock=given.clock,
                    spawn=given.spawn,
                    ports=self.ports,
                    build_notice=given.build_notice,
                    on_enqueued=given.on_enqueued,
                    resume_run=given.resume_run,
                    get_expiry_s=lambda: given.get_config().approvals.expiry_seconds,
                    audit=given.audit,
                )
            )
        return self._service

    def prompts(self) -> "ChatPrompts":
        """Return what asks for approvals in chats."""
        if self._prompts is None:
            from homarus.agent.approval_prompts import ChatPrompts, PromptServices

            given = self._sources
            self._prompts = ChatPrompts(
                PromptServices(
                    get_config=given.get_config,
                    get_accounts=given.messenger.accounts,
                    resolve_target=self._resolve_target,
                    can_edit=given.can_edit,
                    build_reply=given.build_reply,
                    journal=given.journal,
                    clock=given.clock,
                    on_enqueued=given.on_enqueued,
                )
            )
        return self._prompts

    def open_questions(self) -> "Sequence[ApprovalRecord]":
        """Return the questions that wait for an answer; without a service there are none."""
        return self._service.open_questions() if self._service else ()

    def on_runs_cancelled(self, key: str, runs: Sequence[str]) -> None:
        """Publish the end of suspended runs that were stopped."""
        now_ms = self._sources.clock.now_ms()
        for run in runs:
            self._sources.bus.publish(Event(run, key, 0, now_ms, RunEnded(aborted=True)))
        if self._service:
            self._service.on_cancelled(runs)

    def close(self) -> None:
        """Stop the expiry worker and the open prompts; the records stay pending."""
        if self._service:
            self._service.close()

    def _resolve_target(self, target: "ApprovalTargetConfig") -> Address | None:
        """Return the chat of a configured target; None when its account does not run."""
        thread = target.thread_id
        try:
            return self._sources.messenger.resolve_address(
                target.to,
                channel=target.channel,
                account=target.account_id or "",
                thread="" if thread is None else str(thread),
            )
        except HomarusError:
            return None

    def _show_outcome(self, record: ApprovalRecord) -> None:
        """Show in the chats that were asked what became of an approval."""
        prompts = self.prompts()
        answered_in = prompts.find_answering_chat(record.id)
        self._sources.spawn(prompts.show_outcome(record, answered_in), "approval outcome")
