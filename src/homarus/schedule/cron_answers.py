"""Answers about cron jobs in OpenClaw's JSON, for clients, tools and the command line."""

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence

from homarus.core.fast_dataclass import replace
from homarus.core.message import Json
from homarus.schedule.cron_values import CronRunResult, CronStatus, InternalJobStatus
from homarus.schedule.run_log import encode_line
from homarus.store.slots import SlotRecord


def encode_status(status: CronStatus) -> dict[str, Json]:
    """Return the state of the scheduler; `problem`, which is ours, only if there is one."""
    return {
        "enabled": status.enabled,
        "storePath": status.store_path,
        "jobs": status.jobs,
        "nextWakeAtMs": status.next_wake_at_ms or None,
        **({"problem": status.problem} if status.problem else {}),
    }


def encode_public_status(status: CronStatus) -> dict[str, Json]:
    """Return the same for those who may not know where the state is: without the path."""
    problem = status.problem.replace(status.store_path, "jobs.json")
    return encode_status(replace(status, store_path="", problem=problem))


def encode_run_result(result: CronRunResult) -> dict[str, Json]:
    """Return what a manual run did."""
    answer: dict[str, Json] = {"ok": result.ok, "ran": result.ran}
    if result.reason:
        answer["reason"] = result.reason
    return answer


def encode_entries(slots: Sequence[SlotRecord]) -> list[Json]:
    """Return the slots that have ended as entries of the run log, in the same order."""
    return [encode_line(slot) for slot in slots if not slot.is_running]


def slot_run_id(slot: SlotRecord) -> str:
    """Return the id of a slot's run; a slot that started no turn has one of its own."""
    return slot.run_id or f"{slot.trigger}:{slot.job}:{slot.slot_ms}"


def encode_internal_job(job: InternalJobStatus) -> dict[str, Json]:
    """Return a job of the program itself; its times are null if there are none."""
    return {
        "name": job.name,
        "description": job.description,
        "schedule": job.schedule,
        "lastRunAtMs": job.last_run_at_ms or None,
        "lastDurationMs": job.last_duration_ms or None,
        "lastError": job.last_error or None,
        "nextRunAtMs": job.next_run_at_ms or None,
        "running": job.is_running,
    }


def job_revision(encoded: Mapping[str, Json]) -> str:
    """Return a hash of what a job does, which is another one after the job was changed."""
    return _hash({key: value for key, value in encoded.items() if key != "state"})


def list_revision(encoded: Sequence[Mapping[str, Json]]) -> str:
    """Return a hash of a list of jobs: a client that reads it in pages sees that it changed."""
    return _hash([[job["id"], job_revision(job)] for job in encoded])


def _hash(value: Json) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return (
        f"sha256:{urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')}"
    )
