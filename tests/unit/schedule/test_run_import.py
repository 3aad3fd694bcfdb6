"""The runs that OpenClaw logged are shown as ours, once."""

import json
import os
from pathlib import Path

import pytest

from homarus.core.message import Json, Usage
from homarus.schedule.run_import import parse_lines
from homarus.schedule.run_log import MAX_LINES
from homarus.store.slots import SlotRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from tests.unit.schedule.harness import EVENT, START, Stage, every, open_stage

MINUTE_MS = 60_000


def line(minutes: int, status: str = "ok", **more: Json) -> dict[str, Json]:
    """Return a finished run, as OpenClaw logs it."""
    at_ms = START + minutes * MINUTE_MS
    return {
        "ts": at_ms + 2_500, "jobId": "theirs", "action": "finished", "status": status,
        "runAtMs": at_ms, "durationMs": 2_500, "nextRunAtMs": at_ms + MINUTE_MS, **more,
    }  # fmt: skip


ANSWERED: dict[str, Json] = {
    "summary": "two new mails", "sessionId": "5e0b",
    "sessionKey": "agent:main:cron:theirs:run:5e0b", "model": "m1", "provider": "acme",
    "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
}  # fmt: skip


def log_path(stage: Stage) -> Path:
    path = stage.path.parent / "runs" / "theirs.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_log(stage: Stage, *lines: Json) -> None:
    text = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines)
    log_path(stage).write_text(text)


def write_job(stage: Stage, **state: Json) -> None:
    entry: Json = {
        "id": "theirs", "name": "mail", "enabled": True, "createdAtMs": START - 10 * MINUTE_MS,
        "schedule": every(60), "sessionTarget": "main", "wakeMode": "now", "payload": EVENT,
        "state": state,
    }  # fmt: skip
    stage.path.parent.mkdir(parents=True, exist_ok=True)
    stage.path.write_text(json.dumps({"version": 1, "jobs": [entry]}, indent=2))


async def test_logged_runs_become_rows_when_a_job_is_taken_up(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        failed = line(-2, "error", error="no answer")
        write_log(stage, {**line(-3), **ANSWERED}, failed, line(-1, "skipped", error="disabled"))
        write_job(stage, lastRunAtMs=START - MINUTE_MS, nextRunAtMs=START + MINUTE_MS)
        first, second, third = await stage.cron.runs("theirs")
        assert (first.state, first.summary, first.session_id) == ("ok", "two new mails", "5e0b")
        assert (first.slot_ms, first.duration_ms) == (START - 3 * MINUTE_MS, 2_500)
        assert (first.model, first.provider, first.usage) == ("m1", "acme", Usage(10, 5))
        assert (second.state, second.reason) == ("error", "no answer")
        assert (third.state, third.reason) == ("skipped", "disabled")


async def test_own_lines_and_imported_ones_are_not_imported_again(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        write_log(stage, line(-2), line(-1))
        write_job(stage, nextRunAtMs=START + MINUTE_MS)
        await stage.advance(60)
        clock.step(150)  # the slot at 120 is skipped, that at 180 is run later than it was due
        await stage.tick()
        expected = await stage.slots("theirs")
        assert [seconds for seconds, _, _ in expected] == [-120, -60, 60, 120, 180]
        lines = log_path(stage).read_text().splitlines()
        assert len(lines) == 5
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        await stage.cron.recover()
        await stage.cron.update("theirs", {"name": "other"})
        await stage.idle()
        tree = json.loads(stage.path.read_text())
        tree["jobs"][0]["name"] = "edited"
        stage.path.write_text(json.dumps(tree))
        assert (await stage.cron.find("theirs")).name == "edited"
        assert await stage.slots("theirs") == expected
        assert log_path(stage).read_text().splitlines() == lines


async def test_runs_of_openclaw_in_between_are_imported_at_the_next_start(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        write_job(stage, nextRunAtMs=START + MINUTE_MS)
        await stage.advance(60)
    clock.step(100)
    async with open_stage(tmp_path, store=store, clock=clock) as stage:
        with log_path(stage).open("a") as file:
            file.write(json.dumps(line(2)) + "\n")
        await stage.cron.recover()
        assert [seconds for seconds, _, _ in await stage.slots("theirs")] == [60, 120]
        await stage.tick()  # the slot that OpenClaw ran is not run again
        assert await stage.slots("theirs") == [(60, "ok", "schedule"), (120, "ok", "schedule")]


async def test_broken_lines_are_counted_in_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_stage(tmp_path) as stage:
        broken: list[Json] = [
            "not json", "[]", "1", '{"action": "finished"}', line(-9, "odd"),
            {**line(-8), "jobId": "other"}, {**line(-7), "runAtMs": 1e300},
            {**line(-6), "ts": "now"}, "[" * 100_000,
            {**line(-3), "usage": {"input_tokens": float("inf")}},
            '{"ts": 17',
        ]  # fmt: skip
        write_log(stage, *broken, {**line(-5), "action": "started"}, line(-4, summary="\ud800"))
        write_job(stage)
        assert [seconds for seconds, _, _ in await stage.slots("theirs")] == [-240]
        [found] = [one.message for one in caplog.records if "cannot be read" in one.message]
        assert "theirs.jsonl: 11 lines" in found


async def test_import_is_bounded(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        write_log(stage, *(line(n - 3_000) for n in range(2_500)))
        write_job(stage)
        rows = await stage.cron.runs("theirs", 5_000)
        assert len(rows) == MAX_LINES
        assert rows[-1].slot_ms == START - 501 * MINUTE_MS


async def test_runs_whose_rows_were_deleted_for_their_age_stay_deleted(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        write_log(stage, line(-200 * 1_440), line(-100 * 1_440))
        write_job(stage)
        [row] = await stage.cron.runs("theirs")  # the last run stays known
        assert row.slot_ms == START - 100 * 1_440 * MINUTE_MS


async def test_log_that_is_no_file_is_left_alone(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        os.mkfifo(log_path(stage))
        write_job(stage)
        assert not await stage.cron.runs("theirs")


def test_line_without_start_has_the_time_of_its_end() -> None:
    given = line(0)
    del given["runAtMs"], given["status"]
    [slot] = parse_lines("theirs", [json.dumps(given).encode()]).slots
    assert slot == SlotRecord(
        "theirs", START + 2_500, state="ok", ended_ms=START + 2_500,
        next_run_ms=START + MINUTE_MS,
    )  # fmt: skip
