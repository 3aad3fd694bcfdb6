"""Sub-agents next to a conversation: how long the parent takes, and what ended ones leave behind.

Two parents have four sub-agents each, and every sub-agent makes five tool calls. The model takes
the same time for each answer, as a real one does, and the parent's turns among them are compared
with its turns alone. Ended sub-agents are archived by a clock that the bench moves.
"""

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from uuid import uuid4

from bench.app import ask, configure, model_server, open_app_for_bench
from bench.figure import Figure, private_env
from homarus.agent.subagents.service import SpawnSource
from homarus.app import App
from homarus.core.message import Address, Inbound
from homarus.policy.tool_call import CallerFacts
from homarus.process import open_app
from homarus.store.subagents import list_subagents
from homarus.testing.clock import FakeClock
from homarus.tools.subagent_port import SpawnRequest

PARENTS = ("agent:main:one", "agent:main:two")
CHILDREN = 4
CALLS = 5
THINK_MS = 250  # of the model, before each answer
IDLE_TURNS = 5
_POLL_S = 0.01
_HOUR_S = 3_600.0
_BATCH = 5  # as many as one session may have at once
_CALL = f'MOCK:delay:{THINK_MS} MOCK:tool:read:{{"path":"AGENTS.md"}}§ MOCK:next '
CHILD_TASK = f"{_CALL * CALLS}MOCK:delay:{THINK_MS} MOCK:say:done§"
QUESTION = f"Hello MOCK:delay:{THINK_MS} MOCK:short"


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        figures = asyncio.run(_measure_turns(Path(folder), url, rounds=1 if quick else 3))
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        return [*figures, asyncio.run(_measure_memory(Path(folder), url, 200))]


async def _measure_turns(home: Path, url: str, rounds: int) -> list[Figure]:
    async with open_app_for_bench(home, url) as app:
        for parent in PARENTS:
            await _turn_s(app, parent)  # the first one imports things
        await _spawn(app, PARENTS[0], "warm up", "MOCK:say:done§")
        await _wait_until_idle(app)
        idle = [await _turn_s(app, parent) for _ in range(IDLE_TURNS) for parent in PARENTS]
        among: list[float] = []
        for _ in range(rounds):
            for number in range(CHILDREN):
                for parent in PARENTS:
                    await _spawn(app, parent, f"child {number}", CHILD_TASK)
            while len(await list_subagents(app.store, active_only=True)) == (
                len(PARENTS) * CHILDREN
            ):
                among += [await _turn_s(app, parent) for parent in PARENTS]
            await _wait_until_idle(app)
        ended = await list_subagents(app.store)
        assert all(one.status == "done" for one in ended), [one.error for one in ended]
    slow, alone = median(among), median(idle)
    note = f"{slow * 1000:.0f} ms among 8 children, {alone * 1000:.0f} ms alone; {len(among)} turns"
    return [Figure("subagents.parent_turn_ratio", slow / alone, "×", note)]


async def _turn_s(app: App, key: str) -> float:
    """Return how long the parent takes to answer a person."""
    started_s = time.perf_counter()
    await ask(app, key, QUESTION)
    return time.perf_counter() - started_s


async def _spawn(app: App, parent: str, label: str, task: str) -> None:
    inbound = Inbound("", Address("cli", "bench"), "owner", "", authority="owner")
    caller = CallerFacts("main", parent, "cli", "owner")
    source = SpawnSource(parent, inbound, caller, uuid4().hex)
    await app.subagents().start(source, SpawnRequest(task, label))


async def _wait_until_idle(app: App) -> None:
    """Wait until every sub-agent has ended, and its parent was told."""
    while await app.store.journal.inbox_records("accepted", "running"):
        await asyncio.sleep(_POLL_S)


async def _measure_memory(home: Path, url: str, count: int) -> Figure:
    """Have sub-agents end over an hour, and compare what is in use before and after."""
    configure(home, url)
    clock = FakeClock(time.time_ns() // 1_000_000)
    async with open_app(private_env(home), clock=clock) as app:
        await _run_hour(app, clock, count // 4, PARENTS[0])  # the caches are filled
        await _archive(app, clock)
        with _traced() as used:
            before = used()
            await _run_hour(app, clock, count, PARENTS[1])
            await _archive(app, clock)
            after = used()
        left = len(await list_subagents(app.store))
    note = f"{count} ended in an hour, {left} are left; {(after - before) / 1e3:+.0f} kB"
    return Figure("subagents.memory_kb_per_child", (after - before) / 1e3 / count, "kB", note)


async def _run_hour(app: App, clock: FakeClock, count: int, parent: str) -> None:
    for start in range(0, count, _BATCH):
        for number in range(_BATCH):
            key = f"{parent}-{start}"  # a conversation of its own: a parent's own history grows
            await _spawn(app, key, f"{start + number}", "Hello MOCK:say:done§")
        await _wait_until_idle(app)
        await clock.advance(_HOUR_S * _BATCH / count)


async def _archive(app: App, clock: FakeClock) -> None:
    """Move the time until every ended sub-agent is archived."""
    while await list_subagents(app.store):
        await clock.advance(_HOUR_S)
        await asyncio.sleep(_POLL_S)


@contextmanager
def _traced() -> Iterator[Callable[[], int]]:
    tracemalloc.start()

    def used() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    try:
        yield used
    finally:
        tracemalloc.stop()
