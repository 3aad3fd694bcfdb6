"""Read `exec-approvals.json`, the rules for commands that OpenClaw keeps in the state directory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from homarus.core.message import Json

FILE: Final = "exec-approvals.json"
_UNREADABLE: Final[Mapping[str, Json]] = {"defaults": {"security": "deny"}}


def read_approvals(state: Path) -> Mapping[str, Json]:
    """Return the content of the file, empty if there is none; one that is unreadable denies all."""
    try:
        found = json.loads((state / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        return _UNREADABLE
    return found if isinstance(found, dict) else _UNREADABLE


def allowlist_sizes(approvals: Mapping[str, Json]) -> dict[str, int]:
    """Return how many commands each agent's list allows, by agent, without empty lists."""
    agents = approvals.get("agents")
    lists = {
        name: len(entries)
        for name, section in (agents.items() if isinstance(agents, dict) else ())
        if isinstance(section, dict) and isinstance(entries := section.get("allowlist"), list)
    }
    return {name: count for name, count in lists.items() if count}
