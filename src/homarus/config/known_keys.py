"""Every config key of OpenClaw with its type, from the list `original_keys.txt`.

It supplies the closest key for a mistyped one, and the types of keys that are not implemented
yet. The list is read on first use.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from homarus.config.json5_document import KeyPath, PathStep, Value
from homarus.config.legacy_keys import find_new_place
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import closest_names

ANY_KEY, ENTRY = "<key>", "[]"
UNKNOWN_KEY = "unknown key"
_CONTAINER = "object strict"
# Our own keys, and own values of OpenClaw's keys, which are written to `homarus.json`: enabling
# heartbeat and compaction, and how much compaction keeps; settings of heartbeats that OpenClaw has
# since 2026.9; spend limits; who may have prompt files
# written; the default agent, and two more fields of an identity; secrets from files, variables and
# commands; OAuth clients; the gateway's bind address, metrics, MCP endpoint, and running without
# authentication; a queue mode for any channel; the servers of Slack and of a Telegram bot, and the
# port of its webhook; messages of other bots; where fetched URLs and pages may lead, and how pages
# are read; wire formats, memory backends, embedders and search providers that OpenClaw does not
# have; MCP servers, which OpenClaw has since 2026.9 with these keys, and which each agent uses; the
# how long calls of models are kept; the secret of GitHub's webhooks.
OWN_KEYS = (
    *(
        f"agents.{each}.heartbeat.{key}"
        for each in ("defaults", "list[]")
        for key in (
            "enabled: boolean",
            'directPolicy: "allow" | "block"',
            "isolatedSession: boolean",
            "lightContext: boolean",
        )
    ),
    "agents.defaults.compaction.enabled: boolean",
    "agents.defaults.compaction.reserveTokens: integer min=0",
    "agents.defaults.compaction.keepRecentTokens: integer min=0",
    "agents.defaults.spend: object strict",
    "agents.defaults.spend.perRunUsd: number gt=0",
    "agents.defaults.spend.perDayUsd: number gt=0",
    'agents.defaults.promptFileWriters: "owner" | "everyone"',
    "agents.defaults.agentId: string",
    "agents.list[].tools.policy: string | object",
    "agents.list[].tools.policy: object strict",
    'agents.list[].tools.policy.profile: "minimal" | "coding" | "messaging" | "full"',
    "agents.list[].tools.policy.allow: [string]",
    "agents.list[].tools.policy.alsoAllow: [string]",
    "agents.list[].tools.policy.deny: [string]",
    "session.maintenance.usageRetention: string | number | false",
    "skills.registry: string",
    "cron.misfire: object strict",
    'cron.misfire.policy: "skip" | "once" | "all"',
    "cron.misfire.maxAgeMinutes: integer min=0",
    "agents.list[].identity.creature: string",
    "agents.list[].identity.vibe: string",
    "models.providers.<key>.apiKeyFrom: object strict",
    'models.providers.<key>.apiKeyFrom.source: "env" | "file" | "exec"',
    "models.providers.<key>.apiKeyFrom.name: string",
    "models.providers.<key>.apiKeyFrom.path: string",
    "models.providers.<key>.apiKeyFrom.command: [string]",
    "models.providers.<key>.apiKeyFrom.timeoutSeconds: integer gt=0",
    *(
        f"agents.{each}.sandbox.{key}"
        for each in ("defaults", "list[]")
        for key in (
            "backend: string",
            'level: "L1" | "L2" | "L3"',
            "network: object strict",
            "network.allow: [string]",
            "readOnlyFolders: [string]",
        )
    ),
    "approvals.expirySeconds: integer gt=0",
    "diagnostics.stuckSessionWarnMs: integer gt=0",
    "approvals.waitSeconds: integer min=0",
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
    "gateway.http.endpoints.mcp: object strict",
    "gateway.http.endpoints.mcp.enabled: boolean",
    "gateway.http.endpoints.embeddings: object strict",
    "gateway.http.endpoints.embeddings.enabled: boolean",
    "gateway.http.endpoints.toolsInvoke: object strict",
    "gateway.http.endpoints.toolsInvoke.enabled: boolean",
    "hooks.github: object strict",
    "hooks.github.secret: string",
    "channels.slack.apiRoot: string",
    "channels.slack.accounts.<key>.apiRoot: string",
    "channels.telegram.apiRoot: string",
    "channels.telegram.accounts.<key>.apiRoot: string",
    "channels.telegram.webhookPort: integer gt=0",
    "channels.telegram.accounts.<key>.webhookPort: integer gt=0",
    "channels.telegram.allowBots: boolean",
    "channels.telegram.accounts.<key>.allowBots: boolean",
    *(
        f"channels.discord.{account}{key}: string"
        for account in ("", "accounts.<key>.")
        for key in ("apiRoot", "gatewayUrl")
    ),
    "channels.irc.allowBots: boolean",
    "channels.irc.accounts.<key>.allowBots: boolean",
    'gateway.auth.mode: "none"',
    *(
        f"{section}.ssrfPolicy{key}"
        for section in ("tools.web.fetch", "browser")
        for key in (
            ": object strict",
            ".dangerouslyAllowPrivateNetwork: boolean",
            ".allowRfc2544BenchmarkRange: boolean",
            ".allowIpv6UniqueLocalRange: boolean",
            ".allowedHostnames: [string]",
            ".blockedHostnames: [string]",
        )
    ),
    "tools.web.fetch.readability: boolean",
    "tools.web.fetch.firecrawl: object strict",
    "tools.web.fetch.firecrawl.enabled: boolean",
    "tools.web.fetch.firecrawl.apiKey: string",
    "tools.web.fetch.firecrawl.baseUrl: string",
    "tools.web.fetch.firecrawl.onlyMainContent: boolean",
    "tools.web.fetch.firecrawl.maxAgeMs: integer min=0",
    "tools.web.fetch.firecrawl.timeoutSeconds: integer gt=0",
    "tools.web.search.provider: string",
    "tools.web.search.searxng: object strict",
    "tools.web.search.searxng.baseUrl: string",
    "models.providers.<key>.api: string",
    "agents.list[].mcp: object strict",
    "agents.list[].mcp.servers: [string]",
    "mcp: object strict",
    "mcp.sessionIdleTtlMs: integer min=0",
    "mcp.servers: map",
    "mcp.servers.<key>: object strict",
    *(
        f"mcp.servers.<key>.{key}"
        for key in (
            "enabled: boolean",
            "command: string",
            "args: [string]",
            "env: map",
            "env.<key>: string",
            "cwd: string",
            "workingDirectory: string",
            "url: string",
            "headers: map",
            "headers.<key>: string",
            'transport: "stdio" | "http" | "streamable-http" | "sse"',
            "timeout: number gt=0 max=86400",
            "requestTimeoutMs: integer gt=0",
            "connectTimeout: number gt=0 max=86400",
            "connectionTimeoutMs: integer gt=0",
            "supportsParallelToolCalls: boolean",
            'auth: "oauth"',
            "oauth: object",
            "sslVerify: boolean",
            "clientCert: string",
            "clientKey: string",
            "toolFilter: object strict",
            "toolFilter.include: [string]",
            "toolFilter.exclude: [string]",
            "codex: object",
            "effects: [string]",
        )
    ),
    "memory.backend: string",
    "agents.defaults.memorySearch.provider: string",
    "agents.defaults.memorySearch.fallback: string",
    "agents.list[].memorySearch.provider: string",
    "agents.list[].memorySearch.fallback: string",
)
# Channels of OpenClaw's plugins, bundled or published, which the list of keys does not have.
_PLUGIN_CHANNELS = (
    "matrix", "mattermost", "feishu", "line", "nextcloud-talk", "nostr", "tlon", "twitch", "zalo",
    "zalouser", "webchat", "voice-call", "a2a", "reef", "buzz", "clickclack", "qqbot", "raft",
    "sms", "synology-chat", "wechat", "wecom", "yuanbao", "zaloclawbot",
)  # fmt: skip
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

    __slots__ = ("_below", "_cache", "is_listed", "path", "types")

    def __init__(self, path: str, types: Sequence[str], below: Iterable[str]) -> None:
        self.path, self._below = path, below
        self._cache: dict[str, KnownKey] = {}
        self.is_listed = bool(types)  # it has a line of its own; a container of our own may not
        self.types = types or (["array"] if any(e[:2] == ENTRY for e in below) else [_CONTAINER])

    @property
    def names(self) -> list[str]:
        """The names of the keys below, which are not parsed for this."""
        found = (match[0] for line in self._below if (match := _NAME.match(line)))
        return list(dict.fromkeys(found))

    @property
    def children(self) -> dict[str, "KnownKey"]:
        return {name: below for name in self.names if (below := self._find_child(name))}

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

    def __init__(self, own: Sequence[str] = OWN_KEYS) -> None:
        self._own = own

    def __iter__(self) -> Iterator[str]:
        with Path(__file__).with_name("original_keys.txt").open(encoding="utf-8") as lines:
            yield from lines
        yield from self._own


@lru_cache(1)
def root_key() -> KnownKey:
    """Return the root of all keys, OpenClaw's and our own."""
    return KnownKey("", [_CONTAINER], _KeyListLines())


def openclaw_root() -> KnownKey:
    """Return the root of OpenClaw's keys."""
    return KnownKey("", [_CONTAINER], _KeyListLines(()))


def join_path(path: str, step: PathStep) -> str:
    """Append a step to a path, in the notation of the list."""
    if isinstance(step, int) or step == ENTRY:
        return path + ENTRY
    return f"{path}.{step}" if path else step


def lookup(path: Sequence[PathStep], root: KnownKey | None = None) -> KnownKey | None:
    """Find the key at a path, by default among all keys; inside an open object, that object."""
    node = root or root_key()
    for step in path:
        below = node.child(step)
        if below is None and isinstance(step, int) and any(kind[0] == "[" for kind in node.types):
            below = node  # an entry of `[string]`: the type of the list covers it
        if below is None:
            return node if node.is_open else None
        node = below
    return node


def unknown_key(path: KeyPath, siblings: Sequence[str] = ()) -> KeyProblem:
    """Return the problem of an unknown key, with its new place or the closest known keys."""
    if place := find_new_place(path):
        return KeyProblem(path, UNKNOWN_KEY, f"it is a legacy key: use {place}")
    key = str(path[-1])
    parent = lookup(path[:-1])
    known = [name for name in (parent.names if parent else ()) if name not in {ANY_KEY, ENTRY}]
    names = closest_names(key, [*dict.fromkeys([*siblings, *known])]) or _paths_named(key)
    return KeyProblem(path, UNKNOWN_KEY, f"did you mean {' or '.join(names)}?" if names else "")


def check_channel_name(name: str, known: Iterable[str]) -> KeyProblem | None:
    """Return the problem of a name in `channels` that is a mistyped one; None if it is not.

    OpenClaw's plugins bring channels of their own, so that another name may be right.
    """
    names = closest_names(name.lower(), [*known, *_PLUGIN_CHANNELS], 1)
    allowed = 2 if len(name) > 5 else 1
    if not names or name == names[0] or _edit_distance(name.lower(), names[0]) > allowed:
        return None
    return KeyProblem(("channels", name), "unknown channel", f"did you mean {names[0]}?")


def _edit_distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for index, left in enumerate(first, 1):
        above, row[0] = row[0], index
        for at, right in enumerate(second, 1):
            change = above + (left != right)
            above, row[at] = row[at], min(change, row[at] + 1, row[at - 1] + 1)
    return row[-1]


def check_value(value: Value, known: KnownKey, path: KeyPath) -> Iterator[KeyProblem]:
    """Check the keys, types and bounds of a setting that is not implemented yet."""
    if not any(fits(value, kind) for kind in known.types):
        yield KeyProblem(path, f"expected {_expected(known)}, found {describe_type(value)}")
    elif isinstance(value, dict):
        for key, inner in value.items():
            below = known.child(key)
            if below is not None:
                yield from check_value(inner, below, (*path, key))
            elif not known.is_open:
                yield unknown_key((*path, key))
    elif isinstance(value, list) and (entry := known.child(0)):
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


def fits(value: Value, kind: str) -> bool:
    """Return whether a value has this type of the list, and is within its bounds."""
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
