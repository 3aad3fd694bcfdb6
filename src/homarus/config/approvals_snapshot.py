"""Read and replace `exec-approvals.json` as clients see it: checked, and with a hash.

A client that changes the file names the hash of what it has read: a change in between, as a rule
that another person revoked, is never undone by it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from homarus.config.approvals_file import FILE, describe_changed_rules
from homarus.config.change_log import log_change
from homarus.config.paths import openclaw_files_dir
from homarus.core.atomic_file import write_atomic
from homarus.core.errors import ConflictError, StoreError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_lock import file_lock
from homarus.core.message import Json
from homarus.core.private_files import make_private_dir
from homarus.core.session_keys import normalize_agent_id
from homarus.core.text import one_line

_LOCK_TIMEOUT_S: Final = 5.0
_MAX_PATTERN_CHARS: Final = 4_096
_MAX_ENTRIES: Final = 10_000  # of one agent's list
_SECURITY: Final = ("deny", "allowlist", "full")
_ASK: Final = ("off", "on-miss", "always")
_RULES: Final[Mapping[str, Sequence[Json]]] = {
    "security": _SECURITY,
    "ask": _ASK,
    "askFallback": _SECURITY,
    "autoAllowSkills": (True, False),
}
_DENY_ALL: Final[Mapping[str, Json]] = {"version": 1, "defaults": {"security": "deny"}}
# The ids under which the main agent has been listed.
_MAIN: Final = frozenset({"default", "main"})


@dataclass(frozen=True, slots=True)
class ApprovalsSnapshot:
    """The file at one moment: `hash` is of its text, `file` its content without the socket's token.

    A file that cannot be parsed denies every command, and is shown so.
    """

    path: Path
    exists: bool
    hash: str
    file: Mapping[str, Json]

    def to_json(self) -> dict[str, Json]:
        """Return it as clients get it."""
        return {
            "path": str(self.path),
            "exists": self.exists,
            "hash": self.hash,
            "file": dict(self.file),
        }


def read_approvals_snapshot(state: Path) -> ApprovalsSnapshot:
    """Return the file of a state directory. Raises StoreError when it cannot be read."""
    return _snapshot(openclaw_files_dir(state) / FILE)[0]


def write_approvals(
    state: Path, file: Mapping[str, Json], base_hash: str = ""
) -> ApprovalsSnapshot:
    """Replace the file by a checked one, if it is still the one with this hash; return it.

    The token of the socket stays as it is. Raises UserError for an invalid file, ConflictError
    when the file has another hash or, without a hash, when there is a file.
    """
    checked = check_approvals(file)

    def replace(old: ApprovalsSnapshot) -> Mapping[str, Json]:
        if old.exists and base_hash != old.hash:
            problem = "has changed since it was read" if base_hash else "exists: name its hash"
            raise ConflictError(f"{FILE} {problem}", fix="read it again and repeat the change")
        return checked

    return change_approvals(state, replace)


def change_approvals(
    state: Path, change: Callable[[ApprovalsSnapshot], Mapping[str, Json] | None]
) -> ApprovalsSnapshot:
    """Replace the file by what `change` makes of it, under its lock; None leaves it as it is."""
    folder = openclaw_files_dir(state)
    try:
        make_private_dir(folder)
        with file_lock(folder / f".{FILE}.lock", _LOCK_TIMEOUT_S, is_optional=True):
            old, socket = _snapshot(folder / FILE)
            new = change(old)
            if new is not None:
                data = json.dumps(_with_socket(new, socket), ensure_ascii=False, indent=2) + "\n"
                write_atomic(folder / FILE, data.encode())
            written = _snapshot(folder / FILE)[0]
    except OSError as exc:
        raise StoreError(f"{folder / FILE} cannot be changed: {exc}") from exc
    if new is not None:
        changed = describe_changed_rules(old.file, written.file)
        log_change(state, "allowlist", action="write", changed=changed, hash=written.hash)
    return written


def edit_allowlist(
    file: Mapping[str, Json], agent: str, *, add: str = "", remove: str = "", now_ms: int = 0
) -> Mapping[str, Json] | None:
    """Return the file with a pattern added or removed; None when that changes nothing."""
    listed = _allowlist(file, agent)
    if remove:
        kept = [each for each in listed if each.get("pattern") != remove.strip()]
        return _with_allowlist(file, agent, kept) if len(kept) < len(listed) else None
    entry = _entry({"pattern": add, "lastUsedAt": now_ms}, "pattern")
    if any(each.get("pattern") == entry["pattern"] for each in listed):
        return None
    return _with_allowlist(file, agent, [*listed, entry])


def check_approvals(file: Mapping[str, Json]) -> dict[str, Json]:
    """Return the file with ids in its lists and one section per agent. Raises UserError.

    Settings that this program does not know stay; a value that it would not obey is refused.
    """
    if type(file.get("version")) is not int or file["version"] != 1:
        raise _invalid("version", "must be 1")
    checked: dict[str, Json] = {**file, "version": 1}
    socket = _section(file, "socket", "socket")
    for name in ("path", "token"):
        if not isinstance(socket.get(name, ""), str):
            raise _invalid(f"socket.{name}", "must be text")
    _check_rules(_section(file, "defaults", "defaults"), "defaults")
    agents: dict[str, Json] = {}
    for name, section in _section(file, "agents", "agents").items():
        at = f"agents.{one_line(name, 80)}"
        if not isinstance(section, Mapping):
            raise _invalid(at, "must be an object")
        _check_rules(section, at)
        own = "main" if name in _MAIN else name
        listed = [*_list_of(agents.get(own)), *_check_list(section.get("allowlist"), at)]
        agents[own] = {**agents.get(own, {}), **section}
        if listed or "allowlist" in section:
            agents[own]["allowlist"] = listed
    return {**checked, "agents": agents} if "agents" in file else checked


def _snapshot(path: Path) -> tuple[ApprovalsSnapshot, Mapping[str, Json]]:
    """Return the file, and its socket section with the token."""
    try:
        data, exists = path.read_bytes(), True
    except FileNotFoundError:
        data, exists = b"", False
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc}") from exc
    try:
        found = json.loads(data.decode()) if exists else {}
    except (ValueError, RecursionError):
        found = _DENY_ALL
    content: dict[str, Json] = dict(found if isinstance(found, dict) else _DENY_ALL)
    socket = content.get("socket")
    socket = socket if isinstance(socket, dict) else {}
    if socket:
        content["socket"] = {name: value for name, value in socket.items() if name != "token"}
    digest = hashlib.sha256(data).hexdigest()
    shown = {"version": 1, "defaults": {}, "agents": {}, **content}
    return ApprovalsSnapshot(path, exists, digest, shown), socket


def _with_socket(file: Mapping[str, Json], socket: Mapping[str, Json]) -> dict[str, Json]:
    own = file.get("socket")
    merged = {**socket, **(own if isinstance(own, Mapping) else {})}
    return {**file, "socket": merged} if merged else dict(file)


def _check_rules(section: Mapping[str, Json], at: str) -> None:
    for name, allowed in _RULES.items():
        value = section.get(name)
        if value is not None and not any(value is one or value == one for one in allowed):
            shown = ", ".join(json.dumps(one).strip('"') for one in allowed)
            raise _invalid(f"{at}.{name}", f"must be one of {shown}")
        if value is not None and isinstance(value, bool) != (name == "autoAllowSkills"):
            raise _invalid(f"{at}.{name}", "must be true or false")


def _check_list(value: Json, at: str) -> list[dict[str, Json]]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MAX_ENTRIES:
        raise _invalid(f"{at}.allowlist", f"must be a list of at most {_MAX_ENTRIES} entries")
    return [_entry(each, f"{at}.allowlist[{index}]") for index, each in enumerate(value)]


def _entry(value: Json, at: str) -> dict[str, Json]:
    """Return an entry of a list with an id; text is an entry with that pattern."""
    entry: Json = {"pattern": value} if isinstance(value, str) else value
    if not isinstance(entry, Mapping):
        raise _invalid(at, "must be an object with a pattern")
    pattern = entry.get("pattern")
    if not isinstance(pattern, str) or not 0 < len(pattern.strip()) <= _MAX_PATTERN_CHARS:
        raise _invalid(f"{at}.pattern", f"must be text of 1 to {_MAX_PATTERN_CHARS} characters")
    if "\0" in pattern or "\n" in pattern:
        raise _invalid(f"{at}.pattern", "must be one line")
    for name in ("id", "lastUsedCommand", "lastResolvedPath"):
        if not isinstance(entry.get(name, ""), str):
            raise _invalid(f"{at}.{name}", "must be text")
    used_ms = entry.get("lastUsedAt", 0)
    if isinstance(used_ms, bool) or not isinstance(used_ms, int | float) or used_ms < 0:
        raise _invalid(f"{at}.lastUsedAt", "must be a time in milliseconds")
    return {"id": entry.get("id") or str(uuid4()), **entry, "pattern": pattern.strip()}


def _section(file: Mapping[str, Json], name: str, at: str) -> Mapping[str, Json]:
    found = file.get(name, {})
    if not isinstance(found, Mapping):
        raise _invalid(at, "must be an object")
    return found


def _list_of(section: Any) -> list[dict[str, Json]]:
    found = section.get("allowlist") if isinstance(section, Mapping) else None
    return [
        {"pattern": each} if isinstance(each, str) else dict(each)
        for each in (found if isinstance(found, list) else ())
        if isinstance(each, str | dict)
    ]


def _allowlist(file: Mapping[str, Json], agent: str) -> list[dict[str, Json]]:
    return _list_of(_agents(file).get(_agent_name(file, agent)))


def _with_allowlist(
    file: Mapping[str, Json], agent: str, entries: Sequence[Mapping[str, Json]]
) -> dict[str, Json]:
    name, agents = _agent_name(file, agent), _agents(file)
    section = agents.get(name)
    own = {**(section if isinstance(section, dict) else {}), "allowlist": list(entries)}
    return {"version": 1, **file, "agents": {**agents, name: own}}


def _agents(file: Mapping[str, Json]) -> Mapping[str, Json]:
    found = file.get("agents")
    return found if isinstance(found, dict) else {}


def _agent_name(file: Mapping[str, Json], agent: str) -> str:
    """Return the key under which an agent is listed; `*` is every agent."""
    if agent == "*":
        return agent
    wanted = normalize_agent_id(agent)
    return next((n for n in _agents(file) if n != "*" and normalize_agent_id(n) == wanted), agent)


def _invalid(at: str, problem: str) -> UserError:
    return UserError(f"{FILE}: {at} {problem}", fix="correct it and send the file again")
