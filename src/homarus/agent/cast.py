"""The cast: every agent with its workspace in place and its tools at hand, made when asked for."""

from collections.abc import Callable

from homarus.agent import workspace
from homarus.agent.agent import Agent, make_agent, who_says
from homarus.config.paths import Paths
from homarus.config.resolve import agent_settings
from homarus.config.schema import Config
from homarus.policy.decide import decide
from homarus.tools.builtin import files as file_tools
from homarus.tools.builtin import search as search_tools
from homarus.tools.builtin.exec import exec_tool
from homarus.tools.registry import Registry


class Cast:
    """The agents of a config."""

    def __init__(self, config: Callable[[], Config], paths: Paths) -> None:
        self._config, self._paths = config, paths
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
            own = agent_settings(self._config(), self._paths, agent_id).tools
            timeout_s = who_says("exec", own, self._config().tools).exec.timeout_sec
            every = Registry.from_modules(file_tools, search_tools)
            all_tools = Registry([*every, exec_tool(float(timeout_s))])
            self._tools[agent_id] = all_tools.where(
                lambda tool: decide(tool.name, *agent.rules).action != "deny"
            )
        return self._tools[agent_id]

    def dismiss(self) -> None:
        """The config changed: everybody is made anew."""
        self._agents.clear()
        self._tools.clear()
