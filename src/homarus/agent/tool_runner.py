"""Run the tool calls of one run: once each, by policy, with the hooks around them."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import field, replace
from typing import TYPE_CHECKING

from homarus.agent.agent import Agent
from homarus.agent.call_audit import CallAudit, describe_place
from homarus.agent.context.image_scaling import fit_result
from homarus.agent.loop_detection import LoopDetector
from homarus.agent.prompt.chat_context import ChatContext
from homarus.agent.run_journal import RunJournal
from homarus.agent.run_trace import RunTrace
from homarus.agent.taint import RunTaint
from homarus.config.redaction import mask_known_secrets
from homarus.core.event import EventData, ToolProgressed
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Image, Inbound, Text, ToolCall, ToolResult
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.values import HookContext, Refusal
from homarus.policy.decision import decide_tool_call, is_command
from homarus.policy.tool_call import CallerFacts, ToolCallFacts, ToolDecision
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.sessions.transcript import interrupted_result
from homarus.store.audit import AuditLog
from homarus.tools.execute import execute_tool_call as call_tool
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import Messenger, SessionReader, SkillAccess, Tool, ToolContext

if TYPE_CHECKING:  # imported by the first tool call
    from homarus.agent.run_approvals import RunApprovals
    from homarus.tools.image_description import DescribeImages
    from homarus.tools.sandbox.session_sandbox import SessionSandbox


@dataclass(frozen=True, slots=True)
class ToolRunner:
    """Runs tool calls for one run.

    `interrupted_calls` were started by an earlier attempt and have no result: they are not run
    again. `get_chat` returns the settings of the chat: other senders who steer the run narrow them.
    `resolve_caller` adds the settings for commands to who makes a call; `taint` is the untrusted
    content that the run has read. `get_approvals` returns what asks a person about calls.
    `open_sandbox` returns the session's sandbox, as far as an access to files allows it.
    `describe_images` has a model describe pictures. `skills` gives commands their variables.
    `leave_lane` gives up the run's place.
    """

    agent: Agent
    tools: ToolRegistry
    inbound: Inbound
    where: HookContext
    journal: RunJournal
    repeats: LoopDetector
    interrupted_calls: frozenset[str]
    get_chat: Callable[[], ChatContext]
    get_approvals: "Callable[[], RunApprovals]"
    messenger: Messenger | None
    hooks: Hooks
    emit: Callable[[EventData], None]
    now_ms: Callable[[], int]
    session_name: str = ""
    sessions: SessionReader | None = None
    resolve_caller: Callable[[CallerFacts], CallerFacts] = lambda caller: caller
    taint: RunTaint = field(default_factory=RunTaint)
    audit_log: AuditLog = field(default_factory=AuditLog)
    open_sandbox: "Callable[[WorkspaceAccess], SessionSandbox | None]" = lambda _access: None
    describe_images: "DescribeImages | None" = None
    skills: SkillAccess | None = None
    leave_lane: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    trace: RunTrace = field(default_factory=RunTrace)

    @property
    def _audit(self) -> CallAudit:
        return CallAudit(self.audit_log, self.where, self.now_ms)

    async def run(self, call: ToolCall) -> ToolResult:
        """Run one call, unless an earlier attempt, loop detection or a hook forbids it."""
        if call.id in self.interrupted_calls:
            return interrupted_result(call)
        if self.repeats.is_stopped:
            return self.repeats.refusal_result(call)
        started_ms = self.now_ms()
        allowed = await self.hooks.before_tool_call(self.where, call)
        if isinstance(allowed, Refusal):
            self._audit.record_refusal(call, "hook", allowed.reason)
            self.trace.on_decision(call.id, "deny", "hook")
            return ToolResult(call.id, call.name, (Text(allowed.reason),), is_error=True)
        result = await self._execute(allowed)
        self.taint.add_result(result)
        if any(isinstance(part, Image) for part in result.content):
            result = await asyncio.to_thread(fit_result, result, self.agent.image_max_px)
        fault_point("tool.ended")
        await self.hooks.after_tool_call(self.where, allowed, result, self.now_ms() - started_ms)
        warning = self.repeats.record(allowed, result)
        return replace(result, content=(*result.content, Text(warning))) if warning else result

    def _get_caller(self) -> CallerFacts:
        """Return who makes a call, with the settings for commands."""
        return self.resolve_caller(self.get_chat().caller)

    async def _execute(self, call: ToolCall) -> ToolResult:
        audit, started, place = self._audit, list[tuple[str, int]](), ""
        approvals = self.get_approvals()

        async def begin(tool: Tool) -> None:
            fault_point("tool.asked")
            started.append((tool.name, self.now_ms()))
            approval = approvals.pop_allowed(call.id)
            self.trace.on_call_start(call.id, approval.id if approval else "")
            if approval or not tool.idempotent:
                await self.journal.mark_call_started(call.id, approval)

        async def decide(facts: ToolCallFacts) -> ToolDecision:
            nonlocal place
            chat = self.get_chat()  # senders may have joined since the call was prepared
            caller = self._get_caller() if is_command(facts) else chat.caller
            if taint := self.taint.sources:
                caller = replace(caller, taint=taint)
            decision = decide_tool_call(facts, caller, self.agent.rules.for_chat(chat.rules))
            self.trace.on_decision(call.id, decision.action, decision.layer)
            place = describe_place(facts, caller)
            audit.record_decision(
                call, facts.tool.name, decision, taint=taint, facts=facts, place=place
            )
            return decision

        access = self.get_chat().file_access(self.agent.rules)
        context = ToolContext(
            self.where.session_key,
            self.agent.id,
            self.agent.workspace,
            progress=lambda text: self.emit(ToolProgressed(call, mask_known_secrets(text))),
            here=self.inbound.address,
            message_id="" if self.inbound.is_internal else self.inbound.id,
            run_id=self.where.run_id,
            call_id=call.id,
            messenger=self.messenger,
            sessions=self.sessions,
            run_access=access,
            docs=self.agent.docs,
            scope=self.agent.file_scope,
            session_name=self.session_name,
            get_caller=self._get_caller,
            approvals=approvals,
            sandbox=self.open_sandbox(access),
            describe_images=self.describe_images,
            skills=self.skills,
            inbound=self.inbound,
            get_taint=lambda: self.taint.sources,
            leave_lane=self.leave_lane,
        )
        result = await call_tool(self.tools, context, call, decide, begin=begin)
        for name, started_ms in started:
            audit.record_execution(call, name, result, self.now_ms() - started_ms, place)
        return result
