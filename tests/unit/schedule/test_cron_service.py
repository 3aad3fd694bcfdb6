"""Jobs over a store and a fake clock: slots, ends, backoff, retries, delivery."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homarus.core.errors import (
    AuthError,
    ConflictError,
    OverloadedError,
    StoreError,
    UnknownNameError,
    UserError,
)
from homarus.core.message import Json
from homarus.core.principal import OWNER
from homarus.schedule.job import JobCreator, Misfire
from homarus.schedule.webhook_sender import WebhookSettings
from homarus.store import sqlite
from homarus.store.base import Transaction
from homarus.store.lock import StateLock
from homarus.store.slots import SlotRecord
from homarus.store.sqlite import SqliteStore, open_store
from homarus.store.state_paths import StatePaths
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from tests.unit.schedule.harness import CHAT, EVENT, START, TURN, at, every, open_stage


async def test_every_slot_runs_once_at_its_time(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60))
        for _ in range(3):
            await stage.advance(60)
            ended = await stage.finish()
            assert (ended.state, ended.summary, ended.model) == ("ok", "two new mails", "m1")
        assert await stage.slots(job) == [
            (60, "ok", "schedule"), (120, "ok", "schedule"), (180, "ok", "schedule"),
        ]  # fmt: skip
        state = (await stage.cron.find(job)).state
        assert state.last_status == "ok" and state.next_run_at_ms == START + 240_000
        assert [event["action"] for event in stage.events] == ["added"] + [
            "started",
            "finished",
        ] * 3


async def test_turn_has_prefix_time_session_and_delivery(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        payload = {"kind": "agentTurn", "message": "go", "model": "acme/m", "timeoutSeconds": 30}
        job = await stage.add(every(60), payload, agentId="ops")
        await stage.advance(60)
        [row] = stage.submitted
        inbound = row.inbound
        assert inbound is not None
        first, line = inbound.text.splitlines()
        assert first == f"[cron:{job} mail] go"
        assert line == "Current time: Friday, January 15th, 2027 — 08:01 (UTC)"
        assert row.session.startswith(f"agent:ops:cron:{job}:run:")
        options = inbound.options
        assert (options.model, options.timeout_s, options.deliver_to) == ("acme/m", 30.0, CHAT)
        assert options.lane == "cron" and inbound.is_internal
        ended = await stage.finish()
        assert ended.usage is not None and ended.usage.total == 15


async def test_system_event_leaves_notice_and_wakes(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60), EVENT)
        await stage.advance(60)
        assert await stage.slots(job) == [(60, "ok", "schedule")]
        [notice] = stage.notices.pending("agent:main:main")
        assert notice.text == "time to stretch" and notice.id
        assert [one.reason for one in stage.heartbeats] == [f"cron:{job}"]
        assert await stage.store.records("notice")


async def test_slots_during_a_run_are_skipped_with_reason(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60))
        await stage.advance(60)
        await stage.advance(150)
        await stage.finish()
        await stage.advance(60)
        assert await stage.slots(job) == [
            (60, "ok", "schedule"), (120, "skipped", "schedule"), (180, "skipped", "schedule"),
            (240, "running", "schedule"),
        ]  # fmt: skip
        assert "previous run" in (await stage.cron.runs(job))[1].reason


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("skip", ["skipped"] * 5),
        ("once", ["skipped"] * 4 + ["running"]),
        ("all", ["running"]),
    ],
)
async def test_missed_slots_follow_misfire_policy(
    tmp_path: Path, policy: str, expected: list[str]
) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(600), misfire={"policy": policy, "maxAgeMinutes": 60})
        stage.clock.step(3_000 + 300)  # a jump of the clock, or a suspend
        await stage.tick()
        rows = await stage.cron.runs(job)
        assert [one.state for one in rows] == expected
        if policy == "all":
            for _ in range(4):
                await stage.finish()
                await stage.advance(3)
            assert [slot for slot, *_ in await stage.slots(job)] == [600, 1200, 1800, 2400, 3000]
        if policy != "skip":
            assert rows[-1].trigger == "catch-up"


async def test_missed_slots_beyond_max_age_are_one_row(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        stage.misfire = Misfire("once", 10)
        job = await stage.add(every(10))
        stage.clock.step(86_400)
        await stage.tick()
        old, between, last = await stage.cron.runs(job)
        assert (old.state, old.count) == ("skipped", 8_579)
        assert "8579 slots" in old.reason and "10 minutes" in old.reason
        assert old.slot_ms == START + 10_000 and old.until_ms == START + 85_790_000
        assert between.count == 60 and last.state == "running"
        assert last.slot_ms == START + 86_400_000


async def test_clock_set_back_repeats_no_slot_and_stops_no_job(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60))
        for _ in range(3):
            await stage.advance(60)
            await stage.finish()
        stage.clock.step(-150)  # to 30 s
        await stage.advance(120)
        assert len(await stage.slots(job)) == 3
        await stage.advance(90)  # 240 s
        assert [slot for slot, *_ in await stage.slots(job)] == [60, 120, 180, 240]


async def test_clock_a_year_ahead_and_back_does_not_silence_job(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60))
        stage.clock.step(365 * 86_400)
        await stage.tick()
        await stage.finish()
        stage.clock.step(-365 * 86_400)
        await stage.advance(121)  # the row of the missed slots has the time of the first
        assert (await stage.cron.runs(job))[-1].slot_ms == START + 120_000


async def test_errors_delay_the_next_run(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(20))
        waits = list[int]()
        for _ in range(6):
            while not await stage.running():
                await stage.advance(20)
            ended = await stage.finish(error=AuthError("the key was refused"))
            waits.append((ended.next_run_ms - stage.clock.now_ms()) // 1000)
        assert waits == [40, 60, 300, 900, 3600, 3600]
        found = await stage.cron.find(job)
        assert found.state.consecutive_errors == 6 and found.enabled
        reasons = {one.reason.split(": ")[-1] for one in await stage.cron.runs(job, 5_000)}
        assert "the job waited after errors" in reasons


async def test_one_time_job_is_retried_three_times_then_disabled(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(at(60), deleteAfterRun=False)
        for attempt in range(1, 5):
            await stage.advance(400)
            ended = await stage.finish(error=OverloadedError("busy"))
            assert ended.attempt == attempt
        assert [trigger for *_, trigger in await stage.slots(job)] == ["schedule"] + ["retry"] * 3
        found = await stage.cron.find(job)
        assert not found.enabled and found.state.last_error == "busy"


async def test_one_time_job_with_final_error_is_not_retried(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(at(60))
        await stage.advance(60)
        await stage.finish(error=AuthError("no"))
        await stage.advance(7_200)
        assert len(await stage.slots(job)) == 1
        assert not (await stage.cron.find(job)).enabled


async def test_one_time_job_is_deleted_after_its_run(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(at(60))
        kept = await stage.add(at(60), deleteAfterRun=False)
        await stage.advance(60)
        await stage.finish()
        await stage.finish()
        with pytest.raises(UnknownNameError):
            await stage.cron.find(job)
        assert not (await stage.cron.find(kept)).enabled
        assert len(await stage.slots(job)) == 1  # its history stays


async def test_missed_one_time_job_beyond_max_age_is_reported(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(at(60))
        stage.clock.step(2 * 86_400)
        await stage.tick()
        assert await stage.slots(job) == [(60, "skipped", "schedule")]
        found = await stage.cron.find(job)
        assert not found.enabled and found.state.last_status == "skipped"


async def test_missing_target_fails_slot_unless_best_effort(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        strict = await stage.add(every(60), delivery={"mode": "announce", "to": "nobody"})
        loose = await stage.add(
            every(60), delivery={"mode": "announce", "to": "nobody", "bestEffort": True}
        )
        await stage.advance(60)
        [slot] = await stage.cron.runs(strict)
        assert (slot.state, slot.reason) == ("error", "no such chat (name one)")
        assert (await stage.cron.runs(loose))[0].state == "running"
        [row] = stage.submitted
        assert row.inbound is not None and row.inbound.options.deliver_to[0] == "agent"


async def test_announced_answer_leaves_summary_without_a_heartbeat(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await stage.add(every(60))
        await stage.advance(60)
        await stage.finish("two new mails")
        [notice] = stage.notices.pending("agent:main:main")
        assert notice.text == "Cron mail: two new mails" and not stage.heartbeats
        await stage.advance(60)
        await stage.finish("NO_REPLY")
        assert len(stage.notices.pending("agent:main:main")) == 1
        await stage.advance(60)
        await stage.finish(error=AuthError("the key was refused"))
        text = stage.notices.pending("agent:main:main")[-1].text
        assert text == "Cron mail (error): the key was refused"
        assert len(stage.heartbeats) == 1  # no chat has it


async def test_job_of_tainted_run_starts_tainted_turns(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        creator = JobCreator("tool", "agent:main:main", (("web", "https://a.example"),))
        draft = {
            "name": "x",
            "schedule": every(60),
            "payload": {"kind": "agentTurn", "message": "m"},
        }
        await stage.cron.add(draft, creator)
        await stage.advance(60)
        [row] = stage.submitted
        assert row.inbound is not None
        assert row.inbound.options.taint == (("web", "https://a.example"),)


async def test_manual_run_is_a_slot_of_its_own(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60), enabled=False)
        result = await stage.cron.run(job, "due")
        assert (result.ran, result.reason) == (False, "not-due")
        result = await stage.cron.run(job)
        assert result.ran and result.run_id
        again = await stage.cron.run(job)
        assert (again.ran, again.reason) == (False, "already-running")
        await stage.finish()
        assert await stage.slots(job) == [(0, "ok", "manual")]


async def test_stopped_run_is_skipped_and_no_error(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60))
        await stage.advance(60)
        slot = await stage.finish(reason="aborted")
        assert (slot.state, slot.reason) == ("skipped", "a person stopped the run")
        assert (await stage.cron.find(job)).state.consecutive_errors == 0


async def test_stuck_run_ends_as_error_and_is_stopped(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(3_600))
        await stage.advance(3_600)
        await stage.advance(7_300)
        [slot, *_] = await stage.cron.runs(job)
        assert slot.state == "error" and "did not end within 120 minutes" in slot.reason
        assert stage.stopped == [slot.session_key]


async def test_missed_slots_after_one_that_ran_have_a_row(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60), EVENT)
        await stage.advance(60)
        stage.clock.step(-60)
        await stage.tick()
        for _ in range(2):  # the second time, all of them have rows
            stage.clock.step(3_600)
            await stage.tick()
            rows = await stage.cron.runs(job)
            found = [((one.slot_ms - START) // 1000, one.state, one.count) for one in rows]
            assert sorted(found) == [(60, "ok", 1), (120, "skipped", 58), (3_600, "ok", 1)]
            [missed] = [one for one in rows if one.state == "skipped"]
            assert missed.until_ms == START + 3_540_000 and "58 slots" in missed.reason
            stage.clock.step(-3_600)
            await stage.tick()


async def test_removed_job_still_ends_its_slot(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60))
        await stage.advance(60)
        assert await stage.cron.remove(job) and not await stage.cron.remove(job)
        assert (await stage.finish()).state == "ok"


async def test_disabled_scheduler_runs_nothing(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        stage.is_enabled = False
        await stage.add(every(60))
        await stage.clock.advance(600)
        await stage.tick()
        assert not stage.submitted and not (await stage.cron.status()).next_wake_at_ms
        assert stage.cron.next_due_ms() is None, "the timer has nothing to wake for"
        stage.is_enabled = True
        assert stage.cron.next_due_ms() == START + 60_000


class FullStore(MemoryStore):
    """A store that cannot be written while `is_full`."""

    is_full = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        if self.is_full:
            raise StoreError("the disk is full")
        async with super().transaction() as transaction:
            yield transaction


async def test_job_that_cannot_be_started_is_tried_again_later(tmp_path: Path) -> None:
    store = FullStore()
    async with open_stage(tmp_path, store=store) as stage:
        job = await stage.add(every(60), EVENT)
        await stage.add(every(600), EVENT)
        await stage.idle()
        await stage.clock.advance(60)
        store.is_full = True
        await stage.tick()
        assert stage.cron.next_due_ms() == stage.clock.now_ms() + 5_000
        store.is_full = False
        await stage.advance(4)
        assert await stage.slots(job) == []
        await stage.advance(2)
        assert await stage.slots(job) == [(60, "ok", "schedule")]
        assert stage.cron.next_due_ms() == START + 120_000


async def test_job_that_cannot_run_any_more_can_be_disabled(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add({"kind": "cron", "expr": "0 9 * * *", "tz": "UTC"}, agentId="ops")
        await stage.idle()
        tree = json.loads(stage.path.read_text())
        tree["jobs"][0] |= {"agentId": "gone", "schedule": {"kind": "cron", "expr": "0 9 * *"}}
        stage.path.write_text(json.dumps(tree))
        with pytest.raises(UserError, match="4 fields"):
            await stage.cron.update(job, {"name": "other"})
        assert not (await stage.cron.update(job, {"enabled": False})).enabled
        with pytest.raises(UserError, match="4 fields"):
            await stage.cron.update(job, {"enabled": True})


async def test_update_of_schedule_starts_again_from_now(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60))
        changed = await stage.cron.update(job, {"schedule": every(3_600), "name": "hourly"})
        assert changed.name == "hourly"
        assert changed.state.next_run_at_ms == START + 3_600_000
        await stage.cron.update(job, {"enabled": False})
        assert not await stage.cron.jobs()
        assert [one.id for one in await stage.cron.jobs(include_disabled=True)] == [job]
        with pytest.raises(UserError, match="sessionTarget"):
            await stage.cron.update(job, {"sessionTarget": "main"})


@pytest.mark.parametrize(
    ("draft", "problem"),
    [
        ({"schedule": at(-3_600), "payload": EVENT, "name": "x"}, "has passed"),
        ({"schedule": {"kind": "cron", "expr": "nope"}, "payload": EVENT, "name": "x"}, "nope"),
        ({"schedule": every(60), "name": "x"}, "no payload"),
        ({"schedule": every(60), "payload": EVENT, "name": "x", "agentId": "who"}, "unknown agent"),
        (
            {"schedule": every(60), "payload": {**EVENT, "text": "x" * 2_001}, "name": "x"},
            "event of the job is too long",
        ),
        (
            {"schedule": every(60), "payload": {**TURN, "thinking": "super"}, "name": "x"},
            "thinking level 'super'",
        ),
        (
            {
                "schedule": every(60), "name": "x", "payload": TURN,
                "delivery": {"mode": "webhook", "to": "http://169.254.169.254/latest"},
            },
            "webhook is refused",
        ),
    ],
)  # fmt: skip
async def test_wrong_draft_is_refused_with_reason(
    tmp_path: Path, draft: dict[str, object], problem: str
) -> None:
    async with open_stage(tmp_path) as stage:
        with pytest.raises(UserError, match=problem):
            await stage.cron.add(draft)
        assert not await stage.cron.jobs(include_disabled=True)


async def test_webhook_gets_event_with_token_and_id_and_is_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_stage(tmp_path) as stage:
        stage.webhook = WebhookSettings("https://93.184.216.34/hook", "secret")
        stage.responses = [503, 200]
        job = await stage.add(every(3_600), delivery={"mode": "webhook"})
        await stage.advance(3_600)
        slot = await stage.finish("the result")
        [(url, given)] = stage.posted
        assert url == "https://93.184.216.34/hook"
        assert given["headers"]["Authorization"] == "Bearer secret"
        assert given["headers"]["Idempotency-Key"] == slot.run_id
        body = json.loads(given["body"])
        assert (body["jobId"], body["summary"], body["status"]) == (job, "the result", "ok")
        await stage.clock.advance(11)
        await stage.idle()
        assert len(stage.posted) == 2 and not await stage.store.records("webhook-delivery")
        assert not stage.failed
        assert f"the webhook of run {slot.run_id} is called again in 10 s: " in caplog.text


async def test_webhook_that_may_not_be_called_fails_the_slot_alone(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        delivery: dict[str, Json] = {"mode": "webhook", "to": "https://93.184.216.34/hook"}
        job = await stage.add(every(60), delivery=delivery)
        await stage.idle()
        tree = json.loads(stage.path.read_text())
        tree["jobs"][0]["delivery"]["to"] = "http://169.254.169.254/latest"  # by hand
        stage.path.write_text(json.dumps(tree))
        await stage.advance(60)
        [slot] = await stage.cron.runs(job)
        assert slot.state == "error" and "webhook is refused" in slot.reason
        assert not stage.submitted and not stage.posted and not stage.failed


async def test_webhook_that_is_refused_for_good_is_reported(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        stage.responses = [410]
        await stage.add(
            every(3_600), delivery={"mode": "webhook", "to": "https://93.184.216.34/gone"}
        )
        await stage.advance(3_600)
        await stage.finish()
        [(_, reason)] = stage.failed
        assert "410" in reason and not await stage.store.records("webhook-delivery")


async def test_two_processes_claim_a_slot_once(tmp_path: Path) -> None:
    clock = FakeClock()
    async with (
        open_store(tmp_path / "state") as store,
        open_stage(tmp_path, store=store, clock=clock) as one,
    ):
        await one.add(every(60))
        second = open_second(tmp_path / "state")
        async with second, open_stage(tmp_path / "two", store=second, clock=clock) as two:
            await two.cron.jobs()
            await clock.advance(60)
            await one.tick()
            await two.tick()
            assert len(one.submitted) == 1 and not two.submitted
            assert [row.state for row in await store.slots()] == ["running"]
            await one.finish()
            await one.advance(60)
            assert len(await store.slots()) == 2


async def test_second_claim_of_a_slot_conflicts_across_stores(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store, open_second(tmp_path) as second:
        async with store.transaction() as transaction:
            transaction.claim_slot(SlotRecord("j", 1, run_id="a"))

        async def claim() -> None:
            async with second.transaction() as transaction:
                transaction.claim_slot(SlotRecord("j", 1, run_id="b"))

        with pytest.raises(ConflictError):
            await claim()
        assert [one.run_id for one in await second.slots()] == ["a"]


class _NoLock(StateLock):
    """Stands for the lock of a process that ignores it."""

    def __init__(self) -> None:
        """Hold nothing."""

    def release(self) -> None:
        """Release nothing."""


def open_second(state: Path) -> SqliteStore:
    """Open a second store on the same file, as a process that ignores the lock would."""
    engine = sqlite._SqliteEngine.to_write(StatePaths(state), _NoLock(), mirror=False)
    return SqliteStore(engine, OWNER)
