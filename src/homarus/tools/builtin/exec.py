"""The `exec` tool: a command becomes a plan, which is decided on and then run exactly.

A command that takes longer than a call waits goes on in the background; the `process` tool reaches
it there.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from homarus.config.tools_schema import ExecConfig
from homarus.core.errors import SandboxError, ToolDeniedError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.exec_settings import ExecAsk, ExecHost, ExecSecurity
from homarus.policy.sandbox_settings import MIN_LEVEL, resolve_exec_place
from homarus.policy.tool_call import Effect, LayerVerdict, ToolCallFacts
from homarus.tools.folder import DescriptorFolder, Folder
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import PreparedCall, Tool, ToolContext, ToolOutput, tool

if TYPE_CHECKING:  # imported by the first command
    from homarus.tools.exec.plan import ExecPlan
    from homarus.tools.exec.process_table import JobSettings, ProcessTable

MAX_TIMEOUT_S = 86_400.0
MAX_COMMAND_CHARS = 20_000
MIN_YIELD_MS, MAX_YIELD_MS = 10, 120_000
_OPEN_INPUT: Final = "input: open; the agent can type into the command while it runs"
_OUTSIDE: Final = "place: on this machine, outside the sandbox of the conversation (elevated)"
_SKILL_VARIABLES: Final = "variables of skills that this run uses: "
_SANDBOXED: Final = "place: in the sandbox of the conversation (level {level}), not on this machine"


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool with the agent's settings."""
    return [exec_tool(context)]


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
    place = resolve_exec_place(
        context.config,
        ctx.caller,
        host=options.host,
        node=options.node,
        elevated=options.elevated,
    )
    _check_command(options.command)
    make = _make_sandboxed_plan if place == "sandbox" else _make_machine_plan
    plan, level = await make(context, ctx, options)
    try:
        return _prepare_plan(made, context, ctx, options, plan, sandbox_level=level)
    except BaseException:
        plan.close()
        raise


async def _make_machine_plan(
    context: ToolSourceContext, ctx: ToolContext, options: ExecOptions
) -> "tuple[ExecPlan, str]":
    """Return the plan of a command on this machine, and no level of a sandbox."""
    from homarus.tools.exec.environment import build_environment
    from homarus.tools.exec.plan import make_plan

    config = context.get_tools_config("exec").exec
    requested, pty = options.env or {}, bool(options.pty)
    env = build_environment(requested, os.environ, path_prepend=config.path_prepend, pty=pty)
    env |= _skill_environment(ctx)
    with ctx.machine_files.open_dir(options.workdir or ".") as held:
        plan = await make_plan(
            options.command,
            folder=str(ctx.workspace / held.path),
            folder_fd=_descriptor(held.folder),
            workspace=ctx.workspace,
            env=env,
            requested_env=requested,
            timeout_s=options.timeout_s or float(config.timeout_sec),
            pty=pty,
            background=bool(options.background),
        )
    return plan, ""


async def _make_sandboxed_plan(
    context: ToolSourceContext, ctx: ToolContext, options: ExecOptions
) -> "tuple[ExecPlan, str]":
    """Return the plan of a command in the session's sandbox, and the level of that."""
    from homarus.tools.exec.environment import build_environment
    from homarus.tools.exec.sandboxed_plan import make_sandboxed_plan

    sandbox = ctx.sandbox
    if sandbox is None:
        raise SandboxError(
            "exec denied: this conversation runs its commands in a sandbox, which is not there",
            fix="call it again: sandbox.mode was changed during this call",
        )
    config = context.get_tools_config("exec").exec
    requested, pty = options.env or {}, bool(options.pty)
    env = build_environment(requested, {}, pty=pty)
    del env["PATH"]  # programs are found in the folders of the sandbox
    env |= _skill_environment(ctx)
    # In a thread: it may make the sandbox's folders, and write their record to the disk.
    workdir = await asyncio.to_thread(sandbox.resolve_workdir, options.workdir)
    launch, level = await sandbox.make_launch(options.command, workdir=workdir, env=env, pty=pty)
    try:
        with ctx.files.open_dir(".") as held:
            plan = make_sandboxed_plan(
                options.command,
                launch,
                folder=workdir,
                folder_fd=_descriptor(held.folder),
                workspace=sandbox.workspace,
                env=env,
                requested_env=requested,
                timeout_s=options.timeout_s or float(config.timeout_sec),
                pty=pty,
                background=bool(options.background),
            )
    except BaseException:
        launch.close()
        raise
    return plan, level


def _skill_environment(ctx: ToolContext) -> Mapping[str, str]:
    """Return the variables of the skills that the run uses."""
    return ctx.skills.environment() if ctx.skills else {}


def _descriptor(folder: Folder) -> int:
    if not isinstance(folder, DescriptorFolder):
        raise ToolDeniedError("exec denied: it needs Linux or macOS")
    return folder.fd


def _prepare_plan(
    made: Tool,
    context: ToolSourceContext,
    ctx: ToolContext,
    options: ExecOptions,
    plan: "ExecPlan",
    *,
    sandbox_level: str,
) -> PreparedCall:
    """Evaluate a plan; `sandbox_level` is "" for one that runs on this machine."""
    from homarus.tools.exec.judge import judge_plan

    settings = ctx.caller.exec
    judged = judge_plan(
        plan,
        state=context.state,
        agent_id=ctx.agent,
        safe_bins=context.get_tools_config("exec").exec.safe_bins,
        skill_bins=ctx.skills.programs() if settings.auto_allow_skills and ctx.skills else (),
        asks_always=settings.ask == "always",
        sees_private=ctx.access.sees_private,
    )
    evaluation = judged.evaluation

    def ask() -> ApprovalQuestion:
        question = judged.make_question()
        wire = {**question.wire, "security": settings.security, "ask": settings.ask}
        lines = [_SANDBOXED.format(level=sandbox_level)] if sandbox_level else []
        lines += [_OUTSIDE] if ctx.caller.is_sandboxed and not sandbox_level else []
        lines += [_OPEN_INPUT] if plan.pty or plan.background else []
        if names := ", ".join(sorted(_skill_environment(ctx))):
            lines.append(f"{_SKILL_VARIABLES}{names}")
        return replace(question, wire=wire, detail="\n".join([*lines, question.detail]))

    effects: set[Effect] = {"exec"}
    if sandbox_level and ctx.sandbox and ctx.sandbox.access == "rw":
        effects.add("identity")  # the agent's prompt files and skills are among its files
    facts = ToolCallFacts(
        made.declaration,
        effects=frozenset(effects),
        exec=evaluation,
        own_verdict=_judge_options(
            options, is_satisfied=evaluation.is_satisfied or sandbox_level >= MIN_LEVEL
        ),
        sandbox_level=sandbox_level,
    )

    async def run() -> ToolOutput:
        await judged.record_use()
        if not plan.launch:
            _check_folder(ctx, options, plan)
        is_asked = not evaluation.is_satisfied
        return await _run(
            context, ctx, options, plan, sandbox_level=sandbox_level, is_asked=is_asked
        )

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
    sandbox_level: str,
    is_asked: bool,
) -> ToolOutput:
    """Run the plan, to its end or into the background."""
    from homarus.tools.exec.result_text import format_result, format_running
    from homarus.tools.exec.run import run_plan

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
    job.sandbox_level = sandbox_level
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


def _check_folder(ctx: ToolContext, options: ExecOptions, plan: "ExecPlan") -> None:
    """Raise ToolDeniedError when the path of the folder leads to another one by now."""
    with ctx.machine_files.open_dir(options.workdir or ".") as now:
        if not os.path.samestat(now.folder.stat_self(), os.fstat(plan.folder.fd)):
            raise ToolDeniedError(
                f"exec denied: {plan.folder.path} is not the folder that was approved"
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
