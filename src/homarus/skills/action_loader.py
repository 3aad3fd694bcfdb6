"""The actions of skills, as a source of tools; nothing is loaded before the first run of an agent.

Files are read when a run starts, unless they were a moment ago: what has changed since is then
offered to that run and to later ones. The prefix of a request stays the same until an action file,
a skill or a setting changes.
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
    from homarus.skills.catalog import AgentSkills

SOURCE_NAME: Final = "skill"


class SkillActionLoader:
    """Offers the actions of the skills that an agent can use.

    `load_skills` returns an agent's skills and reads files; `get_recent` returns them if that was
    done a moment ago, else None.
    """

    name = SOURCE_NAME

    def __init__(
        self,
        load_skills: "Callable[[str], AgentSkills]",
        get_recent: "Callable[[str], AgentSkills | None]",
        state: Path,
    ) -> None:
        self._load_skills, self._get_recent, self._state = load_skills, get_recent, state
        self._searched: dict[str, AgentSkills] = {}  # by agent
        self._cache: ActionFileCache | None = None
        self._pins: ActionPins | None = None
        self._found: dict[str, tuple[FoundAction, ...]] = {}  # by agent
        self._made: dict[str, tuple[Config, int, Sequence[Tool]]] = {}  # by agent
        self.revision = 0

    async def discover(self, agent_id: str) -> None:
        """Find the actions of an agent's skills, in a thread: it reads files."""
        recent = self._get_recent(agent_id)
        if recent is not None and self._searched.get(agent_id) is recent:
            return
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
        skills = self._load_skills(agent_id)
        found = find_actions(skills.eligible(), self._cache)
        self._searched[agent_id] = skills
        return found

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
