"""Who there is: agents added to the config, changed in it, taken out of it.

The edits are pure: a config's own tree in, a new one out. Whoever writes it checks it first.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from homarus.config.paths import Paths, expand
from homarus.core.channel_traits import FindTraits, no_traits
from homarus.core.errors import UserError
from homarus.core.keys import DEFAULT_AGENT, AgentId, normalize_agent_id
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.core.value import dataclass

MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class Newcomer:
    """An agent to be made. `bind` are services whose messages it answers."""

    id: AgentId
    name: str
    workspace: str
    model: str | None = None
    agent_dir: str | None = None
    bind: tuple[str, ...] = ()


def check_name(name: str, known: Sequence[str]) -> tuple[AgentId, str]:
    """The id and the name of a new agent; UserError when there is one, or may be none."""
    shown = one_line(name, MAX_NAME)
    agent = normalize_agent_id(shown)
    if agent == DEFAULT_AGENT:
        raise UserError(f'"{one_line(name, 40)}" is reserved', fix="choose another name")
    if agent in known:
        raise UserError(f'agent "{agent}" already exists', fix="homarus agents list shows them")
    return agent, shown


def check_workspace(text: str, paths: Paths) -> Path:
    """Where an agent may live: not around the gateway's own state, nor in the midst of it."""
    if "\0" in text or not text.startswith(("/", "~/")):
        raise UserError("workspace must be an absolute path, or begin with ~/")
    state = paths.state.resolve()
    path = expand(text, paths.home)
    real = path.resolve()
    inside = real.relative_to(state).parts[:1] if real.is_relative_to(state) else ("workspace",)
    if state.is_relative_to(real) or not inside or not inside[0].startswith("workspace"):
        raise UserError(f"workspace {one_line(text)} would hold the gateway's own state")
    return path


def add_agent(
    tree: Mapping[str, Json], new: Newcomer, find_traits: FindTraits = no_traits
) -> dict[str, Json]:
    """The config with one agent more. Without a list there was `main`: it stays."""
    entry: dict[str, Json] = {"id": new.id, "name": new.name, "workspace": new.workspace}
    if new.model:
        entry["model"] = new.model
    if new.agent_dir:
        entry["agentDir"] = new.agent_dir
    entries = _entries(tree) or [{"id": DEFAULT_AGENT}]
    changed = _with_entries(tree, [*entries, entry])
    if not new.bind:
        return changed
    from homarus.agent.bindings import bind, read_match

    return bind(changed, new.id, [read_match(text) for text in new.bind], find_traits)


def change_agent(
    tree: Mapping[str, Json], agent: str, changes: Mapping[str, Json]
) -> dict[str, Json]:
    """The config with other settings for one agent; objects among them are merged."""
    entries = _entries(tree) or [{"id": agent}]
    found = [_is(entry, agent) for entry in entries]
    if not any(found):
        raise UserError(f'agent "{agent}" is not in the config file itself')
    changed = [
        _merged(entry, changes) if same else entry
        for entry, same in zip(entries, found, strict=True)
    ]
    return _with_entries(tree, changed)


def _merged(entry: Mapping[str, Json], changes: Mapping[str, Json]) -> dict[str, Json]:
    merged = dict(entry)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = {**before, **value}
        else:
            merged[key] = value
    return merged


def remove_agent(tree: Mapping[str, Json], agent: str) -> tuple[dict[str, Json], int]:
    """The config without an agent and what was bound to it; how many bindings went."""
    bindings = tree.get("bindings")
    before = bindings if isinstance(bindings, list) else []
    kept = [binding for binding in before if not _binds(binding, agent)]
    left = [entry for entry in _entries(tree) if not _is(entry, agent)]
    removed = len(before) - len(kept)
    return {**_with_entries(tree, left), **({"bindings": kept} if removed else {})}, removed


def discard(paths: Paths, agent: str, at_ms: int, *folders: Path) -> Path | None:
    """Put folders aside, those in the state directory; what lies elsewhere is the owner's."""
    state = paths.state.resolve()
    trash = state / "trash" / f"{agent}-{at_ms}"
    for folder in folders:
        if folder.is_symlink() or not folder.resolve().is_relative_to(state) or not folder.is_dir():
            continue
        trash.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):
            shutil.move(folder, trash / folder.name)
    return trash if trash.is_dir() else None


def bindings_of(tree: Mapping[str, Json], agent: str) -> list[str]:
    """What is bound to an agent, in words: `telegram`, `slack (work)`."""
    from homarus.agent.bindings import read_bindings
    from homarus.sessions.routing import describe

    return [describe(bound.match) for bound in read_bindings(tree) if bound.agent == agent]


def _entries(tree: Mapping[str, Json]) -> list[Json]:
    section = tree.get("agents")
    entries = section.get("list") if isinstance(section, dict) else None
    return list(entries) if isinstance(entries, list) else []


def _with_entries(tree: Mapping[str, Json], entries: list[Json]) -> dict[str, Json]:
    section = tree.get("agents")
    return {**tree, "agents": {**(section if isinstance(section, dict) else {}), "list": entries}}


def _is(entry: Json, agent: str) -> bool:
    return isinstance(entry, dict) and normalize_agent_id(str(entry.get("id"))) == agent


def _binds(binding: Json, agent: str) -> bool:
    return isinstance(binding, dict) and normalize_agent_id(str(binding.get("agentId"))) == agent
