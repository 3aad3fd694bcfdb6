"""The command `/bash`, and `! COMMAND`, `!poll`, `!stop`: a command that the owner typed.

It is planned and decided on as a call of the `exec` tool. Where that asks for approval, the typed
text is the approval of exactly that text; what is denied stays denied. One command runs at a time
in a conversation; one that takes longer than `commands.bashForegroundMs` goes on in the background.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from homarus.agent.commands.context import AgentCommandContext
from homarus.config.redaction import mask_known_secrets
from homarus.core.errors import UserError
from homarus.core.message import Json, RunOptions, ToolCall, ToolResult
from homarus.core.text import clip_middle, one_line
from homarus.plugins.commands import CommandReply, command
from homarus.plugins.values import Refusal

if TYPE_CHECKING:
    from homarus.policy.approvals import ApprovalAnswer, ApprovalQuestion
    from homarus.policy.tool_call import CallerFacts, ToolCallFacts, ToolDecision
    from homarus.tools.exec.process_table import CommandJob
    from homarus.tools.tool import Tool

_CALL: Final = "bash-"  # how the ids of these calls start
_MAX_CHARS: Final = 8_000
_USAGE: Final = "/bash COMMAND or ! COMMAND runs one, !poll shows its output, !stop ends it"

_EXPLAIN: Final = "homarus policy explain exec says which setting decides"


class TypedApproval:
    """Approves what the owner has typed: the question is about exactly that text."""

    def __init__(self, by: str, record: Callable[[Mapping[str, Json]], None]) -> None:
        self._by, self._record = by, record

    async def request(self, call_id: str, question: "ApprovalQuestion") -> "ApprovalAnswer":
        """Return the approval, and record it."""
        from homarus.policy.approvals import ApprovalAnswer

        given = {"call": call_id, "digest": question.digest, "reason": question.reason}
        self._record({**given, "event": "typed", "decision": "allow-once", "by": self._by})
        return ApprovalAnswer("allow-once", "the owner typed the command", self._by)


@command("bash", runs_once=True)
async def bash(context: AgentCommandContext) -> CommandReply:
    """`/bash COMMAND`, `/bash poll [ID]`, `/bash stop [ID]`."""
    if not context.config.commands.bash:
        fix = "on this machine: homarus config set commands.bash true"
        raise UserError("/bash is switched off", fix=fix)
    if refusal := context.elevated_refusal:
        raise UserError(
            f"/bash is not for you here: {refusal}",
            fix="the owner of this machine can change it: homarus config set",
        )
    words = context.args.split()
    if not words or words == ["help"]:
        return CommandReply(_USAGE)
    if words[0].lower() in {"poll", "stop"} and len(words) <= 2:
        job = _find_job(context, words[1:])
        table = context.services.get_processes()
        if words[0].lower() == "stop":
            await table.end(job)
        output = await table.poll(job)
        return CommandReply(_format_job(job, output))
    if running := next((job for job in _jobs(context) if job.result is None), None):
        fix = "!poll shows its output, !stop ends it"
        raise UserError(f"a command is still running ({running.id})", fix=fix)
    result = await _execute(context, context.args.strip())
    return CommandReply(_format_result(context.args.strip(), result))


async def _execute(context: AgentCommandContext, text: str) -> ToolResult:
    """Run the text as a call of the `exec` tool."""
    from homarus.agent.call_audit import CallAudit, describe_place
    from homarus.agent.caller import resolve_command_caller
    from homarus.agent.prompt.chat_context import session_chat_context
    from homarus.policy.decision import decide_tool_call
    from homarus.store.audit import AuditEntry
    from homarus.tools.execute import execute_tool_call
    from homarus.tools.tool import ToolContext

    services, inbound, agent = context.services, context.inbound, context.agent
    tools = services.get_tools(agent.id)
    if "exec" not in tools:
        raise UserError("the tools of this agent do not include exec", fix=_EXPLAIN)
    session, config = await context.session(), context.config
    chat = session_chat_context(config, session, [inbound], find_traits=services.find_traits)

    def get_caller() -> "CallerFacts":
        rules, entry = services.read_exec_rules(), session.record.data
        given = chat.caller, config, rules, entry, RunOptions(), services.find_traits
        return resolve_command_caller(*given)

    audit = CallAudit(services.audit, context.where, services.clock.now_ms)
    started, place = list[int](), ""

    async def decide(facts: "ToolCallFacts") -> "ToolDecision":
        nonlocal place
        caller = get_caller()
        decision = decide_tool_call(facts, caller, agent.rules.for_chat(chat.rules))
        place = describe_place(facts, caller)
        audit.record_decision(call, facts.tool.name, decision, facts=facts, place=place)
        return decision

    async def begin(_tool: "Tool") -> None:
        started.append(services.clock.now_ms())
        await services.audit.write()  # what runs is on record before it does

    def record_approval(data: Mapping[str, Json]) -> None:
        now_ms, where = services.clock.now_ms(), context.where
        entry = AuditEntry(now_ms, "approval", where.agent, where.session_key, "exec", data)
        services.audit.record(entry)

    wait_ms = config.commands.bash_foreground_ms
    args: dict[str, Json] = {"command": text, "elevated": True}
    args |= {"yieldMs": wait_ms} if wait_ms else {"background": True}
    call = ToolCall(f"{_CALL}{inbound.id}", "exec", args)
    allowed = await services.hooks.before_tool_call(context.where, call)
    if isinstance(allowed, Refusal):
        audit.record_refusal(call, "hook", allowed.reason)
        raise UserError(allowed.reason)
    if allowed.args != args:
        raise UserError("a plugin changed the command: it is not the one that was typed")
    access = chat.file_access(agent.rules)
    tool_context = ToolContext(
        context.key,
        agent.id,
        agent.workspace,
        here=inbound.address,
        message_id=inbound.id,
        run_id=inbound.id,
        call_id=call.id,
        approvals=TypedApproval(f"{inbound.address.channel}:{inbound.sender}", record_approval),
        run_access=access,
        get_caller=get_caller,
        sandbox=services.open_sandbox(agent, context.key, access),
    )
    result = await execute_tool_call(
        tools, tool_context, call, decide, begin=begin, max_chars=_MAX_CHARS
    )
    duration_ms = services.clock.now_ms() - (started or [services.clock.now_ms()])[0]
    if started:
        audit.record_execution(call, "exec", result, duration_ms, place)
    await services.audit.write()
    await services.hooks.after_tool_call(context.where, call, result, duration_ms)
    return result


def _jobs(context: AgentCommandContext) -> "Sequence[CommandJob]":
    """Return the commands of this conversation that the owner typed, the newest first."""
    jobs = context.services.get_processes().jobs((context.agent.id, context.key))
    return [job for job in jobs if job.call_id.startswith(_CALL)]


def _find_job(context: AgentCommandContext, words: Sequence[str]) -> "CommandJob":
    jobs = [job for job in _jobs(context) if not words or job.id == words[0]]
    if not jobs:
        raise UserError("there is no such command" if words else "no command runs", fix=_USAGE)
    return jobs[0]


def _format_job(job: "CommandJob", output: str) -> str:
    if (result := job.result) is None:
        ending = f"It still runs ({job.id}): !poll shows more, !stop ends it."
    elif result.timed_out or result.exit_code is None:
        ending = "It was ended."
    else:
        ending = f"Exit code {result.exit_code}."
    return _format(job.command, output, ending)


def _format_result(text: str, result: ToolResult) -> str:
    details = result.details or {}
    if details.get("status") == "running":
        ending = f"It still runs ({details.get('sessionId')}): !poll shows more, !stop ends it."
        return _format(text, str(details.get("tail") or ""), ending)
    if "aggregated" not in details:  # it was not run
        raise UserError(result.text)
    ending = result.text if details.get("exitCode") is None else f"Exit code {details['exitCode']}."
    return _format(text, str(details["aggregated"]), ending)


def _format(text: str, output: str, ending: str) -> str:
    shown = clip_middle(mask_known_secrets(output).strip("\n"), _MAX_CHARS).replace("```", "'''")
    block = f"\n```\n{shown}\n```" if shown.strip() else ""
    return f"$ {one_line(text, 200)}{block}\n{ending}"
