"""Functions of the vectors about tool policy, by ours about declarations of tools."""

from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, ToolCallFacts, ToolDeclaration
from homarus.policy.tool_policy import (
    PROFILES,
    PolicyRules,
    ToolRules,
    find_match,
    merge_also_allow,
    normalize_tool_name,
    subagent_deny,
)
from homarus.tools.catalog import find_declaration, known_declarations
from tests.vectors.cases import Json, get

CALLER = CallerFacts("main", "agent:main:main")


def resolve_tool_name(name: str) -> str:
    """Return the name of the tool that a name stands for."""
    found = find_declaration(name)
    return found.name if found else normalize_tool_name(name)


# The order of a group has no meaning: ours has the tools that are implemented first.
_SESSION_TOOLS = (
    "sessions_list", "sessions_history", "sessions_send", "sessions_spawn", "subagents",
    "session_status",
)  # fmt: skip


def expand_tool_groups(entries: list[str]) -> list[str]:
    """Return the tools that the entries of a list match, in OpenClaw's order of a group."""
    places = {name: place for place, name in enumerate(_SESSION_TOOLS)}
    names = dict[str, None]()
    for entry in entries:
        matched = [each.name for each in known_declarations() if find_match(each, (entry,))]
        matched.sort(key=lambda name: places.get(name, -1))
        names |= dict.fromkeys(matched or [normalize_tool_name(entry)])
    return list(names)


def resolve_profile(profile: str | None) -> Json:
    entries = PROFILES.get(profile or "", ("*",))
    return None if entries == ("*",) else {"allow": expand_tool_groups(list(entries))}


def is_tool_allowed(name: str, policy: Json = None) -> bool:
    rules = ToolRules(tuple(get(policy, "allow", ())), deny=tuple(get(policy, "deny", ())))
    call = ToolCallFacts(_declaration(name))
    return decide_tool_call(call, CALLER, PolicyRules(lists=(rules,))).action == "allow"


def resolve_subagent_policy(config: Json = None, depth: int | None = None) -> Json:
    defaults = get(get(config, "agents", {}), "defaults", {})
    max_depth = get(get(defaults, "subagents", {}), "maxSpawnDepth", 1)
    return {"deny": subagent_deny(1 if depth is None else depth, max_depth)}


def extend_allow_list(policy: Json, added: list[str] | None = None) -> Json:
    if policy is None:
        return None
    rules = merge_also_allow(ToolRules(tuple(get(policy, "allow", ()))), tuple(added or ()))
    return {"allow": rules.allow or None}


def is_owner_only(name: str) -> bool:
    return _declaration(name).is_owner_only


def matches_glob(name: str, globs: list[str]) -> bool:
    return bool(find_match(ToolDeclaration(name), tuple(globs)))


def _declaration(name: str) -> ToolDeclaration:
    return find_declaration(name) or ToolDeclaration(name)
