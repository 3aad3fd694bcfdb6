"""The cast: every agent with its workspace in place and its tools at hand, made when asked for."""

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
    """The agents of a config.

    `reaches` says whether there are chats they could write to; `memory` is an agent's, where it
    has one.
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
        """An agent with its workspace in place; UnknownName when there is none."""
        if agent_id not in self._agents:
            settings = agent_settings(self._config(), self._paths, agent_id)
            workspace.ensure(settings.workspace, templates=not settings.skip_bootstrap)
            self._agents[agent_id] = make_agent(settings, self._config().tools)
        return self._agents[agent_id]

    def tools(self, agent_id: str) -> Registry:
        """The tools an agent may use; what its rules deny, it is not even told of."""
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
        """An agent's name and emoji, as people see it."""
        found = find_identity(agent_settings(self._config(), self._paths, agent_id))
        return found.name or "", found.emoji or ""

    def dismiss(self) -> None:
        """The config changed: everybody is made anew."""
        self._agents.clear()
        self._tools.clear()


def remembers(config: Config, agent_id: str) -> bool:
    """Whether an agent has a memory to search. The rest of its settings wait for their use."""
    own, usual = entry_of(config, agent_id).memory_search, config.agents.defaults.memory_search
    return own.get("enabled", usual.get("enabled", True)) is not False
