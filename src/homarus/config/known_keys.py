"""Every config key of OpenClaw with its type, from the list `original_keys.txt`.

It supplies the closest key for a mistyped one, and the types of keys that are not implemented
yet. The list is read on first use.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files

from homarus.config.json5_document import KeyPath, PathStep, Value
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import closest_names

ANY_KEY, ENTRY = "<key>", "[]"
# Our own keys: enabling heartbeat and compaction, and how much compaction keeps; spend limits; who
# may have bootstrap files written; secrets from files, variables and commands; OAuth clients; the
# gateway's bind address and metrics; a queue mode for any channel; the server of a Telegram bot;
# messages of other bots.
_ADDED = (
    "agents.defaults.heartbeat.enabled: boolean",
    "agents.list[].heartbeat.enabled: boolean",
    "agents.defaults.compaction.enabled: boolean",
    "agents.defaults.compaction.reserveTokens: integer min=0",
    "agents.defaults.compaction.keepRecentTokens: integer min=0",
    "agents.defaults.spend: object strict",
    "agents.defaults.spend.perRunUsd: number gt=0",
    "agents.defaults.spend.perDayUsd: number gt=0",
    'agents.defaults.promptFileWriters: "owner" | "everyone"',
    "models.providers.<key>.apiKeyFrom: object strict",
    'models.providers.<key>.apiKeyFrom.source: "env" | "file" | "exec"',
    "models.providers.<key>.apiKeyFrom.name: string",
    "models.providers.<key>.apiKeyFrom.path: string",
    "models.providers.<key>.apiKeyFrom.command: [string]",
    "models.providers.<key>.apiKeyFrom.timeoutSeconds: integer gt=0",
    "auth.clients: map",
    "auth.clients.<key>: object strict",
    "auth.clients.<key>.clientId: string",
    "auth.clients.<key>.clientSecret: string",
    "auth.clients.<key>.tokenUrl: string",
    "auth.clients.<key>.authorizeUrl: string",
    "auth.clients.<key>.deviceUrl: string",
    "auth.clients.<key>.redirectUrl: string",
    "auth.clients.<key>.scopes: [string]",
    (
        'messages.queue.byChannel.<key>: "steer" | "followup" | "collect" | "steer-backlog"'
        ' | "steer+backlog" | "queue" | "interrupt"'
    ),
    "gateway.customBindHost: string",
    "gateway.http.endpoints.metrics: object strict",
    "gateway.http.endpoints.metrics.enabled: boolean",
    "channels.telegram.apiRoot: string",
    "channels.telegram.accounts.<key>.apiRoot: string",
    "channels.telegram.allowBots: boolean",
    "channels.telegram.accounts.<key>.allowBots: boolean",
    "channels.irc.allowBots: boolean",
    "channels.irc.accounts.<key>.allowBots: boolean",
)
_NAME = re.compile(r"\[\]|[^.:\[]+")
_LIMIT = re.compile(r" (min|max|gt)=(-?[0-9.]+)")
_ALTERNATIVE = re.compile(r'"[^"]*"|\[[^\]]*\]|[^|\s]+')
_WORDS = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "an object",
    "map": "an object",
    "array": "a list",
}


class KnownKey:
    """One key: its path, the types it may have, and the keys below it.

    `below` are the lines of the list below this key, without its own path. They are parsed when
    they are needed, because the list is long and most of it never is.
    """

    __slots__ = ("_below", "_cache", "path", "types")

    def __init__(self, path: str, types: Sequence[str], below: Iterable[str]) -> None:
        self.path, self.types, self._below = path, types, below
        self._cache: dict[str, KnownKey] = {}

    @property
    def children(self) -> dict[str, "KnownKey"]:
        names = dict.fromkeys(found[0] for line in self._below if (found := _NAME.match(line)))
        return {name: below for name in names if (below := self._find_child(name))}

    def child(self, step: PathStep) -> "KnownKey | None":
        if isinstance(step, int):
            return self._find_child(ENTRY)
        return self._find_child(step) or self._find_child(ANY_KEY)

    def _find_child(self, name: str) -> "KnownKey | None":
        found = self._cache.get(name)
        if found is None and _NAME.fullmatch(name) and (found := self._read(name)):
            self._cache[name] = found
        return found

    def _read(self, name: str) -> "KnownKey | None":
        """Parse the types of a child and the lines below it."""
        rests = [line[len(name) :] for line in self._below if line.startswith(name)]
        types = [rest[2:].rstrip() for rest in rests if rest.startswith(": ")]
        below = [rest.removeprefix(".") for rest in rests if rest.startswith((".", "["))]
        return KnownKey(join_path(self.path, name), types, below) if types or below else None

    @property
    def is_open(self) -> bool:
        """Return whether unlisted keys are allowed: settings of plugins and skills."""
        return any(kind == "object" or kind.split()[0] == "any" for kind in self.types)


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """An error in a setting, and how to fix it."""

    path: KeyPath
    message: str
    fix: str = ""


class _KeyListLines:
    """Iterates over the lines of the list, reading the file each time to save memory."""

    def __iter__(self) -> Iterator[str]:
        with (files("homarus.config") / "original_keys.txt").open(encoding="utf-8") as lines:
            yield from lines
        yield from _ADDED


@lru_cache(1)
def root_key() -> KnownKey:
    """Return the root of all keys."""
    return KnownKey("", ["object strict"], _KeyListLines())


def join_path(path: str, step: PathStep) -> str:
    """Append a step to a path, in the notation of the list."""
    if isinstance(step, int) or step == ENTRY:
        return path + ENTRY
    return f"{path}.{step}" if path else step


def lookup(path: Sequence[PathStep]) -> KnownKey | None:
    """Find the key at a path; inside an open object, that object."""
    node = root_key()
    for step in path:
        below = node.child(step)
        if below is None and isinstance(step, int) and any(kind[0] == "[" for kind in node.types):
            below = node  # an entry of `[string]`: the type of the list covers it
        if below is None:
            return node if node.is_open else None
        node = below
    return node


def unknown_key(path: KeyPath, siblings: Sequence[str] = ()) -> KeyProblem:
    """Return the problem of an unknown key, with the closest known keys."""
    key = str(path[-1])
    parent = lookup(path[:-1])
    known = [name for name in (parent.children if parent else ()) if name not in {ANY_KEY, ENTRY}]
    names = closest_names(key, [*dict.fromkeys([*siblings, *known])]) or _paths_named(key)
    return KeyProblem(path, "unknown key", f"did you mean {' or '.join(names)}?" if names else "")


def check_value(value: Value, known: KnownKey, path: KeyPath) -> Iterator[KeyProblem]:
    """Check the keys, types and bounds of a setting that is not implemented yet."""
    if not any(_fits(value, kind) for kind in known.types):
        yield KeyProblem(path, f"expected {_expected(known)}, found {describe_type(value)}")
    elif isinstance(value, dict):
        for key, inner in value.items():
            below = known.child(key)
            if below is not None:
                yield from check_value(inner, below, (*path, key))
            elif not known.is_open:
                yield unknown_key((*path, key))
    elif isinstance(value, list) and (entry := known.children.get(ENTRY)):
        for index, inner in enumerate(value):
            yield from check_value(inner, entry, (*path, index))


def describe_type(value: Value) -> str:
    """Describe the type of a value without its text, which may be a secret."""
    if value is None or isinstance(value, bool):
        return str({None: "null", True: "true", False: "false"}[value])
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list | tuple) else "an object"


def _paths_named(key: str) -> tuple[str, ...]:
    """Return paths in other sections that end in this key, the shallowest first."""
    paths = dict.fromkeys(
        line.partition(":")[0] for line in _KeyListLines() if f".{key}:" in f".{line}"
    )
    named = [path for path in paths if path.rpartition(".")[2] == key]
    return tuple(sorted(named, key=lambda path: path.count(".") + path.count(ENTRY))[:2])


def _fits(value: Value, kind: str) -> bool:
    if kind.split(maxsplit=1)[0] == "any":
        return True
    bare = re.sub(r" (default=\S+|strict|pattern)", "", _LIMIT.sub("", kind))
    return any(_is(value, one) for one in _ALTERNATIVE.findall(bare)) and _within(value, kind)


def _is(value: Value, kind: str) -> bool:
    if kind[0] == '"':
        return isinstance(value, str) and value == kind[1:-1]
    if kind[0] == "[":
        entries = kind[1:-1].split("|")
        return isinstance(value, list) and all(
            any(_is(item, one) for one in entries) for item in value
        )
    if kind in {"true", "false"} or kind.isdigit():
        return describe_type(value) == kind
    if isinstance(value, bool):
        return kind == "boolean"
    expected = {
        "string": str,
        "number": int | float,
        "integer": int,
        "object": dict,
        "map": dict,
        "array": list,
    }
    return kind in expected and isinstance(value, expected[kind])


def _within(value: Value, kind: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    limits = {name: float(number) for name, number in _LIMIT.findall(kind)}
    return (
        value >= limits.get("min", value)
        and value <= limits.get("max", value)
        and ("gt" not in limits or value > limits["gt"])
    )


def _expected(known: KnownKey) -> str:
    return " or ".join(dict.fromkeys(_phrase(kind) for kind in known.types))


def _phrase(kind: str) -> str:
    bare = re.sub(r" (default=\S+|strict|pattern)", "", _LIMIT.sub("", kind))
    phrases = []
    for kind_name in _ALTERNATIVE.findall(bare):
        entries = " or ".join(_WORDS.get(part, part) for part in kind_name[1:-1].split("|"))
        is_list = kind_name[0] == "["
        phrases.append(f"a list of {entries}" if is_list else _WORDS.get(kind_name, kind_name))
    bounds = {"min": "at least", "max": "at most", "gt": "above"}
    limits = [f"{bounds[name]} {number}" for name, number in _LIMIT.findall(kind)]
    return " or ".join(phrases) + (f" {' and '.join(limits)}" if limits else "")
