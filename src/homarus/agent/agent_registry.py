"""The agents of the config with their tools, made at first use."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from homarus.agent import workspace
from homarus.agent.agent import Agent, effective_tools, make_agent, reaches_machine
from homarus.agent.media.image_models import has_image_model
from homarus.agent.prompt.identity_file import find_identity
from homarus.config.agent_settings import agent_entry, agent_ids, resolve_agent_settings
from homarus.config.heartbeat_settings import resolve_heartbeat
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.session_keys import main_key, normalize_agent_id
from homarus.policy.decision import is_tool_offered
from homarus.policy.tool_call import CallerFacts
from homarus.policy.tool_policy import find_skill, make_policy_rules, source_keys
from homarus.tools.registry import ToolRegistry
from homarus.tools.sources import ToolSourceContext, ToolSources, load_tools

if TYPE_CHECKING:
    from homarus.agent.commands.dispatcher import CommandDispatcher
    from homarus.agent.exchange.session_exchanges import SessionExchanges
    from homarus.memory.tools import ToolMemory
    from homarus.tools.browser.control import BrowserControl
    from homarus.tools.exec.process_table import ProcessTable


class AgentRegistry:
    """Makes and caches agents and their tools.

    `reaches` returns whether there are chats to write to, `has_polls` whether a service of them has
    polls; `memory` returns the memory of an agent, `get_processes` the table of running commands,
    `get_browsers` the control of browsers, `get_commands` the chat commands, `get_exchanges` what
    sends messages between sessions, `get_gateway` what the `gateway` tool calls, `get_subagents`
    what starts sub-agents, `get_cron` what the `cron` tool calls, `env` the variables of the
    environment and the config, `find_image_model` a model of a model's provider that sees pictures.
    `sources` has the tools that come and go while the program runs: when one of them has changed,
    the next run uses what it has now.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        paths: Paths,
        *,
        reaches: Callable[[], bool] = lambda: False,
        memory: "Callable[[str], ToolMemory] | None" = None,
        get_processes: "Callable[[], ProcessTable] | None" = None,
        find_image_model: Callable[[str], str] | None = None,
        get_browsers: "Callable[[], BrowserControl] | None" = None,
        sources: ToolSources | None = None,
        env: Callable[[], Mapping[str, str]] = dict,
        get_commands: "Callable[[], CommandDispatcher] | None" = None,
        get_exchanges: "Callable[[], SessionExchanges] | None" = None,
        get_gateway: Callable[[], Any] | None = None,
        get_subagents: Callable[[], Any] | None = None,
        get_cron: Callable[[], Any] | None = None,
        has_polls: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config, self._paths, self._has_chats = config, paths, reaches
        self._memory, self._get_processes, self._env = memory, get_processes, env
        self._find_image_model, self._get_browsers = find_image_model, get_browsers
        self._get_commands, self._get_gateway = get_commands, get_gateway
        self._has_polls, self._get_subagents, self._get_cron = has_polls, get_subagents, get_cron
        self._get_exchanges = get_exchanges
        self.sources = sources or ToolSources()
        self._agents: dict[str, Agent] = {}
        self._builtin: dict[str, ToolRegistry] = {}
        self._tools: dict[str, ToolRegistry] = {}
        self._revision = self.sources.revision

    def get(self, agent_id: str) -> Agent:
        """Return an agent, and create its workspace if needed. Raises UnknownNameError."""
        self._drop_outdated()
        if agent_id not in self._agents:
            settings = resolve_agent_settings(self._config(), self._paths, agent_id)
            workspace.ensure_workspace(settings.workspace, templates=not settings.skip_bootstrap)
            config, protected = self._config(), tuple[Path, ...]()
            if reaches_machine(settings.tools, config.tools):
                protected = tuple(protected_folders(config, self._paths, agent_id))
            agent = make_agent(settings, config.tools, protected)
            if plugins := self._plugin_names(agent_id):
                rules = make_policy_rules(config.tools, settings.tools, plugins)
                agent = replace(agent, rules=rules)
            depth = config.agents.defaults.subagents.max_spawn_depth
            rules = replace(agent.rules, max_spawn_depth=depth)
            has_heartbeat = resolve_heartbeat(config, agent.id).is_enabled
            self._agents[agent_id] = replace(agent, rules=rules, has_heartbeat=has_heartbeat)
        return self._agents[agent_id]

    def tools(self, agent_id: str) -> ToolRegistry:
        """Return the tools that an agent's rules do not deny."""
        self._drop_outdated()
        if agent_id not in self._tools:
            agent, owner = self.get(agent_id), CallerFacts(agent_id, main_key(agent_id))
            self._tools[agent_id] = self.all_tools(agent_id).filter(
                lambda tool: is_tool_offered(tool.declaration, owner, agent.rules)
            )
        return self._tools[agent_id]

    def all_tools(self, agent_id: str) -> ToolRegistry:
        """Return every tool that is made for an agent, whatever its rules are."""
        context = self._tool_context(agent_id)
        if agent_id not in self._builtin:
            self._builtin[agent_id] = load_tools(context)
        builtin, added = self._builtin[agent_id], self.sources.load(context)
        return ToolRegistry((*builtin, *added)) if added else builtin

    def _plugin_names(self, agent_id: str) -> frozenset[str]:
        """Return the names of tools of plugins and servers, and of their sources.

        A list that allows actions of skills alone restricts the other tools.
        """
        added = self.sources.load(self._tool_context(agent_id))
        return frozenset(
            name
            for tool in added
            if find_skill(tool.declaration) is None
            for name in (tool.name, *source_keys(tool.declaration.source))
        )

    def _drop_outdated(self) -> None:
        """Drop what was made before the tools of a source changed; our own tools are kept."""
        if self._revision != (revision := self.sources.revision):
            self._revision = revision
            self._agents.clear()
            self._tools.clear()

    def _tool_context(self, agent_id: str) -> ToolSourceContext:
        config, memory = self._config(), self._memory
        settings = resolve_agent_settings(config, self._paths, agent_id)
        own, find = settings.tools, self._find_image_model
        refs = (settings.model, *settings.fallbacks) if settings.model else ()
        is_used = memory is not None and has_memory(config, agent_id)
        return ToolSourceContext(
            agent_id,
            config,
            lambda key: effective_tools(key, own, config.tools),
            has_chats=self._has_chats(),
            has_polls=self._has_polls(),
            memory=partial(memory, agent_id) if memory and is_used else None,
            state=self._paths.state,
            get_processes=self._get_processes,
            get_browsers=self._get_browsers,
            get_commands=self._get_commands,
            get_exchanges=self._get_exchanges,
            get_gateway=self._get_gateway,
            get_subagents=self._get_subagents,
            get_cron=self._get_cron,
            has_tool=lambda name: name in self.tools(agent_id),
            env=self._env(),
            has_image_model=lambda: find is None or has_image_model(config, refs, find),
        )

    def display_name(self, agent_id: str) -> tuple[str, str]:
        """Return an agent's display name and emoji."""
        identity = find_identity(resolve_agent_settings(self._config(), self._paths, agent_id))
        return identity.name or "", identity.emoji or ""

    def clear(self) -> None:
        """Drop all agents and tools: the config has changed."""
        self._agents.clear()
        self._builtin.clear()
        self._tools.clear()


def protected_folders(config: Config, paths: Paths, agent_id: str) -> Iterator[Path]:
    """Yield what the file tools of an agent never reach: our state, and other workspaces."""
    yield from (paths.state, paths.config, paths.own_config)
    for each in agent_ids(config):
        settings = resolve_agent_settings(config, paths, each)
        yield from (settings.agent_dir, paths.sessions_dir(each))
        if each != normalize_agent_id(agent_id):
            yield settings.workspace


def has_memory(config: Config, agent_id: str) -> bool:
    """Return whether memory search is enabled for an agent, without parsing its other settings."""
    own, default = agent_entry(config, agent_id).memory_search, config.agents.defaults.memory_search
    return own.get("enabled", default.get("enabled", True)) is not False
