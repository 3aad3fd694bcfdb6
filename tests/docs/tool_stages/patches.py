"""The program with `apply_patch`, which the config has to enable."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext
from tests.docs.tool_stages import plain


@asynccontextmanager
async def open_stage(
    workspace: Path,
) -> AsyncIterator[tuple[ToolRegistry, ToolContext, Mapping[str, str]]]:
    """Open the program with the tool enabled."""
    tools = {"exec": {"applyPatch": {"enabled": True}}}
    async with plain.open_stage(workspace, tools=tools) as stage:
        yield stage
