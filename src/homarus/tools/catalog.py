"""Every tool that rules can name: the program's own, as they declare themselves, and planned ones.

Reading the declarations imports all tools, so it is done only where a rule or a name needs it.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from homarus.config.schema import Config
from homarus.policy.planned_tools import PLANNED_TOOLS
from homarus.policy.tool_call import ToolDeclaration
from homarus.policy.tool_policy import normalize_tool_name
from homarus.tools.registry import ToolRegistry
from homarus.tools.sources import ToolSourceContext, load_tools

log = logging.getLogger(__name__)


@cache
def builtin_tools() -> ToolRegistry:
    """Return every tool of the program, made for no agent: they are described, not used."""
    config = Config.model_validate({"tools": {"exec": {"applyPatch": {"enabled": True}}}})
    return load_tools(
        ToolSourceContext(
            "main",
            config,
            lambda _key: config.tools,
            has_chats=True,
            has_polls=True,
            memory=_no_memory,
            get_commands=_no_memory,
            get_exchanges=_no_memory,
            get_gateway=_no_memory,
            get_subagents=_no_memory,
            get_cron=_no_memory,
        )
    )


def _no_memory() -> None:
    raise LookupError("tools are described here, not used")


def known_declarations() -> tuple[ToolDeclaration, ...]:
    """Return the declarations of all tools of the program, and of the planned ones."""
    return (*(tool.declaration for tool in builtin_tools()), *PLANNED_TOOLS)


def describe_list_problems(config: Config) -> tuple[str, ...]:
    """Return warnings about entries in lists of tools that mean nothing.

    A config without such lists imports nothing.
    """
    from homarus.policy.unknown_names import named_tool_lists, unknown_name_warnings

    lists = named_tool_lists(config)
    if not lists:
        return ()
    known = (
        *known_declarations(),
        *_server_declarations(config, lists),
        *_skill_declarations(lists),
    )
    return tuple(unknown_name_warnings(lists, known))


def _server_declarations(
    config: Config, lists: Iterable[tuple[str, str, Sequence[str]]]
) -> Iterator[ToolDeclaration]:
    """Yield a declaration for each MCP server, and for each entry that may be a tool of one.

    Which tools a server has is not known before it was connected.
    """
    for server in config.mcp.servers:
        start = f"{normalize_tool_name(server)}__"
        entries = {normalize_tool_name(entry) for _, _, each in lists for entry in each}
        named = sorted(entry for entry in entries if entry.startswith(start))
        for name in named or [start]:
            yield ToolDeclaration(name, ("mcp",), source=f"mcp:{server}")


def _skill_declarations(
    lists: Iterable[tuple[str, str, Sequence[str]]],
) -> Iterator[ToolDeclaration]:
    """Yield a declaration for the actions of skills, and for each skill that an entry names.

    Which skills there are is not known before files are read.
    """
    yield ToolDeclaration("skill:", ("skills",), source="skill:")
    for entry in {normalize_tool_name(entry) for _, _, each in lists for entry in each}:
        if entry.startswith("skill:"):
            yield ToolDeclaration("skill:", ("skills",), source=entry)


def log_list_problems(config: Config) -> None:
    """Log warnings about entries in lists of tools that mean nothing."""
    for text in describe_list_problems(config):
        log.warning("%s", text)


@cache
def _by_name() -> dict[str, ToolDeclaration]:
    known = known_declarations()
    aliases = {normalize_tool_name(alias): tool for tool in known for alias in tool.aliases}
    return aliases | {tool.name: tool for tool in known}


def find_declaration(name: str) -> ToolDeclaration | None:
    """Return the tool that a name, in any of its forms, stands for."""
    return _by_name().get(normalize_tool_name(name))
