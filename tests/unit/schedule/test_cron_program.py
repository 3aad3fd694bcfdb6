"""Jobs in the complete program: real runs end their slots, and answers reach a chat."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import UnknownNameError
from homarus.core.session_keys import is_cron_run
from homarus.providers.base import ModelRequest
from homarus.store.slots import SlotRecord
from homarus.testing.clock import START_MS, FakeClock
from tests.unit.agent.subagent_harness import Stage, open_stage, wait_for

EVERY = {"kind": "every", "everyMs": 60_000, "anchorMs": START_MS}
JOB = {"name": "mail", "schedule": EVERY, "payload": {"kind": "agentTurn", "message": "look"}}


def answer(text: str, _request: ModelRequest) -> str:
    return "two new mails" if "look" in text else "fine"


async def ended(stage: Stage, count: int = 1) -> list[SlotRecord]:
    """Wait until so many slots have ended, and return them."""

    async def check() -> bool:
        return len(await stage.app.store.slots("ok", "error", "skipped")) >= count

    await wait_for(check)
    return list(await stage.app.store.slots())


async def test_job_runs_in_its_own_session_and_ends_its_slot(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_stage(tmp_path, answer, clock=clock) as stage:
        job = await stage.app.schedules().add({**JOB, "delivery": {"mode": "none"}})
        await clock.advance(60)
        await stage.app.schedules().tick()
        [slot] = await ended(stage)
        assert (slot.state, slot.summary) == ("ok", "two new mails")
        assert slot.session_key.startswith(f"agent:main:cron:{job.id}:run:") and slot.session_id
        assert slot.usage is not None and slot.usage.input == 1_000
        [request] = stage.model.requests
        assert f"[cron:{job.id} mail] look" in request.messages[-1].text
        assert not await stage.app.store.records("turn")
        assert [one.state for one in await stage.app.store.journal.inbox_records()] == ["answered"]


async def test_channel_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async with open_stage(tmp_path, answer) as stage:
        cron = stage.app.schedules()
        for channel in ("telegram", "discord", "imsg", "last"):  # it may run when the job does
            await cron.add({**JOB, "delivery": {"mode": "announce", "channel": channel}})
        with pytest.raises(UnknownNameError, match="telegramm") as refused:
            await cron.add({**JOB, "delivery": {"mode": "announce", "channel": "telegramm"}})
        assert "did you mean telegram?" in refused.value.fix


async def test_announced_answer_is_in_the_outbox_with_the_slot(tmp_path: Path) -> None:
    clock = FakeClock()
    telegram = {"botToken": "1:x", "apiRoot": "http://127.0.0.1:9", "enabled": True}
    changes: dict[str, Any] = {"channels": {"telegram": telegram}}
    async with open_stage(tmp_path, answer, changes, clock=clock) as stage:
        delivery = {"mode": "announce", "channel": "telegram", "to": "42"}
        await stage.app.schedules().add({**JOB, "delivery": delivery})
        lost = await stage.app.schedules().add({**JOB, "delivery": {"mode": "announce"}})
        await clock.advance(60)
        await stage.app.schedules().tick()
        rows = await ended(stage, 2)
        failed = next(one for one in rows if one.job == lost.id)
        assert failed.state == "error" and "no last chat" in failed.reason
        [sent] = await stage.app.store.journal.outbox_records()
        assert (sent.address.channel, sent.address.chat) == ("telegram", "42")
        assert sent.text == "two new mails"

        async def has_notice() -> bool:
            return bool(stage.app.notices.pending("agent:main:main"))

        await wait_for(has_notice)  # it is published after the commit that ends the slot
        [notice] = stage.app.notices.pending("agent:main:main")
        assert "two new mails" in notice.text


async def test_failed_run_ends_its_slot_as_error(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_stage(tmp_path, answer, clock=clock) as stage:
        payload = {"kind": "agentTurn", "message": "look", "timeoutSeconds": 1}
        stage.model.hold("look")
        await stage.app.schedules().add({**JOB, "payload": payload, "delivery": {"mode": "none"}})
        await clock.advance(60)
        await stage.app.schedules().tick()
        [slot] = await ended(stage)
        assert slot.state == "error" and "longer than its deadline" in slot.reason


async def test_program_without_jobs_loads_no_service(tmp_path: Path) -> None:
    async with open_stage(tmp_path, answer) as stage:
        assert not await stage.app.schedules.has_jobs()
        names = {one.name for one in stage.app.schedules.internal.statuses()}
        assert names == {"cron-retention", "memory-sync", "session-maintenance", "subagent-archive"}
        assert not (tmp_path / "state" / "cron").exists()


async def test_old_run_sessions_are_deleted(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_stage(tmp_path, answer, clock=clock) as stage:
        await stage.app.schedules().add({**JOB, "delivery": {"mode": "none"}})
        await clock.advance(60)
        await stage.app.schedules().tick()
        await ended(stage)
        await stage.app.schedules.prune()
        assert any(is_cron_run(one.key) for one in await stage.app.store.sessions())
        clock.step(25 * 3_600)
        await stage.app.schedules.prune()
        assert not any(is_cron_run(one.key) for one in await stage.app.store.sessions())
