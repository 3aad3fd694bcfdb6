"""`cron.preview`: the times of schedules, for a calendar and for a form that is being filled in."""

import asyncio
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from homarus.core.errors import InvalidRequestError, UserError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Ms, Name

_DAY_MS: Final = 86_400_000
_MAX_SPAN_MS: Final = 400 * _DAY_MS
_MAX_TIMES: Final = 5_000  # of all schedules of a request
_MAX_SCHEDULE_FIELDS: Final = 16

ScheduleJson: TypeAlias = Annotated[dict[str, Any], Field(max_length=_MAX_SCHEDULE_FIELDS)]


class PreviewedSchedule(Params):
    """A schedule as jobs have it; `id` is the job's, which delays jobs of a full hour."""

    id: Annotated[str, Field(max_length=512)] = ""
    schedule: ScheduleJson


class CronPreviewParams(Params):
    """The schedules, the period, and how many times of each are returned."""

    schedules: Annotated[list[PreviewedSchedule], Field(min_length=1, max_length=200)]
    from_ms: Ms
    to_ms: Ms
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    tz: Name | None = None


@method("cron.preview", scope="read", params=CronPreviewParams, advertised=False)
async def preview(_call: MethodCall, params: CronPreviewParams) -> Json:
    """The times of schedules in a period, also of schedules that no job has. Ours.

    A schedule that cannot run has an `error`, and `truncated` says that it has more times.
    """
    if not 0 < params.to_ms - params.from_ms <= _MAX_SPAN_MS:
        raise InvalidRequestError(
            "invalid cron.preview params: at toMs: the period must be after fromMs, and at most"
            " 400 days long"
        )
    # Expressions are searched day by day: many of them would block the event loop.
    return await asyncio.to_thread(_preview_all, params)


def _preview_all(params: CronPreviewParams) -> dict[str, Json]:
    left, previews = _MAX_TIMES, list[Json]()
    for one in params.schedules:
        limit = min(params.limit, left)
        shown = _preview(one, params, limit)
        left -= len(shown["times"])
        previews.append(shown)
    return {"previews": previews}


def _preview(one: PreviewedSchedule, params: CronPreviewParams, limit: int) -> dict[str, Json]:
    from homarus.schedule.schedules import check_schedule, parse_schedule, slots_between

    shown: dict[str, Json] = {"id": one.id, "times": []}
    try:
        schedule = parse_schedule(one.schedule)
        check_schedule(schedule, params.from_ms)
        # One more than wanted shows whether there are more.
        found = slots_between(
            schedule,
            params.from_ms,
            params.to_ms,
            limit + 1,
            job_id=one.id,
            default_zone=params.tz or "",
        )
    except UserError as exc:
        return shown | {"error": exc.message} | ({"fix": exc.fix} if exc.fix else {})
    return shown | {"times": found[:limit]} | ({"truncated": True} if len(found) > limit else {})
