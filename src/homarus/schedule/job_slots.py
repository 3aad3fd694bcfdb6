"""The slots of one job: the times of its schedule, counted without listing them all. Pure."""

from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.schedule.job import CronJob
from homarus.schedule.schedules import (
    AtSchedule,
    EverySchedule,
    Schedule,
    check_interval,
    check_time,
    next_run_at_ms,
    parse_schedule,
    slots_between,
)

MAX_COUNTED: Final = 1_000  # slots of a cron expression that are counted; more are "at least" these


@dataclass(frozen=True, slots=True)
class SlotRange:
    """Slots of a job that are next to each other; `is_exact` False: there are more than `count`."""

    first_ms: int
    last_ms: int
    count: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class JobSlots:
    """The slots of a job. Every method raises UserError for a schedule that is not valid."""

    schedule: Schedule
    job_id: str

    @property
    def is_single(self) -> bool:
        """Whether there is one slot only."""
        return isinstance(self.schedule, AtSchedule)

    def first(self, after_ms: int) -> int | None:
        """Return the first slot after a time."""
        if isinstance(self.schedule, EverySchedule):  # it may be exactly at the given time
            return next_run_at_ms(self.schedule, after_ms + 1)
        return next_run_at_ms(self.schedule, after_ms, job_id=self.job_id)

    def list(self, after_ms: int, until_ms: int, limit: int) -> list[int]:
        """Return the oldest slots after a time, up to and including another."""
        if until_ms <= after_ms:
            return []
        return slots_between(self.schedule, after_ms, until_ms, limit, job_id=self.job_id)

    def last(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest slot after a time, up to and including another."""
        if isinstance(self.schedule, EverySchedule):
            found = self._every_range(after_ms, until_ms)
            return found.last_ms if found else None
        found_ms = self.first(after_ms)
        if found_ms is None or found_ms > until_ms:
            return None
        low_ms, high_ms = found_ms, until_ms  # after `high_ms` none is left
        while low_ms < high_ms:
            middle_ms = (low_ms + high_ms) // 2
            next_ms = self.first(middle_ms)
            if next_ms is None or next_ms > until_ms:
                high_ms = middle_ms
            else:
                low_ms = found_ms = next_ms
        return found_ms

    def range(self, after_ms: int, until_ms: int) -> SlotRange | None:
        """Return the slots after a time, up to and including another; None if there are none."""
        if isinstance(self.schedule, EverySchedule):
            return self._every_range(after_ms, until_ms)
        found = self.list(after_ms, until_ms, MAX_COUNTED + 1)
        if not found:
            return None
        if len(found) <= MAX_COUNTED:
            return SlotRange(found[0], found[-1], len(found))
        last_ms = self.last(found[-1], until_ms) or found[-1]
        return SlotRange(found[0], last_ms, MAX_COUNTED, is_exact=False)

    def _every_range(self, after_ms: int, until_ms: int) -> SlotRange | None:
        assert isinstance(self.schedule, EverySchedule)  # noqa: S101 - checked by the caller
        first_ms = self.first(after_ms)
        if first_ms is None or first_ms > until_ms:
            return None
        steps = (until_ms - first_ms) // max(1, self.schedule.every_ms)
        return SlotRange(first_ms, first_ms + steps * max(1, self.schedule.every_ms), steps + 1)


def slots_of(job: CronJob) -> JobSlots:
    """Return the slots of a job; an interval without an anchor counts from its creation.

    Raises ScheduleError.
    """
    schedule = parse_schedule(job.schedule)
    if isinstance(schedule, AtSchedule):
        check_time(schedule)  # it may come from a file
    elif isinstance(schedule, EverySchedule):
        check_interval(schedule)
        if schedule.anchor_ms is None:
            schedule = EverySchedule(schedule.every_ms, job.created_at_ms)
    return JobSlots(schedule, job.id)
