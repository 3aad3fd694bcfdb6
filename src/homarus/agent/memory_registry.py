"""The memories of all agents of the process; each is opened at its first use.

`homarus.memory` is imported when the first memory is used, not before.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.agent.agent import Agent
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.diagnostics import Diagnostics
from homarus.core.errors import StoreError, UserError
from homarus.core.message import Usage
from homarus.store.base import Store, UsageRecord

if TYPE_CHECKING:
    from homarus.memory.agent_memory import AgentMemory
    from homarus.memory.embed.base import EmbeddingCost
    from homarus.memory.spec import MemorySpec

log = logging.getLogger(__name__)

RUN: Final = "memory"  # the run id of usage records: embeddings belong to no run and no session
_NOTE_PATHS: Final = ("MEMORY.md", "memory.md", "memory", "bank")


class MemoryRegistry:
    """The memory of each agent, by agent id."""

    def __init__(
        self,
        config: Callable[[], Config],
        paths: Paths,
        env: Callable[[], Mapping[str, str]],
        *,
        store: Store,
        clock: Clock,
        group: asyncio.TaskGroup | None = None,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        self._diagnostics = diagnostics
        self._config, self._paths, self._env = config, paths, env
        self._store, self._clock = store, clock
        self._group, self._watchers = group, group
        self._open: dict[str, AgentMemory] = {}
        self._synced_s: dict[str, float] = {}  # when the scheduler last synced each
        self._services: object = None  # the service settings that the open memories use

    def get(self, agent: str) -> "AgentMemory":
        """Return an agent's memory. Raises UnknownNameError."""
        if agent not in self._open:
            from homarus.memory.agent_memory import AgentMemory

            self._services = self._services or _service_settings(self._config())
            self._open[agent] = AgentMemory(
                self._resolve_spec(agent),
                group=self._watchers,
                on_cost=partial(self._on_cost, asyncio.get_running_loop(), agent),
                clock=self._clock,
                diagnostics=self._diagnostics,
            )
        return self._open[agent]

    def _resolve_spec(self, agent: str) -> "MemorySpec":
        from homarus.memory.spec import resolve_memory_spec

        return resolve_memory_spec(self._config(), self._paths, self._env(), agent)

    def sync_on_session_start(self, agent: Agent) -> None:
        """Start a sync in the background, because a session starts."""
        if _has_notes(agent.workspace):
            self._spawn(self._sync(agent.id), "memory sync at session start")

    async def _sync(self, agent: str) -> None:
        # Some megabytes of code, once: they are imported in a thread, not to block the loop.
        await asyncio.to_thread(import_module, "homarus.memory.agent_memory")
        try:
            self.get(agent).sync_on_session_start()
        except UserError as exc:  # a search reports it to the user; the run continues without
            log.warning("memory of %s: %s", agent, exc)

    def sync_interval_s(self) -> float:
        """Return the shortest interval at which an open memory is synced; 0 for none."""
        intervals = (memory.sync_interval_s for memory in self._open.values())
        return min((one for one in intervals if one), default=0.0)

    async def sync_due(self) -> None:
        """Sync the open memories whose interval has passed; the scheduler calls it."""
        now_s, current = self._clock.monotonic(), dict(self._open)
        self._synced_s = {agent: at_s for agent, at_s in self._synced_s.items() if agent in current}
        for agent, memory in current.items():
            interval_s = memory.sync_interval_s
            # A wake of the scheduler may come a moment early.
            if interval_s and now_s - self._synced_s.get(agent, -interval_s) >= interval_s - 1:
                self._synced_s[agent] = now_s
                await memory.sync_now()

    def stop_watching(self) -> None:
        """Stop watching files, also those of memories that are opened later."""
        self._watchers = None
        for memory in self._open.values():
            memory.stop_watching()

    async def reload(self) -> None:
        """Close the memories whose settings changed, and those of agents that are gone."""
        services = _service_settings(self._config())
        is_changed, self._services = services != self._services, services
        opened = self._open.items()
        stale = [agent for agent, one in opened if is_changed or not self._is_same(one.spec)]
        for memory in [self._open.pop(agent) for agent in stale]:
            await memory.close()

    def _is_same(self, spec: "MemorySpec") -> bool:
        try:
            now = self._resolve_spec(spec.agent)
        except UserError:
            return False
        return replace(now, access=spec.access) == spec  # functions are never equal

    async def close(self) -> None:
        """Close every memory."""
        while self._open:
            await self._open.popitem()[1].close()

    def _on_cost(self, loop: asyncio.AbstractEventLoop, agent: str, cost: "EmbeddingCost") -> None:
        """Record a usage from one of memory's threads; the store is written from the loop."""
        usage = Usage(input=cost.tokens, cost=cost.cost_usd)
        call = UsageRecord(
            RUN, "", cost.provider, cost.model, self._clock.now_ms(), usage,
            agent=agent, purpose="memory",
        )  # fmt: skip
        try:
            loop.call_soon_threadsafe(self._start_saving, call)
        except RuntimeError:  # the loop is closed
            log.warning("what %s took for vectors was not noted", cost.provider)

    def _start_saving(self, call: UsageRecord) -> None:
        if not self._spawn(self._save_usage(call), "memory usage record"):
            log.warning("what %s took for vectors was not noted", call.provider)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> bool:
        """Start a task; False without a group, and when the program is about to end."""
        if self._group is not None and _start_task(self._group, work, name):
            return True
        work.close()
        return False

    async def _save_usage(self, call: UsageRecord) -> None:
        try:
            async with self._store.transaction() as transaction:
                transaction.add_usage(call)
        except StoreError as exc:
            log.warning("what %s took for vectors was not noted: %s", call.provider, exc)


def _start_task(group: asyncio.TaskGroup, work: Coroutine[object, object, None], name: str) -> bool:
    try:
        group.create_task(work, name=name)
    except RuntimeError:
        return False
    return True


def _service_settings(config: Config) -> tuple[object, object]:
    return config.models, config.auth


def _has_notes(workspace: Path) -> bool:
    return any(os.path.lexists(workspace / name) for name in _NOTE_PATHS)
