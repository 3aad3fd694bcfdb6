"""Build the plans and tools that tests run."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homarus.config.schema import Config
from homarus.core.errors import ToolDeniedError
from homarus.tools.builtin.exec import exec_tool
from homarus.tools.exec.environment import build_environment
from homarus.tools.exec.plan import ExecPlan, make_plan
from homarus.tools.exec.process_table import ProcessTable
from homarus.tools.exec.run import CommandResult, run_plan
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput


@asynccontextmanager
async def open_plan(folder: Path, command: str, **options: Any) -> AsyncIterator[ExecPlan]:
    """Yield the plan of a command in a folder, which is also the workspace."""
    folder_fd = os.open(folder, os.O_RDONLY)
    env = options.pop("env", None) or build_environment({}, os.environ)
    try:
        plan = await make_plan(
            command,
            folder=str(folder),
            folder_fd=folder_fd,
            workspace=folder,
            env=env,
            requested_env={},
            timeout_s=options.pop("timeout_s", 60.0),
            **options,
        )
    finally:
        os.close(folder_fd)
    try:
        yield plan
    finally:
        plan.close()


async def run_text(folder: Path, command: str, **options: Any) -> CommandResult:
    """Run a command by its plan, and return how it ended."""
    async with open_plan(folder, command, **options) as plan:
        return await run_plan(plan)


def make_source_context(
    settings: Mapping[str, Any] | None = None,
    get_processes: Callable[[], ProcessTable] | None = None,
) -> ToolSourceContext:
    """Return what tools of the agent `main` are made from."""
    config = Config.model_validate(settings or {})
    return ToolSourceContext("main", config, lambda _key: config.tools, get_processes=get_processes)


def make_exec_tool(
    settings: Mapping[str, Any] | None = None,
    get_processes: Callable[[], ProcessTable] | None = None,
) -> Tool:
    """Return the exec tool of an agent with a config."""
    return exec_tool(make_source_context(settings, get_processes))


async def run_prepared(tool: Tool, ctx: ToolContext, args: Mapping[str, Any]) -> ToolOutput:
    """Prepare a call, ask as if the policy wanted it, and run it. Raises ToolError."""
    assert tool.prepare
    prepared = await tool.prepare(ctx, **tool.parse(args))
    try:
        answer = await ctx.approvals.request("1", prepared.question)
        if not answer.is_allowed:
            raise ToolDeniedError(f"{tool.name} denied")
        result = await prepared.run()
    finally:
        prepared.close()
    assert isinstance(result, ToolOutput)
    return result
