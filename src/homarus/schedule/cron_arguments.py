"""Read the job in the arguments of the `cron` tool. Pure.

Models often write the fields of a job next to `action` instead of inside `job`, the fields of a
schedule next to those of the job, or a schedule as text. Each of these says clearly what is meant.
"""

from collections.abc import Mapping
from typing import Final

from homarus.core.errors import ToolError
from homarus.core.message import Json
from homarus.schedule.absolute_time import parse_absolute_time_ms
from homarus.schedule.job_fields import JOB_FIELDS

_SCHEDULE_FIELDS: Final = ("at", "atMs", "everyMs", "expr", "cron", "tz", "staggerMs")
# Fields of a job that have another meaning as arguments of the tool.
_OWN: Final = frozenset({"id"})
_MIN_CRON_FIELDS: Final = 5


def read_job(args: Mapping[str, Json], action: str) -> dict[str, Json]:
    """Return the job of `add`, or the patch of `update`. Raises ToolError if there is none."""
    name = "job" if action == "add" else "patch"
    given = args.get(name)
    if not (isinstance(given, Mapping) and given):
        fields = {*JOB_FIELDS, *_SCHEDULE_FIELDS} - _OWN
        given = {key: value for key, value in args.items() if key in fields}
    for wrapper in ("data", "job"):
        if isinstance(given.get(wrapper), Mapping):
            given = given[wrapper]
    if not given:
        raise ToolError(
            f"{action} needs a {name}",
            fix='for example {"name": "tea", "schedule": {"at": "2026-12-24T18:00:00+01:00"},'
            ' "payload": {"text": "Make tea"}}',
        )
    return _with_schedule(dict(given))


def read_job_id(args: Mapping[str, Json], action: str) -> str:
    """Return the id of a job. Raises ToolError without one."""
    for name in ("jobId", "id"):
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
    raise ToolError(f"{action} needs a jobId", fix="list shows the ids")


def _with_schedule(job: dict[str, Json]) -> dict[str, Json]:
    """Move the fields of a schedule into one; read a schedule that is a text."""
    schedule = job.get("schedule")
    if isinstance(schedule, str):
        job["schedule"] = _parse_schedule_text(schedule.strip())
    elif schedule is None:
        found = {key: job.pop(key) for key in _SCHEDULE_FIELDS if key in job}
        if found:
            job["schedule"] = found
    return job


def _parse_schedule_text(text: str) -> dict[str, Json]:
    if text.startswith("@") or len(text.split()) >= _MIN_CRON_FIELDS:
        return {"kind": "cron", "expr": text}
    if parse_absolute_time_ms(text) is not None:
        return {"kind": "at", "at": text}
    raise ToolError(
        f"the schedule {text[:80]!r} is not understood",
        fix="use {at: ISO time}, {everyMs} or {expr: cron, tz}",
    )
