"""The program with one chat service, a fake that accepts every message."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from homarus.core.message import Address
from homarus.testing.fakes import ListChannel
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext
from tests.docs.tool_stages.plain import make_context, open_program


@asynccontextmanager
async def open_stage(
    workspace: Path,
) -> AsyncIterator[tuple[ToolRegistry, ToolContext, Mapping[str, str]]]:
    """Open the program with a running account, in the chat of a person."""
    channel = ListChannel()
    async with open_program(workspace, channels=[channel]) as app:
        await app.recover()
        here = Address(channel.name, "owner", channel.account)
        context = make_context(workspace, here=here, messenger=app.messenger)
        yield app.tools("main"), context, {}
