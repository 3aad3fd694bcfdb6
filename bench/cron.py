"""A heartbeat and a hundred cron jobs: their cost while none is due, and what a month leaves.

The program is complete, with a store on disk and the timers of a gateway; the clock is moved.
"""

import asyncio
import gc
import logging
import sys
import tempfile
import time
from pathlib import Path

from bench.app import model_server, open_app_for_bench
from bench.figure import Figure
from homarus.app import App
from homarus.testing.clock import START_MS, FakeClock

JOBS = 100
IDLE_MINUTES = 240
MAX_TURNS = 100_000  # of the event loop, until the timers sleep again
DAY_S = 86_400.0
_STEP_S = 21_600.0  # each job is due once in this time
_HOUR_MS = 3_600_000


def measure(*, quick: bool) -> list[Figure]:
    for name in ("homarus.schedule", "homarus.sessions"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        return asyncio.run(_measure(Path(folder), url, days=4 if quick else 30))


async def _measure(home: Path, url: str, days: int) -> list[Figure]:
    clock = FakeClock()
    async with open_app_for_bench(home, url, clock=clock) as app:
        for number in range(JOBS):
            await app.schedules().add(
                {
                    "name": f"job {number}",
                    "schedule": {
                        "kind": "every", "everyMs": 6 * _HOUR_MS,
                        "anchorMs": START_MS + 6 * _HOUR_MS + number,
                    },
                    "payload": {"kind": "systemEvent", "text": f"do {number}"},
                    "wakeMode": "next-heartbeat",
                }
            )  # fmt: skip
        percent = await _idle_percent(app, clock)
        blocks = list[int]()
        for _ in range(days):
            for _ in range(int(DAY_S / _STEP_S)):
                await clock.advance(_STEP_S)
                await app.schedules().tick()
            await app.schedules().prune()
            clock.slept.clear()
            gc.collect()
            blocks.append(sys.getallocatedblocks())
        rows = await app.store.slots()
        calls = await app.store.usage_records()
    growth = (blocks[-1] - blocks[1]) / (len(blocks) - 2)
    note = f"{days} days, {len(rows)} slots"
    return [
        Figure("cron.idle_cpu_percent", percent, "%", f"a heartbeat and {JOBS} jobs, 4 h"),
        Figure("cron.idle_model_calls", len(calls), "", note),
        Figure("cron.month_blocks_per_day", max(0.0, growth), "", note),
        Figure("cron.month_rows_per_job", len(rows) / JOBS, "", note),
    ]


async def _idle_percent(app: App, clock: FakeClock) -> float:
    """Return the share of some hours that the timers take while no job is due."""
    await app.schedules().tick()
    others = clock.sleepers
    async with asyncio.TaskGroup() as group:
        timers = [group.create_task(work()) for work in (app.schedules.run, app.heartbeats.run)]
        await _wait_for_sleep(clock, others + len(timers))
        started_s = time.process_time()
        for _ in range(IDLE_MINUTES):
            await clock.advance(60)
            await _wait_for_sleep(clock, others + len(timers))
        used_s = time.process_time() - started_s
        for timer in timers:
            timer.cancel()
    return used_s / IDLE_MINUTES / 60 * 100


async def _wait_for_sleep(clock: FakeClock, sleepers: int) -> None:
    """Wait until the timers have nothing to do."""
    for _ in range(MAX_TURNS):
        if clock.sleepers >= sleepers:
            return
        await asyncio.sleep(0)
    raise RuntimeError("the timers do not sleep")
