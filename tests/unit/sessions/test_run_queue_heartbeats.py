"""Heartbeats in the run queue: no message of a person waits for one."""

import asyncio

import pytest

from homarus.core.message import InputProvenance, RunOptions
from homarus.sessions.levels import QueueMode
from homarus.sessions.queue_policy import QueueSettings
from homarus.sessions.run_queue import PREEMPTED
from tests.unit.sessions.run_queue_harness import AT_ONCE, HEARTBEAT, open_harness, record
from tests.waiting import settle


@pytest.mark.parametrize("mode", ["steer", "followup", "collect", "steer-backlog", "interrupt"])
async def test_message_preempts_heartbeat_within_few_loop_turns(mode: QueueMode) -> None:
    async with open_harness(QueueSettings(mode=mode, debounce_ms=1_000)) as harness:
        beat = harness.queue.submit("s", record("beat", chat="b", options=HEARTBEAT), AT_ONCE)
        await settle()
        message = harness.submit_text("hello")
        assert harness.active["s"].aborted, "it is stopped at once"
        turns = 0
        while [run.name for run in harness.runs] != ["beat", "hello"]:
            await asyncio.sleep(0)
            turns += 1
        assert turns <= 3
        await harness.finish()
        assert (await beat, await message) == ("aborted beat", "hello")


async def test_heartbeat_about_to_start_is_dropped_for_a_message() -> None:
    async with open_harness() as harness:
        beat = harness.queue.submit("s", record("beat", chat="b", options=HEARTBEAT), AT_ONCE)
        message = harness.submit_text("hello")
        await harness.finish()
        assert await message == "hello" and beat.cancelled()
        assert harness.settled == [("beat", PREEMPTED)]


async def test_waiting_heartbeat_goes_after_messages() -> None:
    async with open_harness() as harness:
        harness.submit_text("one")
        await settle()
        harness.queue.submit("s", record("beat", chat="b", options=HEARTBEAT), AT_ONCE)
        harness.submit_text("two")
        for _ in range(3):
            await harness.finish()
        assert [run.name for run in harness.runs] == ["one", "two", "beat"]


async def test_internal_message_does_not_preempt_heartbeat() -> None:
    async with open_harness() as harness:
        harness.queue.submit("s", record("beat", chat="b", options=HEARTBEAT), AT_ONCE)
        await settle()
        news = RunOptions(provenance=InputProvenance("inter_session"))
        harness.queue.submit("s", record("news", options=news))
        assert not harness.active["s"].aborted
        for _ in range(2):
            await harness.finish()
        assert [run.name for run in harness.runs] == ["beat", "news"]
