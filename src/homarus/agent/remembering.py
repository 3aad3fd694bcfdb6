"""Load the agents' memory at its first use, and record what it costs.

`homarus.memory` is not imported until it is used.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.agent.agent import Agent
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.errors import StoreError, UserError
from homarus.core.message import Usage
from homarus.store.base import Spent, Store

if TYPE_CHECKING:
    from homarus.memory.embed.base import Paid
    from homarus.memory.keeper import AgentMemory, Memories

log = logging.getLogger(__name__)

RUN: Final = "memory"  # the cost of embeddings belongs to no run and no session
_SIGNS: Final = ("MEMORY.md", "memory.md", "memory", "bank")


class Remembering:
    """Opens the memory of the agents of the program."""

    def __init__(
        self,
        config: Callable[[], Config],
        paths: Paths,
        env: Callable[[], Mapping[str, str]],
        *,
        store: Store,
        group: asyncio.TaskGroup,
        clock: Clock,
    ) -> None:
        self._config, self._paths, self._env = config, paths, env
        self._store, self._clock = store, clock
        self._group: asyncio.TaskGroup = group
        self._watchers: asyncio.TaskGroup | None = group
        self._memories: Memories | None = None

    def of(self, agent: str) -> "AgentMemory":
        """Return an agent's memory. UnknownName when there is no such agent."""
        if self._memories is None:
            from homarus.memory.keeper import Memories

            loop = asyncio.get_running_loop()
            self._memories = Memories(
                self._config,
                self._paths,
                self._env,
                group=self._watchers,
                spent=partial(self._spent, loop),
                clock=self._clock,
            )
        return self._memories.of(agent)

    def touch(self, agent: Agent) -> None:
        """Sync an agent's index in the background when one of its sessions starts."""
        if _has_notes(agent.workspace):
            self._spawn(self._touch(agent.id), "memory begins")

    async def _touch(self, agent: str) -> None:
        # The first import loads megabytes of code: it must not block the loop.
        await asyncio.to_thread(import_module, "homarus.memory.keeper")
        try:
            self.of(agent).touch()
        except UserError as exc:  # a search reports it; a run need not wait for it
            log.warning("memory of %s: %s", agent, exc)

    def rest(self) -> None:
        """Stop watching files, also for a memory that is opened later."""
        self._watchers = None
        if self._memories:
            self._memories.rest()

    async def reload(self) -> None:
        """Apply a new config."""
        if self._memories:
            await self._memories.reload()

    async def close(self) -> None:
        """Close every index."""
        if self._memories:
            await self._memories.close()

    def _spent(self, loop: asyncio.AbstractEventLoop, paid: "Paid") -> None:
        """Record the cost of embeddings. Called on a memory thread; the loop writes the store."""
        usage = Usage(input=paid.tokens, cost=paid.cost_usd)
        call = Spent(RUN, "", paid.provider, paid.model, self._clock.now_ms(), usage)
        try:
            loop.call_soon_threadsafe(self._begin_noting, call)
        except RuntimeError:  # the loop is closed
            log.warning("what %s took for vectors was not noted", paid.provider)

    def _begin_noting(self, call: Spent) -> None:
        if not self._spawn(self._note(call), "spent on memory"):
            log.warning("what %s took for vectors was not noted", call.provider)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> bool:
        """Start a task; return False when the program is ending."""
        try:
            self._group.create_task(work, name=name)
        except RuntimeError:
            work.close()
            return False
        return True

    async def _note(self, call: Spent) -> None:
        try:
            async with self._store.commit() as unit:
                unit.add_spent(call)
        except StoreError as exc:
            log.warning("what %s took for vectors was not noted: %s", call.provider, exc)


def _has_notes(workspace: Path) -> bool:
    return any(os.path.lexists(workspace / name) for name in _SIGNS)
