"""The `exec` tool: a shell command, run after a person said yes to exactly that text.

Where the person at the terminal said "always", the same command in the same folder is not asked
about again, at the terminal.
"""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import Field

from homarus.config.agent_settings import agent_entry
from homarus.config.schema import Config
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.message import Text
from homarus.core.session_keys import main_key
from homarus.policy.restrictions import exec_asks_always, exec_refusal, sandbox_mode
from homarus.tools.exec.approval import approval_request
from homarus.tools.exec.environment import build_environment
from homarus.tools.exec.exec_rules import read_exec_rules
from homarus.tools.exec.run import CommandResult, run_command
from homarus.tools.folder import DescriptorFolder
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput, tool

if TYPE_CHECKING:  # imported by the first command
    from homarus.tools.exec.allowlist import CommandAllowlist, CommandLine

TIMEOUT_S = 1800.0
MAX_TIMEOUT_S = 86_400.0
MAX_COMMAND_CHARS = 20_000
_TERMINAL: Final = "cli"  # the channel of a chat in this process


# Which conversations' commands may run outside a sandbox: all, an agent's own, none.
UnsandboxedScope: TypeAlias = Literal["all", "main", "none"]
_SCOPES: Final[dict[str, UnsandboxedScope]] = {"off": "all", "non-main": "main", "all": "none"}


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool with the agent's default timeout and its sandbox rule."""
    config, agent_id, state = context.config, context.agent_id, context.state
    timeout_s = context.get_tools_config("exec").exec.timeout_sec

    def find_refusal() -> str:
        rules = read_exec_rules(state) if state else [{}]
        return next(filter(None, (exec_refusal(config, agent_id, each) for each in rules)), "")

    def open_allowlist() -> "CommandAllowlist | None":
        from homarus.tools.exec.allowlist import CommandAllowlist

        if state is None:
            return None
        asks_always = partial(_asks_always, config, agent_id, state)
        return CommandAllowlist(state, agent_id, asks_always)

    scope = unsandboxed_scope(config, agent_id)
    return [exec_tool(float(timeout_s), scope, find_refusal, open_allowlist)]


def _no_allowlist() -> "CommandAllowlist | None":
    return None


def _asks_always(config: Config, agent_id: str, state: Path) -> bool:
    return any(exec_asks_always(config, agent_id, each) for each in read_exec_rules(state))


def unsandboxed_scope(config: Config, agent_id: str) -> UnsandboxedScope:
    """Return which sessions of an agent may run commands outside a sandbox."""
    own = agent_entry(config, agent_id)
    hosts = (own.tools.exec.host if own.tools else None, config.tools.exec.host)
    if next((each for each in hosts if each), "gateway") != "gateway":
        return "none"  # commands belong in a sandbox or on a node: there is neither
    return _SCOPES[sandbox_mode(config, agent_id)]


@lru_cache(32)
def exec_tool(
    default_timeout_s: float = TIMEOUT_S,
    unboxed: UnsandboxedScope = "all",
    find_refusal: Callable[[], str] = str,
    open_allowlist: "Callable[[], CommandAllowlist | None]" = _no_allowlist,
) -> Tool:
    """The tool, with the time a command gets when the model names none.

    `find_refusal` returns why the settings forbid every command, "" if they do not.
    `open_allowlist` returns the commands that a person allowed for good.
    """

    @tool(
        group="runtime",
        name="exec",
        aliases=("bash", "code_run"),
        serial=True,
        asks=True,
        timeout_s=None,
    )
    async def run(
        ctx: ToolContext,
        command: Annotated[str, Field(description="Shell command, run with sh -c")],
        workdir: Annotated[str | None, Field(description="Folder in the workspace")] = None,
        env: Annotated[
            dict[str, str] | None, Field(description="Variables: ARG_…, LANG, LC_…, TZ")
        ] = None,
        timeout_s: Annotated[
            float | None,
            Field(
                validation_alias="timeout",
                gt=0,
                le=MAX_TIMEOUT_S,
                description="Seconds it may take",
            ),
        ] = None,
    ) -> ToolOutput:
        """Run a shell command in the workspace. A person is asked first.

        It has no terminal and no input. Processes it leaves in the background end with it.
        """
        _check_unboxed(ctx, unboxed)
        if refusal := find_refusal():
            raise ToolDeniedError(
                f"exec denied: {refusal}",
                fix="go on without commands; only the owner can change that",
            )
        limit_s = timeout_s or default_timeout_s
        given = command, workdir or ".", env or {}
        return await _exec(ctx, *given, timeout_s=limit_s, allowlist=open_allowlist())

    return run


async def _exec(
    ctx: ToolContext,
    command: str,
    workdir: str,
    env: dict[str, str],
    *,
    timeout_s: float,
    allowlist: "CommandAllowlist | None",
) -> ToolOutput:
    from homarus.tools.exec.allowlist import CommandLine

    _check(command)
    environment = build_environment(env, os.environ)
    beneath = ctx.files
    with beneath.open_dir(workdir) as held:
        if not isinstance(held.folder, DescriptorFolder):
            raise ToolDeniedError("exec denied: it needs Linux or macOS")
        folder = str(ctx.workspace / held.path)
        line = CommandLine(command, folder, environment, env)
        if not await _is_approved(ctx, line, timeout_s, allowlist):
            raise ToolDeniedError("exec denied: nobody approved this command")
        with beneath.open_dir(workdir) as now:
            if not os.path.samestat(now.folder.stat_self(), held.folder.stat_self()):
                raise ToolDeniedError(f"exec denied: {folder} is not the folder that was approved")
        outcome = await run_command(
            command,
            folder_fd=held.folder.fd,
            env=environment,
            timeout_s=timeout_s,
            show=ctx.progress,
        )
    return _result(outcome, folder, timeout_s)


async def _is_approved(
    ctx: ToolContext, line: "CommandLine", timeout_s: float, allowlist: "CommandAllowlist | None"
) -> bool:
    """Ask the person, unless they allowed exactly this command for good, at the terminal."""
    from homarus.tools.exec.allowlist import ExactCommand, exact_command

    always, save = "", None
    if allowlist and ctx.here and ctx.here.channel == _TERMINAL:
        exact = allowlist.refusal() or exact_command(line, ctx.workspace)
        if isinstance(exact, ExactCommand):
            if allowlist.contains(exact):
                return True
            always = "exactly this command, in this folder"
            save = partial(allowlist.add, line, exact)
        else:
            always = f"not offered, because {exact}"
    question = approval_request(
        line.command,
        folder=line.folder,
        env=line.requested,
        timeout_s=timeout_s,
        always=always,
        allow_always=save,
    )
    return await ctx.ask(question)


def _check_unboxed(ctx: ToolContext, unboxed: UnsandboxedScope) -> None:
    """There is no sandbox yet: what belongs in one does not run, whatever a person would say."""
    is_main = ctx.session_key == main_key(ctx.agent)
    if unboxed == "none" or (unboxed == "main" and not is_main):
        raise ToolDeniedError(
            "exec denied: the config wants commands of this conversation in a sandbox,"
            " and this version has none",
            fix="go on without commands; only the owner can change sandbox.mode",
        )


def _check(command: str) -> None:
    if not command.strip():
        raise ToolError("the command is empty")
    if len(command) > MAX_COMMAND_CHARS:
        raise ToolError(
            f"the command has {len(command)} characters: nobody can read it before saying yes",
            fix="write a script to a file and run that",
        )
    if "\0" in command or any("\ud800" <= ch <= "\udfff" for ch in command):
        raise ToolError("the command holds a character that cannot be passed to a program")


def _result(outcome: CommandResult, folder: str, timeout_s: float) -> ToolOutput:
    ok = outcome.exit_code == 0 and not outcome.timed_out
    output = outcome.output.rstrip("\n")
    note = ""
    if outcome.timed_out:
        note = f"[The command was ended: it was not done after {timeout_s:g} s.]"
    elif outcome.exit_code is None:
        note = "[The command ended its own keeper; how it ended is not known.]"
    elif not ok:
        note = f"[The command ended with exit code {outcome.exit_code}.]"
    return ToolOutput(
        (Text("\n\n".join(part for part in (output, note) if part) or "(no output)"),),
        {
            "status": "completed" if ok else "failed",
            "exitCode": outcome.exit_code,
            "durationMs": outcome.duration_ms,
            "aggregated": output,
            "cwd": folder,
        },
        is_error=not ok,
    )
