"""P7: whatever happens, each slot of a job runs at most once, and none is invisible.

Jobs are added, edited here and in the file, removed; the clock runs, is set forwards and back; the
program is killed and started again. After each step every slot that was due has a row or is in the
range of one, unless the clock was set over it.
"""

import asyncio
import json
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from homarus.core.errors import AuthError, OverloadedError
from homarus.schedule.job import CronJob
from homarus.schedule.job_slots import slots_of
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from tests.unit.schedule.harness import EVENT, TURN, Stage, at, every

POLICIES = st.sampled_from(["skip", "once", "all"])
SECONDS = st.sampled_from([1, 7, 30, 60, 61, 600, 3_600, 90_000])


class CronMachine(RuleBasedStateMachine):
    """The cron service, its store and its file."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.store, self.clock = MemoryStore(), FakeClock()
        self.stage: Stage = self.run(self._open())
        self.since_ms: dict[str, int] = {}  # from when on the slots of a job count

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def _open(self) -> Stage:
        path = Path(self.folder.name) / "cron" / "jobs.json"
        group = asyncio.TaskGroup()  # it is never left: the program is killed
        await group.__aenter__()
        return Stage(self.store, self.clock, path, group)

    def teardown(self) -> None:
        self.run(self._kill())
        self.runner.close()
        self.folder.cleanup()

    async def _kill(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _restart_counting(self, job: str) -> None:
        self.since_ms[job] = self.clock.now_ms()

    @initialize(seconds=st.sampled_from([5, 60]), policy=st.sampled_from(["skip", "once"]))
    def add_first(self, seconds: int, policy: str) -> None:
        self.add(seconds, is_turn=True, policy=policy)

    @rule(seconds=st.sampled_from([1, 5, 60, 600]), is_turn=st.booleans(), policy=POLICIES)
    def add(self, seconds: int, is_turn: bool, policy: str) -> None:
        misfire = {"policy": policy, "maxAgeMinutes": 120}
        payload = TURN if is_turn else EVENT
        if len(self.since_ms) < 4:
            job = self.run(self.stage.add(every(seconds), payload, misfire=misfire))
            self._restart_counting(job)

    @rule(seconds=st.sampled_from([5, 60, 3_600]))
    def add_single(self, seconds: int) -> None:
        now_s = (self.clock.now_ms() - FakeClock().now_ms()) / 1000
        if len(self.since_ms) < 4:
            self._restart_counting(self.run(self.stage.add(at(now_s + seconds))))

    @rule(seconds=SECONDS)
    def advance(self, seconds: int) -> None:
        self.run(self.clock.advance(seconds))
        self.run(self.stage.tick())
        self._check_nothing_is_due()

    @rule(seconds=SECONDS)
    def set_forwards(self, seconds: int) -> None:
        self.clock.step(seconds)
        self.run(self.stage.tick())
        self._check_nothing_is_due()

    def _check_nothing_is_due(self) -> None:
        """Check that no job that could run is left waiting after the timer woke."""
        running = {one.job for one in self.run(self.stage.running())}
        for job in self._jobs():
            if job.enabled and job.id not in running:
                policy = job.misfire.policy if job.misfire else "once"
                next_ms = job.state.next_run_at_ms
                assert not 0 < next_ms <= self.clock.now_ms() or policy == "all", job

    @rule(seconds=SECONDS)
    def set_back(self, seconds: int) -> None:
        self.clock.step(-seconds)
        for job in self.since_ms:  # slots before the earlier now were counted already
            self.since_ms[job] = max(self.since_ms[job], self.clock.now_ms())
        self.run(self.stage.tick())

    @rule(kind=st.sampled_from(["ok", "transient", "final", "stopped"]))
    def end_run(self, kind: str) -> None:
        if not self.run(self.stage.running()):
            return
        errors = {"transient": OverloadedError("busy"), "final": AuthError("no")}
        reason = "aborted" if kind == "stopped" else ""
        self.run(self.stage.finish(error=errors.get(kind), reason=reason))

    @rule(seconds=SECONDS, kind=st.sampled_from(["ok", "ok", "final"]))
    def work_for(self, seconds: int, kind: str) -> None:
        self.advance(60)
        self.advance(seconds)
        while self.run(self.stage.running()):
            self.end_run(kind)
        self.advance(60)
        while self.run(self.stage.running()):
            self.end_run("ok")
        self.no_due_slot_is_invisible()

    @rule()
    def kill_and_restart(self) -> None:
        self.run(self._kill())
        self.stage = self.run(self._open())
        self.run(self.stage.turns.recover())
        self.run(self.stage.cron.recover())
        self.run(self.stage.tick())

    @rule(data=st.data(), seconds=st.sampled_from([60, 300]))
    def edit_file(self, data: st.DataObject, seconds: int) -> None:
        self.run(self.stage.idle())
        path = self.stage.path
        if not path.exists():
            return
        tree = json.loads(path.read_text())
        entries = [one for one in tree["jobs"] if one["schedule"]["kind"] == "every"]
        if not entries:
            return
        entry = data.draw(st.sampled_from(entries))
        entry["schedule"]["everyMs"] = seconds * 1000 + data.draw(st.integers(0, 9)) * 1000
        path.write_text(json.dumps(tree))
        self.run(self.stage.tick())
        self._restart_counting(entry["id"])

    @rule(data=st.data())
    def toggle(self, data: st.DataObject) -> None:
        jobs = self._jobs()
        if jobs:
            job = data.draw(st.sampled_from(jobs))
            self.run(self.stage.cron.update(job.id, {"enabled": not job.enabled}))
            self._restart_counting(job.id)

    @rule(data=st.data())
    def run_by_hand(self, data: st.DataObject) -> None:
        jobs = self._jobs()
        if jobs:
            self.run(self.stage.cron.run(data.draw(st.sampled_from(jobs)).id))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        jobs = self._jobs()
        if jobs:
            job = data.draw(st.sampled_from(jobs))
            self.run(self.stage.cron.remove(job.id))
            del self.since_ms[job.id]

    def _jobs(self) -> list[CronJob]:
        found = list(self.run(self.stage.cron.jobs(include_disabled=True)))
        for gone in set(self.since_ms) - {one.id for one in found}:
            del self.since_ms[gone]
        return sorted(found, key=lambda one: (one.created_at_ms, one.name, str(one.schedule)))

    @invariant()
    def each_slot_runs_at_most_once(self) -> None:
        rows = self.run(self.store.slots())
        turns = [one.run_id for one in rows if one.run_id]
        assert len(turns) == len(set(turns))
        accepted = self.run(self.store.journal.inbox_records())
        assert {one.id for one in accepted} == set(turns)
        running: dict[str, int] = {}
        for one in rows:
            running[one.job] = running.get(one.job, 0) + one.is_running
        assert all(count <= 1 for count in running.values())
        ended = [one for one in rows if not one.is_running]
        assert all(one.state == "ok" or one.reason for one in ended)

    @invariant()
    def no_due_slot_is_invisible(self) -> None:
        now_ms, rows = self.clock.now_ms(), self.run(self.store.slots())
        for job in self._jobs():
            own = [one for one in rows if one.job == job.id]
            policy = job.misfire.policy if job.misfire else "once"
            if not job.enabled or any(one.is_running for one in own) or policy == "all":
                continue  # what was due meanwhile is recorded when the run ends
            known = {one.slot_ms for one in own}
            ranges = [(one.slot_ms, one.until_ms) for one in own if one.until_ms]
            limit_ms = min(now_ms, job.state.next_run_at_ms - 1)
            # Slots in a backoff, or too soon after a run, are recorded with the next run.
            behind = self.stage.cron.cursor_ms(job.id)
            for slot_ms in slots_of(job).list(self.since_ms[job.id], min(limit_ms, behind), 500):
                is_covered = any(low <= slot_ms <= high for low, high in ranges)
                assert slot_ms in known or is_covered, (job, slot_ms)


CronMachine.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking takes minutes
)
TestCronMachine = CronMachine.TestCase
