"""A clean stop of the program is no attempt, and the sender of a parked message is notified.

Three ordinary restarts while a message is being answered must not park it. A message that is
parked because the program really ended too often leads to exactly one notice in its chat.
"""

import asyncio
from pathlib import Path

import pytest

from homarus.core.tasks import task_group
from homarus.sessions.recovery import MAX_ATTEMPTS, plan_recovery
from homarus.store.journal import InboxRecord, Journal
from homarus.testing.fakes import GUARD_S, Hang, ScriptedProvider, assistant_message
from tests.unit.agent.harness import Harness as RunHarness
from tests.unit.agent.harness import message
from tests.unit.sessions.test_control import KEY
from tests.unit.sessions.test_control import Harness as ControlHarness
from tests.unit.sessions.test_control import message as control_message
from tests.waiting import until


async def cancel_run(harness: RunHarness, record: InboxRecord, *, is_clean: bool) -> InboxRecord:
    """Start a run whose model hangs, and end the program while it waits."""
    harness.replace_services(is_shutting_down=lambda: is_clean)
    provider = harness.provider
    assert isinstance(provider, ScriptedProvider)
    calls = len(provider.requests)
    async with asyncio.timeout(GUARD_S), task_group() as group:
        run = group.create_task(harness.runs.start(harness.key, [record]))
        await until(lambda: len(provider.requests) > calls)
        run.cancel()
    found = await harness.store.journal.inbox_record(record.id)
    assert found is not None
    return found


async def test_clean_stop_is_not_counted_as_attempt(tmp_path: Path) -> None:
    harness = RunHarness(tmp_path, *(Hang() for _ in range(5)), assistant_message("done"))
    record = await harness.accept(message())
    for _ in range(5):
        record = await cancel_run(harness, record, is_clean=True)
        assert (record.state, record.attempts, record.was_started) == ("running", 0, True)
        plan = plan_recovery([record], record.at_ms)
        assert [each.id for (each,) in plan.runs] == [record.id] and not plan.parked
    harness.replace_services()
    await harness.runs.start(harness.key, [record])
    settled = await harness.store.journal.inbox_record(record.id)
    assert settled is not None and settled.state == "answered"


async def test_cancellation_by_failing_program_is_counted(tmp_path: Path) -> None:
    harness = RunHarness(tmp_path, Hang(), Hang(), Hang())
    record = await harness.accept(message())
    for attempt in range(1, MAX_ATTEMPTS + 1):
        record = await cancel_run(harness, record, is_clean=False)
        assert record.attempts == attempt
    assert plan_recovery([record], record.at_ms).parked


async def test_clean_stop_of_old_started_message_resumes_it(tmp_path: Path) -> None:
    harness = RunHarness(tmp_path, Hang())
    record = await cancel_run(harness, await harness.accept(message()), is_clean=True)
    assert plan_recovery([record], record.at_ms + 10**9).runs


async def start_too_often(journal: Journal, record_id: str) -> None:
    for _ in range(MAX_ATTEMPTS):
        async with journal.lease(f"session:{KEY}") as lease, journal.transaction() as writes:
            writes.mark_running([record_id], lease, run=record_id)


@pytest.mark.parametrize("is_muted", [False, True])
async def test_parked_message_leads_to_one_notice(*, is_muted: bool) -> None:
    async with task_group() as group:
        harness = ControlHarness(group)
        if is_muted:
            harness.mute()
        journal = harness.store.journal
        record = (await harness.control.accept(KEY, control_message("one"))).record
        await start_too_often(journal, record.id)
        assert await harness.control.recover() == []
        assert await harness.control.recover() == []  # the next start adds nothing
        notices = await journal.outbox_records()
        assert len(notices) == (0 if is_muted else 1)
        if not is_muted:
            assert "text of one" in notices[0].text and "3 times" in notices[0].text
            assert notices[0].address == control_message("one").address
            assert harness.wakes
        parked = await journal.inbox_record(record.id)
        assert parked is not None and parked.state == "parked"


async def test_retried_message_parked_again_leads_to_second_notice() -> None:
    async with task_group() as group:
        harness = ControlHarness(group)
        journal = harness.store.journal
        record = (await harness.control.accept(KEY, control_message("one"))).record
        for count in (1, 2):
            await start_too_often(journal, record.id)
            await harness.control.recover()
            assert len({each.id for each in await journal.outbox_records()}) == count
            assert await journal.retry(record.id, at_ms=1)
        # The reply of a retry that succeeds must not have the id of a notice.
        assert f"{record.id}:0" not in {each.id for each in await journal.outbox_records()}


async def test_begin_shutdown_is_what_marks_cancellations_as_clean() -> None:
    async with task_group() as group:
        harness = ControlHarness(group)
        harness.control.close()
        assert not harness.control.is_shutting_down  # also called when the program fails
        harness.control.begin_shutdown()
        assert harness.control.is_shutting_down
