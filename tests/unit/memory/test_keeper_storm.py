"""Searches, syncs, notes, reloads and ends in any order: nothing hangs, leaks, or is lost."""

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.memory_registry import MemoryRegistry
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.errors import HomarusError
from homarus.memory import builtin
from homarus.memory.base import SearchOptions
from homarus.memory.builtin import EmbedderChoice
from homarus.memory.embed.base import EmbeddingModel, OnCost
from homarus.memory.embed.circuit_breaker import CircuitBreakerEmbedder
from homarus.memory.shared_embedder import SharedEmbedder
from homarus.memory.spec import MemorySpec
from homarus.memory.view import view_for
from homarus.testing.memory_store import MemoryStore

GUARD_S = 60.0
AGENTS = ("main", "ops")


class Dawdling:
    """Vectors that say little, some of them late; it must not be asked by two at once."""

    model = EmbeddingModel("fake", "dawdling", 4)

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._busy = chance, threading.Lock()
        self.closed = 0

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        assert self._busy.acquire(blocking=False), "two threads at once"
        try:
            time.sleep(self._chance.random() * 0.01)
            return [[0.5, 0.5, 0.5, 0.5 if len(text) % 2 else -0.5] for text in texts]
        finally:
            self._busy.release()

    def close(self) -> None:
        self.closed += 1


class Storm:
    """One program with memories, and people who do what they like."""

    def __init__(self, tmp_path: Path, group: asyncio.TaskGroup, chance: random.Random) -> None:
        self.paths = Paths.find({"OPENCLAW_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)})
        self.group, self.chance = group, chance
        self.config: dict[str, Any] = {"agents": {"list": [{"id": one} for one in AGENTS]}}
        self.memories = self.begin()
        self.written: list[tuple[str, str]] = []
        self.numbers = itertools.count()  # none twice: the same words are written once
        for agent in AGENTS:
            self.memories.get(agent).spec.workspace.mkdir()

    def begin(self) -> MemoryRegistry:
        return MemoryRegistry(
            lambda: Config.model_validate(self.config),
            self.paths,
            dict,
            store=MemoryStore(),
            clock=SystemClock(),
            group=self.group,
        )

    async def search(self, agent: str) -> None:
        view = view_for(self.chance.choice(["agent:main:main", "agent:main:telegram:group:1"]))
        answer = await self.memories.get(agent).search(
            "which walrus came by", SearchOptions(view=view)
        )
        for one in answer.results:
            assert "came by" in one.snippet

    async def sync(self, agent: str) -> None:
        await self.memories.get(agent).sync(force=self.chance.random() < 0.2)

    async def status(self, agent: str) -> None:
        assert not (await self.memories.get(agent).status()).problem

    async def write(self, agent: str) -> None:
        text = f"Walrus number {next(self.numbers)} came by."
        self.written.append((agent, text))
        try:
            await self.memories.get(agent).write(text)
        except HomarusError:
            self.written.remove((agent, text))
            raise

    async def touch(self, agent: str) -> None:
        self.memories.get(agent).sync_on_session_start()

    async def leave(self, agent: str) -> None:
        """Somebody who asks and does not wait for the answer."""
        try:
            async with asyncio.timeout(self.chance.random() * 0.01):
                await self.search(agent)
        except TimeoutError:
            pass

    async def reload(self, _agent: str) -> None:
        limit = self.chance.randint(3, 9)
        self.config["agents"]["defaults"] = {"memorySearch": {"query": {"maxResults": limit}}}
        await self.memories.reload()

    async def restart(self, _agent: str) -> None:
        old, self.memories = self.memories, self.begin()
        old.stop_watching()
        await old.close()

    async def run(self, number: int) -> None:
        does: list[Callable[[str], Awaitable[None]]] = [
            self.search, self.search, self.sync, self.status, self.write, self.touch, self.leave,
            self.reload, self.restart,
        ]  # fmt: skip
        for _ in range(12):
            await asyncio.sleep(self.chance.random() * 0.005 * (number % 3))
            try:
                await self.chance.choice(does)(self.chance.choice(AGENTS))
            except HomarusError as exc:
                if "was closed" not in str(exc):
                    raise


@pytest.mark.parametrize("seed", range(4))
async def test_registry_random_concurrent_use_leaves_no_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    embedders: list[Dawdling] = []

    def choose(_place: MemorySpec, _spent: OnCost, _without: Mapping[str, str]) -> EmbedderChoice:
        embedders.append(Dawdling(random.Random(len(embedders))))
        return EmbedderChoice(SharedEmbedder(CircuitBreakerEmbedder(embedders[-1])), "it is there")

    monkeypatch.setattr(builtin, "_choose", choose)
    troubles: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, told: troubles.append(told))
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        storm = Storm(tmp_path, group, chance)
        async with asyncio.TaskGroup() as people:
            for number in range(6):
                people.create_task(storm.run(number))
        for agent in AGENTS:
            told = [text for whose, text in storm.written if whose == agent]
            await storm.memories.get(agent).sync()
            for text in told:
                (found,) = (
                    await storm.memories.get(agent).search(text, SearchOptions(max_results=1))
                ).results
                assert text in found.snippet
            notes = (storm.memories.get(agent).spec.workspace / "memory").glob("*.md")
            lines = "".join(one.read_text(encoding="utf-8") for one in notes).splitlines()
            assert sorted(line for line in lines if line.startswith("- ")) == sorted(
                f"- {text}" for text in told
            )
        storm.memories.stop_watching()
        await storm.memories.close()
    assert not troubles
    assert all(one.closed for one in embedders)
    assert not [one.name for one in threading.enumerate() if one.name.startswith("memory")]
