"""The `sessions_spawn` tool: start a sub-agent, which reports when it has ended."""

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from homarus.core.errors import ToolError
from homarus.core.message import Text
from homarus.tools.sources import ToolSourceContext
from homarus.tools.subagent_port import SpawnRequest, SubagentSpawner
from homarus.tools.tool import Tool, ToolContext, ToolOutput, tool


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool for an agent that has sessions."""
    return [_spawn_tool(context.get_subagents)] if context.get_subagents else []


def _spawn_tool(get_subagents: Callable[[], SubagentSpawner]) -> Tool:
    @tool(group="sessions", idempotent=True)
    async def sessions_spawn(  # noqa: PLR0917 - OpenClaw's parameters
        ctx: ToolContext,
        task: str,
        label: str | None = None,
        agent_id: Annotated[str | None, Field(validation_alias="agentId")] = None,
        model: str | None = None,
        thinking: str | None = None,
        run_timeout_seconds: Annotated[
            float | None,
            Field(validation_alias=AliasChoices("runTimeoutSeconds", "timeoutSeconds"), ge=0),
        ] = None,
        cleanup: Literal["delete", "keep"] = "keep",
        sandbox: Literal["inherit", "require"] = "inherit",
    ) -> ToolOutput:
        """Start a sub-agent on a task, in a session of its own; returns at once.

        Its result comes to you later as a message: do not wait or poll.
        """
        if not task.strip():
            raise ToolError("the task is empty", fix="say what the sub-agent should do")
        request = SpawnRequest(
            task.strip(),
            (label or "").strip(),
            (agent_id or "").strip(),
            (model or "").strip(),
            (thinking or "").strip(),
            run_timeout_seconds or 0.0,
            cleanup,
            sandbox,
        )
        result = dict(await get_subagents().spawn(ctx, request))
        return ToolOutput((Text(json.dumps(result, ensure_ascii=False, indent=2)),), result)

    return sessions_spawn
