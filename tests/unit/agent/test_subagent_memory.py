"""Two hundred sub-agents in an hour leave the memory of the program where it was."""

import gc
import sys
from pathlib import Path

import pytest

from homarus.core.message import Message, ToolCall
from homarus.providers.base import ModelRequest
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import assistant_message
from tests.unit.agent.subagent_harness import Stage, open_stage, wait_for

pytestmark = pytest.mark.timeout(300)
HOUR_S, BATCH = 3_600.0, 5  # as many as one session may have at once
MAX_KEPT_BLOCKS = 60  # of each: keys in bounded caches; a transcript has hundreds


def answer(text: str, _request: ModelRequest) -> str | Message:
    if text != "go":
        return "done " * 200 if "[Subagent Task]" in text else "NO_REPLY"
    calls = [
        ToolCall(f"c{number}", "sessions_spawn", {"task": "count " * 200})
        for number in range(BATCH)
    ]
    return assistant_message(*calls)


async def run_hour(stage: Stage, clock: FakeClock, name: str, count: int) -> None:
    """Have sub-agents start and end over an hour, and then be archived."""
    for number in range(count // BATCH):
        key = f"agent:main:{name}-{number}"  # the history of one conversation would grow
        await (await stage.say("go", key))

        async def has_told() -> bool:
            await clock.advance(1)  # what waits in a queue waits by this clock
            return not await stage.app.store.journal.inbox_records("accepted", "running")

        await wait_for(has_told)
        stage.model.requests.clear()
        stage.model.selections.clear()
        clock.slept.clear()
        await clock.advance(HOUR_S * BATCH / count)
        await stage.app.subagents.sweep()

    async def is_archived() -> bool:
        await clock.advance(HOUR_S)
        await stage.app.subagents.sweep()
        return not await stage.records()

    await wait_for(is_archived)


def count_blocks() -> int:
    """Return how many blocks of memory Python objects use."""
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.slow
async def test_memory_after_200_archived_subagents_is_where_it_was(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_stage(tmp_path, answer, clock=clock) as stage:
        await run_hour(stage, clock, "warm", 100)  # fills the caches of sessions and prompts
        before = count_blocks()
        await run_hour(stage, clock, "hour", 200)
        kept = (count_blocks() - before) / 200
    assert kept < MAX_KEPT_BLOCKS, f"{kept:.0f} blocks are left of each"
