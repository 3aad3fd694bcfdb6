"""The actions of skills, as a source of tools; nothing is loaded before the first run of an agent.

Files are read when a run starts: what has changed since is then offered to that run and to later
ones. The prefix of a request stays the same until an action file, a skill or a setting changes.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.config.schema import Config
from homarus.core.errors import HomarusError
from homarus.tools.sources import ToolSourceContext, reserved_names
from homarus.tools.tool import Tool

if TYPE_CHECKING:  # imported by the first run
    from homarus.skills.actions.action_files import ActionFileCache, FoundAction
    from homarus.skills.actions.pins import ActionPins
    from homarus.skills.catalog import SkillCatalog

SOURCE_NAME: Final = "skill"


class SkillActionLoader:
    """Offers the actions of the skills that an agent can use."""

    name = SOURCE_NAME

    def __init__(self, get_catalog: "Callable[[], SkillCatalog]", state: Path) -> None:
        self._get_catalog, self._state = get_catalog, state
        self._cache: ActionFileCache | None = None
        self._pins: ActionPins | None = None
        self._found: dict[str, tuple[FoundAction, ...]] = {}  # by agent
        self._made: dict[str, tuple[Config, int, Sequence[Tool]]] = {}  # by agent
        self.revision = 0

    async def discover(self, agent_id: str) -> None:
        """Find the actions of an agent's skills, in a thread: it reads files."""
        with suppress(HomarusError):  # an agent that is not configured has none
            found = await asyncio.to_thread(self.find, agent_id)
            if found != self._found.get(agent_id, ()):
                self._found[agent_id] = found
                self.revision += 1

    def find(self, agent_id: str) -> "tuple[FoundAction, ...]":
        """Return the actions of the skills that an agent can use. Raises UnknownNameError."""
        from homarus.skills.actions.action_files import ActionFileCache, find_actions

        if self._cache is None:
            self._cache = ActionFileCache()
        return find_actions(self._get_catalog().load(agent_id).eligible(), self._cache)

    def tools(self, context: ToolSourceContext) -> Sequence[Tool]:
        """Return the tools of the actions that the last run of an agent has found."""
        found = self._found.get(context.agent_id)
        if not found:
            return ()
        made = self._made.get(context.agent_id)
        if made is None or made[0] is not context.config or made[1] != self.revision:
            from homarus.skills.actions.action_tools import make_action_tools

            tools = make_action_tools(found, context, self._get_pins(), reserved_names())
            made = self._made[context.agent_id] = (context.config, self.revision, tools)
        return made[2]

    def _get_pins(self) -> "ActionPins":
        if self._pins is None:
            from homarus.skills.actions.pins import ActionPins

            self._pins = ActionPins(self._state)
        return self._pins
