"""Make jobs from drafts and patches, and check them. Pure, but for the id of a new job."""

from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import replace
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.schedule.job import (
    AgentTurnPayload,
    CronJob,
    JobCreator,
    JobState,
    Taint,
    decode_job,
    encode_job,
)
from homarus.schedule.job_input import normalize_job_create, normalize_job_patch
from homarus.schedule.job_records import StoredJob
from homarus.schedule.schedules import AtSchedule, check_schedule, parse_schedule
from homarus.schedule.slot_plan import JobTiming
from homarus.sessions.notices import MAX_NOTICE_CHARS

_MAX_MESSAGE_CHARS: Final = 100_000
_MAX_NAME_CHARS: Final = 200
_PAST_MS: Final = 60_000  # a time that has just passed is run at once
_MERGED: Final = frozenset({"payload", "delivery"})  # objects of which a patch may name a part
SWITCHED_OFF: Final[Mapping[str, Json]] = {"enabled": False}  # a patch that needs no check
_FIXED: Final = frozenset({"id", "jobId", "state", "createdAtMs", "updatedAtMs"})


def make_job(draft: Mapping[str, Json], now_ms: int, creator: JobCreator) -> StoredJob:
    """Return a new job. Raises UserError that names what is wrong with the draft."""
    data = normalize_job_create({k: v for k, v in draft.items() if k not in _FIXED})
    if data is None:
        raise UserError("a job is an object", fix="give name, schedule and payload")
    data["name"] = _name_of(data)
    schedule = data.get("schedule")
    if isinstance(schedule, dict) and schedule.get("kind") == "every":
        schedule.setdefault("anchorMs", now_ms)
    job = decode_job(
        {"id": str(uuid4()), **data, "createdAtMs": now_ms, "updatedAtMs": now_ms}, creator
    )
    check_job(job, now_ms)
    return StoredJob(job, initial_timing(job, now_ms))


def patch_job(
    stored: StoredJob, patch: Mapping[str, Json], now_ms: int, taint: Taint = ()
) -> StoredJob:
    """Return a changed job; null removes a field. Raises UserError.

    `taint` of the edit is added to that of the job, which an edit never removes.
    A job whose schedule changes, or that is enabled, starts again: slots before now do not count.
    """
    changes = normalize_job_patch({k: v for k, v in patch.items() if k not in _FIXED})
    if changes is None:
        raise UserError("a patch is an object", fix="name the fields that change")
    data = {key: value for key, value in encode_job(stored.job).items() if key != "state"}
    for key, value in changes.items():
        if value is None:
            data.pop(key, None)
        elif key in _MERGED and _is_same_kind(data.get(key), value):
            merged = {**data[key], **value}
            data[key] = {name: part for name, part in merged.items() if part is not None}
        else:
            data[key] = value
    if "payload" in changes and "sessionTarget" not in changes:
        kind = data["payload"].get("kind") if isinstance(data["payload"], dict) else None
        data["sessionTarget"] = "main" if kind == "systemEvent" else "isolated"
    creator = stored.job.creator
    creator = replace(creator, taint=tuple(dict.fromkeys((*creator.taint, *taint))))
    job = decode_job({**data, "updatedAtMs": now_ms}, creator)
    job = replace(job, state=stored.job.state)
    is_moved = job.schedule != stored.job.schedule
    if changes != SWITCHED_OFF:
        check_job(job, now_ms, is_scheduled=is_moved)
    if not is_moved and (stored.job.enabled or not job.enabled):
        return replace(stored, job=job)
    state = replace(job.state, consecutive_errors=0, schedule_error_count=0)
    timing = initial_timing(replace(job, state=JobState()), now_ms)
    return StoredJob(replace(job, state=state), timing, stored.running_slot_ms)


def check_job(job: CronJob, now_ms: int, *, is_scheduled: bool = True) -> None:
    """Raise UserError for a job that cannot run as it says."""
    if len(job.name) > _MAX_NAME_CHARS:
        raise UserError("the name of the job is too long", fix="use at most 200 characters")
    payload = job.payload
    if isinstance(payload, AgentTurnPayload):
        _check_length("message", payload.message, _MAX_MESSAGE_CHARS, "write a file, and name it")
    else:
        _check_length("system event", payload.text, MAX_NOTICE_CHARS, "use an agentTurn")
    if job.session_target == "main" and job.delivery and job.delivery.mode == "announce":
        raise UserError(
            "a system event is not announced: it goes to the main session",
            fix="use an agentTurn, or delivery mode none",
        )
    schedule = parse_schedule(job.schedule)
    if is_scheduled or not isinstance(schedule, AtSchedule):
        check_schedule(schedule, now_ms)
    if is_scheduled and isinstance(schedule, AtSchedule):
        at_ms = schedule.at_ms
        if at_ms is not None and at_ms < now_ms - _PAST_MS:
            raise UserError(f"the time {schedule.at} has passed", fix="give a time after now")


def _check_length(what: str, text: str, limit: int, other: str) -> None:
    if len(text) > limit:
        raise UserError(
            f"the {what} of the job is too long",
            fix=f"use at most {limit:,} characters, or {other}",
        )


def initial_timing(job: CronJob, now_ms: int) -> JobTiming:
    """Return the timing of a job that is new here: slots before now do not count.

    The slot of a one-time job that has not run counts; so does the next run that another program
    planned.
    """
    state, cursor_ms = job.state, now_ms
    schedule = parse_schedule(job.schedule)
    at_ms = schedule.at_ms if isinstance(schedule, AtSchedule) else None
    if state.next_run_at_ms:
        cursor_ms = state.next_run_at_ms - 1
    elif at_ms is not None and not state.last_run_at_ms:
        cursor_ms = at_ms - 1
    return JobTiming(cursor_ms=min(cursor_ms, now_ms))


def _is_same_kind(old: Json, new: Json) -> bool:
    """Return whether a patch changes a part of an object, and does not replace it."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return False
    return new.get("kind") in {None, old.get("kind")}


def _name_of(data: Mapping[str, Json]) -> str:
    """Return the name of a new job; without one, the start of its text."""
    name = data.get("name")
    if isinstance(name, str) and name.strip():
        return name.strip()
    payload = data.get("payload")
    fields = payload if isinstance(payload, Mapping) else {}
    text = fields.get("message") or fields.get("text")
    if not isinstance(text, str) or not text.strip():
        raise UserError("the job has no name", fix="add a name")
    return one_line(text, 60)
