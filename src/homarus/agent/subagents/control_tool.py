"""The `subagents` tool: a session lists, steers and stops the sub-agents that it started."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from homarus.core.errors import ToolError, UserError
from homarus.core.message import Json, Text
from homarus.tools.tool import Tool, ToolContext, ToolOutput, tool

if TYPE_CHECKING:  # imported by the first call
    from homarus.agent.subagents.control import SubagentControl
    from homarus.agent.subagents.subagent_service import SubagentService

_MAX_RECENT_MINUTES: Final = 1440


def make_subagents_tool(get_subagents: "Callable[[], SubagentService]") -> Tool:
    """Return the tool."""

    @tool(group="sessions", serial=True)
    async def subagents(
        ctx: ToolContext,
        action: Literal["list", "kill", "steer"] = "list",
        target: str | None = None,
        message: str | None = None,
        recent_minutes: Annotated[int, Field(validation_alias="recentMinutes")] = 30,
    ) -> ToolOutput:
        """Your sub-agents. Target: number, label or run id; kill: or all."""
        control = get_subagents().control
        try:
            if action == "list":
                return await _list(ctx, control, recent_minutes)
            if not (target or "").strip():
                raise ToolError(f"{action} needs a target", fix="a number of the list, or a label")
            if action == "kill":
                result = await control.kill(ctx.session_key, target or "")
            else:
                seed = f"{ctx.session_key}:{ctx.run_id}:{ctx.call_id}" if ctx.call_id else ""
                result = await control.steer(
                    ctx.session_key, target or "", message or "", seed=seed
                )
        except UserError as exc:
            raise ToolError(exc.message, fix=exc.fix) from exc
        return _output({**result.details, "action": action, "text": result.text})

    return subagents


async def _list(ctx: ToolContext, control: "SubagentControl", recent_minutes: int) -> ToolOutput:
    minutes = min(max(recent_minutes, 1), _MAX_RECENT_MINUTES)
    rows = await control.list_rows(ctx.session_key, minutes)
    return _output({"status": "ok", "action": "list", **rows})


def _output(details: dict[str, Json]) -> ToolOutput:
    text = json.dumps(details, ensure_ascii=False, separators=(",", ":"))
    return ToolOutput((Text(text),), details)
