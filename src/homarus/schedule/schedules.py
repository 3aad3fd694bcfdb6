"""The three kinds of schedules, their JSON in OpenClaw's files, and their times."""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from itertools import islice
from typing import Final, TypeAlias

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.schedule.absolute_time import format_iso_ms, parse_absolute_time_ms
from homarus.schedule.cron_expression import CronExpression
from homarus.schedule.cron_fields import CronExpressionError
from homarus.schedule.zones import get_zone, local_zone

DEFAULT_STAGGER_MS: Final = 5 * 60 * 1000
_MAX_MS: Final = 2**53  # larger integers are not exact in JSON
_INTEGER: Final = re.compile(r"-?[0-9]{1,16}")


class ScheduleError(UserError):
    """A schedule is incomplete, or its time cannot be understood."""

    code = "user.schedule"


@dataclass(frozen=True, slots=True)
class AtSchedule:
    """One run, at a time. The text is stored as it was given."""

    at: str

    @property
    def at_ms(self) -> int | None:
        """The time; None if the text is not one."""
        return parse_absolute_time_ms(self.at)


@dataclass(frozen=True, slots=True)
class EverySchedule:
    """Runs at `anchor_ms` and every `every_ms` after it."""

    every_ms: int
    anchor_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Runs at the times of a cron expression, in a time zone or in this machine's."""

    expr: str
    tz: str = ""
    stagger_ms: int | None = None


Schedule: TypeAlias = AtSchedule | EverySchedule | CronSchedule


# JSON


def parse_schedule(raw: Json) -> Schedule:
    """Return a schedule of OpenClaw's JSON, in its present form or in an old one.

    The texts in it are not checked: a job with a wrong expression can still be listed and edited.
    `check_schedule` checks them. Raises ScheduleError for JSON that is not a schedule.
    """
    if not isinstance(raw, Mapping):
        raise _invalid(raw, "is not an object")
    kind = schedule_kind(raw)
    if kind == "at":
        return AtSchedule(_at_text(raw))
    if kind == "every":
        every = to_integer(raw.get("everyMs"))
        if every is None:
            raise _invalid(raw, "has no everyMs")
        return EverySchedule(every, _number(raw, "anchorMs"))
    if kind == "cron":
        expr = raw.get("expr", raw.get("cron"))
        if not isinstance(expr, str):
            raise _invalid(raw, "has no expr")
        tz = raw.get("tz") or ""
        if not isinstance(tz, str):
            raise _invalid(raw, "has a tz that is not a text")
        stagger_ms = _number(raw, "staggerMs")
        return CronSchedule(expr, tz.strip(), None if stagger_ms is None else max(0, stagger_ms))
    raise _invalid(raw, "has no known kind")


def schedule_kind(raw: Mapping[str, Json]) -> str:
    """Return the kind that a schedule names, or that its keys imply; else an empty text."""
    kind = raw.get("kind")
    if isinstance(kind, str) and kind.strip().lower() in {"at", "every", "cron"}:
        return kind.strip().lower()
    for name, keys in (("at", ("at", "atMs")), ("every", ("everyMs",)), ("cron", ("expr", "cron"))):
        if any(raw.get(key) is not None for key in keys):
            return name
    return ""


def _number(raw: Mapping[str, Json], key: str) -> int | None:
    """Return a number, None without one. Raises ScheduleError."""
    value = raw.get(key)
    number = to_integer(value)
    if value is not None and number is None:
        raise _invalid(raw, f"has no valid {key}")
    return number


def _at_text(raw: Mapping[str, Json]) -> str:
    at, at_ms = raw.get("at"), raw.get("atMs")
    if isinstance(at, str) and at.strip():
        return at.strip()
    value = to_integer(at_ms) if at is None else to_integer(at)
    if value is not None and 0 < value < _MAX_MS:
        return _iso_or_digits(value)
    if isinstance(at_ms, str) and at_ms.strip():
        return at_ms.strip()
    raise _invalid(raw, "has no at")


def _iso_or_digits(at_ms: int) -> str:
    try:
        return format_iso_ms(at_ms)
    except OverflowError:  # no date is that late; `check_schedule` refuses it
        return str(at_ms)


def to_integer(value: Json) -> int | None:
    """Return a finite number, or the text of one, rounded down; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if _INTEGER.fullmatch(text) else None
    # Not a number and infinity are not within the limits either.
    if isinstance(value, int | float) and -_MAX_MS <= value <= _MAX_MS:
        return math.floor(value)
    return None


def to_stagger_ms(value: Json) -> int | None:
    """Return a stagger, which is never negative; None if the value is not a number."""
    stagger_ms = to_integer(value)
    return None if stagger_ms is None else max(0, stagger_ms)


def encode_schedule(schedule: Schedule) -> dict[str, Json]:
    """Return the JSON of a schedule as OpenClaw writes it."""
    if isinstance(schedule, AtSchedule):
        return {"kind": "at", "at": schedule.at}
    if isinstance(schedule, EverySchedule):
        encoded: dict[str, Json] = {"kind": "every", "everyMs": schedule.every_ms}
        if schedule.anchor_ms is not None:
            encoded["anchorMs"] = schedule.anchor_ms
        return encoded
    encoded = {"kind": "cron", "expr": schedule.expr}
    if schedule.tz:
        encoded["tz"] = schedule.tz
    if schedule.stagger_ms is not None:
        encoded["staggerMs"] = schedule.stagger_ms
    return encoded


def check_schedule(schedule: Schedule, now_ms: int) -> None:
    """Raise ScheduleError, CronExpressionError or UnknownTimeZoneError for one that cannot run."""
    if isinstance(schedule, AtSchedule):
        check_time(schedule)
    elif isinstance(schedule, EverySchedule):
        check_interval(schedule)
    else:
        expression = CronExpression.parse(schedule.expr)
        zone = _zone_of(schedule, "")
        if expression.next_after(now_ms, zone) is None:
            raise CronExpressionError(
                f"the cron expression {one_line(schedule.expr)!r} never matches a date from now on",
                fix="check its day, month, weekday and year",
            )


def check_time(schedule: AtSchedule) -> None:
    """Raise ScheduleError for a time that is none."""
    if schedule.at_ms is None:
        raise ScheduleError(
            f"the time {one_line(schedule.at)!r} is not understood",
            fix="write for example 2026-02-17T10:00:00+01:00; without an offset it is in UTC",
        )


def check_interval(schedule: EverySchedule) -> None:
    """Raise ScheduleError for an interval that is none."""
    if schedule.every_ms < 1:
        raise ScheduleError(
            f"an interval of {schedule.every_ms} ms is too short", fix="use everyMs of 1 or more"
        )


def _invalid(raw: Json, problem: str) -> ScheduleError:
    kind = raw.get("kind") if isinstance(raw, Mapping) else None
    named = f"schedule of kind {one_line(kind, 40)!r}" if isinstance(kind, str) else "schedule"
    return ScheduleError(
        f"the {named} {problem}",
        fix='use {"kind":"at","at":…}, {"kind":"every","everyMs":…} or {"kind":"cron","expr":…}',
    )


# Times


def next_run_at_ms(
    schedule: Schedule, now_ms: int, *, job_id: str = "", default_zone: str = ""
) -> int | None:
    """Return when a job runs next, as OpenClaw computes it; None if it does not.

    The result is after now, except for an interval whose time is exactly now. With `job_id`, a
    cron schedule is staggered. `default_zone` is that of cron schedules without one; if it is
    empty, this machine's. Raises CronExpressionError and UnknownTimeZoneError.
    """
    if isinstance(schedule, AtSchedule):
        at_ms = schedule.at_ms
        return at_ms if at_ms is not None and at_ms > now_ms else None
    if isinstance(schedule, EverySchedule):
        every_ms = max(1, schedule.every_ms)
        anchor_ms = max(0, now_ms if schedule.anchor_ms is None else schedule.anchor_ms)
        if now_ms < anchor_ms:
            return anchor_ms
        return anchor_ms + max(1, -(-(now_ms - anchor_ms) // every_ms)) * every_ms
    if not schedule.expr.strip():
        return None
    offset_ms = stagger_offset_ms(job_id, resolve_stagger_ms(schedule)) if job_id else 0
    expression, zone = CronExpression.parse(schedule.expr), _zone_of(schedule, default_zone)
    found = expression.next_after(now_ms - offset_ms, zone)
    return None if found is None else found + offset_ms


def slots_between(
    schedule: Schedule,
    after_ms: int,
    until_ms: int,
    limit: int,
    *,
    job_id: str = "",
    default_zone: str = "",
) -> list[int]:
    """Return the times of a schedule after one instant, up to and including another.

    The oldest `limit` of them, in order. The times do not depend on `after_ms`: an interval
    without an anchor is the exception, which counts from there. Raises as `next_run_at_ms`.
    """
    slots: Iterator[int]
    if isinstance(schedule, EverySchedule):
        every_ms = max(1, schedule.every_ms)
        anchor_ms = max(0, after_ms if schedule.anchor_ms is None else schedule.anchor_ms)
        first_ms = anchor_ms + max(0, (after_ms - anchor_ms) // every_ms + 1) * every_ms
        slots = iter(range(first_ms, until_ms + 1, every_ms))
    else:
        slots = _slots_until(schedule, after_ms, until_ms, job_id, default_zone)
    return list(islice(slots, limit))


def _slots_until(
    schedule: AtSchedule | CronSchedule, after_ms: int, until_ms: int, job_id: str, zone: str
) -> Iterator[int]:
    while True:
        found = next_run_at_ms(schedule, after_ms, job_id=job_id, default_zone=zone)
        if found is None or found > until_ms:
            return
        yield found
        after_ms = found


def _zone_of(schedule: CronSchedule, default_zone: str) -> tzinfo:
    name = schedule.tz or default_zone
    return get_zone(name) if name else local_zone()


# Stagger


def is_recurring_top_of_hour(expr: str) -> bool:
    """Return whether an expression runs at the full hour, in several hours of the day."""
    parts = expr.split()
    if len(parts) == 6 and parts[0] == "0":
        parts = parts[1:]
    return len(parts) == 5 and parts[0] == "0" and "*" in parts[1]


def resolve_stagger_ms(schedule: CronSchedule) -> int:
    """Return the longest delay of a schedule: its own, else 5 minutes at every full hour."""
    if schedule.stagger_ms is not None:
        return max(0, schedule.stagger_ms)
    return DEFAULT_STAGGER_MS if is_recurring_top_of_hour(schedule.expr) else 0


def stagger_offset_ms(job_id: str, stagger_ms: int) -> int:
    """Return the delay of one job, from 0 to less than `stagger_ms`; always the same for its id."""
    if stagger_ms <= 1:
        return 0
    digest = hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % stagger_ms
