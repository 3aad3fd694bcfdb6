"""Add, change and remove agents in the config.

The edits are pure: they take the tree of a config file and return a new one, which the caller
validates and writes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from homarus.config.binding_edits import add_bindings, describe_match, list_bindings, parse_match
from homarus.config.model_refs import ModelRef, normalize_provider_id
from homarus.config.own_config import implied_agent
from homarus.config.paths import Paths, expand
from homarus.config.tree_edit import get_path, set_path
from homarus.core.channel_traits import FindTraits, no_traits
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_AGENT, AgentId, normalize_agent_id
from homarus.core.text import one_line

MAX_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent to be created, with the `CHANNEL[:ACCOUNT]`s that are bound to it."""

    id: AgentId
    name: str
    workspace: str
    model: str | None = None
    agent_dir: str | None = None
    bindings: tuple[str, ...] = ()


def check_name(name: str, known: Sequence[str]) -> tuple[AgentId, str]:
    """Return the id and display name for a new agent.

    Raises UserError for a name that is reserved or in use.
    """
    display_name = one_line(name, MAX_NAME_CHARS)
    agent = normalize_agent_id(display_name)
    if agent == DEFAULT_AGENT:
        raise UserError(f'"{one_line(name, 40)}" is reserved', fix="choose another name")
    if agent in known:
        raise UserError(f'agent "{agent}" already exists', fix="homarus agents list shows them")
    return agent, display_name


def check_workspace(text: str, paths: Paths) -> Path:
    """Return the path of a new workspace.

    Raises UserError for one that is relative, contains the state directory, or is inside it
    without a name that starts with `workspace`.
    """
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
    tree: Mapping[str, Json], new: NewAgent, find_traits: FindTraits = no_traits
) -> dict[str, Json]:
    """Return the tree with one more agent. Without a list, the implied one is added first."""
    entry: dict[str, Json] = {"id": new.id, "name": new.name, "workspace": new.workspace}
    if new.model:
        entry["model"] = new.model
    if new.agent_dir:
        entry["agentDir"] = new.agent_dir
    entries = _entries(tree) or [{"id": implied_agent(tree)}]
    changed = _with_entries(tree, [*entries, entry])
    if not new.bindings:
        return changed
    return add_bindings(changed, new.id, [parse_match(text) for text in new.bindings], find_traits)


def update_agent(
    tree: Mapping[str, Json], agent: str, changes: Mapping[str, Json]
) -> dict[str, Json]:
    """Return the tree with other settings for one agent; objects among them are merged.

    Raises UserError when the agent is not in this tree.
    """
    entries = _entries(tree) or [{"id": agent}]
    if not any(_is(entry, agent) for entry in entries):
        raise UserError(f'agent "{agent}" is not in the config file itself')
    changed = [_merged(entry, changes) if _is(entry, agent) else entry for entry in entries]
    return _with_entries(tree, changed)


def with_primary_model(tree: Json, ref: str) -> Json:
    """Return the tree with another default model, added to an allowlist that lacks it."""
    path = ("agents", "defaults", "model")
    if isinstance(_find(tree, *path), str):
        tree = set_path(tree, path, {"primary": ref})
    else:
        tree = set_path(tree, (*path, "primary"), ref)
    allowed = _find(tree, "agents", "defaults", "models")
    if isinstance(allowed, dict) and allowed and ref not in allowed:
        tree = set_path(tree, ("agents", "defaults", "models", ref), {})
    return tree


def with_listed_model(tree: Json, ref: ModelRef) -> Json:
    """Return the tree with one more model in the list of a provider.

    Raises UserError when the list is not in this tree.
    """
    providers = _find(tree, "models", "providers")
    for name, entry in providers.items() if isinstance(providers, dict) else ():
        models = entry.get("models") if isinstance(entry, dict) else None
        if normalize_provider_id(name) == ref.provider and isinstance(models, list):
            added = [*models, {"id": ref.model, "name": ref.model}]
            return set_path(tree, ("models", "providers", name, "models"), added)
    raise UserError(
        f"the models of {ref.provider} are not listed in the config file itself",
        fix=f"add {ref.model} where models.providers.{ref.provider}.models is written",
    )


def _find(tree: Json, *path: str) -> Json:
    try:
        return get_path(tree, path)
    except LookupError:
        return None


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
    """Return the tree without an agent and its bindings, and how many bindings that were."""
    bindings = tree.get("bindings")
    before = bindings if isinstance(bindings, list) else []
    after = [binding for binding in before if not _binds(binding, agent)]
    entries = [entry for entry in _entries(tree) if not _is(entry, agent)]
    removed = len(before) - len(after)
    return {**_with_entries(tree, entries), **({"bindings": after} if removed else {})}, removed


def describe_bindings(tree: Mapping[str, Json], agent: str) -> list[str]:
    """Describe the bindings of an agent as text: `telegram`, `slack (work)`."""
    return [describe_match(each.match) for each in list_bindings(tree) if each.agent == agent]


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
