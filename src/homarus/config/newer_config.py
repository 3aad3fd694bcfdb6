"""Read and write the `openclaw.json` of OpenClaw 2026.9, whose settings have other places.

In memory a config always has the keys of `original_keys.txt`. A file that OpenClaw 2026.9 wrote is
converted when it is read (`to_known_keys`) and converted back before it is written
(`to_newer_keys`): `agents.entries` is `agents.list`, and `memory.search` is `memorySearch`.
Settings whose meaning changed are translated before they are checked (`translate`). Of the keys
that are left, one that restricts refuses the config, any other has no effect.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from homarus.config.ignored_settings import reason_without_effect
from homarus.config.json5_document import KeyPath, Value
from homarus.config.known_keys import UNKNOWN_KEY, KeyProblem, join_path
from homarus.config.tree_edit import apply_merge_patch
from homarus.core.errors import ConfigError
from homarus.core.session_keys import DEFAULT_AGENT, normalize_agent_id

_INCLUDE: Final = "$include"
_NEVER_MINUTES: Final = 60 * 24 * 365 * 100
_EXEC_MODES: Final = {
    "deny": {"security": "deny"},
    "allowlist": {"security": "allowlist", "ask": "off"},
    "ask": {"security": "allowlist", "ask": "on-miss"},
    "auto": {"security": "allowlist", "ask": "on-miss"},  # a person instead of a reviewing model
    "full": {"security": "full", "ask": "off"},
}
# Words in the names of settings that allow less than their absence does.
_RESTRICTS: Final = re.compile(
    r"allow|deny|denied|block|restrict|requir|forbid|only|polic|approv|sandbox|guard|disab|security"
    r"|owner|role|scope|access|member|mention|trust|private|visib|limit|budget|sharing|bysender",
    re.IGNORECASE,
)
_PERMITS: Final = re.compile(r"allow|trust|visib|sharing", re.IGNORECASE)
# New settings of 2026.9 that restrict only what does not exist here, or nothing.
_HARMLESS: Final = (
    "accessGroups",  # names of senders: a list that uses one matches no sender here
    "acp", "cloudWorkers", "desktop", "proxy", "secrets", "skills", "surfaces", "talk",
    "telemetry", "transcripts", "tts", "attachments", "logging.audit", "security.audit",
    "agents.defaults.authInheritance", "agents.defaults.contextLimits",
    "agents.defaults.modelSelectionScope", "agents.defaults.subagents",
    "agents.list[].contextLimits", "agents.list[].subagents",
    "gateway.controlUi", "gateway.nodes", "gateway.portals", "gateway.push", "gateway.remote",
    "gateway.terminal", "gateway.tools", "gateway.http.endpoints", "gateway.cliAgents",
    "models.catalogRefresh", "session.maintenance", "session.threadBindings", "session.sharing",
    "tools.codeMode", "tools.swarm", "tools.toolSearch", "tools.github", "tools.sessions_spawn",
    "wizard", "worktreeAcceleration",
)  # fmt: skip


def to_known_keys(tree: Mapping[str, Value]) -> dict[str, Value]:
    """Return a config of 2026.9 with the known keys; any other config as it is."""
    known = dict(tree)
    agents, memory = dict(_section(tree, "agents")), dict(_section(tree, "memory"))
    entries = agents.get("entries")
    if isinstance(entries, dict) and _INCLUDE not in entries:
        del agents["entries"]
        listed = {_entry_key(entry): entry for entry in agents.get("list") or () if entry}
        for key, entry in entries.items():
            listed[key] = _over(listed, key, _known_entry(key, entry))
        agents["list"] = list(listed.values())
    if "search" in memory:
        search, defaults = memory.pop("search"), _section(agents, "defaults")
        agents["defaults"] = {**defaults, "memorySearch": _over(defaults, "memorySearch", search)}
        known["memory"] = memory
        if not memory:
            del known["memory"]
    return {**known, "agents": agents} if agents or "agents" in tree else known


def to_newer_keys(tree: Mapping[str, Value]) -> dict[str, Value]:
    """Return a config with known keys as OpenClaw 2026.9 has it. Raises ConfigError."""
    newer = dict(tree)
    agents = dict(_section(tree, "agents"))
    if isinstance(agents.get("list"), list):
        entries = dict(_section(agents, "entries"))
        entries |= {_entry_key(entry): _newer_entry(entry) for entry in agents.pop("list")}
        agents["entries"] = entries
    defaults = dict(_section(agents, "defaults"))
    if "memorySearch" in defaults:
        newer["memory"] = {**_section(tree, "memory"), "search": defaults.pop("memorySearch")}
        agents["defaults"] = defaults
        if not defaults:
            del agents["defaults"]
    newer.pop("agents", None)
    return {**newer, "agents": agents} if agents else newer


def to_written_path(path: KeyPath, tree: Mapping[str, Value]) -> KeyPath:
    """Convert the path of a known key to the one in a file of 2026.9; `tree` has known keys."""
    if path[:3] == ("agents", "defaults", "memorySearch"):
        return ("memory", "search", *path[3:])
    if path[:2] != ("agents", "list") or len(path) < 3 or not isinstance(path[2], int):
        return path
    listed = _section(tree, "agents").get("list")
    entry = listed[path[2]] if isinstance(listed, list) and path[2] < len(listed) else None
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
        return path
    rest = ("memory", "search", *path[4:]) if path[3:4] == ("memorySearch",) else path[3:]
    return ("agents", "entries", entry["id"], *rest)


def translate(tree: Mapping[str, Value]) -> tuple[dict[str, Value], list[KeyProblem]]:
    """Return a config of 2026.9, with known keys, whose settings mean what they mean there.

    The problems are the settings that restrict and cannot be obeyed.
    """
    translated: dict[str, Value] = _resolve_secrets(dict(tree))
    meta = {key: each for key, each in _section(tree, "meta").items() if key != "migrations"}
    translated |= {"meta": meta} if "meta" in tree else {}
    translated["session"] = _translate_resets(_section(translated, "session"))
    _translate_exec(translated)
    problems = [*_translate_agents(translated)]
    return translated, problems


def split_unknown(
    problems: Sequence[KeyProblem], tree: Mapping[str, Value]
) -> tuple[list[KeyProblem], list[KeyProblem]]:
    """Divide the problems of a config of 2026.9: those that remain, and keys without an effect."""
    remaining: list[KeyProblem] = []
    ignored: list[KeyProblem] = []
    for problem in problems:
        if problem.message != UNKNOWN_KEY:
            remaining.append(problem)
        elif (key := _restricting_key(problem.path, _at(tree, problem.path))) is None:
            ignored.append(problem)
        else:
            fix = "a setting of OpenClaw 2026.9: remove it if you can do without the restriction"
            remaining.append(KeyProblem(key, "restricts, and this version cannot obey it", fix))
    return remaining, ignored


def format_ignored(problem: KeyProblem) -> str:
    """Return the name of a key without an effect, and which one may have been meant."""
    return _name(problem.path) + (f" ({problem.fix})" if problem.fix else "")


def _name(path: KeyPath) -> str:
    name = ""
    for step in path:
        name = join_path(name, step)
    return name


def without_paths(tree: Value, paths: Sequence[KeyPath]) -> Value:
    """Return a tree without the values at these paths."""
    for path in paths:
        tree = _remove(tree, path)
    return tree


def _restricting_key(path: KeyPath, value: Value) -> KeyPath | None:
    """Return the path of a setting that restricts, at an unknown key or below it."""
    name = _name(path)
    if reason_without_effect(name) or any(f"{name}.".startswith(f"{e}.") for e in _HARMLESS):
        return None
    if isinstance(value, dict) and not _RESTRICTS.search(str(path[-1])):
        below = (_restricting_key((*path, key), inner) for key, inner in value.items())
        return next((found for found in below if found), None)
    if value in (None, [], {}, "off", "allow", "any", "full"):
        return None
    if isinstance(value, bool) and value == bool(_PERMITS.search(str(path[-1]))):
        return None
    return path if _RESTRICTS.search(str(path[-1])) else None


def _translate_agents(tree: dict[str, Value]) -> Iterator[KeyProblem]:
    agents = dict(_section(tree, "agents"))
    defaults = dict(_section(agents, "defaults"))
    entries = [dict(entry) for entry in agents.get("list") or () if isinstance(entry, dict)]
    policy = _section(defaults, "modelPolicy").get("allow")
    defaults.pop("modelPolicy", None)
    models = _section(defaults, "models")
    if isinstance(policy, list) and policy:
        defaults["models"] = {str(ref): models.get(str(ref), {}) for ref in policy}
        if any("*" in str(ref) for ref in policy):
            path: KeyPath = ("agents", "defaults", "modelPolicy", "allow")
            yield KeyProblem(path, "patterns cannot be obeyed", "list the models by their names")
    elif models and not any(models.values()):
        del defaults["models"]  # without settings of its own, a list would only restrict
    for index, entry in enumerate(entries):
        if _section(entry, "modelPolicy").get("allow"):
            path = ("agents", "list", index, "modelPolicy")
            fix = "use agents.defaults.modelPolicy for all agents"
            yield KeyProblem(path, "the models of one agent cannot be restricted", fix)
        entry.pop("modelPolicy", None)
    wanted = _section(defaults, "systemAgent").get("agentId", DEFAULT_AGENT)
    defaults.pop("systemAgent", None)
    for entry in entries if len(entries) > 1 else ():
        if entry.get("id") == wanted:
            entry["default"] = True
    if agents.pop("ownership", None) and len(entries) > 1:
        yield from _unbound_channels(tree)
    agents |= {"defaults": defaults} if defaults else {}
    agents |= {"list": entries} if entries else {}
    if agents:
        tree["agents"] = agents


def _unbound_channels(tree: Mapping[str, Value]) -> Iterator[KeyProblem]:
    """Yield the channels whose chats OpenClaw would not answer: no agent is bound to them."""
    bound = set[str]()
    for binding in tree.get("bindings") or ():
        match = _section(binding, "match") if isinstance(binding, dict) else {}
        if not {"peer", "guildId", "teamId"} & match.keys() and match.get("accountId", "*") == "*":
            bound.add(str(match.get("channel")))
    for name, channel in _section(tree, "channels").items():
        is_on = isinstance(channel, dict) and channel.get("enabled", True)
        if is_on and name not in {*bound, "defaults", "modelByChannel"}:
            message = f"the chats of {name} are bound to no agent"
            fix = f"homarus agents bind --agent ID --bind {name}"
            yield KeyProblem(("agents", "ownership"), message, fix)


def _translate_resets(session: Mapping[str, Value]) -> dict[str, Value]:
    """Keep sessions where OpenClaw 2026.9 does: without a reset mode there is no reset."""
    translated = dict(session)
    reset = session.get("reset")
    if reset is None and "idleMinutes" not in session:
        reset = {"mode": "none"}
    if isinstance(reset, dict):
        translated["reset"] = _reset(reset)
    for name in ("resetByType", "resetByChannel"):
        if isinstance(rules := session.get(name), dict):
            translated[name] = {
                key: _reset(rule) if isinstance(rule, dict) else rule for key, rule in rules.items()
            }
    return translated


def _reset(rule: Mapping[str, Value]) -> dict[str, Value]:
    is_idle = isinstance(rule.get("idleMinutes"), int)
    mode = rule.get("mode", "idle" if is_idle else "none")
    if mode != "none":
        return {**rule, "mode": mode}
    return {"mode": "idle", "idleMinutes": _NEVER_MINUTES}


def _translate_exec(tree: dict[str, Value]) -> None:
    def convert(tools: Value) -> Value:
        commands = dict(_section(tools, "exec"))
        mode = commands.pop("mode", None)
        seconds = commands.pop("timeoutSeconds", None)
        if mode is None and seconds is None:
            return tools
        known = _EXEC_MODES.get(mode, {"mode": mode}) if isinstance(mode, str) else {}
        limit = {} if seconds is None else {"timeoutSec": seconds}
        return {**tools, "exec": {**commands, **known, **limit}}

    agents = _section(tree, "agents")
    if isinstance(tree.get("tools"), dict):
        tree["tools"] = convert(tree["tools"])
    if isinstance(agents.get("list"), list):
        entries = [
            {**entry, "tools": convert(entry["tools"])}
            if isinstance(entry, dict) and isinstance(entry.get("tools"), dict)
            else entry
            for entry in agents["list"]
        ]
        tree["agents"] = {**agents, "list": entries}


def _resolve_secrets(value: Value) -> Value:
    """Return a tree in which references to secrets in variables are `${NAME}`."""
    if isinstance(value, list):
        return [_resolve_secrets(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"source", "provider", "id"} and value["source"] == "env":
        return f"${{{value['id']}}}"
    return {key: _resolve_secrets(each) for key, each in value.items()}


def _known_entry(key: str, entry: Value) -> Value:
    if not isinstance(entry, dict):
        return {"id": key} if entry is None else entry
    known = {"id": key, **entry}
    memory = dict(_section(entry, "memory"))
    if "search" in memory:
        known["memorySearch"] = _over(entry, "memorySearch", memory.pop("search"))
        known["memory"] = memory
        if not memory:
            del known["memory"]
    return known


def _newer_entry(entry: Value) -> Value:
    if not isinstance(entry, dict):
        return entry
    newer = {key: value for key, value in entry.items() if key not in {"id", "memorySearch"}}
    if newer.get("default"):
        raise ConfigError(
            "OpenClaw 2026.9, which wrote this config, has no default agent",
            key=f"agents.entries.{entry.get('id')}.default",
            fix="homarus agents bind says which agent answers",
        )
    if "memorySearch" in entry:
        newer["memory"] = {**_section(entry, "memory"), "search": entry["memorySearch"]}
    return newer


def _entry_key(entry: Value) -> str:
    key = entry.get("id") if isinstance(entry, dict) else None
    if not isinstance(key, str) or not normalize_agent_id(key):
        raise ConfigError("an agent has no id", key="agents.list", fix="give it one")
    return key


def _over(section: Mapping[str, Value], key: str, value: Value) -> Value:
    return apply_merge_patch(section[key], value) if isinstance(section.get(key), dict) else value


def _section(tree: Value, key: str) -> Mapping[str, Value]:
    value = tree.get(key) if isinstance(tree, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _at(tree: Value, path: KeyPath) -> Value:
    for step in path:
        try:
            tree = tree[step]
        except (IndexError, KeyError, TypeError):
            return None
    return tree


def _remove(tree: Value, path: KeyPath) -> Value:
    if len(path) == 1:
        return {name: each for name, each in tree.items() if name != path[0]}
    inner = _remove(tree[path[0]], path[1:])
    if isinstance(tree, list):
        return [inner if index == path[0] else each for index, each in enumerate(tree)]
    return {**tree, path[0]: inner}
