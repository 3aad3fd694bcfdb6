"""A run that was steered by a message with a run of its own is resumed after a crash.

In the queue mode `steer-backlog` a message is given to the active run and answered by its own run
later. A crash in between must not end the first message with a request to send it again, nor leave
its tool call without a result.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.core.message import ToolCall, ToolResult, user_message
from homarus.core.tasks import task_group
from homarus.sessions.session import SessionRepository
from homarus.sessions.transcript import questions_in
from homarus.store.journal import InboxRecord
from homarus.testing.fakes import GUARD_S, Hang, ScriptedProvider, assistant_message
from tests.unit.agent.harness import KEY, Harness, message
from tests.waiting import until

CALL = assistant_message(ToolCall("c1", "read", {"path": "a.txt"}))


async def crash_after_steering(harness: Harness) -> InboxRecord:
    """Start a run, steer it by a copy after its tool call, and end it without an outcome."""
    (harness.agent.workspace / "a.txt").write_text("a file")
    record = await harness.accept(message())
    copy = await harness.accept(replace(message("and?"), id="2", run_id="r2"))
    harness.steering = [replace(copy, id="")]  # as `take_steering` returns it
    provider = harness.provider
    assert isinstance(provider, ScriptedProvider)
    async with asyncio.timeout(GUARD_S), task_group() as group:
        run = group.create_task(harness.runs.start(KEY, [record]))
        await until(lambda: len(provider.requests) == 2)
        run.cancel()
    harness.sessions = SessionRepository(harness.store, harness.clock)
    harness.replace_services(sessions=harness.sessions)
    found = await harness.store.journal.inbox_record(record.id)
    assert found is not None and found.state == "running"
    return found


async def test_steered_run_is_resumed_after_crash(tmp_path: Path) -> None:
    harness = Harness(tmp_path, CALL, Hang(), assistant_message("both"))
    record = await crash_after_steering(harness)
    outcome = await harness.runs.start(KEY, [record])
    assert (outcome.status, outcome.text) == ("answered", "both"), outcome.error
    other = await harness.store.journal.inbox_record("r2")
    assert other is not None and other.state == "accepted"  # its own run answers it
    session = await harness.sessions.load(KEY, "main")
    assert [one.role for one in session.messages] == [
        "user", "assistant", "tool", "user", "assistant"
    ]  # fmt: skip
    results = [part for one in session.messages for part in one.parts
               if isinstance(part, ToolResult)]  # fmt: skip
    assert [result.call_id for result in results] == ["c1"]


async def test_question_of_another_run_still_ends_resumption(tmp_path: Path) -> None:
    harness = Harness(tmp_path, CALL, Hang())
    record = await crash_after_steering(harness)
    session = await harness.sessions.load(KEY, "main")
    await session.append(user_message("written by another program"))
    outcome = await harness.runs.start(KEY, [record])
    assert outcome.status == "failed" and "send it again" in str(outcome.error)


async def test_steering_copy_is_marked_in_the_transcript(tmp_path: Path) -> None:
    harness = Harness(tmp_path, CALL, Hang())
    record = await crash_after_steering(harness)
    session = await harness.sessions.load(KEY, "main")
    path = await session.path()
    assert questions_in(path) == {record.entry}
    marks = [one.data for one in path if one.data.get("customType") == "homarus-steering"]
    assert marks == [{"customType": "homarus-steering", "data": {"runId": record.id}}]


@pytest.mark.parametrize("position", [0, 1])
async def test_message_that_joins_the_run_counts_as_question(tmp_path: Path, position: int) -> None:
    harness = Harness(tmp_path, CALL, Hang())
    record = await harness.accept(message())
    joined = await harness.accept(replace(message("and?"), id="2", run_id="r2"))
    (tmp_path / "a.txt").write_text("a file")
    harness.steering = [joined]  # mode `steer`
    provider = harness.provider
    assert isinstance(provider, ScriptedProvider)
    async with asyncio.timeout(GUARD_S), task_group() as group:
        run = group.create_task(harness.runs.start(KEY, [record]))
        await until(lambda: len(provider.requests) == 2)
        run.cancel()
    found = await harness.store.journal.inbox_record([record.id, joined.id][position])
    session = await harness.sessions.load(KEY, "main")
    assert found is not None and found.entry in questions_in(await session.path())
