"""Apply a changed config to a running gateway; the changed paths decide how.

The files are polled twice a second (watching the state directory costs more: its database changes
with every message) and read once they have been quiet for a moment. An invalid config changes
nothing: the last good one stays, and clients are notified.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from homarus.config.config_files import ConfigTexts, read_config_files
from homarus.config.json5_document import Value
from homarus.config.load import LoadedConfig, load_config, load_text
from homarus.config.paths import Paths
from homarus.core.clock import Clock
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass

log = logging.getLogger(__name__)

Stamp: TypeAlias = tuple[int, int, int] | None
Rule: TypeAlias = Literal["none", "hot", "restart"]
POLL_INTERVAL_S = 0.5
_DELETED_FIX = "put it back, or restart the gateway to go on without one"

# The first prefix that matches. `none`: the next run reads it; `hot`: a running part is
# notified; any other path needs a restart.
RULES: tuple[tuple[str, Rule], ...] = (
    ("gateway.remote", "none"),
    ("gateway.reload", "none"),
    *((f"gateway.{name}", "none") for name in (
        "tools", "http.endpoints.chatCompletions", "http.endpoints.responses",
        "http.endpoints.embeddings", "http.endpoints.toolsInvoke",
    )),
    ("hooks", "hot"),
    ("agents.defaults.heartbeat", "hot"),
    ("cron", "hot"),
    ("browser", "hot"),
    ("mcp", "hot"),
    ("channels", "hot"),
    ("session.store", "restart"),  # the files of the sessions stay open
    *((name, "none") for name in (
        "meta", "identity", "wizard", "logging", "models", "agents", "agent", "tools", "bindings",
        "audio", "routing", "messages", "session", "talk", "skills", "ui",
        "auth", "env", "$schema", "memory",  # our own: connections and indexes are reopened
    )),
    ("diagnostics", "hot"),
    ("plugins", "restart"),
    ("gateway", "restart"),
    ("discovery", "restart"),
    ("canvasHost", "restart"),
)  # fmt: skip


# Sections whose parts have different rules: where one is new or gone, its parts changed.
_MIXED = frozenset({"gateway", "gateway.http", "gateway.http.endpoints"})


def reload_rule(path: str) -> Rule:
    """Return what a change at this path requires."""
    found = (rule for start, rule in RULES if path == start or path.startswith(f"{start}."))
    return next(found, "restart")


def changed_paths(
    before: Mapping[str, Value], after: Mapping[str, Value], at: str = ""
) -> Iterator[str]:
    """Return the paths that differ, as deep as both sides are objects."""
    for name in sorted({*before, *after}):
        default: Value = {} if f"{at}{name}" in _MIXED else None
        old, new = before.get(name, default), after.get(name, default)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from changed_paths(old, new, f"{at}{name}.")
        elif old != new or (name in before) != (name in after):
            yield f"{at}{name}"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A new config, its changed paths, and the action."""

    loaded: LoadedConfig
    paths: tuple[str, ...]
    action: Literal["apply", "restart", "ignore"]
    ignored: tuple[str, ...] = ()  # needed a restart that the reload mode does not allow


def plan_change(before: LoadedConfig, after: LoadedConfig) -> ConfigChange:
    """Return the change that the new config's own reload mode allows."""
    paths = tuple(changed_paths(before.raw, after.raw))
    needing = tuple(path for path in paths if reload_rule(path) == "restart")
    mode = after.config.gateway.reload.mode
    if not paths or mode == "off":
        return ConfigChange(after, paths, "ignore")
    if mode == "restart" or (mode == "hybrid" and needing):
        return ConfigChange(after, paths, "restart")
    return ConfigChange(after, paths, "apply", ignored=needing)


class ConfigWatcher:
    """Watches the config files and reports each change.

    `apply` may raise a ConfigError, which rejects the change. `check_startable` raises one for a
    config that the gateway could not start with.
    """

    def __init__(
        self,
        paths: Paths,
        env: Mapping[str, str],
        loaded: LoadedConfig,
        clock: Clock,
        *,
        apply: Callable[[ConfigChange], Awaitable[None]],
        reject: Callable[[ConfigError], None],
        check_startable: Callable[[LoadedConfig], None] = lambda _loaded: None,
    ) -> None:
        self._paths, self._env, self._clock = paths, env, clock
        self._loaded, self._apply, self._reject, self._check_startable = (
            loaded,
            apply,
            reject,
            check_startable,
        )
        self._lock = asyncio.Lock()  # changes are applied one at a time
        self._latest: ConfigChange | ConfigError | None = None
        self._files = self._sources()
        self._seen = self._stamps()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self._clock.sleep(POLL_INTERVAL_S)
            if self._stamps() != self._seen:
                async with self._lock:
                    await self._settle()
                    with suppress(ConfigError):
                        await self._read()

    async def check_now(self) -> ConfigChange | None:
        """Read a change now and return the latest, None when there was none.

        Raises the ConfigError of a change that is not in use.
        """
        async with self._lock:
            if (now := self._stamps()) != self._seen:
                self._seen = now
                return await self._read()
        if isinstance(self._latest, ConfigError):
            raise self._latest.with_traceback(None)
        return self._latest

    def check(self, text: str | ConfigTexts) -> None:
        """Raise a ConfigError if the gateway could not run with this text as its config."""
        self._check_startable(load_text(self._paths, self._env, text))

    async def _settle(self) -> None:
        """Wait until the files have not changed for a moment."""
        while (now := self._stamps()) != self._seen:
            self._seen = now
            await self._clock.sleep(self._loaded.config.gateway.reload.debounce_ms / 1000)

    async def _read(self) -> ConfigChange:
        try:
            loaded = await asyncio.to_thread(self._load)
            self._files = self._sources()
            self._seen = self._stamps()
            self._check_not_deleted(loaded)
            change = plan_change(self._loaded, loaded)
            await self._apply(change)
        except ConfigError as exc:
            self._latest = exc
            self._reject(exc)
            raise
        self._latest = change
        # A change that is ignored leaves the old config in use, with which the next is compared.
        if change.action != "ignore" or not change.paths:
            self._loaded = loaded
        return change

    def _load(self) -> LoadedConfig:
        loaded = load_config(self._paths, self._env)
        if loaded.config.env.shell_env.enabled:
            from homarus.config.shell_env import preload_shell

            preload_shell(loaded.env)
        return loaded

    def _check_not_deleted(self, loaded: LoadedConfig) -> None:
        """Raise a ConfigError if a file is gone: that would remove the token, or a spend limit."""
        for file, was_there, is_there in (
            (self._paths.config, self._loaded.exists, loaded.exists),
            (self._paths.own_config, self._loaded.has_own, loaded.has_own),
        ):
            if was_there and not is_there:
                raise ConfigError("the file is gone", file=str(file), fix=_DELETED_FIX)

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(_stamp(file) for file in self._files)

    def _sources(self) -> tuple[Path, ...]:
        """Return the files of the config, the files it includes, and the environment file."""
        files = [self._paths.config, self._paths.own_config, self._paths.state / ".env"]
        try:
            sources = read_config_files(
                self._paths.config, self._paths.config.read_text(encoding="utf-8")
            )
        except (OSError, ValueError, ConfigError):
            return tuple(files)
        return tuple(dict.fromkeys([*files, *(source.file for source in sources.files)]))


def _stamp(file: Path) -> Stamp:
    """Return what identifies a file's state, following a link."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino
