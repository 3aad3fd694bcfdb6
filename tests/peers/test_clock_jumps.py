"""Jobs of the real gateway while its wall clock is set, by Debian's libfaketime.

The wall clock is that of the machine plus an offset, which the test writes to a file; the monotonic
clock stays the real one, as when an administrator sets the time. The timer of jobs sleeps up to a
minute, so a test edits another job to have it look at the clock at once.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import Json
from tests.peers.gateway import Running, call, model_server, new_home, running_gateway
from tests.peers.install import bare_env, debian

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs it

DEADLINE_S = 60.0
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
EVENT = {"kind": "systemEvent", "text": "look"}


def utc_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@dataclass
class FakeWallClock:
    """The wall clock of the gateway."""

    file: Path
    offset_ms: int = 0

    def set(self, at_ms: int) -> None:
        self.offset_ms = at_ms - time.time_ns() // 1_000_000
        sign = "+" if self.offset_ms >= 0 else "-"
        new = self.file.with_suffix(".new")
        new.write_text(f"{sign}{abs(self.offset_ms) / 1000:.3f}\n")
        new.rename(self.file)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.offset_ms


@dataclass
class JobRunner:
    """A gateway with one job, the job that is edited to wake the timer, and the clock."""

    gateway: Running
    clock: FakeWallClock
    job: str
    other: str
    edits: int = 0

    def jump(self, at_ms: int) -> None:
        """Set the clock, and have the timer look at it."""
        self.clock.set(at_ms)
        self.wake()

    def wake(self) -> None:
        self.edits += 1
        self.call("cron.update", id=self.other, patch={"description": f"edit {self.edits}"})

    def call(self, method: str, **params: Json) -> Any:
        return call(self.gateway, method, **params)

    def entries(self, status: str) -> list[dict[str, Any]]:
        found = self.call("cron.runs", id=self.job, limit=200)["entries"]
        return [one for one in found if one["status"] == status]

    def ran(self) -> list[int]:
        """Return the minutes in which the job ran, in milliseconds, oldest first."""
        rows = sorted(self.entries("ok"), key=lambda one: one["runAtMs"])
        return [one["runAtMs"] // MINUTE_MS * MINUTE_MS for one in rows]

    def next_ms(self) -> int:
        found: int = self.call("cron.get", id=self.job)["state"]["nextRunAtMs"]
        return found

    def wait_until(self, is_met: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not is_met():
            assert time.monotonic() < deadline_s, self.gateway.log
            time.sleep(0.1)


@contextmanager
def running_job(folder: Path, at_ms: int, zone: str, expression: str) -> Iterator[JobRunner]:
    """Run a gateway whose clock starts at a time, with a job."""
    debian(faketime="faketime")
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    clock = FakeWallClock(folder / "clock")
    clock.set(at_ms)
    env = {
        **bare_env(folder),
        "TZ": zone,
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock.file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    with model_server() as model, running_gateway(new_home(folder, env, model)) as gateway:

        def add(name: str, **more: Json) -> str:
            job = {"name": name, "payload": EVENT, "sessionTarget": "main", **more}
            id_: str = call(gateway, "cron.add", wakeMode="next-heartbeat", **job)["id"]
            return id_

        other = add("other", enabled=False, schedule={"kind": "every", "everyMs": HOUR_MS})
        job = add("job", schedule={"kind": "cron", "expr": expression, "staggerMs": 0})
        yield JobRunner(gateway, clock, job, other)


def test_jumps_of_the_clock_start_no_burst_and_repeat_no_slot(tmp_path: Path) -> None:
    start_ms = utc_ms("2027-02-01 10:00:00")
    with running_job(tmp_path, start_ms + 10_000, "UTC", "* * * * *") as runner:
        first_ms = start_ms + MINUTE_MS
        runner.jump(first_ms - 2_000)
        runner.wait_until(lambda: runner.ran() == [first_ms])

        ahead_ms = first_ms + 3 * HOUR_MS
        runner.jump(ahead_ms + 20_000)
        runner.wait_until(lambda: len(runner.ran()) > 1)
        assert runner.ran() == [first_ms, ahead_ms]  # one run, not 180
        [missed] = runner.entries("skipped")
        assert "179 slots: missed" in missed["error"]
        assert missed["runAtMs"] == first_ms + MINUTE_MS
        assert runner.next_ms() == ahead_ms + MINUTE_MS

        back_ms = ahead_ms - HOUR_MS
        runner.jump(back_ms - 2_000)
        runner.wait_until(lambda: back_ms in runner.ran())  # at the new time, not an hour later
        expected = [first_ms, back_ms, ahead_ms]
        assert runner.ran() == expected

        runner.jump(back_ms - 1_000)  # back over a slot that has run
        runner.wait_until(lambda: runner.clock.now_ms() > back_ms + 1_000)
        runner.wake()
        runner.wait_until(lambda: runner.next_ms() == back_ms + MINUTE_MS)
        assert runner.ran() == expected
        runner.jump(back_ms + MINUTE_MS - 1_000)
        runner.wait_until(lambda: len(runner.ran()) > len(expected))
        assert runner.ran() == sorted([*expected, back_ms + MINUTE_MS])


def test_job_in_the_hour_that_daylight_saving_leaves_out_runs_once(tmp_path: Path) -> None:
    start_ms, due_ms = utc_ms("2027-03-28 00:50:00"), utc_ms("2027-03-28 01:30:00")
    tomorrow_ms = utc_ms("2027-03-29 00:30:00")  # 02:30 in summer time
    with running_job(tmp_path, start_ms, "Europe/Berlin", "30 2 * * *") as runner:
        assert runner.next_ms() == due_ms  # 03:30, because there is no 02:30
        runner.jump(due_ms - 2_000)
        runner.wait_until(lambda: bool(runner.ran()))
        assert runner.ran() == [due_ms] and runner.next_ms() == tomorrow_ms
        runner.jump(tomorrow_ms - HOUR_MS)
        runner.wait_until(lambda: runner.clock.now_ms() > tomorrow_ms - HOUR_MS)
        runner.wake()
        assert runner.ran() == [due_ms] and runner.next_ms() == tomorrow_ms
        assert not runner.entries("skipped")
