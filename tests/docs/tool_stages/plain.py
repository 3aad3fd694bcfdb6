"""The program with its own tools and an empty config."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homarus.app import App
from homarus.channels.base import Channel
from homarus.process import open_app
from homarus.testing.approvals import AskingApprovals, allow_approval
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext


@asynccontextmanager
async def open_stage(
    workspace: Path, **config: Any
) -> AsyncIterator[tuple[ToolRegistry, ToolContext, Mapping[str, str]]]:
    """Open the program, and yield the tools of its agent and a context to call them with."""
    async with open_program(workspace, **config) as app:
        yield app.tools("main"), make_context(workspace), {}


@asynccontextmanager
async def open_program(
    workspace: Path, *, channels: Sequence[Channel] = (), **config: Any
) -> AsyncIterator[App]:
    """Open the program with an agent whose workspace is this folder."""
    state = workspace.parent / "state"
    state.mkdir()
    agents = {"defaults": {"workspace": str(workspace), "skipBootstrap": True}}
    (state / "openclaw.json").write_text(json.dumps({"agents": agents} | config))
    env = {"HOME": str(workspace.parent), "OPENCLAW_STATE_DIR": str(state)}
    async with open_app(env, channels=channels) as app:
        yield app


def make_context(workspace: Path, **given: Any) -> ToolContext:
    """Return the context of a call in the owner's own conversation, whose approver says yes."""
    approvals = AskingApprovals(allow_approval)
    return ToolContext("agent:main:main", "main", workspace, approvals=approvals, **given)
