"""The port through which tools start sub-agents; `homarus.agent.subagents` implements it."""

from collections.abc import Mapping
from typing import Literal, Protocol

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.tools.tool import ToolContext


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """What a model asks for; None and "" mean the settings, or those of the calling session."""

    task: str
    label: str = ""
    agent_id: str = ""
    model: str = ""
    thinking: str = ""
    timeout_s: float = 0.0
    cleanup: Literal["delete", "keep"] = "keep"
    sandbox: Literal["inherit", "require"] = "inherit"


class SubagentSpawner(Protocol):
    """Starts sub-agents."""

    async def spawn(self, ctx: ToolContext, request: SpawnRequest) -> Mapping[str, Json]:
        """Start a sub-agent for the session of a call; return OpenClaw's result fields.

        The same call starts one sub-agent, however often it is made. `status` is accepted,
        forbidden or error.
        """
        ...
