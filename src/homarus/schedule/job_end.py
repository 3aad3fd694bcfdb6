"""What the end of a slot changes in its job: errors, backoff, retries, the end of one-time jobs."""

from typing import Final

from homarus.core.fast_dataclass import dataclass, replace
from homarus.schedule.job import JobState, Misfire
from homarus.schedule.job_records import StoredJob
from homarus.schedule.job_slots import slots_of
from homarus.schedule.slot_plan import next_run_ms
from homarus.store.slots import SlotRecord

BACKOFF_MS: Final = (30_000, 60_000, 300_000, 900_000, 3_600_000)
MAX_RETRIES: Final = 3  # of a one-time job
MAX_SCHEDULE_ERRORS: Final = 3


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The job after a slot ended, None when it is deleted, and when it runs next."""

    stored: StoredJob | None
    next_run_ms: int = 0


def end_job(
    stored: StoredJob, slot: SlotRecord, now_ms: int, misfire: Misfire, *, is_retryable: bool
) -> JobEnd:
    """Return the job after the end of a slot."""
    state, timing = stored.job.state, replace(stored.timing, ended_ms=now_ms, retry_ms=0)
    errors = state.consecutive_errors
    if slot.state == "error":
        errors += 1
        wait_ms = BACKOFF_MS[min(errors, len(BACKOFF_MS)) - 1]
        timing = replace(timing, not_before_ms=now_ms + wait_ms)
    elif slot.state == "ok":
        errors, timing = 0, replace(timing, not_before_ms=0)
    ended = replace(
        stored,
        running_slot_ms=0,
        timing=timing,
        job=replace(stored.job, state=_ended_state(state, slot, errors)),
    )
    if stored.job.kind == "at":
        return _end_single(ended, slot, now_ms, is_retryable=is_retryable)
    return with_next_run(ended, now_ms, misfire)


def with_next_run(stored: StoredJob, now_ms: int, misfire: Misfire) -> JobEnd:
    """Return the job with its next run. Raises UserError for a schedule that is not valid."""
    job = stored.job
    found = None
    if job.enabled:
        found = next_run_ms(slots_of(job), stored.timing, now_ms, job.misfire or misfire)
    return JobEnd(stored.with_state(next_run_at_ms=found or 0), found or 0)


def count_schedule_error(stored: StoredJob, error: str) -> StoredJob:
    """Return the job after its schedule could not be used; the third time disables it."""
    count = stored.job.state.schedule_error_count + 1
    text = f"schedule error: {error}"
    if count < MAX_SCHEDULE_ERRORS:
        return stored.with_state(schedule_error_count=count, last_error=text)
    off = stored.with_state(
        schedule_error_count=count,
        last_error=f"{text}; the job was disabled",
        last_status="error",
        next_run_at_ms=0,
    )
    return replace(off, job=replace(off.job, enabled=False))


def _ended_state(state: JobState, slot: SlotRecord, errors: int) -> JobState:
    return replace(
        state,
        running_at_ms=0,
        last_run_at_ms=slot.started_ms or slot.slot_ms,
        last_status="" if slot.state == "running" else slot.state,
        last_error=slot.reason,
        last_duration_ms=slot.duration_ms,
        consecutive_errors=errors,
        schedule_error_count=0,
    )


def _end_single(ended: StoredJob, slot: SlotRecord, now_ms: int, *, is_retryable: bool) -> JobEnd:
    """Delete or disable a one-time job, or plan its next attempt."""
    if slot.state == "error" and is_retryable and slot.attempt <= MAX_RETRIES:
        retry_ms = now_ms + BACKOFF_MS[min(slot.attempt, len(BACKOFF_MS)) - 1]
        timing = replace(ended.timing, retry_ms=retry_ms, attempt=slot.attempt + 1)
        waiting = replace(ended, timing=timing).with_state(next_run_at_ms=retry_ms)
        return JobEnd(waiting, retry_ms)
    if slot.state == "ok" and ended.job.deletes_after_run:
        return JobEnd(None)
    off = replace(ended, job=replace(ended.job, enabled=False)).with_state(next_run_at_ms=0)
    return JobEnd(off)
