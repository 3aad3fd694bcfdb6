"""Call one tool outside of a run: for a program that has no model, by the policy of a session.

The call passes the same pipeline as a call of a model: hooks, the tool's own preparation, the
policy of the agent, the session and the sender, approvals, the audit log. Nothing is written to the
session's transcript.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from homarus.agent.agent import Agent
from homarus.agent.call_audit import CallAudit, describe_place
from homarus.agent.caller import resolve_command_caller
from homarus.agent.prompt.chat_context import ChatContext, session_chat_context
from homarus.agent.run_approvals import RunApprovals
from homarus.agent.run_setup import resolve_model
from homarus.agent.services import RunServices
from homarus.config.model_refs import parse_model_ref
from homarus.core.errors import RunSuspendedError, ToolError, UnknownNameError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Address, Inbound, Json, RunOptions, Text, ToolCall, ToolResult
from homarus.core.session_keys import agent_id_of
from homarus.core.text import one_line
from homarus.plugins.values import HookContext, Refusal
from homarus.policy.approvals import ApprovalAnswer, ApprovalQuestion
from homarus.policy.decision import decide_tool_call
from homarus.policy.restrictions import check_run_allowed
from homarus.policy.tool_call import CallerFacts, ToolCallFacts, ToolDecision
from homarus.policy.tool_policy import ToolRules
from homarus.sessions.session import Session
from homarus.store.approvals import ApprovalRecord
from homarus.store.base import Transaction
from homarus.tools.execute import execute_tool_call, prepare_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import Tool, ToolContext

# Why a call has this result: `denied` by the policy or a hook, `unapproved` by a person, `failed`
# by the tool or its arguments, `fault` for a bug of the tool.
DirectCallStatus: TypeAlias = Literal["done", "denied", "unapproved", "failed", "fault"]
NOT_ANSWERED: Final = "{tool} denied: no person answered the approval within {wait_s:g} s"


@dataclass(frozen=True, slots=True)
class DirectCall:
    """A call of a tool in a session: `inbound` says who makes it, and has its id.

    `chat` is a chat whose rules must allow it too. `get_rules` returns further rules for the tool.
    `on_start` adds writes to the transaction that records the start. `wait_gone` returns when the
    caller is gone: then a question to a person is withdrawn, which waits `wait_s` at most.
    """

    session_key: str
    tool: str
    args: Mapping[str, Json]
    inbound: Inbound
    wait_s: float
    chat: Address | None = None
    get_rules: Callable[[Tool], Sequence[ToolRules]] = lambda _tool: ()
    on_start: Callable[[Transaction], None] = lambda _transaction: None
    wait_gone: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class DirectCallOutcome:
    """What came of a call; `was_started` says whether the tool ran."""

    tool: str
    status: DirectCallStatus
    result: ToolResult
    decision: ToolDecision | None = None
    was_started: bool = False


@dataclass(slots=True)
class _CallState:
    """What is found out while a call is executed."""

    tool: Tool
    decision: ToolDecision | None = None
    place: str = ""
    started_ms: int | None = None
    status: DirectCallStatus = "done"
    approved: ApprovalRecord | None = None


class DirectCalls:
    """Calls tools outside of runs."""

    def __init__(self, services: RunServices) -> None:
        self._services = services

    async def run(self, given: DirectCall) -> DirectCallOutcome:
        """Call the tool; raises UnknownNameError for one that does not exist, and UserError."""
        call = await self._open(given)
        found = await call.execute()
        await self._services.audit.write()
        return found

    async def preview(self, given: DirectCall) -> ToolDecision:
        """Return what the policy says about the call, and run nothing. Raises ToolError."""
        call = await self._open(given)
        return await call.preview()

    async def _open(self, given: DirectCall) -> "_OpenCall":
        services, agent_id = self._services, agent_id_of(given.session_key)
        await services.discover_tools(agent_id)
        agent, tools = services.get_agent(agent_id), services.get_tools(agent_id)
        check_run_allowed(services.get_config(), agent.id, tools.known_groups)
        try:
            tool = tools.find_called(given.tool)
        except ToolError as exc:
            raise UnknownNameError("tool", one_line(given.tool, 60), fix=exc.fix) from None
        session = await services.sessions.load(given.session_key, agent.id)
        chat = self._chat(given, agent, session, tool).check_groups(tools.known_groups)
        offered = chat.tools(tools, agent.rules)
        return _OpenCall(services, given, agent, session, chat, offered, _CallState(tool))

    def _chat(self, given: DirectCall, agent: Agent, session: Session, tool: Tool) -> ChatContext:
        """Return the rules and the caller: those of the sender, and of the chat that is named."""
        config, find_traits = self._services.get_config(), self._services.find_traits
        chat = session_chat_context(config, session, [given.inbound], find_traits=find_traits)
        if given.chat is not None:
            named = replace(given.inbound, address=given.chat)
            chat = chat.join(
                session_chat_context(config, session, [named], find_traits=find_traits)
            )
        model = parse_model_ref(resolve_model(agent, session).ref or "", "")
        if model:
            chat = chat.with_model(model.provider, model.model)
        return chat.with_rules(tuple(given.get_rules(tool)))


@dataclass(frozen=True, slots=True)
class _OpenCall:
    """One call, with the session, the rules and the tools that hold for it."""

    services: RunServices
    given: DirectCall
    agent: Agent
    session: Session
    chat: ChatContext
    tools: ToolRegistry
    state: _CallState

    @property
    def where(self) -> HookContext:
        address, workspace = self.given.inbound.address, str(self.agent.workspace)
        key, run_id = self.given.session_key, self.given.inbound.id
        return HookContext(self.agent.id, key, run_id, workspace, address.channel)

    @property
    def audit(self) -> CallAudit:
        return CallAudit(self.services.audit, self.where, self.services.clock.now_ms)

    async def preview(self) -> ToolDecision:
        tool, call = self.state.tool, self._call()
        decision = self._decide(ToolCallFacts(tool.declaration, call.args))
        if decision.action == "deny" or tool.name not in self.tools:
            return decision
        values = tool.parse(call.args)
        prepared = await prepare_call(tool, self._context(None), call, values)
        prepared.close()
        return self._decide(prepared.facts)

    async def execute(self) -> DirectCallOutcome:
        services, state, call = self.services, self.state, self._call()
        allowed = await services.hooks.before_tool_call(self.where, call)
        if isinstance(allowed, Refusal):
            self.audit.record_refusal(call, "hook", allowed.reason)
            state.status = "denied"
            return self._outcome(_error(call, allowed.reason))
        approvals = self._approvals()

        async def decide(facts: ToolCallFacts) -> ToolDecision:
            state.decision = decision = self._decide(facts)
            state.place = describe_place(facts, self._get_caller())
            if decision.action == "deny":
                state.status = "denied"
            elif decision.action == "ask":
                state.status = "unapproved"
            audit, place = self.audit, state.place
            audit.record_decision(allowed, facts.tool.name, decision, facts=facts, place=place)
            return decision

        async def begin(_tool: Tool) -> None:
            await self._record_start(approvals.pop_allowed(allowed.id))

        def on_fault(_exc: Exception) -> None:
            state.status = "fault"

        context = self._context(approvals)
        result = await execute_tool_call(
            self.tools, context, allowed, decide, begin=begin, on_fault=on_fault
        )
        await self._record_end(allowed, result)
        return self._outcome(result)

    async def _record_start(self, approval: ApprovalRecord | None) -> None:
        """Record that the tool starts, before it does: from now on its outcome may be unknown."""
        services, state = self.services, self.state
        now_ms = services.clock.now_ms()
        with services.audit.storing() as rows:
            async with services.store.transaction() as transaction:
                transaction.add_audit(*rows)
                if approval:
                    transaction.use_approval(approval.id, approval.digest, at_ms=now_ms)
                self.given.on_start(transaction)
        state.started_ms, state.status = now_ms, "done"

    async def _record_end(self, call: ToolCall, result: ToolResult) -> None:
        state, now_ms = self.state, self.services.clock.now_ms()
        if state.status == "done" and result.is_error:
            state.status = "failed"
        if state.started_ms is None:
            return
        duration_ms = now_ms - state.started_ms
        self.audit.record_execution(call, state.tool.name, result, duration_ms, state.place)
        await self.services.hooks.after_tool_call(self.where, call, result, duration_ms)

    def _outcome(self, result: ToolResult) -> DirectCallOutcome:
        state = self.state
        was_started = state.started_ms is not None
        return DirectCallOutcome(state.tool.name, state.status, result, state.decision, was_started)

    def _call(self) -> ToolCall:
        return ToolCall(f"call-{self.given.inbound.id}", self.state.tool.name, self.given.args)

    def _decide(self, facts: ToolCallFacts) -> ToolDecision:
        return decide_tool_call(
            facts, self._get_caller(), self.agent.rules.for_chat(self.chat.rules)
        )

    def _get_caller(self) -> CallerFacts:
        """Return who makes the call, with the settings for commands."""
        services, entry = self.services, self.session.record.data
        config, rules = services.get_config(), services.read_exec_rules()
        given = self.chat.caller, config, rules, entry, RunOptions(), services.find_traits
        return resolve_command_caller(*given)

    def _context(self, approvals: "_WithdrawnApprovals | None") -> ToolContext:
        services, agent, inbound = self.services, self.agent, self.given.inbound
        access = self.chat.file_access(agent.rules)
        context = ToolContext(
            self.given.session_key,
            agent.id,
            agent.workspace,
            here=self.given.chat or inbound.address,
            run_id=inbound.id,
            call_id=f"call-{inbound.id}",
            messenger=services.messenger,
            sessions=services.store,
            run_access=access,
            docs=agent.docs,
            scope=agent.file_scope,
            get_caller=self._get_caller,
            sandbox=services.open_sandbox(agent, self.given.session_key, access),
            inbound=inbound,
        )
        return replace(context, approvals=approvals) if approvals else context

    def _approvals(self) -> "_WithdrawnApprovals":
        given, services = self.given, self.services
        approvals = RunApprovals(
            services.get_approvals(),
            agent=self.agent.id,
            session=given.session_key,
            runs=(given.inbound.id,),
            inbound=given.inbound,
            place=None,
            resumed_calls=(),
            check_lease=lambda _transaction: None,
            wait_s=given.wait_s,
            is_owner=self.chat.caller.is_owner,
            expires_ms=round(given.wait_s * 1000),
        )
        return _WithdrawnApprovals(services, given, approvals)


@dataclass(frozen=True, slots=True)
class _WithdrawnApprovals:
    """Approvals of a call that is not resumed later: without an answer in time it is refused."""

    services: RunServices
    given: DirectCall
    approvals: RunApprovals

    def pop_allowed(self, call_id: str) -> ApprovalRecord | None:
        return self.approvals.pop_allowed(call_id)

    async def request(self, call_id: str, question: ApprovalQuestion) -> ApprovalAnswer:
        """Return the answer for a call; without one, withdraw the question."""
        answer: ApprovalAnswer | None = None
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._withdraw_when_gone(call_id))
            try:
                with suppress(RunSuspendedError):
                    answer = await self.approvals.request(call_id, question)
            finally:
                watching.cancel()
        if answer is None:
            await self._withdraw(call_id)
            text = NOT_ANSWERED.format(tool=question.tool, wait_s=self.given.wait_s)
            answer = ApprovalAnswer(None, text)
        return answer

    async def _withdraw_when_gone(self, call_id: str) -> None:
        if self.given.wait_gone is not None:
            await self.given.wait_gone()
            await self._withdraw(call_id)

    async def _withdraw(self, call_id: str) -> None:
        service = self.services.get_approvals()
        record = await service.find(self.given.inbound.id, call_id)
        if record is not None and record.state == "pending":
            await service.cancel(record)


def _error(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(text),), is_error=True)
