"""Jobs in the store: the job as OpenClaw's JSON, who created it, and what is known of its slots."""

import logging
from collections.abc import Mapping
from typing import Final

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Json
from homarus.schedule.job import CronJob, JobCreator, decode_job, encode_job
from homarus.schedule.slot_plan import JobTiming
from homarus.store.base import Store, Transaction

log = logging.getLogger(__name__)

JOB_KIND: Final = "cron-job"
_TIMING_KEYS: Final = {
    "cursor_ms": "cursorMs",
    "started_ms": "startedMs",
    "ended_ms": "endedMs",
    "not_before_ms": "notBeforeMs",
    "retry_ms": "retryMs",
    "attempt": "attempt",
}


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job with its timing; `running_slot_ms` is the slot that runs now, 0 if none does."""

    job: CronJob
    timing: JobTiming = JobTiming()
    running_slot_ms: int = 0

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.job.id

    @property
    def is_running(self) -> bool:
        """Whether a run of the job has not ended."""
        return self.running_slot_ms != 0

    def with_state(self, **changes: Json) -> "StoredJob":
        """Return the job with another state."""
        return replace(self, job=replace(self.job, state=replace(self.job.state, **changes)))


def put_job(transaction: Transaction, stored: StoredJob) -> None:
    """Store a job in a transaction."""
    creator = stored.job.creator
    transaction.put_record(
        JOB_KIND,
        stored.id,
        {
            "job": encode_job(stored.job),
            "creator": {
                "source": creator.source,
                "sessionKey": creator.session_key,
                "taint": [list(source) for source in creator.taint],
            },
            "timing": {key: getattr(stored.timing, name) for name, key in _TIMING_KEYS.items()},
            "runningSlotMs": stored.running_slot_ms,
        },
    )


def delete_job(transaction: Transaction, job_id: str) -> None:
    """Delete a job in a transaction."""
    transaction.delete_record(JOB_KIND, job_id)


async def load_jobs(store: Store) -> dict[str, StoredJob]:
    """Return all jobs by their id. One that cannot be read is left out and logged."""
    jobs: dict[str, StoredJob] = {}
    for id_, data in (await store.records(JOB_KIND)).items():
        try:
            jobs[id_] = _decode(data)
        except UserError as exc:
            log.warning("the stored job %s is not run, because it cannot be read: %s", id_, exc)
    return jobs


def _decode(data: Mapping[str, Json]) -> StoredJob:
    creator, timing = data.get("creator") or {}, data.get("timing") or {}
    return StoredJob(
        decode_job(
            data["job"],
            JobCreator(
                str(creator.get("source", "")),
                str(creator.get("sessionKey", "")),
                tuple((str(kind), str(origin)) for kind, origin in creator.get("taint", ())),
            ),
        ),
        JobTiming(**{name: int(timing.get(key, 0)) for name, key in _TIMING_KEYS.items()}),
        int(data.get("runningSlotMs", 0)),
    )
