"""The rules about tools, made from the config: profiles, lists, and those of providers and chats.

A rule is matched against what a tool says about itself (`ToolDeclaration`): its name, its other
names, its groups and its source. `file_*` so matches a tool that has the other name `file_write`,
and `group:fs` one that says that it belongs to that group.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final
from unicodedata import category, normalize

from homarus.config.tools_schema import (
    AgentToolsConfig,
    ApplyPatchConfig,
    GlobalToolsConfig,
    ToolFilterConfig,
    ToolProfileConfig,
    ToolsConfig,
)
from homarus.core.fast_dataclass import dataclass
from homarus.policy.tool_call import BUILTIN, ToolDeclaration

GROUP_PREFIX: Final = "group:"
ALL_PLUGINS: Final = "group:plugins"
ALL_MCP: Final = "group:mcp"
ALL_SKILLS: Final = "group:skills"  # the actions of skills
_SKILL_PREFIX: Final = "skill:"
_NATIVE: Final = "group:openclaw"
# OpenClaw's runtime has these groups of tools of its own, and does not count them as native.
_NOT_NATIVE: Final = frozenset({"fs", "runtime"})
PROFILES: Final[dict[str, tuple[str, ...]]] = {
    "minimal": ("group:memory", "session_status"),
    "coding": ("group:memory", "group:fs", "group:runtime", "group:sessions", "image"),
    "messaging": (
        "group:memory", "group:messaging",
        "sessions_list", "sessions_history", "sessions_send", "session_status",
    ),
    "full": ("*",),
}  # fmt: skip
# Tools that a sub-agent never has, and those that one that starts no others does not need.
SUBAGENT_DENY: Final = (
    "gateway", "agents_list", "whatsapp_login", "session_status", "cron", "memory_search",
    "memory_get", "sessions_send",
)  # fmt: skip
LEAF_DENY: Final = ("sessions_list", "sessions_history", "sessions_spawn")
# The tools in a sandbox by OpenClaw's default. Those that search and delete files are ours in
# addition: they reach what `read` and `write` reach. The names of channels stand for the tools of
# plugins for them.
SANDBOX_ALLOW: Final = (
    "exec", "process", "read", "write", "edit", "apply_patch", "file_delete", "ls", "find", "grep",
    "image", "sessions_list", "sessions_history", "sessions_send", "sessions_spawn", "subagents",
    "session_status",
)  # fmt: skip
SANDBOX_DENY: Final = (
    "browser", "canvas", "nodes", "cron", "gateway", "telegram", "whatsapp", "discord", "irc",
    "googlechat", "slack", "signal", "imessage",
)  # fmt: skip
_OPENAI: Final = frozenset({"openai", "openai-codex", "azure-openai", "azure"})
_SANDBOX_DEFAULT: Final = "the default tools of sandboxes"
SANDBOX_KEY: Final = "tools.sandbox.tools"


@dataclass(frozen=True, slots=True)
class ToolRules:
    """Names, groups and globs of tools; deny wins over ask, ask over allow.

    An empty allow list allows all. `skills` are the skills whose actions are allowed; None: all.
    `origin` says where the rules are set.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    skills: tuple[str, ...] | None = None
    origin: str = field(default="", compare=False)


# For sessions with a sandbox: what may be used there, and what may not.
DEFAULT_SANDBOX_RULES: Final = (
    ToolRules(deny=SANDBOX_DENY, origin=_SANDBOX_DEFAULT),
    ToolRules(allow=SANDBOX_ALLOW, origin=_SANDBOX_DEFAULT),
)


def _no_model_rules(_provider: str, _model: str) -> tuple[ToolRules, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """All rules about the tools of one agent; `chat` are those of the chat that is answered.

    `get_model_rules` returns the rules of `byProvider` for a provider and a model. `sandbox` holds
    in sessions that have one.
    """

    profile: ToolRules | None = None
    lists: tuple[ToolRules, ...] = ()
    get_model_rules: Callable[[str, str], tuple[ToolRules, ...]] = _no_model_rules
    subagents: ToolRules = ToolRules()
    max_spawn_depth: int = 1
    chat: tuple[ToolRules, ...] = ()
    sandbox: tuple[ToolRules, ...] = DEFAULT_SANDBOX_RULES

    def for_chat(self, rules: tuple[ToolRules, ...]) -> "PolicyRules":
        """Return the rules of the agent with those of a chat."""
        return replace(self, chat=rules) if rules else self


def normalize_tool_name(name: str) -> str:
    """Return a tool's name as it is compared.

    Wide letters and invisible characters, as text copied from elsewhere has them, make no other
    name: a rule that looks like one for `exec` is one.
    """
    if not name.isascii():
        name = "".join(ch for ch in normalize("NFKC", name) if category(ch) != "Cf")
    return name.strip().lower().replace("-", "_")


@lru_cache(1024)
def declaration_keys(tool: ToolDeclaration) -> tuple[str, ...]:
    """Return every name that stands for a tool in a rule: its own first, then groups and source."""
    names = map(normalize_tool_name, (tool.name, *tool.aliases))
    keys = [*names, *(f"{GROUP_PREFIX}{normalize_tool_name(each)}" for each in tool.groups)]
    if tool.source != BUILTIN:
        keys += [*map(normalize_tool_name, source_keys(tool.source)), ALL_PLUGINS]
    elif not _NOT_NATIVE.intersection(tool.groups):
        keys.append(_NATIVE)
    return tuple(dict.fromkeys(keys))


def source_keys(source: str) -> tuple[str, ...]:
    """Return the names of a tool's source in rules.

    Of `mcp:files`, the server's own name stands for its tools. The name of a skill does not: its
    author chose it, and could choose that of a tool or of a server.
    """
    return (source,) if source.startswith(_SKILL_PREFIX) else (source, source.rpartition(":")[2])


def find_skill(tool: ToolDeclaration) -> str | None:
    """Return the name of the skill that a tool is an action of, None for another tool."""
    is_action = tool.source.startswith(_SKILL_PREFIX)
    return tool.source.removeprefix(_SKILL_PREFIX) if is_action else None


def declared_groups(tools: Iterable[ToolDeclaration]) -> frozenset[str]:
    """Return the groups that tools say they belong to, and those of all sources."""
    keys = (key for tool in tools for key in declaration_keys(tool))
    return frozenset(
        {ALL_PLUGINS, ALL_MCP, ALL_SKILLS, *(key for key in keys if key.startswith(GROUP_PREFIX))}
    )


def refuse_unknown_groups(
    rules: Iterable[ToolRules], groups: frozenset[str]
) -> tuple[ToolRules, ...]:
    """Return rules that deny all tools, one for each denied group that does not exist.

    Without them nothing would be denied, although the config wants something to be.
    """
    return tuple(
        ToolRules(deny=("*",), origin=f"{each.origin}, because it denies {name}, which is unknown")
        for each in rules
        for name in map(normalize_tool_name, each.deny)
        if name.startswith(GROUP_PREFIX) and name not in groups
    )


@lru_cache(1024)
def _compile(entries: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the exact entries of a list, and its globs."""
    names = [normalize_tool_name(each) for each in entries]
    globs = tuple(each for each in names if "*" in each or "?" in each or "[" in each)
    return frozenset(names).difference(globs), globs


def find_match(tool: ToolDeclaration, entries: tuple[str, ...]) -> str:
    """Return the entry of a list that matches a tool, "" without one."""
    return _match(declaration_keys(tool), entries) if entries else ""


def _match(keys: tuple[str, ...], entries: tuple[str, ...]) -> str:
    exact, globs = _compile(entries)
    for key in keys:
        if key in exact:
            return key
    for glob in globs:
        for key in keys:
            if not key.startswith(GROUP_PREFIX) and fnmatchcase(key, glob):
                return glob
    return ""


def find_allow(tool: ToolDeclaration, entries: tuple[str, ...]) -> str:
    """Return the entry of an allow list that allows a tool, "" without one."""
    return find_match(tool, entries) or (
        _match(tool.implied_by, entries) if tool.implied_by and entries else ""
    )


def filter_rules(section: ToolFilterConfig, origin: str = "") -> ToolRules:
    """Return the rules of the lists of one section."""
    return ToolRules(allow=tuple(section.allow or ()), deny=tuple(section.deny), origin=origin)


def make_policy_rules(
    common: ToolsConfig, own: ToolsConfig | None = None, plugins: frozenset[str] = frozenset()
) -> PolicyRules:
    """Return the rules of the config for an agent with its own section.

    `plugins` are the names of plugins and of their tools: a list that allows nothing else does not
    restrict the other tools.
    """
    sections = list(_named_sections(common, own))
    lists = (_without_plugin_lists(filter_rules(one, name), plugins) for name, one in sections)
    subagents = common.subagents.tools if isinstance(common, GlobalToolsConfig) else None

    @lru_cache(64)
    def get_model_rules(provider: str, model: str) -> tuple[ToolRules, ...]:
        found = list(_provider_sections(common, own, provider, model))
        rules = (_without_plugin_lists(filter_rules(one, name), plugins) for name, one in found)
        profile = _profile_rules([one for _, one in found])
        patches = patch_rules(_find_patch_config(common, own), provider, model)
        given = (each for each in rules if each != ToolRules())
        return (*((profile,) if profile else ()), *given, *patches)

    return PolicyRules(
        profile=_profile_rules([one for _, one in sections]),
        lists=tuple(each for each in lists if each != ToolRules()),
        get_model_rules=get_model_rules,
        subagents=filter_rules(subagents or ToolFilterConfig(), "tools.subagents.tools"),
        sandbox=sandbox_rules(common, own, plugins),
    )


def _find_patch_config(common: ToolsConfig, own: ToolsConfig | None) -> ApplyPatchConfig:
    """Return the settings of `apply_patch`: the agent's own where its `exec` section has them."""
    is_own = own is not None and "exec" in own.model_fields_set
    return (own if own is not None and is_own else common).exec.apply_patch


def patch_rules(config: ApplyPatchConfig, provider: str, model: str) -> tuple[ToolRules, ...]:
    """Return the rule that keeps `apply_patch` from a model that it is not for; () for others.

    The format is one that models of OpenAI are trained on, also where another service has them.
    `allowModels` names some of these, with or without their provider.
    """
    if not config.enabled:
        return ()  # the agent does not have the tool
    provider, model = provider.lower(), model.lower()
    is_openai = provider in _OPENAI or model.startswith("openai/")
    allowed = {each.strip().lower() for each in config.allow_models}
    if is_openai and (not allowed or {model, f"{provider}/{model}"} & allowed):
        return ()
    key = "tools.exec.applyPatch.allowModels" if is_openai else "models that are not OpenAI's"
    return (ToolRules(deny=("apply_patch",), origin=key),)


def sandbox_rules(
    common: ToolsConfig, own: ToolsConfig | None = None, plugins: frozenset[str] = frozenset()
) -> tuple[ToolRules, ...]:
    """Return the rules for sessions that have a sandbox.

    Each list is the agent's own where it has one, else that of all agents, else the default; an
    empty `allow` allows all tools. `alsoAllow` extends what is allowed, and takes its entries from
    the default list of denied tools. A list that names tools of plugins alone does the same.
    """
    sections = [(SANDBOX_KEY, common.sandbox.tools)]
    if own is not None:
        sections.insert(0, (f"the agent's {SANDBOX_KEY}", own.sandbox.tools))
    added = _find_list(sections, "also_allow")
    allow = _find_list(sections, "allow") or (_SANDBOX_DEFAULT, SANDBOX_ALLOW)
    if allow[1] and names_only_plugins(allow[1], plugins):
        added, allow = allow, (_SANDBOX_DEFAULT, SANDBOX_ALLOW)
    deny = _find_list(sections, "deny")
    if deny is None:
        extra = {normalize_tool_name(each) for each in added[1]} if added else set[str]()
        deny = (_SANDBOX_DEFAULT, tuple(each for each in SANDBOX_DENY if each not in extra))
    allowed = ToolRules(allow=allow[1], origin=allow[0])
    if added:
        allowed = merge_also_allow(allowed, added[1])
        allowed = replace(allowed, origin=f"{allow[0]}, extended by {added[0]}")
    return (ToolRules(deny=deny[1], origin=deny[0]), allowed)


def _find_list(
    sections: Sequence[tuple[str, ToolFilterConfig]], name: str
) -> tuple[str, tuple[str, ...]] | None:
    """Return the first list of a name that is set, with where it is in the config."""
    for origin, section in sections:
        entries = getattr(section, name) if name in section.model_fields_set else None
        if entries is not None:
            return origin, tuple(entries)
    return None


def _named_sections(
    common: ToolsConfig, own: ToolsConfig | None
) -> Iterator[tuple[str, ToolProfileConfig]]:
    """Yield the sections that hold for every call, with where they are in the config."""
    yield "tools", common
    if own is not None:
        yield "the agent's tools", own
        if isinstance(own, AgentToolsConfig) and own.policy:
            yield "the agent's tools.policy", own.policy


def _provider_sections(
    common: ToolsConfig, own: ToolsConfig | None, provider: str, model: str
) -> Iterator[tuple[str, ToolProfileConfig]]:
    """Yield the sections of `byProvider` for a model: its own entry, else that of its provider."""
    names = (f"{provider}/{model}".lower(), provider.lower())
    for place, tools in (("tools", common), ("the agent's tools", own)):
        if tools is None:
            continue
        sections = {name.strip().lower(): each for name, each in tools.by_provider.items()}
        found = next((name for name in names if name in sections), None)
        if found is not None:
            yield f"{place}.byProvider.{found}", sections[found]


def _profile_rules(sections: Sequence[ToolProfileConfig]) -> ToolRules | None:
    """Return the rules of the last profile that is set, extended by the last `alsoAllow`."""
    profiles = [section.profile for section in sections if section.profile]
    if not profiles:
        return None
    added = [each.also_allow for each in sections if "also_allow" in each.model_fields_set]
    rules = ToolRules(allow=PROFILES[profiles[-1]], origin=f"profile {profiles[-1]}")
    return merge_also_allow(rules, added[-1] if added else ())


def merge_also_allow(rules: ToolRules, added: tuple[str, ...]) -> ToolRules:
    """Return rules that allow more; those that allow everything stay as they are."""
    return replace(rules, allow=(*rules.allow, *added)) if rules.allow and added else rules


def _without_plugin_lists(rules: ToolRules, plugins: frozenset[str]) -> ToolRules:
    """Return rules whose allow list does not name plugin tools alone: it is ignored, as there."""
    if not rules.allow or not names_only_plugins(rules.allow, plugins):
        return rules
    return replace(rules, allow=())


def names_only_plugins(entries: Iterable[str], plugins: frozenset[str]) -> bool:
    """Return whether every entry of a list stands for tools of plugins; without any, none does."""
    known = {ALL_PLUGINS, ALL_MCP, *map(normalize_tool_name, plugins)}
    return bool(plugins) and all(normalize_tool_name(entry) in known for entry in entries)


def subagent_deny(depth: int, max_spawn_depth: int) -> tuple[str, ...]:
    """Return the tools that a sub-agent does not have at its depth."""
    return (*SUBAGENT_DENY, *LEAF_DENY) if depth >= max(max_spawn_depth, 1) else SUBAGENT_DENY
