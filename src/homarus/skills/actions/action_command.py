"""Prepare the command of an action as `exec` prepares one: a plan, its evaluation, a question.

The settings for commands, the allowlist, sandboxes and approvals hold as for any command. The keys
of the skill are in the environment of this command alone, and no question or result shows them.
"""

import asyncio
import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from homarus.core.errors import SandboxError, ToolDeniedError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.sandbox_settings import resolve_exec_place
from homarus.policy.tool_call import ExecEvaluation
from homarus.skills.actions.command_line import make_argv, make_stdin
from homarus.skills.actions.definition import CommandAction
from homarus.skills.skill import Skill
from homarus.tools.exec.environment import build_environment
from homarus.tools.exec.executable import find_program
from homarus.tools.exec.judge import JudgedPlan, judge_plan
from homarus.tools.exec.plan import ExecPlan, make_plan
from homarus.tools.exec.result_text import format_result
from homarus.tools.exec.run import run_plan
from homarus.tools.exec.sandboxed_plan import make_sandboxed_plan
from homarus.tools.folder import DescriptorFolder, Folder
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import ToolContext, ToolOutput

_SANDBOXED: Final = "place: in the sandbox of the conversation (level {level}), not on this machine"


@dataclass(frozen=True, slots=True)
class PreparedCommand:
    """A command of an action: exactly what would run, and what is known about it."""

    plan: ExecPlan
    judged: JudgedPlan
    sandbox_level: str
    key_names: tuple[str, ...]

    @property
    def evaluation(self) -> ExecEvaluation:
        return self.judged.evaluation

    def make_question(self) -> ApprovalQuestion:
        """Return the question about the command, with the names of the keys that it gets."""
        question = self.judged.make_question()
        lines = [_SANDBOXED.format(level=self.sandbox_level)] if self.sandbox_level else []
        lines += [f"variable: {name}=(the skill's key)" for name in self.key_names]
        return replace(question, detail="\n".join([*lines, question.detail]))

    async def run(self, ctx: ToolContext) -> ToolOutput:
        """Run the command to its end or its timeout."""
        await self.judged.record_use()
        result = await run_plan(self.plan, show=ctx.progress)
        return format_result(result, self.plan.folder.path)


@dataclass(frozen=True, slots=True)
class _CommandLine:
    """What the command is given: arguments, input and keys."""

    argv: tuple[str, ...]
    stdin: str
    keys: Mapping[str, str]
    timeout_s: float

    @property
    def text(self) -> str:
        """The arguments as a shell would read them."""
        return shlex.join(self.argv)


async def prepare_command(
    context: ToolSourceContext,
    ctx: ToolContext,
    skill: Skill,
    action: CommandAction,
    *,
    args: Mapping[str, Json],
    keys: Mapping[str, str],
) -> PreparedCommand:
    """Make and evaluate the plan. Raises ToolError for arguments or a program that is missing."""
    argv, stdin = make_argv(action, args, skill.folder), make_stdin(action, args)
    line = _CommandLine(argv, stdin, keys, action.timeout_s)
    place = resolve_exec_place(context.config, ctx.caller, host=None, node=None, elevated=None)
    if place == "sandbox":
        if action.uses_folder:
            raise ToolError(
                f"this action of {skill.name} runs a file of the skill, which is not in the sandbox"
                " of this conversation",
                fix="continue without it",
            )
        plan, level = await _plan_in_sandbox(ctx, line)
    else:
        plan, level = await _plan_on_machine(context, ctx, line), ""
    try:
        judged = judge_plan(
            plan,
            state=context.state,
            agent_id=ctx.agent,
            safe_bins=context.get_tools_config("exec").exec.safe_bins,
            asks_always=ctx.caller.exec.ask == "always",
            sees_private=ctx.access.sees_private,
        )
    except BaseException:
        plan.close()
        raise
    return PreparedCommand(plan, judged, level, tuple(sorted(keys)))


async def _plan_on_machine(
    context: ToolSourceContext, ctx: ToolContext, line: _CommandLine
) -> ExecPlan:
    config = context.get_tools_config("exec").exec
    env = build_environment({}, os.environ, path_prepend=config.path_prepend)
    program = line.argv[0]
    if find_program(program, str(ctx.workspace), env["PATH"]) is None:
        raise ToolError(
            f"there is no program {program}", fix="homarus skills check says how to install it"
        )
    with ctx.machine_files.open_dir(".") as held:
        plan = await make_plan(
            line.text,
            folder=str(ctx.workspace / held.path),
            folder_fd=_descriptor(held.folder),
            workspace=ctx.workspace,
            env=env | dict(line.keys),
            requested_env={},
            timeout_s=line.timeout_s,
            stdin=line.stdin,
        )
    try:
        _check_plan(plan, line.argv)
    except BaseException:
        plan.close()
        raise
    return plan


def _check_plan(plan: ExecPlan, argv: tuple[str, ...]) -> None:
    """Raise ToolDeniedError unless the plan runs exactly the arguments, as one command."""
    if plan.chain is None:
        return  # the shell gets the quoted arguments, and a person is asked about them
    commands = list(plan.commands())
    if len(commands) != 1 or commands[0].words != argv:
        raise ToolDeniedError("the command of the action was read in another way than it is meant")


async def _plan_in_sandbox(ctx: ToolContext, line: _CommandLine) -> tuple[ExecPlan, str]:
    sandbox = ctx.sandbox
    if sandbox is None:
        raise SandboxError(
            "exec denied: this conversation runs its commands in a sandbox, which is not there",
            fix="call it again: sandbox.mode was changed during this call",
        )
    env = build_environment({}, {}) | dict(line.keys)
    del env["PATH"]  # programs are found in the folders of the sandbox
    workdir = await asyncio.to_thread(sandbox.resolve_workdir, None)
    launch, level = await sandbox.make_launch(line.text, workdir=workdir, env=env)
    try:
        with ctx.files.open_dir(".") as held:
            plan = make_sandboxed_plan(
                line.text,
                launch,
                folder=workdir,
                folder_fd=_descriptor(held.folder),
                workspace=sandbox.workspace,
                env=env,
                requested_env={},
                timeout_s=line.timeout_s,
                stdin=line.stdin,
            )
    except BaseException:
        launch.close()
        raise
    return plan, level


def _descriptor(folder: Folder) -> int:
    if not isinstance(folder, DescriptorFolder):
        raise ToolDeniedError("exec denied: it needs Linux or macOS")
    return folder.fd
