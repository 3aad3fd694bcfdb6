"""The tool `cron`: reminders and jobs of an agent. For the owner alone.

What the actions do is in `tool_actions.py`, which the first call imports. The schema is short,
because every request of an agent contains it, and open: `cron_arguments.py` understands a job whose
fields the model writes next to `action`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from homarus.core.message import Json
from homarus.providers.base import ToolSpec
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput, json_tool

if TYPE_CHECKING:
    from homarus.schedule.tool_actions import CronActions

_MANUAL: Final = (
    "Reminders and jobs. job: {name, schedule, payload}. "
    "schedule: {at: ISO time}, {everyMs} or {expr: cron, tz}. "
    "payload: {text} reminds you here; {message} runs a turn of its own, which answers here. "
    "contextMessages: how many last messages a reminder repeats."
)
_TEXT: Final[Mapping[str, Json]] = {"type": "string"}
_OBJECT: Final[Mapping[str, Json]] = {"type": "object"}
_ACTIONS: Final = ("status", "list", "add", "update", "remove", "run", "runs", "wake")
SPEC: Final = ToolSpec(
    "cron",
    _MANUAL,
    {
        "type": "object",
        "properties": {
            "action": {"enum": [*_ACTIONS]},
            "job": _OBJECT,
            "jobId": _TEXT,
            "patch": _OBJECT,
            "includeDisabled": {"type": "boolean"},
            "text": _TEXT,
            "mode": {"enum": ["now", "next-heartbeat"]},
            "runMode": {"enum": ["due", "force"]},
            "contextMessages": {"type": "integer", "maximum": 10},
        },
        "required": ["action"],
    },
)


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool for an agent of a program with scheduled jobs."""
    return [_cron_tool(context.get_cron)] if context.get_cron else []


def _cron_tool(get_actions: "Callable[[], CronActions]") -> Tool:
    async def run(ctx: ToolContext, args: Mapping[str, Json]) -> ToolOutput:
        return await get_actions().run(ctx, args)

    return json_tool(SPEC, run, groups=("automation",), aliases=("cron_create",), owner_only=True)
