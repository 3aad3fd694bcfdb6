"""Every key the original knows, with its type: a fact list beside this module.

It names the nearest key when one is mistyped, and checks, lightly, the settings whose part is
not built yet. It is read at the first question: who asks nothing pays nothing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files

from homarus.config.document import KeyPath, Step, Value
from homarus.core.text import nearest
from homarus.core.value import dataclass

ANY_KEY, ENTRY = "<key>", "[]"
# Ours beside the original's: a heartbeat can be switched off as well as slowed to never; so can
# compaction, and what it leaves is set; models may cost so much and no more; a key can be kept
# elsewhere; a login can be told whom to ask; a gateway can be told its address; any
# channel can have a queue mode; a Telegram bot can have a server of its own;
# other programs can be heard where the original has no word for it.
_ADDED = (
    "agents.defaults.heartbeat.enabled: boolean",
    "agents.list[].heartbeat.enabled: boolean",
    "agents.defaults.compaction.enabled: boolean",
    "agents.defaults.compaction.reserveTokens: integer min=0",
    "agents.defaults.compaction.keepRecentTokens: integer min=0",
    "agents.defaults.spend: object strict",
    "agents.defaults.spend.perRunUsd: number gt=0",
    "agents.defaults.spend.perDayUsd: number gt=0",
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


class Known:
    """One key: where it stands, the types it may have, and what may stand under it.

    `below` is its part of the list, without its own path. What stands under it is read when
    somebody asks for it: the list is long, and most is never asked for.
    """

    __slots__ = ("_below", "_found", "path", "types")

    def __init__(self, path: str, types: Sequence[str], below: Iterable[str]) -> None:
        self.path, self.types, self._below = path, types, below
        self._found: dict[str, Known] = {}

    @property
    def children(self) -> dict[str, "Known"]:
        names = dict.fromkeys(found[0] for line in self._below if (found := _NAME.match(line)))
        return {name: below for name in names if (below := self._named(name))}

    def child(self, step: Step) -> "Known | None":
        if isinstance(step, int):
            return self._named(ENTRY)
        return self._named(step) or self._named(ANY_KEY)

    def _named(self, name: str) -> "Known | None":
        found = self._found.get(name)
        if found is None and _NAME.fullmatch(name) and (found := self._read(name)):
            self._found[name] = found
        return found

    def _read(self, name: str) -> "Known | None":
        """What the list says of a key: its types, and what is below it."""
        rests = [line[len(name) :] for line in self._below if line.startswith(name)]
        types = [rest[2:].rstrip() for rest in rests if rest.startswith(": ")]
        below = [rest.removeprefix(".") for rest in rests if rest.startswith((".", "["))]
        return Known(join(self.path, name), types, below) if types or below else None

    @property
    def is_open(self) -> bool:
        """Takes keys nobody listed: settings of plugins, of skills, of channels from plugins."""
        return any(kind == "object" or kind.split()[0] == "any" for kind in self.types)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a setting, and what to do."""

    path: KeyPath
    message: str
    fix: str = ""


class _Lines:
    """The lines of the list: read anew each time, for few are ever kept."""

    def __iter__(self) -> Iterator[str]:
        with (files("homarus.config") / "original_keys.txt").open(encoding="utf-8") as lines:
            yield from lines
        yield from _ADDED


@lru_cache(1)
def known_keys() -> Known:
    """The root of all keys."""
    return Known("", ["object strict"], _Lines())


def join(path: str, step: Step) -> str:
    """A path of the list, one step longer."""
    if isinstance(step, int) or step == ENTRY:
        return path + ENTRY
    return f"{path}.{step}" if path else step


def lookup(path: Sequence[Step]) -> Known | None:
    """What the original knows at a path; inside an open object, that object."""
    node = known_keys()
    for step in path:
        below = node.child(step)
        if below is None and isinstance(step, int) and any(kind[0] == "[" for kind in node.types):
            below = node  # an entry of `[string]`: the list says it all
        if below is None:
            return node if node.is_open else None
        node = below
    return node


def unknown_key(path: KeyPath, siblings: Sequence[str] = ()) -> Problem:
    """The complaint about a key nobody knows, with the nearest ones that are known."""
    key = str(path[-1])
    parent = lookup(path[:-1])
    beside = [name for name in (parent.children if parent else ()) if name not in {ANY_KEY, ENTRY}]
    names = nearest(key, [*dict.fromkeys([*siblings, *beside])]) or _elsewhere(key)
    return Problem(path, "unknown key", f"did you mean {' or '.join(names)}?" if names else "")


def check(value: Value, known: Known, path: KeyPath) -> Iterator[Problem]:
    """The light check of a setting that is not built yet: its keys, types and bounds."""
    if not any(_fits(value, kind) for kind in known.types):
        yield Problem(path, f"expected {_expected(known)}, found {describe(value)}")
    elif isinstance(value, dict):
        for key, inner in value.items():
            below = known.child(key)
            if below is not None:
                yield from check(inner, below, (*path, key))
            elif not known.is_open:
                yield unknown_key((*path, key))
    elif isinstance(value, list) and (entry := known.children.get(ENTRY)):
        for index, inner in enumerate(value):
            yield from check(inner, entry, (*path, index))


def describe(value: Value) -> str:
    """The kind of a value, without the value: it may be a secret."""
    if value is None or isinstance(value, bool):
        return str({None: "null", True: "true", False: "false"}[value])
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list | tuple) else "an object"


def _elsewhere(key: str) -> tuple[str, ...]:
    """Keys of that very name in other places, the shallowest first."""
    paths = dict.fromkeys(line.partition(":")[0] for line in _Lines() if f".{key}:" in f".{line}")
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
        return describe(value) == kind
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


def _expected(known: Known) -> str:
    return " or ".join(dict.fromkeys(_phrase(kind) for kind in known.types))


def _phrase(kind: str) -> str:
    bare = re.sub(r" (default=\S+|strict|pattern)", "", _LIMIT.sub("", kind))
    said = []
    for one in _ALTERNATIVE.findall(bare):
        entries = " or ".join(_WORDS.get(part, part) for part in one[1:-1].split("|"))
        said.append(f"a list of {entries}" if one[0] == "[" else _WORDS.get(one, one))
    bounds = {"min": "at least", "max": "at most", "gt": "above"}
    limits = [f"{bounds[name]} {number}" for name, number in _LIMIT.findall(kind)]
    return " or ".join(said) + (f" {' and '.join(limits)}" if limits else "")
