"""Decide whether a tool call may run, by the tool's name and the rules.

The rules of a config are layers, each of which can only remove tools: the profile, the lists of all
agents and of the agent, then those for the provider or the model that makes the call.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from homarus.config.schema import ToolFilterConfig, ToolProfileConfig, ToolsConfig
from homarus.core.fast_dataclass import dataclass
from homarus.policy.tool_call import ToolDecision
from homarus.policy.tool_groups import PROFILES, expand_tool_names


@dataclass(frozen=True, slots=True)
class ToolRules:
    """Globs of tool names; deny wins over ask, ask over allow. An empty allow list allows all."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


def decide_tool_call(tool: str, *layers: ToolRules) -> ToolDecision:
    """Decide by several sets of rules: each must allow, and any may deny or ask."""
    ask_glob = ""
    for rules in layers:
        if glob := _match(tool, rules.deny):
            return ToolDecision("deny", f"{tool} is denied by {glob!r}")
        if rules.allow and not _match(tool, rules.allow):
            return ToolDecision("deny", f"{tool} is not on the allow list")
        ask_glob = ask_glob or _match(tool, rules.ask)
    return (
        ToolDecision("ask", f"{tool} asks first") if ask_glob else ToolDecision("allow", "allowed")
    )


def _match(tool: str, globs: tuple[str, ...]) -> str:
    return next((glob for glob in globs if fnmatchcase(tool, glob)), "")


def filter_rules(section: ToolFilterConfig) -> ToolRules:
    """Return the rules of the lists of one section."""
    return ToolRules(
        allow=expand_tool_names(section.allow or ()), deny=expand_tool_names(section.deny)
    )


def tool_layers(common: ToolProfileConfig, own: ToolProfileConfig | None) -> tuple[ToolRules, ...]:
    """Return the rules of a section for all agents and of one agent's own, whose profile wins."""
    sections = (common,) if own is None else (common, own)
    return (*_profile_rules(sections), *map(filter_rules, sections))


def model_layers(
    common: ToolsConfig, own: ToolsConfig | None, provider: str, model: str
) -> tuple[ToolRules, ...]:
    """Return the rules of `byProvider` for a model: its own entry, else that of its provider."""
    names = (f"{provider}/{model}".lower(), provider.lower())
    sections = [
        found
        for tools in (common, own)
        if tools and (found := _find_section(tools, names)) is not None
    ]
    return (*_profile_rules(sections), *map(filter_rules, sections))


def _find_section(tools: ToolsConfig, names: tuple[str, ...]) -> ToolProfileConfig | None:
    sections = {name.strip().lower(): section for name, section in tools.by_provider.items()}
    return next((sections[name] for name in names if name in sections), None)


def _profile_rules(sections: Sequence[ToolProfileConfig]) -> Iterator[ToolRules]:
    """Yield the rules of the last profile that is set, extended by the last `alsoAllow`."""
    profiles = [section.profile for section in sections if section.profile]
    if not profiles:
        return
    added = [each.also_allow for each in sections if "also_allow" in each.model_fields_set]
    names = (*PROFILES[profiles[-1]], *(added[-1] if added else ()))
    yield ToolRules(allow=expand_tool_names(names))
