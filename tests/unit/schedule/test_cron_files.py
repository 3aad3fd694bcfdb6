"""`jobs.json` and the run logs: written behind the store, edits by others imported."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import Json
from homarus.schedule.run_log import MAX_LINES, RunLog
from homarus.store.slots import SlotRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from tests.unit.schedule.harness import EVENT, START, TURN, Stage, at, every, open_stage


def read(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stage.path.read_text())
    return found


def write(stage: Stage, jobs: list[Json], **more: Json) -> None:
    stage.path.parent.mkdir(parents=True, exist_ok=True)
    stage.path.write_text(json.dumps({"version": 1, **more, "jobs": jobs}))


async def test_file_has_jobs_in_openclaws_shape(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60), description="d", odd={"a": [1]})
        await stage.idle()
        [entry] = read(stage)["jobs"]
        assert entry == {
            "id": job, "name": "mail", "description": "d", "odd": {"a": [1]}, "enabled": True,
            "schedule": {"kind": "every", "everyMs": 60_000, "anchorMs": START},
            "sessionTarget": "isolated", "wakeMode": "now", "payload": TURN,
            "delivery": {"mode": "announce"}, "createdAtMs": START, "updatedAtMs": START,
            "state": {"nextRunAtMs": START + 60_000},
        }  # fmt: skip
        await stage.advance(60)
        assert read(stage)["jobs"][0]["state"]["runningAtMs"] == START + 60_000
        await stage.finish()
        state = read(stage)["jobs"][0]["state"]
        assert state["lastStatus"] == "ok" and "runningAtMs" not in state
        assert stage.path.with_name("jobs.json.bak").exists()
        assert stage.path.stat().st_mode & 0o777 == 0o600


async def test_unchanged_jobs_are_not_written_again(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await stage.add(every(3_600))
        await stage.idle()
        before = stage.path.stat().st_mtime_ns
        await stage.advance(600)
        assert stage.path.stat().st_mtime_ns == before


async def test_run_log_has_openclaws_lines(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60))
        await stage.advance(60)
        slot = await stage.finish()
        [line] = (stage.path.parent / "runs" / f"{job}.jsonl").read_text().splitlines()
        assert json.loads(line) == {
            "ts": START + 60_000, "jobId": job, "action": "finished", "status": "ok",
            "summary": "two new mails", "sessionKey": slot.session_key, "runAtMs": START + 60_000,
            "durationMs": 0, "nextRunAtMs": START + 120_000, "model": "m1", "provider": "acme",
            "usage": {
                "input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
                "cache_read_tokens": 0, "cache_write_tokens": 0,
            },
        }  # fmt: skip


async def test_job_added_to_the_file_runs(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        entry = {
            "id": "by-hand",
            "schedule": every(60),
            "payload": {"kind": "systemevent", "text": "x"},
        }
        write(stage, [entry], note="mine")
        await stage.advance(60)
        assert await stage.slots("by-hand") == [(60, "ok", "schedule")]
        assert (await stage.cron.find("by-hand")).creator.source == "file"
        assert read(stage)["note"] == "mine"


async def test_edited_and_removed_entries_are_imported(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        one, two = await stage.add(every(60)), await stage.add(every(60), EVENT)
        await stage.idle()
        entries = {entry["id"]: entry for entry in read(stage)["jobs"]}
        write(stage, [{**entries[one], "name": "other", "schedule": every(600)}])
        jobs = await stage.cron.jobs()
        assert [(job.id, job.name) for job in jobs] == [(one, "other")]
        assert jobs[0].state.next_run_at_ms == START + 600_000
        assert two in {event["jobId"] for event in stage.events if event["action"] == "removed"}


async def test_edit_of_one_job_keeps_our_change_of_another(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        one, two = await stage.add(every(60)), await stage.add(every(60), EVENT)
        await stage.idle()
        old = {entry["id"]: entry for entry in read(stage)["jobs"]}
        await stage.cron.update(two, {"name": "ours"})  # the file is behind for a moment
        write(stage, [{**old[one], "name": "theirs"}, old[two]])
        await stage.idle()
        names = {job.id: job.name for job in await stage.cron.jobs()}
        assert names == {one: "theirs", two: "ours"}
        await stage.idle()
        assert {entry["name"] for entry in read(stage)["jobs"]} == {"theirs", "ours"}


async def test_broken_file_is_reported_and_copied_before_it_is_replaced(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60), EVENT)
        await stage.idle()
        stage.path.write_text('{"version": 1, "jobs": [')
        assert [one.id for one in await stage.cron.jobs()] == [job]
        assert "cannot be read" in (await stage.cron.status()).problem
        await stage.cron.update(job, {"name": "new"})
        await stage.idle()
        [copy] = stage.path.parent.glob("jobs.json.unreadable-*")
        assert copy.read_text() == '{"version": 1, "jobs": ['
        assert read(stage)["jobs"][0]["name"] == "new" and not stage.cron.problem


async def test_file_that_is_restored_is_no_problem_any_more(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await stage.add(every(60), EVENT)
        await stage.idle()
        text = stage.path.read_text()
        stage.path.write_text("{")
        assert (await stage.cron.status()).problem
        stage.path.write_text(text)
        assert not (await stage.cron.status()).problem


async def test_entry_that_is_no_job_stays_in_the_file(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        foreign = {"id": "x", "name": "newer", "schedule": every(1), "payload": {"kind": "shell"}}
        write(stage, [foreign])
        assert not await stage.cron.jobs()
        assert "newer" in stage.cron.problem
        await stage.add(every(60))
        await stage.idle()
        assert foreign in read(stage)["jobs"] and len(read(stage)["jobs"]) == 2


async def test_ids_that_are_paths_are_refused(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        write(stage, [{"id": "../../x", "schedule": every(60), "payload": EVENT}])
        await stage.advance(60)
        assert not await stage.cron.jobs() and not (tmp_path / "x.jsonl").exists()


async def test_legacy_entry_is_normalised(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        entry = {
            "jobId": "old", "name": " n ", "schedule": {"atMs": START + 60_000},
            "payload": {"kind": "agentTurn", "message": "m", "deliver": True, "to": "7"},
        }  # fmt: skip
        write(stage, [entry])
        job = await stage.cron.find("old")
        assert job.name == "n" and job.kind == "at" and not job.deletes_after_run
        assert job.delivery is not None and (job.delivery.mode, job.delivery.to) == (
            "announce",
            "7",
        )


async def test_runs_of_openclaw_in_between_are_not_repeated(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        job = await stage.add(every(60), EVENT)
        await stage.idle()
    clock.step(200)
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        [entry] = read(stage)["jobs"]
        state = {"lastRunAtMs": START + 180_000, "nextRunAtMs": START + 240_000}
        write(stage, [{**entry, "state": state}])
        await stage.tick()
        assert not await stage.slots(job)
        await stage.advance(60)
        assert await stage.slots(job) == [(240, "ok", "schedule")]


async def test_restart_catches_up_once(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        job, once = await stage.add(every(600), EVENT), await stage.add(at(900), EVENT)
        await stage.advance(600)
    clock.step(3_000)
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        await stage.cron.recover()
        await stage.tick()
        states = [(slot, state, cause) for slot, state, cause in await stage.slots(job)]
        assert states[0] == (600, "ok", "schedule") and states[-1] == (3_600, "ok", "schedule")
        assert {state for _, state, _ in states[1:-1]} == {"skipped"} and len(states) == 6
        assert await stage.slots(once) == [(900, "ok", "catch-up")]


async def test_interrupted_turn_ends_its_slot_after_restart(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        job = await stage.add(every(60))
        await stage.advance(60)
        [slot] = await stage.running()
        async with store.journal.lease("inbox") as lease, store.transaction() as transaction:
            transaction.settle([slot.run_id], lease, "parked", at_ms=1, why="killed 3 times")
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        await stage.turns.recover()
        await stage.cron.recover()
        [slot] = await stage.cron.runs(job)
        assert (slot.state, slot.reason) == ("error", "killed 3 times")
        assert not await store.records("turn")


async def test_resumed_turn_ends_its_slot_after_restart(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        job = await stage.add(every(60))
        await stage.advance(60)
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        await stage.turns.recover()
        await stage.cron.recover()
        assert (await stage.finish("late")).state == "ok"
        assert (await stage.cron.find(job)).state.last_status == "ok"


async def test_logs_get_what_a_crash_left_out(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        job = await stage.add(every(60), EVENT)
        await stage.advance(120)
        path = stage.path.parent / "runs" / f"{job}.jsonl"
        first, second = path.read_text().splitlines()
        path.write_text(first + "\n" + second[:20])  # a write that was cut off
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        await stage.cron.recover()
        await stage.cron.recover()
        assert path.read_text().splitlines() == [first, second[:20], second]


def test_run_log_above_its_size_keeps_the_last_lines(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    text = "x" * 1_000
    log.append(SlotRecord("j", n, state="ok", ended_ms=n, summary=text) for n in range(2_100))
    lines = (tmp_path / "j.jsonl").read_text().splitlines()
    assert len(lines) <= MAX_LINES and json.loads(lines[-1])["ts"] == 2_099
    assert log.last_ms("j") == 2_099


async def test_rows_of_slots_are_bounded(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        job = await stage.add(every(60), EVENT)
        for n in range(2_100):
            async with stage.store.transaction() as transaction:
                transaction.claim_slot(SlotRecord(job, n, state="ok", ended_ms=START))
        await stage.cron.prune()
        assert len(await stage.cron.runs(job, 5_000)) == 2_000


async def test_taint_of_an_edit_is_stored_with_the_job(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        job = await stage.add(every(60))
        await stage.cron.update(job, {"name": "a"}, (("web", "https://a.example"),))
        await stage.cron.update(job, {"name": "b"})
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        assert (await stage.cron.find(job)).creator.taint == (("web", "https://a.example"),)


async def test_file_that_is_a_link_is_read_and_written_where_it_leads(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        target = tmp_path / "dotfiles.json"
        entry = {"id": "a", "name": "a", "schedule": every(60), "payload": EVENT}
        target.write_text(json.dumps({"jobs": [entry]}))
        stage.path.parent.mkdir()
        stage.path.symlink_to(target)
        await stage.advance(60)
        assert await stage.slots("a") == [(60, "ok", "schedule")]
        assert stage.path.is_symlink()
        assert json.loads(target.read_text())["jobs"][0]["state"]["lastStatus"] == "ok"
        assert (stage.path.parent / "runs" / "a.jsonl").exists()


async def test_log_that_cannot_be_written_keeps_no_other_file_back(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        bad, good = await stage.add(every(60), EVENT), await stage.add(every(60), EVENT)
        await stage.idle()
        runs = stage.path.parent / "runs"
        (runs / f"{bad}.jsonl").mkdir(parents=True)
        await stage.advance(120)
        assert len((runs / f"{good}.jsonl").read_text().splitlines()) == 2
        states = {entry["id"]: entry["state"] for entry in read(stage)["jobs"]}
        assert states[bad]["lastRunAtMs"] == states[good]["lastRunAtMs"] == START + 120_000
        (runs / f"{bad}.jsonl").rmdir()
        await stage.advance(60)
        lines = (runs / f"{bad}.jsonl").read_text().splitlines()
        assert [json.loads(line)["runAtMs"] for line in lines] == [
            START + 60_000, START + 120_000, START + 180_000,
        ]  # fmt: skip


async def test_rows_and_logs_of_removed_jobs_are_deleted_in_the_end(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        jobs = [await stage.add(at(60), EVENT) for _ in range(3)]
        kept = await stage.add(at(60), EVENT, deleteAfterRun=False)
        foreign = {"id": "theirs", "payload": {"kind": "script"}}
        await stage.idle()
        write(stage, [*read(stage)["jobs"], foreign])
        await stage.advance(60)
        runs = stage.path.parent / "runs"
        (runs / "theirs.jsonl").write_text("{}\n")
        (runs / "notes.txt").write_text("mine")
        for file in runs.iterdir():
            os.utime(file, (START / 1000, START / 1000))
        assert {one.name for one in runs.iterdir()} >= {f"{job}.jsonl" for job in jobs}
        await stage.clock.advance(89 * 86_400)
        await stage.cron.prune()
        assert len(await stage.slots()) == 4
        await stage.clock.advance(2 * 86_400)
        await stage.cron.prune()
        assert {one.job for one in await stage.cron.runs()} == {kept}
        left = {one.name for one in runs.iterdir()}
        assert left == {f"{kept}.jsonl", "theirs.jsonl", "notes.txt"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"enabled": 0}, "enabled is 0 (use true or false)"),
        ({"enabled": "off"}, "enabled is 'off'"),
        ({"deleteAfterRun": "yes"}, "deleteAfterRun is 'yes'"),
        ({"agentId": ["ops"]}, "agentId ['ops'] is not a text"),
        ({"wakeMode": "later"}, "unknown wakeMode 'later' (use now or next-heartbeat)"),
        ({"delivery": "none"}, "the delivery is not an object"),
        ({"delivery": {"mode": "announce", "bestEffort": "true"}}, "bestEffort is 'true'"),
        ({"misfire": "skip"}, "misfire is not an object"),
        ({"misfire": {"maxAgeMinutes": float("inf")}}, "maxAgeMinutes inf"),
        ({"misfire": {"maxAgeMinutes": float("nan")}}, "maxAgeMinutes nan"),
        ({"payload": {**TURN, "timeoutSeconds": "60"}}, "timeoutSeconds '60'"),
        ({"payload": {**TURN, "timeoutSeconds": -1}}, "timeoutSeconds -1"),
        ({"payload": {**TURN, "model": ["a"]}}, "model ['a'] is not a text"),
        ({"payload": {**TURN, "toolsAllow": ["read"]}}, "payload.toolsAllow limits its tools"),
        ({"payload": {**TURN, "toolsAllow": []}}, "payload.toolsAllow limits its tools"),
        ({"payload": {**TURN, "externalContentSource": "gmail"}}, "text of others"),
        ({"scheduledToolPolicy": {"mode": "account"}}, "scheduledToolPolicy limits its tools"),
        ({"trigger": {"script": "x"}}, "its trigger is a condition"),
        ({"schedule": {"kind": "on-exit", "command": "x"}}, "no known kind"),
        ({"schedule": {"every": "10m"}}, "no known kind"),
        ({"schedule": {"kind": "every"}}, "has no everyMs"),
        ({"schedule": {"kind": "every", "everyMs": 60_000, "anchorMs": "x"}}, "no valid anchorMs"),
        ({"schedule": {"kind": "cron", "expr": "@daily", "tz": ["UTC"]}}, "tz that is not a text"),
        ({"schedule": {"kind": "cron", "expr": "@daily", "staggerMs": "5m"}}, "staggerMs"),
        ({"id": "é" * 150}, "its id has more than 200 bytes"),
    ],
)
async def test_entry_that_would_not_do_what_it_says_is_not_run(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    async with open_stage(tmp_path) as stage:
        entry = {"id": "bad", "name": "b", "schedule": every(60), "payload": TURN, **change}
        good = {"id": "good", "name": "g", "schedule": every(60), "payload": EVENT}
        write(stage, [entry, good])
        await stage.advance(60)
        assert [job.id for job in await stage.cron.jobs(include_disabled=True)] == ["good"]
        assert await stage.slots("good") == [(60, "ok", "schedule")]
        assert problem in (await stage.cron.status()).problem
        # What cannot be run stays in the file, with what it says.
        kept = read(stage)["jobs"][-1]
        assert json.dumps(kept) == json.dumps(entry)


async def test_entry_that_cannot_run_is_named_after_a_restart(tmp_path: Path) -> None:
    store, entry = MemoryStore(), {"id": "a", "name": "a", "schedule": every(60), "payload": EVENT}
    async with open_stage(tmp_path, store=store) as stage:
        write(stage, [entry, {**entry, "name": "again"}, {**entry, "id": "b", "enabled": 0}])
        await stage.advance(60)
        assert [one["id"] for one in read(stage)["jobs"]] == ["a", "a", "b"]
    async with open_stage(tmp_path, store=store) as stage:
        await stage.cron.jobs()
        assert stage.cron.problem == (
            "job 'a' is there twice: the first one counts; "
            "job 'a': enabled is 0 (use true or false)"
        )
        write(stage, [entry])
        await stage.cron.jobs()
        assert not stage.cron.problem


async def test_field_of_another_type_that_is_clear_is_understood(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        delivery = {"mode": "announce", "to": -100, "threadId": 7, "accountId": 1}
        payload = {**TURN, "timeoutSeconds": 0.5, "toolsAllow": ["*"]}
        policy = {"version": 1, "mode": "trusted"}
        write(
            stage,
            [
                {
                    "id": "a", "name": "a", "schedule": every(60), "payload": payload,
                    "delivery": delivery, "enabled": "true", "scheduledToolPolicy": policy,
                }
            ],
        )  # fmt: skip
        [job] = await stage.cron.jobs()
        assert job.delivery is not None and job.payload.timeout_s == 0.5  # type: ignore[union-attr]  # a turn
        assert (job.delivery.to, job.delivery.thread, job.delivery.account) == ("-100", "7", "1")


async def test_interval_of_nothing_disables_its_job_with_the_reason(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        entry = {"id": "a", "name": "a", "schedule": {"kind": "every", "everyMs": 0}}
        write(stage, [{**entry, "payload": EVENT}])
        await stage.advance(180)
        for _ in range(3):
            await stage.tick()
        job = await stage.cron.find("a")
        assert not job.enabled and "an interval of 0 ms is too short" in job.state.last_error
        assert await stage.slots() == []


async def test_time_that_is_none_disables_its_job_with_the_reason(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        entry = {"id": "a", "name": "a", "schedule": {"kind": "at", "at": "31 February"}}
        write(stage, [{**entry, "payload": EVENT}])
        for _ in range(3):
            await stage.tick()
        job = await stage.cron.find("a")
        assert not job.enabled and "'31 February' is not understood" in job.state.last_error
        assert await stage.slots() == []


async def test_stored_job_that_cannot_be_read_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    async with open_stage(tmp_path, store=store) as stage:
        job = await stage.add(every(60), EVENT)
        await stage.idle()
    async with store.transaction() as transaction:
        broken = dict((await store.records("cron-job"))[job])
        broken["job"] = {**broken["job"], "id": "old", "enabled": 0}
        transaction.put_record("cron-job", "old", broken)
    async with open_stage(tmp_path, store=store) as stage:
        await stage.advance(60)
        assert await stage.slots() == [(60, "ok", "schedule")]
        assert "the stored job old is not run" in caplog.text and "enabled is 0" in caplog.text
        assert "old" in await store.records("cron-job")
