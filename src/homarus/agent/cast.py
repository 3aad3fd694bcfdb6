"""The agents of the config with their tools, made at first use."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from homarus.agent import workspace
from homarus.agent.agent import Agent, make_agent, who_says
from homarus.agent.prompt.identity_file import find_identity
from homarus.config.paths import Paths
from homarus.config.resolve import agent_settings, entry_of
from homarus.config.schema import Config
from homarus.policy.decide import decide
from homarus.tools.registry import Registry
from homarus.tools.sources import ToolSourceContext, load_tools

if TYPE_CHECKING:
    from homarus.memory.tools import Remembers


class Cast:
    """Makes and caches agents and their tools.

    `reaches` returns whether there are chats to write to; `memory` returns the memory of an
    agent.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        paths: Paths,
        *,
        reaches: Callable[[], bool] = lambda: False,
        memory: "Callable[[str], Remembers] | None" = None,
    ) -> None:
        self._config, self._paths, self._reaches = config, paths, reaches
        self._memory = memory
        self._agents: dict[str, Agent] = {}
        self._tools: dict[str, Registry] = {}

    def agent(self, agent_id: str) -> Agent:
        """Return an agent, and create its workspace if needed. UnknownName when there is none."""
        if agent_id not in self._agents:
            settings = agent_settings(self._config(), self._paths, agent_id)
            workspace.ensure(settings.workspace, templates=not settings.skip_bootstrap)
            self._agents[agent_id] = make_agent(settings, self._config().tools)
        return self._agents[agent_id]

    def tools(self, agent_id: str) -> Registry:
        """Return the tools that an agent's rules do not deny."""
        if agent_id not in self._tools:
            agent = self.agent(agent_id)
            all_tools = load_tools(self._tool_context(agent))
            self._tools[agent_id] = all_tools.where(
                lambda tool: decide(tool.name, *agent.rules).action != "deny"
            )
        return self._tools[agent_id]

    def _tool_context(self, agent: Agent) -> ToolSourceContext:
        config, memory = self._config(), self._memory
        own = agent_settings(config, self._paths, agent.id).tools
        has_memory = memory is not None and remembers(config, agent.id)
        return ToolSourceContext(
            agent.id,
            config,
            lambda key: who_says(key, own, config.tools),
            has_chats=self._reaches(),
            memory=partial(memory, agent.id) if memory and has_memory else None,
        )

    def called(self, agent_id: str) -> tuple[str, str]:
        """Return an agent's display name and emoji."""
        identity = find_identity(agent_settings(self._config(), self._paths, agent_id))
        return identity.name or "", identity.emoji or ""

    def dismiss(self) -> None:
        """Drop all agents and tools: the config has changed."""
        self._agents.clear()
        self._tools.clear()


def remembers(config: Config, agent_id: str) -> bool:
    """Return whether memory search is enabled for an agent, without parsing its other settings."""
    own, default = entry_of(config, agent_id).memory_search, config.agents.defaults.memory_search
    return own.get("enabled", default.get("enabled", True)) is not False
