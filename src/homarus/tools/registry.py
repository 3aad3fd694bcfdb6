"""The tools a run may use, by name.

There is no registration: every Tool at the top level of a module is included. Lookup ignores case
and surrounding blanks, as models write names, and knows aliases; a tool's name beats an alias.
"""

from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

from homarus.core.errors import ToolError, UserError
from homarus.core.message import ToolCall
from homarus.core.text import closest_names, one_line
from homarus.policy.planned_tools import PLANNED_TOOLS
from homarus.policy.tool_policy import declared_groups, normalize_tool_name
from homarus.providers.base import ToolSpec
from homarus.tools.tool import Tool


class ToolRegistry:
    """Tools by name and alias, always in the same order.

    `known_groups` are the groups of all tools, also of those that were filtered out, as `group:fs`.
    """

    def __init__(self, tools: Iterable[Tool], known_groups: Iterable[str] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._hidden: dict[str, Tool] = {}  # that were filtered out, by name and alias
        for tool in sorted(tools, key=lambda each: each.name):
            if self._tools.setdefault(tool.name, tool) is not tool:
                raise UserError(f"two tools are named {tool.name!r}", fix="rename one of them")
        declared = (*(tool.declaration for tool in self._tools.values()), *PLANNED_TOOLS)
        self.known_groups = frozenset(known_groups) or declared_groups(declared)
        aliased = {alias: tool for tool in self._tools.values() for alias in tool.aliases}
        self._by_name = {
            normalize_tool_name(name): tool for name, tool in (aliased | self._tools).items()
        }

    @classmethod
    def from_modules(cls, *modules: ModuleType) -> "ToolRegistry":
        """Return a registry of every Tool at the top level of these modules."""
        found = (each for module in modules for each in vars(module).values())
        return cls({id(each): each for each in found if isinstance(each, Tool)}.values())

    def filter(self, keep: Callable[[Tool], bool]) -> "ToolRegistry":
        """Return a registry of the tools that pass the test; itself when all do."""
        kept = [tool for tool in self if keep(tool)]
        if len(kept) == len(self):
            return self
        found = ToolRegistry(kept, self.known_groups)
        found._hidden = self._hidden | self._by_name
        return found

    def find_called(self, name: str) -> Tool:
        """Return the tool of a call, also one that is not offered: the policy says why not.

        Raises ToolError as `get` does.
        """
        return self._by_name.get(wanted := normalize_tool_name(name)) or (
            self._hidden.get(wanted) or self.get(name)
        )

    def get(self, name: str) -> Tool:
        """Return the tool a model means.

        Raises ToolError with the closest names when it is unknown.
        """
        tool = self._by_name.get(normalize_tool_name(name))
        if tool:
            return tool
        close = closest_names(normalize_tool_name(name), self._by_name)
        names = dict.fromkeys(self._by_name[each].name for each in close)
        hint = (
            f"did you mean {' or '.join(names)}?" if names else f"tools: {', '.join(self._tools)}"
        )
        raise ToolError(f"there is no tool named {one_line(name, 60)!r}", fix=hint)

    def must_run_alone(self, call: ToolCall) -> bool:
        """Return whether the call must run alone, in order; an unknown tool need not."""
        tool = self._by_name.get(normalize_tool_name(call.name))
        return tool is not None and tool.serial

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the specifications for a model in order of name: the same bytes every time."""
        return tuple(tool.spec for tool in self)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: str) -> bool:
        return normalize_tool_name(name) in self._by_name
