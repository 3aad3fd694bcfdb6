"""A service of cron jobs in memory: it stores jobs and slots, and runs nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from homarus.core.errors import UnknownNameError
from homarus.core.message import Json
from homarus.schedule.cron_values import CronRunResult, CronStatus, InternalJobStatus, RunMode
from homarus.schedule.job import CronJob, JobCreator, JobState, Taint
from homarus.schedule.job_edit import make_job, patch_job
from homarus.schedule.job_records import StoredJob
from homarus.store.slots import SlotRecord

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000


@dataclass
class FakeCron:
    """The jobs by id, their slots, and the ids that were run."""

    stored: dict[str, CronJob] = field(default_factory=dict)
    slots: list[SlotRecord] = field(default_factory=list)
    ran: list[tuple[str, RunMode]] = field(default_factory=list)
    is_due: bool = True
    problem: str = ""

    async def jobs(self, *, include_disabled: bool = False) -> Sequence[CronJob]:
        return [job for job in self.stored.values() if job.enabled or include_disabled]

    async def find(self, job_id: str) -> CronJob:
        if job_id not in self.stored:
            raise UnknownNameError("job", job_id)
        return self.stored[job_id]

    async def status(self) -> CronStatus:
        path = "/state/cron/jobs.json"
        return CronStatus(True, path, len(self.stored), self._next_ms(), self.problem)

    def _next_ms(self) -> int:
        times = [job.state.next_run_at_ms for job in self.stored.values()]
        return min((time for time in times if time), default=0)

    async def add(
        self,
        draft: Mapping[str, Json],
        creator: JobCreator = JobCreator(),  # noqa: B008 - frozen
    ) -> CronJob:
        made = make_job(draft, NOW_MS, creator).job
        state = JobState(NOW_MS + HOUR_MS) if made.enabled else JobState()
        job = replace(made, id=f"job-{len(self.stored) + 1}", state=state)
        self.stored[job.id] = job
        return job

    async def update(self, job_id: str, patch: Mapping[str, Json], taint: Taint = ()) -> CronJob:
        stored = patch_job(StoredJob(await self.find(job_id)), patch, NOW_MS, taint)
        self.stored[job_id] = stored.job
        return stored.job

    async def remove(self, job_id: str) -> bool:
        return self.stored.pop(job_id, None) is not None

    async def run(self, job_id: str, mode: RunMode = "force") -> CronRunResult:
        await self.find(job_id)
        if mode == "due" and not self.is_due:
            return CronRunResult(ok=True, ran=False, reason="not-due")
        self.ran.append((job_id, mode))
        self.slots.append(ended_slot(job_id, NOW_MS + len(self.slots)))
        return CronRunResult(ok=True, ran=True)

    async def runs(self, job_id: str | None = None, limit: int = 200) -> Sequence[SlotRecord]:
        return [slot for slot in self.slots if job_id in (None, slot.job)][-limit:]

    def internal_jobs(self) -> Sequence[InternalJobStatus]:
        return [InternalJobStatus("maintenance", "Sessions are cleaned", "every 1h")]


def ended_slot(job_id: str, at_ms: int) -> SlotRecord:
    """Return a slot of a manual run that succeeded."""
    return SlotRecord(
        job_id,
        at_ms,
        "manual",
        "ok",
        started_ms=at_ms,
        ended_ms=at_ms + 2,
        summary="hello",
        next_run_ms=NOW_MS + HOUR_MS,
    )
