"""The cron jobs of the program, as tools, clients and the command line use them.

The jobs are records of the store; this service keeps them in memory as they are stored, and a lock
orders their changes. `tick` starts what is due; the timer of the scheduler calls it. Files are
written after the store, in a task of their own.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from homarus.core.errors import ConflictError, HomarusError, UnknownNameError, UserError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Json
from homarus.core.tasks import run_contained
from homarus.schedule.cron_mirror import CronMirror, JobChange
from homarus.schedule.cron_runner import STUCK_MS, CronRunner, RunnerServices
from homarus.schedule.cron_values import CronRunResult, CronStatus, InternalJobStatus, RunMode
from homarus.schedule.job import AgentTurnPayload, CronJob, JobCreator, Taint
from homarus.schedule.job_edit import SWITCHED_OFF, make_job, patch_job
from homarus.schedule.job_end import count_schedule_error, with_next_run
from homarus.schedule.job_records import StoredJob, delete_job, load_jobs, put_job
from homarus.schedule.run_import import ROWS_KEPT_MS
from homarus.schedule.slot_plan import rebase_timing
from homarus.schedule.turn_records import TurnEnd
from homarus.sessions.levels import think_level, think_levels
from homarus.sessions.run_end import WriteEnd
from homarus.store.slots import SlotRecord

log = logging.getLogger(__name__)

MAX_JOBS: Final = 1_000
MAX_ROWS_PER_JOB: Final = 2_000
RETRY_S: Final = 5.0  # after a slot could not be started, such as on a disk that is full
_CLIENT: Final = JobCreator()
_MAX_UNLOGGED: Final = 1_000  # slots that wait for a disk that cannot be written


@dataclass(frozen=True, slots=True)
class CronServices:
    """What the service uses of the rest of the program.

    `is_enabled` is `cron.enabled`, `get_path` the path of `jobs.json`. `check_model` raises an
    error for a model that cannot be used, `check_channel` for a name that no chat service has.
    `wake` is called when the next run may have changed.
    """

    runner: RunnerServices
    is_enabled: Callable[[], bool]
    get_path: Callable[[], Path]
    spawn: Callable[[Coroutine[Any, Any, None], str], object]
    check_model: Callable[[str], object] = lambda _name: None
    check_channel: Callable[[str], object] = lambda _name: None
    wake: Callable[[], None] = lambda: None
    internal_jobs: Callable[[], Sequence[InternalJobStatus]] = tuple
    is_closed: Callable[[], bool] = lambda: False


class CronService:
    """Everything that is done with cron jobs. Built on first use, by `ScheduleLoader`."""

    def __init__(self, services: CronServices) -> None:
        self._services, self._store = services, services.runner.store
        self._clock, self._on_event = services.runner.clock, services.runner.on_event
        self._jobs: dict[str, StoredJob] = {}
        self._lock = asyncio.Lock()  # held around every change of a job
        self._is_loaded = False
        self._runner = CronRunner(replace(services.runner, on_ended=self._on_ended), self._jobs)
        self._mirror = self._make_mirror()
        self._unlogged: list[SlotRecord] = []
        self._retry_at_s: dict[str, float] = {}  # of jobs that could not be started, monotonic
        self._is_writing = False
        services.runner.turns.on_end("cron", self._ending)

    def _make_mirror(self) -> CronMirror:
        return CronMirror(self._services.get_path(), self._store, self._clock)

    # Reads

    async def jobs(self, *, include_disabled: bool = False) -> Sequence[CronJob]:
        """Return the jobs, the one that is due first first; those without a next run last."""
        async with self._lock:
            await self._refresh()
            found = [one.job for one in self._jobs.values() if include_disabled or one.job.enabled]
        return sorted(found, key=_by_next_run)

    async def find(self, job_id: str) -> CronJob:
        """Return a job. Raises UnknownNameError."""
        async with self._lock:
            await self._refresh()
            return self._get(job_id).job

    async def status(self) -> CronStatus:
        """Return the state of the scheduler."""
        async with self._lock:
            await self._refresh()
            return CronStatus(
                self._services.is_enabled(),
                str(self._mirror.path),
                len(self._jobs),
                self.next_due_ms() or 0,
                self.problem,
            )

    async def runs(self, job_id: str | None = None, limit: int = 200) -> Sequence[SlotRecord]:
        """Return the newest slots of a job or of all jobs, newest last."""
        async with self._lock:
            await self._refresh()
        return await self._store.slots(job=job_id, limit=limit)

    def internal_jobs(self) -> Sequence[InternalJobStatus]:
        """Return the jobs of the program itself."""
        return self._services.internal_jobs()

    @property
    def problem(self) -> str:
        """What is wrong with `jobs.json`, "" for nothing."""
        return self._mirror.problem

    def next_due_ms(self) -> int | None:
        """Return when the next job is due; None when none is, or jobs do not run."""
        if not self._is_active:
            return None
        due = [
            max(one.job.state.next_run_at_ms, self._not_before_ms(one.id))
            for one in self._jobs.values()
            if one.job.enabled and not one.is_running and one.job.state.next_run_at_ms
        ]
        return min(due, default=None)

    @property
    def _is_active(self) -> bool:
        return self._services.is_enabled() and not self._services.is_closed()

    def _not_before_ms(self, job_id: str) -> int:
        """Return when a job that could not be started is tried again; 0 for others."""
        at_s = self._retry_at_s.get(job_id)
        if at_s is None:
            return 0
        return self._clock.now_ms() + round((at_s - self._clock.monotonic()) * 1000)

    def cursor_ms(self, job_id: str) -> int:
        """Return until when every slot of a job has a row."""
        return self._jobs[job_id].timing.cursor_ms

    # Changes

    async def add(self, draft: Mapping[str, Json], creator: JobCreator = _CLIENT) -> CronJob:
        """Add a job: OpenClaw's JSON without id and state. Raises UserError."""
        async with self._lock:
            await self._refresh()
            if len(self._jobs) >= MAX_JOBS:
                raise UserError(f"there are {MAX_JOBS} jobs already", fix="remove some of them")
            now_ms = self._clock.now_ms()
            stored = make_job(draft, now_ms, creator)
            await self._check(stored.job)
            stored = await self._put(self._with_next_run(stored), "added")
        return stored.job

    async def update(self, job_id: str, patch: Mapping[str, Json], taint: Taint = ()) -> CronJob:
        """Change a job by a patch; null removes a field. Raises UserError.

        `taint` is that of the run that makes the edit: it stays with the job.
        """
        async with self._lock:
            await self._refresh()
            changed = patch_job(self._get(job_id), patch, self._clock.now_ms(), taint)
            if patch != SWITCHED_OFF:
                await self._check(changed.job)
            stored = await self._put(self._with_next_run(changed), "updated")
        return stored.job

    async def remove(self, job_id: str) -> bool:
        """Remove a job; return whether there was one. A run of it under way ends as usual."""
        async with self._lock:
            await self._refresh()
            if job_id not in self._jobs:
                return False
            async with self._store.transaction() as transaction:
                delete_job(transaction, job_id)
            del self._jobs[job_id]
            self._retry_at_s.pop(job_id, None)
            self._changed({"jobId": job_id, "action": "removed"})
        return True

    async def run(self, job_id: str, mode: RunMode = "force") -> CronRunResult:
        """Run a job now, or with `due` only if it is due. Raises UnknownNameError."""
        async with self._lock:
            await self._refresh()
            stored = self._get(job_id)
            if stored.is_running:
                return CronRunResult(ok=True, ran=False, reason="already-running")
            if mode == "force":
                run_id: str | None = await self._runner.run_now(stored)
            elif self._is_due(stored):
                run_id = await self._runner.run_due(stored)
            else:
                run_id = None
            self._write_files()
            self._services.wake()
        if run_id is None:
            return CronRunResult(ok=True, ran=False, reason="not-due")
        return CronRunResult(ok=True, ran=True, run_id=run_id)

    async def _check(self, job: CronJob) -> None:
        """Check what a job names. Raises UserError."""
        self._services.runner.resolve_agent(job.agent)
        payload, delivery = job.payload, job.delivery
        if isinstance(payload, AgentTurnPayload):
            if payload.model:
                self._services.check_model(payload.model)
            if payload.thinking and think_level(payload.thinking) is None:
                raise UnknownNameError("thinking level", payload.thinking, think_levels())
        if delivery and delivery.mode == "announce" and delivery.channel != "last":
            self._services.check_channel(delivery.channel)
        if delivery and delivery.mode == "webhook":
            await self._services.runner.webhooks.resolve_url(delivery.to)

    async def _put(self, stored: StoredJob, action: str) -> StoredJob:
        async with self._store.transaction() as transaction:
            put_job(transaction, stored)
        self._jobs[stored.id] = stored
        event: dict[str, Json] = {"jobId": stored.id, "action": action}
        if next_ms := stored.job.state.next_run_at_ms:
            event["nextRunAtMs"] = next_ms
        self._changed(event)
        return stored

    def _changed(self, event: Mapping[str, Json]) -> None:
        self._on_event(event)
        self._write_files()
        self._services.wake()

    def _get(self, job_id: str) -> StoredJob:
        if stored := self._jobs.get(job_id):
            return stored
        names = {one.job.name: one.id for one in self._jobs.values()}
        close = get_close_matches(job_id, [*self._jobs, *names], n=2)
        nearest = tuple(names.get(one, one) for one in close)
        raise UnknownNameError("cron job", job_id, nearest, fix="list them: homarus cron list")

    def _with_next_run(self, stored: StoredJob) -> StoredJob:
        end = with_next_run(stored, self._clock.now_ms(), self._runner.misfire_of(stored.job))
        return end.stored or stored

    # The timer

    async def tick(self) -> None:
        """Start what is due, record what was missed, and take up changes of the file."""
        async with self._lock:
            await self._refresh()
            if self._is_active:
                for stored in list(self._jobs.values()):
                    await self._tick_job(stored)
            self._write_files()

    async def _tick_job(self, stored: StoredJob) -> None:
        """Handle one job; an error of one job does not stop the others."""
        if self._not_before_ms(stored.id) > self._clock.now_ms():
            return
        try:
            if stored.is_running:
                await self._end_if_stuck(stored)
            elif stored.job.enabled:
                stored = await self._rebase(stored)
                if self._is_due(stored):
                    await self._runner.run_due(stored)
            self._retry_at_s.pop(stored.id, None)
        except ConflictError:  # another process has this slot: it runs there
            log.info("job %s: another process has claimed its slot", stored.id)
            await self._reload(stored.id)
        except UserError as exc:
            await self._count_schedule_error(stored, exc)
        except HomarusError as exc:
            log.warning("job %s could not be run now: %s", stored.id, exc)
            self._retry_at_s[stored.id] = self._clock.monotonic() + RETRY_S

    def _is_due(self, stored: StoredJob) -> bool:
        due_ms = stored.job.state.next_run_at_ms
        return stored.job.enabled and 0 < due_ms <= self._clock.now_ms()

    async def _rebase(self, stored: StoredJob) -> StoredJob:
        """Return the job; its next run is computed again after the clock was set back."""
        timing = rebase_timing(stored.timing, self._clock.now_ms())
        if timing == stored.timing and stored.job.state.schedule_error_count == 0:
            return stored
        rebased = self._with_next_run(replace(stored, timing=timing))
        if rebased.job.state.schedule_error_count:
            rebased = rebased.with_state(schedule_error_count=0)
        async with self._store.transaction() as transaction:
            put_job(transaction, rebased)
        self._jobs[rebased.id] = rebased
        return rebased

    async def _count_schedule_error(self, stored: StoredJob, exc: UserError) -> None:
        failed = count_schedule_error(stored, str(exc))
        log.warning("job %s: %s", stored.id, failed.job.state.last_error)
        await self._put(failed, "updated")

    async def _end_if_stuck(self, stored: StoredJob) -> None:
        payload, now_ms = stored.job.payload, self._clock.now_ms()
        timeout_s = payload.timeout_s if isinstance(payload, AgentTurnPayload) else 0.0
        limit_ms = max(STUCK_MS, round(timeout_s * 1000) + 600_000)
        if now_ms - stored.timing.started_ms > limit_ms:
            text = f"the run did not end within {limit_ms // 60_000} minutes"
            await self._runner.end_stuck(stored, text)

    async def _reload(self, job_id: str) -> None:
        """Read a job again that another process has changed."""
        found = (await load_jobs(self._store)).get(job_id)
        if found is not None:
            self._jobs[job_id] = found

    @asynccontextmanager
    async def _ending(self, end: TurnEnd) -> AsyncIterator[WriteEnd]:
        """Add the end of a slot to the transaction that settles its turn."""
        async with self._lock:
            await self._load()
            async with self._runner.ending(end) as write:
                yield write
            self._write_files()
        self._services.wake()

    # Start

    async def recover(self) -> None:
        """End the slots that no run will end, bring the logs up to date, post what is left."""
        await self._services.runner.webhooks.recover()
        async with self._lock:
            await self._refresh()
            for stored in [one for one in self._jobs.values() if one.is_running]:
                slot = await self._store.slot(stored.id, stored.running_slot_ms)
                is_open = slot is not None and await self._is_turn_open(slot)
                if not is_open:
                    await self._runner.end_stuck(stored, "the run was interrupted")
            await self._end_orphans()
            await self._mirror.runs.import_newer(list(self._jobs))
            self._unlogged += await self._mirror.recover_logs()
            self._write_files()
        self._services.wake()

    async def _is_turn_open(self, slot: SlotRecord) -> bool:
        return slot.is_running and await self._store.record("turn", slot.run_id) is not None

    async def _end_orphans(self) -> None:
        """End running slots whose job was removed and whose turn is gone."""
        now_ms = self._clock.now_ms()
        for slot in await self._store.slots("running"):
            if not await self._is_turn_open(slot) and slot.job not in self._jobs:
                lost = replace(slot, state="error", reason="the job is gone", ended_ms=now_ms)
                async with self._store.transaction() as transaction:
                    transaction.end_slot(lost)
                self._on_ended([lost])

    async def prune(self) -> None:
        """Delete old rows of slots, and the old logs of jobs that are gone."""
        before_ms = self._clock.now_ms() - ROWS_KEPT_MS
        async with self._lock:
            await self._refresh()
            async with self._store.transaction() as transaction:
                transaction.prune_slots(MAX_ROWS_PER_JOB, before_ms, [*self._jobs])
            await self._mirror.prune_logs(self._jobs, before_ms)

    async def _load(self) -> None:
        if not self._is_loaded:
            self._jobs.update(await load_jobs(self._store))
            self._is_loaded = True

    async def _refresh(self) -> None:
        """Load the jobs, and take up what others changed in the file."""
        await self._load()
        if self._mirror.path != self._services.get_path():
            self._mirror = self._make_mirror()  # `cron.store` was changed
        for change in await self._mirror.import_changes(self._jobs):
            await self._report_change(change)
            if change.kind != "removed":
                await self._mirror.runs.import_log(change.job_id)

    async def _report_change(self, change: JobChange) -> None:
        """Compute the next run of a job that another program wrote, and announce the change."""
        stored = self._jobs.get(change.job_id)
        if stored is None:
            self._changed({"jobId": change.job_id, "action": "removed"})
            return
        try:
            stored = self._with_next_run(stored)
        except UserError as exc:
            stored = count_schedule_error(stored, str(exc))
        await self._put(stored, change.kind)

    # Files

    def _on_ended(self, slots: Sequence[SlotRecord]) -> None:
        self._unlogged += slots

    def _write_files(self) -> None:
        """Write the files in the background, once for changes that come together."""
        if not self._is_writing:
            self._is_writing = True
            name = "files of jobs"
            self._services.spawn(run_contained(name, self._write_all, lambda _exc: None), name)

    async def _write_all(self) -> None:
        self._is_writing = False
        async with self._lock:
            if self._is_writing:
                return  # a later task does it
            slots = tuple(self._unlogged)
            left = await self._mirror.append(slots)
            self._unlogged[: len(slots)] = left[-_MAX_UNLOGGED:]
            await self._refresh()
            try:
                await self._mirror.write(self._jobs)
            except OSError as exc:
                log.warning("%s is behind: %s", self._mirror.path, exc.strerror or exc)


def _by_next_run(job: CronJob) -> tuple[bool, int, int, str]:
    next_ms = job.state.next_run_at_ms
    return not next_ms, next_ms, job.created_at_ms, job.id
