"""Read and extend `exec-approvals.json`, OpenClaw's rules for commands in the state directory.

What this program does not know in the file stays. A change is made to the file as it is at that
moment, under a lock: an entry that was removed meanwhile is never written back.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias
from uuid import uuid4

from homarus.config.change_log import changes_by, log_change
from homarus.config.paths import openclaw_files_dir
from homarus.core.atomic_file import write_atomic
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_lock import file_lock
from homarus.core.file_stamp import FileStamp, stat_stamp
from homarus.core.message import Json
from homarus.core.private_files import make_private_dir
from homarus.core.session_keys import DEFAULT_AGENT, normalize_agent_id
from homarus.core.text import one_line

FILE: Final = "exec-approvals.json"
_LOCK_TIMEOUT_S: Final = 5.0
_ATTEMPTS: Final = 5
DENY_ALL: Final[Mapping[str, Json]] = {"defaults": {"security": "deny"}}
Approvals: TypeAlias = Mapping[str, Json]
_UNKNOWN_AUTHOR: Final = "not known: it was found when the file was read"
_USE_KEYS: Final = frozenset({"lastUsedAt", "lastUsedCommand", "lastResolvedPath"})
_MAX_RULE_CHARS: Final = 200
_MAX_CHANGES: Final = 50  # that one row of the audit log names
# The stamp, the hash and the rules of each file when this process read it last: a change by hand is
# found by them.
_seen: dict[Path, tuple[FileStamp | None, str, frozenset[str]]] = {}


@dataclass(frozen=True, slots=True)
class EntryUse:
    """The use of an entry by a command: `key` is its id, or its pattern where it has none."""

    key: str
    command: str
    resolved_path: str


def read_approvals(state: Path) -> Approvals:
    """Return the content of the file, empty if there is none; one that is unreadable denies all."""
    path = openclaw_files_dir(state) / FILE
    stamp = stat_stamp(path)
    found = _read(path) if stamp is None else _read_again(path, stamp)
    known = _seen.get(path)
    if known is None or known[0] != stamp:
        _, digest, rules = _seen[path] = (stamp, _rules_hash(found), _list_rules(found))
        if known and known[1] != digest:
            changed = _describe_changes(known[2], rules)
            with changes_by(_UNKNOWN_AUTHOR):
                log_change(state, "allowlist", action="load", changed=changed, hash=digest)
    return found


def describe_changed_rules(old: Approvals, new: Approvals) -> list[Json]:
    """Return which rules of the file were added and removed, for the audit log."""
    return _describe_changes(_list_rules(old), _list_rules(new))


def _describe_changes(old: frozenset[str], new: frozenset[str]) -> list[Json]:
    changes = [f"added {each}" for each in sorted(new - old)]
    changes += [f"removed {each}" for each in sorted(old - new)]
    more = len(changes) - _MAX_CHANGES
    return [*changes[:_MAX_CHANGES], *([f"{more} more"] if more > 0 else [])]


def _list_rules(approvals: Approvals) -> frozenset[str]:
    """Return every rule of the file as a line with its agent, without ids and uses."""
    agents = approvals.get("agents")
    sections = [("defaults", approvals.get("defaults"))]
    sections += [*agents.items()] if isinstance(agents, dict) else []
    rules = set[str]()
    for name, section in sections:
        for key, value in section.items() if isinstance(section, dict) else ():
            for each in value if key == "allowlist" and isinstance(value, list) else [value]:
                rules.add(f"{name}: {key} {_describe_rule(each)}")
    return frozenset(rules)


def _describe_rule(rule: Json) -> str:
    if isinstance(rule, dict):
        rule = {key: value for key, value in rule.items() if key not in {"id", *_USE_KEYS}}
        if len(rule) == 1 and "pattern" in rule:
            rule = rule["pattern"]
    try:
        text = rule if isinstance(rule, str) else json.dumps(rule, ensure_ascii=False)
    except RecursionError:
        text = "too deep"
    return one_line(text, _MAX_RULE_CHARS)


def _rules_hash(approvals: Approvals) -> str:
    """Return the hash of the rules of the file, without what is noted about their use."""

    def decode(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        return {name: value for name, value in pairs if name not in _USE_KEYS}

    try:
        rules = json.loads(json.dumps(approvals), object_pairs_hook=decode)
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        return "too deep"


@lru_cache(8)
def _read_again(path: Path, _stamp: FileStamp) -> Approvals:
    """Read the file; one that was not written since is not read again."""
    return _read(path)


def _read(path: Path) -> Approvals:
    try:
        return _parse(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError:
        return DENY_ALL


def _parse(data: bytes) -> Approvals:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return DENY_ALL
    return found if isinstance(found, dict) else DENY_ALL


def agent_entries(approvals: Approvals, agent_id: str) -> Iterator[Json]:
    """Yield the entries for an agent: its own and those of all agents (`*`)."""
    for name, entries in _lists(approvals).items():
        if name == "*" or _is_agent(name, agent_id):
            yield from entries


def add_allowed(state: Path, agent_id: str, *entries: Mapping[str, Json]) -> None:
    """Add entries to an agent's list; one that is there already is not added. Raises OSError."""

    def add(approvals: Approvals) -> Approvals:
        agents = approvals.get("agents")
        sections = dict(agents) if isinstance(agents, dict) else {}
        name = next((each for each in sections if _is_agent(each, agent_id)), agent_id)
        found = sections.get(name)
        section = dict(found) if isinstance(found, dict) else {}
        listed = section.get("allowlist")
        known = listed if isinstance(listed, list) else []
        new = [{"id": str(uuid4()), **each} for each in entries if not _is_listed(each, known)]
        section["allowlist"] = [*known, *new]
        return {"version": 1, **approvals, "agents": {**sections, name: section}}

    _change(state, add)
    listed = [dict(each) for each in entries]
    log_change(state, "allowlist", action="add", agent=agent_id, entries=listed)


def record_use(state: Path, agent_id: str, uses: Mapping[str, EntryUse], now_ms: int) -> None:
    """Write into the entries of an agent when and by what they were used. Raises OSError.

    An entry that is not in the file any more stays removed.
    """

    def update(approvals: Approvals) -> Approvals:
        agents = dict(approvals.get("agents", {}))
        for name, entries in _lists(approvals).items():
            if name == "*" or _is_agent(name, agent_id):
                changed = [_used(each, uses, now_ms) for each in entries]
                agents[name] = {**agents[name], "allowlist": changed}
        return {**approvals, "agents": agents}

    if any(_key(each) in uses for each in agent_entries(read_approvals(state), agent_id)):
        _change(state, update)


def _used(entry: Json, uses: Mapping[str, EntryUse], now_ms: int) -> Json:
    use = uses.get(_key(entry))
    if use is None:
        return entry
    if isinstance(entry, str):
        if len(entry.split()) < 2:
            return entry  # as an object it would allow the program with other arguments, too
        entry = {"id": str(uuid4()), "pattern": entry}
    return {
        **entry,
        "lastUsedAt": now_ms,
        "lastUsedCommand": use.command,
        "lastResolvedPath": use.resolved_path,
    }


def _key(entry: Json) -> str:
    if isinstance(entry, str):
        return entry.strip()
    if not isinstance(entry, dict):
        return ""
    found = entry.get("id") or entry.get("pattern")
    return found.strip() if isinstance(found, str) else ""


def _is_listed(entry: Mapping[str, Json], known: list[Json]) -> bool:
    return any(
        isinstance(each, dict) and all(each.get(name) == value for name, value in entry.items())
        for each in known
    )


def _change(state: Path, change: Callable[[Approvals], Approvals]) -> None:
    """Replace the file by what `change` makes of it; a change by another program is not lost."""
    folder = openclaw_files_dir(state)
    make_private_dir(folder)
    path = folder / FILE
    with file_lock(folder / f".{FILE}.lock", _LOCK_TIMEOUT_S, is_optional=True):
        for _ in range(_ATTEMPTS):
            before = path.read_bytes() if path.is_file() else b"{}"
            approvals = _parse(before)
            if approvals is DENY_ALL:
                raise OSError(f"{FILE} cannot be read")
            data = json.dumps(change(approvals), ensure_ascii=False, indent=2) + "\n"
            if (path.read_bytes() if path.is_file() else b"{}") == before:
                write_atomic(path, data.encode())
                return
    raise OSError(f"{FILE} is changed by another program all the time")


def _is_agent(name: str, agent_id: str) -> bool:
    agent = normalize_agent_id(agent_id)
    return name != "*" and (
        normalize_agent_id(name) == agent or (name == "default" and agent == DEFAULT_AGENT)
    )


def _lists(approvals: Approvals) -> dict[str, list[Json]]:
    agents = approvals.get("agents")
    return {
        name: entries
        for name, section in (agents.items() if isinstance(agents, dict) else ())
        if isinstance(section, dict) and isinstance(entries := section.get("allowlist"), list)
    }
