"""Find entries in lists of tools that mean nothing: no tool, no group, no pattern of tools."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from homarus.config.agent_settings import agent_ids
from homarus.config.schema import Config
from homarus.core.text import closest_names, one_line
from homarus.policy.restrictions import tool_lists
from homarus.policy.tool_call import BUILTIN, ToolDeclaration
from homarus.policy.tool_policy import (
    ALL_PLUGINS,
    SANDBOX_DENY,
    SANDBOX_KEY,
    declaration_keys,
    find_match,
    find_skill,
    names_only_plugins,
    normalize_tool_name,
)

_LISTS: Final = ("allow", "alsoAllow", "deny")
ToolList = tuple[str, str, Sequence[str]]


def named_tool_lists(config: Config) -> tuple[ToolList, ...]:
    """Return every list of tools in the config that has entries: its section, name and entries."""
    found = dict[tuple[str, str], Sequence[str]]()
    for agent in agent_ids(config):
        for path, section in tool_lists(config, agent):
            lists = (section.allow or (), section.also_allow, section.deny)
            found |= {(path, name): each for name, each in zip(_LISTS, lists, strict=True)}
    pruned = config.agents.defaults.context_pruning.tools
    place = "agents.defaults.contextPruning.tools"
    found |= {(place, "allow"): pruned.allow, (place, "deny"): pruned.deny}
    for path, tree in _channel_sections(config.channels):
        for name in _LISTS:
            entries = tree.get(name)
            if isinstance(entries, list | tuple):
                found[path, name] = [each for each in entries if isinstance(each, str)]
    return tuple((*place, entries) for place, entries in found.items() if entries)


def _channel_sections(channels: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tool settings of groups, and of senders in them, of all channels and accounts."""
    for channel, section in channels.items():
        for path, account in _accounts(f"channels.{channel}", section):
            for group, settings in _mapping(_mapping(account).get("groups")).items():
                place = f"{path}.groups.{group}"
                yield f"{place}.tools", _mapping(_mapping(settings).get("tools"))
                people = _mapping(_mapping(settings).get("toolsBySender"))
                for sender, own in people.items():
                    yield f"{place}.toolsBySender.{sender}", _mapping(own)


def _accounts(path: str, section: Any) -> Iterator[tuple[str, Any]]:
    yield path, section
    for name, account in _mapping(_mapping(section).get("accounts")).items():
        yield f"{path}.accounts.{name}", account


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def unknown_name_warnings(
    lists: Iterable[ToolList], tools: Sequence[ToolDeclaration]
) -> Iterator[str]:
    """Yield a warning for each entry that stands for no tool, and for lists of plugins alone."""
    keys = list(dict.fromkeys(key for tool in tools for key in declaration_keys(tool)))
    added = (tool for tool in tools if tool.source != BUILTIN and find_skill(tool) is None)
    plugins = frozenset(key for tool in added for key in _names(tool))
    for path, name, entries in lists:
        is_of_sandboxes = path.startswith(SANDBOX_KEY)
        for entry in dict.fromkeys(entries):
            normal = normalize_tool_name(entry)
            if is_of_sandboxes and normal in SANDBOX_DENY:
                continue  # OpenClaw's default, with the names of channels
            if normal == ALL_PLUGINS or any(find_match(tool, (entry,)) for tool in tools):
                continue
            close = closest_names(normal, keys)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            yield f"{path}.{name}: {one_line(entry, 60)!r} is no tool and no group{hint}"
        if name == "allow" and names_only_plugins(entries, plugins):
            effect = "extends the default list" if is_of_sandboxes else "restricts nothing"
            yield (
                f"{path}.allow names tools of plugins alone, so it {effect};"
                " alsoAllow adds tools, allow with the other tools restricts them"
            )


def _names(tool: ToolDeclaration) -> tuple[str, ...]:
    return (tool.name, tool.source, *tool.aliases)
