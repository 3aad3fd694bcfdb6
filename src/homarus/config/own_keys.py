"""Settings that OpenClaw does not know: separate them from its own, and find what it cannot read.

They are the `OWN_KEYS` of known_keys.py, and are written to `homarus.json` (see own_config.py).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from homarus.config.json5_document import KeyPath, Value
from homarus.config.known_keys import (
    OWN_KEYS,
    UNKNOWN_KEY,
    KeyProblem,
    KnownKey,
    check_value,
    fits,
    lookup,
    openclaw_root,
)
from homarus.config.legacy_keys import is_newer_config
from homarus.config.own_config import agent_entries, as_list, entry_id, merge_own
from homarus.config.tree_edit import format_path
from homarus.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SplitConfig:
    """A config as two files: what OpenClaw reads, and what only we read."""

    shared: dict[str, Value]
    own: dict[str, Value]


@lru_cache(1)
def own_root() -> KnownKey:
    """Return the root of our own keys."""
    return KnownKey("", ["object strict"], OWN_KEYS)


def check_own_tree(tree: Value) -> Iterator[KeyProblem]:
    """Yield the keys of a `homarus.json` that are not our own; types are checked after merging."""
    for problem in check_value(tree, own_root(), ()):
        if problem.message != UNKNOWN_KEY or _is_list_id(problem.path):
            continue
        if lookup(problem.path, openclaw_root()):
            fix = "OpenClaw knows it too: set it in openclaw.json"
            yield KeyProblem(problem.path, "not a setting of homarus.json", fix)
        else:
            yield problem


def split_own(
    new: Mapping[str, Value], shared: Mapping[str, Value], own: Mapping[str, Value], *, move: bool
) -> SplitConfig:
    """Split a changed config into its two files; `shared` and `own` are the present ones.

    An unchanged setting of our own stays in `openclaw.json` if it is there, unless `move` is True.
    """
    new_shared, new_own = _Splitter(move).split(new, own_root(), shared, own, ())
    known = {entry_id(entry) for tree in (shared, new) for entry in agent_entries(tree)}
    # The list of agents may be in an included file, whose entries are not in this tree.
    hidden = [entry for entry in agent_entries(own) if entry_id(entry) not in known]
    if hidden:
        new_own = merge_own(new_own, {"agents": {"list": [*agent_entries(new_own), *hidden]}})
    return SplitConfig(new_shared, new_own)


def find_openclaw_problems(tree: Mapping[str, Value]) -> Iterator[KeyProblem]:
    """Yield what OpenClaw cannot read in a tree of `openclaw.json`."""
    is_newer = is_newer_config(tree)
    for problem in check_value(dict(tree), openclaw_root(), ()):
        if problem.path[-1] == "$include" or problem.path[0] == "agent":
            continue
        if is_newer and lookup(problem.path, own_root()) is None:
            continue  # OpenClaw 2026.9 has settings and values that the list of keys lacks
        yield KeyProblem(problem.path, problem.message, _fix(tree, problem))


def without_own(tree: Mapping[str, Value]) -> dict[str, Value]:
    """Return a tree without the settings that OpenClaw does not know."""
    return _Splitter(move=True).split(tree, own_root(), {}, {}, ())[0]


def describe_openclaw_problems(
    tree: Mapping[str, Value], is_wanted: Callable[[KeyPath], bool] = lambda _path: True
) -> tuple[str, ...]:
    """Describe what OpenClaw cannot read in a tree of `openclaw.json`, for warnings."""
    return tuple(
        f"OpenClaw cannot read {format_path(problem.path)}: {problem.message}"
        + (problem.fix and f" ({problem.fix})")
        for problem in find_openclaw_problems(tree)
        if is_wanted(problem.path)
    )


@dataclass(frozen=True, slots=True)
class _Splitter:
    """Splits a tree into what OpenClaw reads and what it does not know."""

    move: bool

    def split(
        self, new: Value, node: KnownKey, shared: Value, own: Value, path: KeyPath
    ) -> tuple[dict[str, Value], dict[str, Value]]:
        """Return both parts; `shared` and `own` are the present ones."""
        theirs: dict[str, Value] = {}
        mine: dict[str, Value] = {}
        before = shared if isinstance(shared, dict) else {}
        written = own if isinstance(own, dict) else {}
        for key, value in new.items():
            below, at = node.child(key), (*path, key)
            old, old_own = before.get(key), written.get(key)
            if below is None:
                theirs[key] = value
            elif below.is_listed and not _openclaw_reads(value, at):
                is_kept = key in before and old == value and key not in written and not self.move
                (theirs if is_kept else mine)[key] = value
            elif at == ("agents", "list") and isinstance(value, list):
                theirs[key], entries = self._split_agents(value, old, old_own)
                mine |= {key: entries} if entries else {}
            elif isinstance(value, dict):
                inner, inner_own = self.split(value, below, old, old_own, at)
                # A container that only holds, or held, settings of our own is not left empty.
                is_own = bool(inner_own) or (key in written and key not in before)
                if inner or not is_own:
                    theirs[key] = inner
                mine |= {key: inner_own} if inner_own else {}
            else:
                theirs[key] = value
        return theirs, mine

    def _split_agents(
        self, new: list[Value], shared: Value, own: Value
    ) -> tuple[list[Value], list[dict[str, Value]]]:
        node = lookup(("agents", "list", 0), own_root())
        before = {entry_id(entry): entry for entry in as_list(shared)}
        written = {entry_id(entry): entry for entry in as_list(own)}
        theirs: list[Value] = []
        mine: list[dict[str, Value]] = []
        for index, entry in enumerate(new):
            agent, path = entry_id(entry), ("agents", "list", index)
            if not agent or node is None:
                theirs.append(entry)
                continue
            parts = self.split(entry, node, before.get(agent), written.get(agent), path)
            theirs.append(parts[0])
            mine += [{"id": entry["id"], **parts[1]}] if parts[1] else []
        return theirs, mine


def _openclaw_reads(value: Value, path: KeyPath) -> bool:
    known = lookup(path, openclaw_root())
    return known is not None and any(fits(value, kind) for kind in known.types)


def _fix(tree: Mapping[str, Value], problem: KeyProblem) -> str:
    value: Value = tree
    for step in problem.path:
        value = value[step]
    if problem.path[-1] == "model" and isinstance(value, str):
        return f'write {{"primary": "{value}"}}'
    known = lookup(problem.path, own_root())
    if known is not None and any(fits(value, kind) for kind in known.types):
        return "it is a setting of Homarus: homarus config migrate moves it to homarus.json"
    return problem.fix


def _is_list_id(path: KeyPath) -> bool:
    return len(path) == 4 and path[:2] == ("agents", "list") and path[3] == "id"
