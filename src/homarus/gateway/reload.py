"""A changed config in a running gateway: what it touches decides what happens.

The files are looked at twice a second (a file in the state directory cannot be watched cheaper:
the database beside it changes with every message) and read once they have been quiet for a
moment. A config that is wrong changes nothing: the last good one stays, and everybody is told.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from homarus.config.document import Value
from homarus.config.load import Loaded, load
from homarus.config.paths import Paths
from homarus.config.source import gather
from homarus.core.clock import Clock
from homarus.core.errors import ConfigError

log = logging.getLogger(__name__)

Stamp: TypeAlias = tuple[int, int, int] | None
Rule: TypeAlias = Literal["none", "hot", "restart"]
LOOK_S = 0.5

# The first that the path begins with. `none`: read anew by the next run; `hot`: a part that runs
# is told; whatever is not here needs a restart.
RULES: tuple[tuple[str, Rule], ...] = (
    ("gateway.remote", "none"),
    ("gateway.reload", "none"),
    ("hooks", "hot"),
    ("agents.defaults.heartbeat", "hot"),
    ("cron", "hot"),
    ("browser", "hot"),
    ("channels", "hot"),
    *((name, "none") for name in (
        "meta", "identity", "wizard", "logging", "models", "agents", "agent", "tools", "bindings",
        "audio", "routing", "messages", "session", "talk", "skills", "ui",
        "auth", "env", "$schema",  # ours: connections to models are made anew
    )),
    ("plugins", "restart"),
    ("gateway", "restart"),
    ("discovery", "restart"),
    ("canvasHost", "restart"),
)  # fmt: skip


def rule_of(path: str) -> Rule:
    """What a change at this path asks for."""
    found = (rule for start, rule in RULES if path == start or path.startswith(f"{start}."))
    return next(found, "restart")


def changed(before: Mapping[str, Value], after: Mapping[str, Value], at: str = "") -> Iterator[str]:
    """The paths that differ, as deep as both sides are objects."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from changed(old, new, f"{at}{name}.")
        elif old != new or (name in before) != (name in after):
            yield f"{at}{name}"


@dataclass(frozen=True, slots=True)
class Change:
    """A new config, what differs in it, and what to do."""

    loaded: Loaded
    paths: tuple[str, ...]
    action: Literal["apply", "restart", "ignore"]
    ignored: tuple[str, ...] = ()  # needed a restart that the mode does not allow


def judge(before: Loaded, after: Loaded) -> Change:
    """What the new config's own reload mode says of the difference."""
    paths = tuple(changed(before.raw, after.raw))
    needing = tuple(path for path in paths if rule_of(path) == "restart")
    mode = after.config.gateway.reload.mode
    if not paths or mode == "off":
        return Change(after, paths, "ignore")
    if mode == "restart" or (mode == "hybrid" and needing):
        return Change(after, paths, "restart")
    return Change(after, paths, "apply", ignored=needing)


class Watch:
    """Looks at the config's files, and tells what came of a change.

    `take` may raise a ConfigError: that change is refused too.
    """

    def __init__(
        self,
        paths: Paths,
        env: Mapping[str, str],
        loaded: Loaded,
        clock: Clock,
        *,
        take: Callable[[Change], Awaitable[None]],
        refuse: Callable[[ConfigError], None],
    ) -> None:
        self._paths, self._env, self._clock = paths, env, clock
        self._loaded, self._take, self._refuse = loaded, take, refuse
        self._files = self._sources()
        self._seen = self._stamps()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            if self._stamps() != self._seen:
                await self._settle()
                await self._read()

    async def _settle(self) -> None:
        """Wait until nobody has written for a moment."""
        while (now := self._stamps()) != self._seen:
            self._seen = now
            await self._clock.sleep(self._loaded.config.gateway.reload.debounce_ms / 1000)

    async def _read(self) -> None:
        try:
            loaded = await asyncio.to_thread(load, self._paths, self._env)
            self._files = self._sources()
            self._seen = self._stamps()
            await self._take(judge(self._loaded, loaded))
        except ConfigError as exc:
            self._refuse(exc)
        else:
            self._loaded = loaded

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(_stamp(file) for file in self._files)

    def _sources(self) -> tuple[Path, ...]:
        """The config, what it includes, and the variables beside it."""
        files = [self._paths.config, self._paths.state / ".env"]
        try:
            sources = gather(self._paths.config, self._paths.config.read_text(encoding="utf-8"))
        except (OSError, ValueError, ConfigError):
            return tuple(files)
        return tuple(dict.fromkeys([*files, *(source.file for source in sources.files)]))


def _stamp(file: Path) -> Stamp:
    """What tells one state of a file from another; a link is followed."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino
