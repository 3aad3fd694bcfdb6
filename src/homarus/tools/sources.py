"""Find the program's tools: in every module of `tools/builtin`, and in `tools.py` of any package.

A source module defines tools at its top level, or a function `tools(context)` that makes them for
one agent, and returns none where the agent has no use for them. Nothing is registered: a new tool
is a new function or a new file. Sources are imported when an agent's tools are first asked for.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import homarus
from homarus.config.schema import Config, ToolsConfig
from homarus.core.fast_dataclass import dataclass
from homarus.tools import builtin
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import Tool

if TYPE_CHECKING:  # imported by the first command
    from homarus.tools.exec.process_table import ProcessTable

# Returns the `tools` section that holds for one key: the agent's own where it sets the key.
GetToolsConfig: TypeAlias = Callable[[str], ToolsConfig]


@dataclass(frozen=True, slots=True)
class ToolSourceContext:
    """The agent that tools are made for.

    `has_chats`: it can send messages to chats. `memory` returns its memory; None when it has none
    (the type belongs to `homarus.memory`, which this package cannot import). `get_processes`
    returns the table of running commands; None where commands end with their calls.
    """

    agent_id: str
    config: Config
    get_tools_config: GetToolsConfig
    has_chats: bool = False
    memory: Callable[[], Any] | None = None
    state: Path | None = None  # the state directory
    get_processes: "Callable[[], ProcessTable] | None" = None


class ToolSource(Protocol):
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


def load_tools(context: ToolSourceContext) -> ToolRegistry:
    """Import every source, and return the tools it has for an agent."""
    tools: list[Tool] = []
    for name in source_names():
        module = import_module(name)
        if hasattr(module, "tools"):
            tools += cast("ToolSource", module).tools(context)
        else:
            tools += ToolRegistry.from_modules(module)
    return ToolRegistry(tools)
