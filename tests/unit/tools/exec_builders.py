"""Build the plans that tests run."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homarus.tools.exec.environment import build_environment
from homarus.tools.exec.plan import ExecPlan, make_plan
from homarus.tools.exec.run import CommandResult, run_plan


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
