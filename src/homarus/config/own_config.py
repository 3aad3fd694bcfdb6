"""Merge `homarus.json` over `openclaw.json`.

OpenClaw refuses a config with a key or value that it does not know. Settings of our own are
therefore in a second file with the same shape, whose values win over those of `openclaw.json`.
Entries of `agents.list` correspond by their id. Settings of our own in `openclaw.json`, where they
were formerly written, are read too. Which settings are our own: own_keys.py.
"""

from collections.abc import Mapping

from homarus.config.json5_document import KeyPath, Value
from homarus.config.tree_edit import apply_merge_patch
from homarus.core.session_keys import DEFAULT_AGENT, normalize_agent_id


def overlay_own(tree: Mapping[str, Value], own: Mapping[str, Value]) -> dict[str, Value]:
    """Return the tree of `openclaw.json` with the values of `homarus.json` in it.

    An entry for an agent that is not in the list has no effect: it must not create that agent.
    """
    entries = agent_entries(own)
    if not entries:
        return merge_own(tree, own)
    rest = merge_own(tree, _without_agent_list(own))
    listed = agent_entries(tree) or [{"id": implied_agent(rest)}]
    by_id = {entry_id(entry): entry for entry in entries if entry_id(entry)}
    applied = [merge_own(each, by_id.get(entry_id(each), {}), "id") for each in listed]
    if by_id.keys().isdisjoint(map(entry_id, listed)):
        return rest
    agents = rest.get("agents")
    return {**rest, "agents": {**(agents if isinstance(agents, dict) else {}), "list": applied}}


def own_path(path: KeyPath, tree: Mapping[str, Value], own: Mapping[str, Value]) -> KeyPath:
    """Convert a path of the merged tree to one of `homarus.json`: list indexes may differ."""
    if path[:2] != ("agents", "list") or len(path) < 3 or not isinstance(path[2], int):
        return path
    listed = agent_entries(tree)
    wanted = entry_id(listed[path[2]]) if path[2] < len(listed) else ""
    entries = [entry_id(entry) for entry in agent_entries(own)]
    index = entries.index(wanted) if wanted in entries else len(entries)
    return (*path[:2], index, *path[3:])


def merge_own(tree: Value, over: Mapping[str, Value], without: str = "") -> dict[str, Value]:
    """Return a tree with other values over it, except for the key `without`."""
    patch = {key: value for key, value in over.items() if key != without}
    merged: dict[str, Value] = apply_merge_patch(tree, patch)
    return merged


def _without_agent_list(own: Mapping[str, Value]) -> dict[str, Value]:
    agents = {key: value for key, value in own["agents"].items() if key != "list"}
    return {**own, "agents": agents} if agents else {k: v for k, v in own.items() if k != "agents"}


def agent_entries(tree: Mapping[str, Value]) -> list[Value]:
    """Return the entries of `agents.list` in a tree."""
    agents = tree.get("agents")
    return as_list(agents.get("list")) if isinstance(agents, dict) else []


def implied_agent(tree: Mapping[str, Value]) -> str:
    """Return the id of the one agent of a tree without a list of agents."""
    value: Value = tree
    for key in ("agents", "defaults", "agentId"):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else DEFAULT_AGENT


def as_list(value: Value) -> list[Value]:
    """Return a value that is a list, else an empty one."""
    return value if isinstance(value, list) else []


def entry_id(entry: Value) -> str:
    """Return the normalized id of an agent's entry; empty if it has none."""
    named = isinstance(entry, dict) and isinstance(entry.get("id"), str)
    return normalize_agent_id(entry["id"]) if named else ""
