"""The `exec` tool: a command becomes a plan, which is decided on and then run exactly.

A command that takes longer than a call waits goes on in the background; the `process` tool reaches
it there.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from homarus.config.agent_settings import agent_entry
from homarus.config.schema import Config
from homarus.config.tools_schema import ExecConfig
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import main_key
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.exec_settings import ExecAsk, ExecHost, ExecSecurity
from homarus.policy.sandbox_settings import sandbox_mode
from homarus.policy.tool_call import LayerVerdict, ToolCallFacts
from homarus.tools.folder import DescriptorFolder
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import PreparedCall, Tool, ToolContext, ToolOutput, tool

if TYPE_CHECKING:  # imported by the first command
    from homarus.tools.exec.plan import ExecPlan
    from homarus.tools.exec.process_table import JobSettings, ProcessTable

MAX_TIMEOUT_S = 86_400.0
MAX_COMMAND_CHARS = 20_000
MIN_YIELD_MS, MAX_YIELD_MS = 10, 120_000
_OPEN_INPUT: Final = "input: open; the agent can type into the command while it runs"

# Which conversations' commands may run outside a sandbox: all, an agent's own, none.
UnsandboxedScope: TypeAlias = Literal["all", "main", "none"]
_SCOPES: Final[dict[str, UnsandboxedScope]] = {"off": "all", "non-main": "main", "all": "none"}


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool with the agent's settings."""
    return [exec_tool(context)]


def unsandboxed_scope(config: Config, agent_id: str) -> UnsandboxedScope:
    """Return which sessions of an agent may run commands outside a sandbox."""
    own = agent_entry(config, agent_id)
    hosts = (own.tools.exec.host if own.tools else None, config.tools.exec.host)
    if next((each for each in hosts if each), "gateway") != "gateway":
        return "none"  # commands belong in a sandbox or on a node: there is neither
    return _SCOPES[sandbox_mode(config, agent_id)]


@tool(
    group="runtime",
    name="exec",
    aliases=("bash", "shell", "code_run"),
    serial=True,
    timeout_s=None,
)
async def _exec(
    ctx: ToolContext,
    *,
    command: str,
    workdir: Annotated[str | None, Field(description="Folder in the workspace")] = None,
    env: Annotated[
        dict[str, str] | None, Field(description="Variables: ARG_…, LANG, LC_…, TZ")
    ] = None,
    yield_ms: Annotated[
        int | None, Field(validation_alias="yieldMs", description="Then go to the background")
    ] = None,
    background: Annotated[bool | None, Field(description="At once")] = None,
    timeout_s: Annotated[
        float | None,
        Field(validation_alias="timeout", gt=0, le=MAX_TIMEOUT_S, description="Seconds"),
    ] = None,
    pty: Annotated[bool | None, Field(description="Terminal")] = None,
    elevated: bool | None = None,
    host: ExecHost | None = None,
    security: ExecSecurity | None = None,
    ask: ExecAsk | None = None,
    node: str | None = None,
) -> ToolOutput:
    """Run a shell command in the workspace.

    Known simple commands, with | && || ;, run at once; any other needs a person's approval. What
    still runs after yieldMs goes on in the background: use process.
    """
    raise ToolError("exec is prepared before it is run")


def exec_tool(context: ToolSourceContext) -> Tool:
    """Return the tool for one agent."""

    async def prepare(ctx: ToolContext, **args: Any) -> PreparedCall:
        return await _prepare(made, context, ctx, ExecOptions(**args))

    made = replace(_exec, prepare=prepare)
    return made


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """What one call asks for."""

    command: str
    workdir: str | None = None
    env: dict[str, str] | None = None
    yield_ms: int | None = None
    background: bool | None = None
    timeout_s: float | None = None
    pty: bool | None = None
    elevated: bool | None = None
    host: ExecHost | None = None
    security: ExecSecurity | None = None
    ask: ExecAsk | None = None
    node: str | None = None


async def _prepare(
    made: Tool, context: ToolSourceContext, ctx: ToolContext, options: ExecOptions
) -> PreparedCall:
    """Make the plan, evaluate it and build the question. Raises ToolError."""
    from homarus.tools.exec.environment import build_environment
    from homarus.tools.exec.plan import make_plan

    _check_host(context, ctx, options)
    _check_command(options.command)
    config = context.get_tools_config("exec").exec
    requested, pty = options.env or {}, bool(options.pty)
    env = build_environment(requested, os.environ, path_prepend=config.path_prepend, pty=pty)
    with ctx.files.open_dir(options.workdir or ".") as held:
        if not isinstance(held.folder, DescriptorFolder):
            raise ToolDeniedError("exec denied: it needs Linux or macOS")
        plan = await make_plan(
            options.command,
            folder=str(ctx.workspace / held.path),
            folder_fd=held.folder.fd,
            workspace=ctx.workspace,
            env=env,
            requested_env=requested,
            timeout_s=options.timeout_s or float(config.timeout_sec),
            pty=pty,
            background=bool(options.background),
        )
    try:
        return _prepare_plan(made, context, ctx, options, plan)
    except BaseException:
        plan.close()
        raise


def _prepare_plan(
    made: Tool,
    context: ToolSourceContext,
    ctx: ToolContext,
    options: ExecOptions,
    plan: "ExecPlan",
) -> PreparedCall:
    from homarus.tools.exec.judge import judge_plan

    settings = ctx.caller.exec
    judged = judge_plan(
        plan,
        state=context.state,
        agent_id=ctx.agent,
        safe_bins=context.get_tools_config("exec").exec.safe_bins,
        asks_always=settings.ask == "always",
        sees_private=ctx.access.sees_private,
    )
    evaluation = judged.evaluation

    def ask() -> ApprovalQuestion:
        question = judged.make_question()
        wire = {**question.wire, "security": settings.security, "ask": settings.ask}
        detail = f"{_OPEN_INPUT}\n{question.detail}" if plan.pty or plan.background else None
        return replace(question, wire=wire, detail=detail or question.detail)

    facts = ToolCallFacts(
        made.declaration,
        effects=frozenset({"exec"}),
        exec=evaluation,
        own_verdict=_judge_options(options, is_satisfied=evaluation.is_satisfied),
    )

    async def run() -> ToolOutput:
        await judged.record_use()
        return await _run(context, ctx, options, plan, is_asked=not evaluation.is_satisfied)

    return PreparedCall(facts, ask, run, plan.close)


def _judge_options(options: ExecOptions, *, is_satisfied: bool) -> LayerVerdict | None:
    """Return what the call itself asks for; it can only be stricter than the settings."""
    if options.security == "deny":
        return LayerVerdict("tool", "deny", "exec denied: the call itself says security deny")
    if options.ask == "always":
        return LayerVerdict("tool", "ask", "the call itself asks for approval")
    if options.security == "allowlist" and not is_satisfied:
        return LayerVerdict("tool", "ask", "the call itself wants the allowlist only")
    return None


async def _run(
    context: ToolSourceContext,
    ctx: ToolContext,
    options: ExecOptions,
    plan: "ExecPlan",
    *,
    is_asked: bool,
) -> ToolOutput:
    """Run the plan, to its end or into the background."""
    from homarus.tools.exec.result_text import format_result, format_running
    from homarus.tools.exec.run import run_plan

    with ctx.files.open_dir(options.workdir or ".") as now:
        if not os.path.samestat(now.folder.stat_self(), os.fstat(plan.folder.fd)):
            raise ToolDeniedError(
                f"exec denied: {plan.folder.path} is not the folder that was approved"
            )
    if context.get_processes is None or not context.has_tool("process"):
        result = await run_plan(plan, show=ctx.progress)
        return format_result(result, plan.folder.path)
    table: ProcessTable = context.get_processes()
    config = context.get_tools_config("exec").exec
    job = table.start(
        plan,
        (ctx.agent, ctx.session_key),
        _job_settings(config),
        call_id=ctx.call_id,
        show=ctx.progress,
    )
    # The owner who types a command with /bash, which is elevated, is not asked about input.
    job.is_input_approved = is_asked and not options.elevated
    yield_ms = 0
    if not options.background:
        asked = config.background_ms if options.yield_ms is None else options.yield_ms
        yield_ms = min(max(asked, MIN_YIELD_MS), MAX_YIELD_MS)
    ended = await table.wait(job, yield_ms / 1000)
    return format_running(job) if ended is None else format_result(ended, plan.folder.path)


def _job_settings(config: ExecConfig) -> "JobSettings":
    from homarus.tools.exec.process_table import JobSettings

    return JobSettings(
        config.cleanup_ms, config.notify_on_exit, config.notify_on_exit_empty_success
    )


def _check_host(context: ToolSourceContext, ctx: ToolContext, options: ExecOptions) -> None:
    """There is no sandbox and no node: what belongs there does not run, also with an approval."""
    if options.host == "node" or options.node:
        raise ToolDeniedError(
            "exec denied: this version has no nodes", fix="call it without host and node"
        )
    host = ctx.caller.exec.host  # of the session, which `/exec` sets
    scope = unsandboxed_scope(context.config, ctx.agent) if host == "gateway" else "none"
    is_main = ctx.session_key == main_key(ctx.agent)
    if options.host == "sandbox" or scope == "none" or (scope == "main" and not is_main):
        wish = "the call" if options.host == "sandbox" else "the config or the session"
        raise ToolDeniedError(
            f"exec denied: {wish} wants commands of this conversation in a sandbox,"
            " and this version has none",
            fix="go on without commands; only the owner can change sandbox.mode",
        )


def _check_command(command: str) -> None:
    if not command.strip():
        raise ToolError("the command is empty")
    if len(command) > MAX_COMMAND_CHARS:
        raise ToolError(
            f"the command has {len(command)} characters: too many to read before an approval",
            fix="write a script to a file and run that",
        )
    if "\0" in command or any("\ud800" <= ch <= "\udfff" for ch in command):
        raise ToolError("the command holds a character that cannot be passed to a program")
