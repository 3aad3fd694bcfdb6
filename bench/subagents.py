"""Sub-agents next to a conversation: how long the parent takes to answer among them.

Two parents have four sub-agents each, and every sub-agent makes five tool calls. The model takes
the same time for each answer, as a real one does, and the parent's turns among them are compared
with its turns alone. What ended ones leave in memory: tests/unit/agent/test_subagent_memory.py.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from uuid import uuid4

from bench.app import ask, model_server, open_app_for_bench
from bench.figure import Figure
from homarus.agent.subagents.subagent_service import SpawnSource
from homarus.app import App
from homarus.core.message import Address, Inbound
from homarus.policy.tool_call import CallerFacts
from homarus.store.subagents import list_subagents
from homarus.tools.subagent_port import SpawnRequest

PARENTS = ("agent:main:one", "agent:main:two")
CHILDREN = 4
CALLS = 5
THINK_MS = 250  # of the model, before each answer
IDLE_TURNS = 5
_POLL_S = 0.01
_CALL = f'MOCK:delay:{THINK_MS} MOCK:tool:read:{{"path":"AGENTS.md"}}§ MOCK:next '
CHILD_TASK = f"{_CALL * CALLS}MOCK:delay:{THINK_MS} MOCK:say:done§"
QUESTION = f"Hello MOCK:delay:{THINK_MS} MOCK:short"


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        return asyncio.run(_measure_turns(Path(folder), url, rounds=1 if quick else 3))


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
    while await app.store.journal.inbox_records("accepted", "running"):  # noqa: ASYNC110 - polled
        await asyncio.sleep(_POLL_S)
