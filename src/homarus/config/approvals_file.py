"""Read and extend `exec-approvals.json`, OpenClaw's rules for commands in the state directory."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

from homarus.config.change_log import log_change
from homarus.config.paths import openclaw_files_dir
from homarus.core.atomic_file import write_atomic
from homarus.core.file_lock import file_lock
from homarus.core.message import Json
from homarus.core.private_files import make_private_dir
from homarus.core.session_keys import normalize_agent_id

FILE: Final = "exec-approvals.json"
_LOCK_TIMEOUT_S: Final = 5.0
DENY_ALL: Final[Mapping[str, Json]] = {"defaults": {"security": "deny"}}


def read_approvals(state: Path) -> Mapping[str, Json]:
    """Return the content of the file, empty if there is none; one that is unreadable denies all."""
    try:
        found = json.loads((openclaw_files_dir(state) / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        return DENY_ALL
    return found if isinstance(found, dict) else DENY_ALL


def allowed_entries(approvals: Mapping[str, Json], agent_id: str) -> Iterator[Mapping[str, Json]]:
    """Yield the entries of an agent's list that name a folder: those that this program wrote."""
    for name, entries in _lists(approvals).items():
        if normalize_agent_id(name) == normalize_agent_id(agent_id):
            yield from (each for each in entries if _is_exact(each))


def add_allowed(state: Path, agent_id: str, entry: Mapping[str, Json]) -> None:
    """Add an entry to an agent's list; everything else in the file stays. Raises OSError."""
    folder = openclaw_files_dir(state)
    make_private_dir(folder)
    with file_lock(folder / f".{FILE}.lock", _LOCK_TIMEOUT_S, is_optional=True):
        approvals = read_approvals(state)
        if approvals is DENY_ALL:
            raise OSError(f"{FILE} cannot be read")
        agents = approvals.get("agents")
        sections = dict(agents) if isinstance(agents, dict) else {}
        names = [n for n in sections if normalize_agent_id(n) == normalize_agent_id(agent_id)]
        name = names[0] if names else agent_id
        found = sections.get(name)
        section = dict(found) if isinstance(found, dict) else {}
        listed = section.get("allowlist")
        known = listed if isinstance(listed, list) else []
        section["allowlist"] = [*known, {"id": str(uuid4()), **entry}]
        content = {"version": 1, **approvals, "agents": {**sections, name: section}}
        data = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        write_atomic(folder / FILE, data.encode())
    log_change(state, "allowlist", action="add", agent=name, entry=dict(entry))


def allowlist_sizes(approvals: Mapping[str, Json]) -> dict[str, int]:
    """Return how many patterns of OpenClaw each agent's list has, by agent, without empty lists."""
    counts = {
        name: sum(not _is_exact(entry) for entry in entries)
        for name, entries in _lists(approvals).items()
    }
    return {name: count for name, count in counts.items() if count}


def _lists(approvals: Mapping[str, Json]) -> dict[str, list[Json]]:
    agents = approvals.get("agents")
    return {
        name: entries
        for name, section in (agents.items() if isinstance(agents, dict) else ())
        if isinstance(section, dict) and isinstance(entries := section.get("allowlist"), list)
    }


def _is_exact(entry: Json) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("cwd"), str)
