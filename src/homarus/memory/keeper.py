"""The memories of all agents, for whoever runs in an event loop.

    memories = Memories(config, paths, env)
    answer = await memories.of("main").search("When did Ada move?")

Each has one thread, begun at its first use, and nothing is opened before.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.memory.base import Answer, Ask, Backend, Progress, Status, unseen
from homarus.memory.builtin import Builtin
from homarus.memory.index import Report
from homarus.memory.place import Place, find_place

T = TypeVar("T")


class AgentMemory:
    """One agent's memory."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._thread: ThreadPoolExecutor | None = None
        self._backend: Backend | None = None

    async def search(self, text: str, ask: Ask | None = None) -> Answer:
        """What answers a question, best first; the index is brought up to date before."""
        return await self._do(lambda backend: self._search(backend, text, ask or Ask()))

    def _search(self, backend: Backend, text: str, ask: Ask) -> Answer:
        if self.place.search.sync.on_search:
            backend.sync()
        return backend.search(text, ask)

    async def sync(self, *, force: bool = False, progress: Progress = unseen) -> Report:
        """Bring the index to what the files say."""
        return await self._do(lambda backend: backend.sync(force=force, progress=progress))

    async def status(self) -> Status:
        """How it is doing."""
        return await self._do(lambda backend: backend.status())

    async def close(self) -> None:
        """Let go of the index and of the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._backend:
            await asyncio.get_running_loop().run_in_executor(thread, self._backend.close)
            self._backend = None
        thread.shutdown(wait=False)

    async def _do(self, work: Callable[[Backend], T]) -> T:
        if self._thread is None:
            name = f"memory {self.place.agent}"
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(self._with, work))

    def _with(self, work: Callable[[Backend], T]) -> T:
        if self._backend is None:
            self._backend = Builtin(self.place)
        return work(self._backend)


class Memories:
    """The memory of each agent, made when it is asked for."""

    def __init__(
        self,
        config: Callable[[], Config],
        paths: Paths,
        env: Callable[[], Mapping[str, str]],
    ) -> None:
        self._config, self._paths, self._env = config, paths, env
        self._open: dict[str, AgentMemory] = {}

    def of(self, agent: str) -> AgentMemory:
        """An agent's memory; UnknownName when there is no such agent."""
        if agent not in self._open:
            place = find_place(self._config(), self._paths, self._env(), agent)
            self._open[agent] = AgentMemory(place)
        return self._open[agent]

    async def close(self) -> None:
        """Let go of all of them."""
        while self._open:
            await self._open.popitem()[1].close()
