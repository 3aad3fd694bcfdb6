"""Check a config tree: implemented keys by the schema, OpenClaw's other keys by their type.

A key is *implemented* when `schema` has it, and *known* when only OpenClaw has it: a known key is
checked for its type, removed, and named in one warning. Any other key is an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from importlib.util import find_spec
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from homarus.config import known_keys
from homarus.config.agent_settings import agent_ids
from homarus.config.json5_document import KeyPath, PathStep, Value
from homarus.config.known_keys import ANY_KEY, KeyProblem
from homarus.config.legacy_keys import legacy_paths
from homarus.config.schema import Config
from homarus.config.tree_edit import apply_merge_patch
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import normalize_agent_id

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "string_too_short": "text that is not empty",
}
# Accepted without effect: a reply is sent message by message (docs/answers.md), and the memory
# index has no extension (docs/memory.md).
_WITHOUT_EFFECT = frozenset(
    {
        "blockStreamingBreak", "blockStreamingChunk", "blockStreamingCoalesce", "draftChunk",
        "extensionPath",
    }
)  # fmt: skip
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "less_than": ("below", "lt"),
    "greater_than_equal": ("of at least", "ge"),
    "less_than_equal": ("of at most", "le"),
}


@dataclass(frozen=True, slots=True)
class ConfigCheck:
    """The result of a check: `config` if there are no problems; `unbuilt` has no effect yet."""

    config: Config | None
    problems: tuple[KeyProblem, ...]
    unbuilt: tuple[str, ...]


def check_config(tree: Mapping[str, Value]) -> ConfigCheck:
    """Check a tree whose includes and variables are resolved."""
    walk = _KeyWalker(plugins=_plugin_names(tree))
    implemented = walk.section(Config, migrate_legacy_agent(tree), ())
    config = None
    try:
        config = Config.model_validate(implemented)
        walk.problems += (*_repeated_agents(config), *_unknown_default(config))
        if config.session.store:
            from homarus.config.session_store import check_session_store

            found = check_session_store(config)
            walk.problems += [KeyProblem(("session", "store"), *each) for each in found]
        if config.channels:
            from homarus.config.channels import (
                check_channels,  # only imported for configs with channels
            )

            walk.problems += check_channels(
                {name: each for name, each in config.channels.items() if _is_implemented(name)}
            )
        walk.problems += _check_memory(config)
    except ValidationError as exc:
        walk.problems += [_problem(error) for error in exc.errors(include_url=False)]
    problems = tuple(walk.problems)
    known_keys.root_key.cache_clear()  # the list is large and not needed any more
    return ConfigCheck(None if problems else config, problems, tuple(sorted(walk.unbuilt)))


def _check_memory(config: Config) -> Iterator[KeyProblem]:
    """Yield the problems of all memory sections."""
    trees: dict[KeyPath, Mapping[str, Any]] = {
        ("memory",): config.memory,
        ("agents", "defaults", "memorySearch"): config.agents.defaults.memory_search,
    }
    for index, entry in enumerate(config.agents.list):
        trees["agents", "list", index, "memorySearch"] = entry.memory_search
    for path, tree in trees.items():
        if tree and (section := _memory_section(path)):
            try:
                section.model_validate(dict(tree))
            except ValidationError as exc:
                yield from (_problem(error, path) for error in exc.errors(include_url=False))


def _memory_section(path: KeyPath) -> type[BaseModel] | None:
    """Return the model of a memory section at this path; imported only if there is one."""
    if path != ("memory",) and path[-1] != "memorySearch":
        return None
    from homarus.config.memory import MemoryConfig, MemorySearchConfig

    return MemoryConfig if path == ("memory",) else MemorySearchConfig


def migrate_legacy_agent(tree: Mapping[str, Value]) -> dict[str, Value]:
    """Merge the legacy section `agent` into `agents.defaults`, which wins."""
    tree = dict(tree)
    old, agents = tree.get("agent"), tree.get("agents", {})
    if isinstance(old, dict) and isinstance(agents, dict):
        del tree["agent"]
        tree["agents"] = {**agents, "defaults": apply_merge_patch(old, agents.get("defaults", {}))}
    return tree


@lru_cache(1)
def unimplemented_keys() -> dict[str, tuple[str, ...]]:
    """Return every key of OpenClaw that has no effect yet, by group."""
    implemented = set(implemented_keys())
    groups: dict[str, list[str]] = {}
    level = list(known_keys.root_key().children.values())
    while level:
        node = level.pop(0)
        if node.path in implemented:
            level += node.children.values()
        else:
            groups[node.path] = list(_leaves(node))
    for channel in known_keys.root_key().children["channels"].children.values():
        if not _is_implemented(channel.path.removeprefix("channels.")):
            groups[channel.path] = list(_leaves(channel))
    return {group: tuple(paths) for group, paths in sorted(groups.items())}


def implemented_keys() -> Iterator[str]:
    """Yield every key of the schema, containers included, in the notation of the key list."""
    return _section_keys(Config, "")


def _leaves(node: known_keys.KnownKey) -> Iterator[str]:
    if not node.children:
        yield node.path
    for below in node.children.values():
        yield from _leaves(below)


def _section_keys(section: type[BaseModel], path: str) -> Iterator[str]:
    for alias, annotation in _fields(section).items():
        yield from _value_keys(annotation, known_keys.join_path(path, alias))
    if section.model_config.get("extra") == "allow":
        yield known_keys.join_path(path, ANY_KEY)


def _value_keys(annotation: Any, path: str) -> Iterator[str]:
    yield path
    kind, inner = _shape(annotation)
    if kind == "section":
        yield from _section_keys(inner, path)
    elif kind == "list":
        yield from _value_keys(inner, known_keys.join_path(path, 0))
    elif kind == "map":
        yield from _value_keys(inner, known_keys.join_path(path, ANY_KEY))
    elif kind == "anything" and (known := known_keys.lookup(_steps(path))):
        yield from (leaf.path for leaf in _below(known) if not _is_unimplemented(leaf.path))


def _below(node: known_keys.KnownKey) -> Iterator[known_keys.KnownKey]:
    for below in node.children.values():
        yield below
        yield from _below(below)


def _steps(path: str) -> tuple[PathStep, ...]:
    split = path.replace(known_keys.ENTRY, f".{known_keys.ENTRY}").split(".")
    return tuple(0 if step == known_keys.ENTRY else step for step in split)


@lru_cache(None)
def _fields(section: type[BaseModel]) -> dict[str, Any]:
    return {info.alias or name: info.annotation for name, info in section.model_fields.items()}


def _shape(annotation: Any) -> tuple[str, Any]:
    """Return the kind of an annotation (section, list, map, anything, value) and its content."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(args[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section", annotation
    if origin is tuple:
        return "list", args[0]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return ("anything", None) if args[1] is Any else ("map", args[1])
    for arg in args:
        if arg is not type(None) and origin is not None and _is_union(origin):
            return _shape(arg)
    return "value", None


def _is_union(origin: Any) -> bool:
    return getattr(origin, "__name__", "") in {"Union", "UnionType"}


@dataclass(slots=True)
class _KeyWalker:
    """Splits the keys of a file into implemented, known and unknown ones."""

    problems: list[KeyProblem] = field(default_factory=list)
    unbuilt: set[str] = field(default_factory=set)
    plugins: frozenset[str] = frozenset()  # the plugins that the config names

    def section(self, section: type[BaseModel], tree: Value, path: KeyPath) -> Value:
        if not isinstance(tree, dict):
            return tree
        fields = _fields(section)
        implemented: dict[str, Value] = {}
        for key, value in tree.items():
            key_path = (*path, key)
            if key in fields:
                implemented[key] = self._value(fields[key], value, key_path)
                if key in _WITHOUT_EFFECT:
                    self.unbuilt.add(".".join(map(str, key_path)))
            elif not self._is_known(value, key_path):
                if section.model_config.get("extra") == "allow":
                    implemented[key] = value
                else:
                    paths = legacy_paths(key_path, value)
                    self.problems += [known_keys.unknown_key(at, tuple(fields)) for at in paths]
        return implemented

    def _value(self, annotation: Any, tree: Value, path: KeyPath) -> Value:
        kind, inner = _shape(annotation)
        if kind == "section":
            return self.section(inner, tree, path)
        if kind == "map" and isinstance(tree, dict):
            return {key: self._value(inner, value, (*path, key)) for key, value in tree.items()}
        if kind == "list" and isinstance(tree, list):
            return [self._value(inner, value, (*path, index)) for index, value in enumerate(tree)]
        if section := _memory_section(path):
            return self.section(section, tree, path)
        if path == ("channels",) and isinstance(tree, dict):
            self._channels(tree)
        return tree

    def _channels(self, tree: dict[str, Value]) -> None:
        """Check the channels that have an adapter; the others receive and send nothing."""
        known = known_keys.lookup(("channels",))
        assert known  # noqa: S101 - a key of the list
        names = known.names
        for name in tree.keys() - {*names}:
            is_plugin = _is_implemented(name) or name in self.plugins
            if not is_plugin and (problem := known_keys.check_channel_name(name, names)):
                self.problems.append(problem)
        implemented = {name: each for name, each in tree.items() if _is_implemented(name)}
        self.problems += known_keys.check_value(implemented, known, ("channels",))
        self.unbuilt |= {f"channels.{name}" for name in tree if name not in implemented}
        self.unbuilt |= set(_without_effect(tree))

    def _is_known(self, value: Value, path: KeyPath) -> bool:
        known = known_keys.lookup(path)
        if known is None or known.path.endswith(ANY_KEY):
            return False
        self.problems += known_keys.check_value(value, known, path)
        self.unbuilt.add(known.path)
        return True


def _without_effect(channels: Mapping[str, Value]) -> Iterator[str]:
    """Yield the keys of channels and accounts that are set and have no effect."""
    for name, section in channels.items():
        accounts = section.get("accounts") if isinstance(section, dict) else None
        own = accounts.values() if isinstance(accounts, dict) else ()
        for each in (section, *own):
            found = _WITHOUT_EFFECT.intersection(each) if isinstance(each, dict) else ()
            yield from (f"channels.{name}.{key}" for key in found)


def _is_unimplemented(path: str) -> bool:
    first, _, rest = path.partition(".")
    return first == "channels" and not _is_implemented(rest.partition(".")[0])


@lru_cache(None)
def _is_implemented(name: str) -> bool:
    """Return whether a section of `channels` has an adapter, or is `defaults`."""
    if name == "defaults" or not name.replace("-", "").isalnum():
        return name == "defaults"
    if find_spec(f"homarus.channels.{name.replace('-', '_')}"):
        return True
    from importlib.metadata import entry_points  # slow to import and rarely needed

    return any(entry.name == name for entry in entry_points(group="homarus.channels"))


def _plugin_names(tree: Mapping[str, Value]) -> frozenset[str]:
    plugins = tree.get("plugins")
    sections = plugins if isinstance(plugins, dict) else {}
    found = [sections.get(name) for name in ("entries", "installs")]
    return frozenset(name for each in found if isinstance(each, dict) for name in each)


def _repeated_agents(config: Config) -> Iterator[KeyProblem]:
    seen: dict[str, str] = {}
    for index, entry in enumerate(config.agents.list):
        agent = normalize_agent_id(entry.id)
        if agent in seen:
            message = f"{entry.id!r} and {seen[agent]!r} are the same agent"
            yield KeyProblem(("agents", "list", index, "id"), message, "give each its own id")
        seen[agent] = entry.id


def _unknown_default(config: Config) -> Iterator[KeyProblem]:
    """Yield the problem of an `agents.defaults.agentId` that is not in the list of agents."""
    named = config.agents.defaults.agent_id
    known = agent_ids(config)
    if named and normalize_agent_id(named) not in known:
        fix = f"use one of these: {', '.join(known[:10])}; or add it to agents.list"
        path = ("agents", "defaults", "agentId")
        yield KeyProblem(path, "no agent of agents.list has this id", fix)


def _problem(error: ErrorDetails, above: KeyPath = ()) -> KeyProblem:
    path = (*above, *error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return KeyProblem(path, f"{path[-1]} is missing")
    if kind in _EXPECTED:
        expected = _EXPECTED[kind]
    elif kind in _BOUNDS:
        word, limit = _BOUNDS[kind]
        expected = f"a number {word} {context[limit]}"
    elif kind == "literal_error":
        expected = f"one of {context['expected']}"
    else:
        return KeyProblem(path, error["msg"])
    return KeyProblem(
        path, f"expected {expected}, found {known_keys.describe_type(error['input'])}"
    )
