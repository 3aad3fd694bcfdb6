"""Find the program's tools: in every module of `tools/builtin`, and in `tools.py` of any package.

A source module defines tools at its top level, or a function `tools(context)` that makes them for
one agent, and returns none where the agent has no use for them. Nothing is registered: a new tool
is a new function or a new file. Sources are imported when an agent's tools are first asked for.
Tools from outside the program, which come and go while it runs, are those of a `ToolSource`.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import homarus
from homarus.config.schema import Config
from homarus.config.tools_schema import ToolsConfig
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.policy.tool_call import BUILTIN
from homarus.policy.tool_policy import declaration_keys, normalize_tool_name
from homarus.tools import builtin
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import Tool

if TYPE_CHECKING:  # imported by the first command
    from homarus.tools.browser.control import BrowserControl
    from homarus.tools.exec.process_table import ProcessTable

log = logging.getLogger(__name__)
_NAME: Final = re.compile(r"[a-z0-9_]{1,64}")  # of a source or a tool, as it is compared

# Returns the `tools` section that holds for one key: the agent's own where it sets the key.
GetToolsConfig: TypeAlias = Callable[[str], ToolsConfig]


@dataclass(frozen=True, slots=True)
class ToolSourceContext:
    """The agent that tools are made for.

    `has_chats`: it can send messages to chats, `has_polls`: also polls. `memory` returns its
    memory; None when it has none (the type belongs to `homarus.memory`, which this package cannot
    import). `get_processes` returns the table of running commands; None where commands end with
    their calls. `get_browsers` returns the control of browsers; None where there are none.
    `has_tool` returns whether the agent has a tool; it is for calls, when all tools are loaded.
    `get_commands` returns the chat commands, whose functions `homarus.agent.tools` shares; None
    without sessions. `get_exchanges` returns what sends messages between sessions, None where no
    session may. `get_gateway` returns what `homarus.gateway.tools` calls; None without config
    files. `env` has the variables of the environment and the config, for the keys of services.
    `has_image_model` returns whether a model can be asked about pictures. `get_subagents` returns
    what starts sub-agents; None without sessions. `get_cron` returns what `homarus.schedule.tools`
    calls; None without scheduled jobs.
    """

    agent_id: str
    config: Config
    get_tools_config: GetToolsConfig
    has_chats: bool = False
    has_polls: bool = False
    memory: Callable[[], Any] | None = None
    state: Path | None = None  # the state directory
    get_processes: "Callable[[], ProcessTable] | None" = None
    get_browsers: "Callable[[], BrowserControl] | None" = None
    get_commands: Callable[[], Any] | None = None
    get_exchanges: Callable[[], Any] | None = None
    get_gateway: Callable[[], Any] | None = None
    has_tool: Callable[[str], bool] = lambda _name: True
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    has_image_model: Callable[[], bool] = lambda: True
    get_subagents: Callable[[], Any] | None = None
    get_cron: Callable[[], Any] | None = None


class ToolSource(Protocol):
    """Where tools come from: the program's modules, a plugin, a skill, a server.

    `name` is what rules call it. `revision` is another number whenever `tools` would return others:
    the registries of the agents are then made again. `tools` returns what the source has for an
    agent, at once and without I/O: a source that connects to something keeps what it found.
    """

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> int: ...

    def tools(self, context: ToolSourceContext) -> Sequence[Tool]: ...


@runtime_checkable
class SupportsDiscovery(Protocol):
    """A source that looks for the tools of an agent when a run of it starts."""

    async def discover(self, agent_id: str) -> None:
        """Find the tools, for a limited time: the run waits for it."""
        ...


class ToolModule(Protocol):
    """A module that makes its tools for one agent."""

    def tools(self, context: ToolSourceContext) -> Sequence[Tool]: ...


@cache
def source_names() -> tuple[str, ...]:
    """Return the names of all source modules, without importing them."""
    own = [f"{builtin.__name__}.{module.name}" for module in iter_modules(builtin.__path__)]
    packages = [module.name for module in iter_modules(homarus.__path__) if module.ispkg]
    return (*own, *(f"homarus.{name}.tools" for name in packages if _has_tools(name)))


def _has_tools(package: str) -> bool:
    folders = [f"{folder}/{package}" for folder in homarus.__path__]
    spec = PathFinder.find_spec("tools", folders)
    return spec is not None and spec.has_location


@dataclass(frozen=True, slots=True)
class BuiltinSource:
    """The tools of the program itself: every module that defines some."""

    name: str = BUILTIN
    revision: int = 0

    def tools(self, context: ToolSourceContext) -> Sequence[Tool]:
        """Import every module, and return the tools it has for an agent."""
        tools: list[Tool] = []
        for name in source_names():
            module = import_module(name)
            if hasattr(module, "tools"):
                tools += cast("ToolModule", module).tools(context)
            else:
                tools += ToolRegistry.from_modules(module)
        return tools


BUILTIN_SOURCE: Final = BuiltinSource()


def load_tools(context: ToolSourceContext) -> ToolRegistry:
    """Return the program's own tools for an agent."""
    return ToolRegistry(BUILTIN_SOURCE.tools(context))


class ToolSources:
    """The sources of a program: its own tools, and those that come and go while it runs.

    `given` are sources of the program itself, whose names need no check.
    """

    def __init__(self, given: Sequence[ToolSource] = ()) -> None:
        self._sources: dict[str, ToolSource] = {each.name: each for each in given}
        self._changes = 0

    def add(self, source: ToolSource) -> None:
        """Add a source. Raises UserError for a name that rules could confuse with another."""
        name = normalize_tool_name(source.name)
        if name in self._sources or name in reserved_names() or not _NAME.fullmatch(name):
            raise UserError(
                f"a source of tools cannot be named {one_line(source.name, 60)!r}",
                fix="choose a name of letters, digits, - and _ that no tool or source has",
            )
        self._sources[name] = source
        self._changes += 1

    def remove(self, name: str) -> None:
        """Remove a source with its tools; nothing happens when there is none of that name."""
        if self._sources.pop(normalize_tool_name(name), None):
            self._changes += 1

    async def discover(self, agent_id: str) -> None:
        """Have the sources look for the tools of an agent, whose run starts now."""
        for source in list(self._sources.values()):
            if isinstance(source, SupportsDiscovery):
                await source.discover(agent_id)

    @property
    def revision(self) -> tuple[int, ...]:
        """Return a value that is another one after the tools of a source have changed."""
        return (self._changes, *(source.revision for source in self._sources.values()))

    def load(self, context: ToolSourceContext) -> list[Tool]:
        """Return the tools for an agent that are not the program's own.

        A source that fails, or a tool of it with a name that is taken, is logged and left out.
        """
        found = [(source, _load_source(source, context)) for source in self._sources.values()]
        taken = set(reserved_names()) if any(each for _, each in found) else set[str]()
        tools: list[Tool] = []
        for source, loaded in found:
            for tool in loaded:
                names = {normalize_tool_name(each) for each in (tool.name, *tool.aliases)}
                if names & taken or not all(map(_NAME.fullmatch, names)):
                    shown = one_line(tool.name, 60)
                    log.warning(
                        "tool %s of %s is left out: a name is taken or not valid",
                        shown,
                        source.name,
                    )
                    continue
                taken |= names
                # What a tool is from is known here; it cannot say so itself.
                declaration = replace(tool.declaration, source=_source_name(source, tool))
                tools.append(replace(tool, declaration=declaration))
        return tools


def _source_name(source: ToolSource, tool: Tool) -> str:
    """Return the name of a tool's source; one that has parts may name the part, as `mcp:files`."""
    own = tool.declaration.source
    return own if own.startswith(f"{source.name}:") else source.name


def _load_source(source: ToolSource, context: ToolSourceContext) -> Sequence[Tool]:
    try:
        return source.tools(context)
    except Exception:
        log.exception("the tools of %s cannot be loaded", source.name)
        return ()


@cache
def reserved_names() -> frozenset[str]:
    """Return the names that mean something in rules without any source."""
    from homarus.tools.catalog import known_declarations  # it loads the program's own tools

    keys = (key for tool in known_declarations() for key in declaration_keys(tool))
    return frozenset({BUILTIN, *keys})
