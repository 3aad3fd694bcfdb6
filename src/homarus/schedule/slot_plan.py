"""Decide what happens with the slots of a job that are due: which one runs, which are skipped.

Every slot up to now gets a row: it runs, or it is skipped with the reason. At most one slot of a
job is started at a time, so that a jump of the clock or a long suspend starts no burst. Pure.
"""

from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.schedule.job import Misfire
from homarus.schedule.job_slots import JobSlots
from homarus.store.slots import SlotTrigger

MIN_GAP_MS: Final = 2_000  # between the starts of two runs of a job
ON_TIME_MS: Final = 60_000  # a slot that is started later than this was missed
MAX_WAIT_MS: Final = 3_600_000  # after errors
MAX_ROWS: Final = 20  # more skipped slots with the same reason are one row
BUSY: Final = "the previous run of the job had not ended"
TOO_SOON: Final = "the previous run of the job had started less than 2 s before"
BACKING_OFF: Final = "the job waited after errors"
MISSED: Final = "missed: the scheduler was not running, or the clock was set"
REPLACED: Final = "missed: a later slot of the job runs instead"


@dataclass(frozen=True, slots=True)
class JobTiming:
    """What is known of a job's past.

    Every slot up to `cursor_ms` has a row. `started_ms` and `ended_ms` are those of the last run,
    `not_before_ms` is when the next may start after errors. `retry_ms` is when a failed run is
    repeated, as attempt number `attempt`; 0: it is not.
    """

    cursor_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    not_before_ms: int = 0
    retry_ms: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class SkippedSlots:
    """Slots that do not run: one, or several in one row, from `slot_ms` to `until_ms`.

    With `is_exact` False, there are more than `count`.
    """

    slot_ms: int
    reason: str
    count: int = 1
    until_ms: int = 0
    is_exact: bool = True

    @property
    def row_reason(self) -> str:
        """The reason as the row has it: with the number of slots that it stands for."""
        if self.count == 1:
            return self.reason
        return f"{'' if self.is_exact else 'more than '}{self.count} slots: {self.reason}"


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The slot that runs now, if any, those that are skipped, and the new cursor."""

    cursor_ms: int
    run_ms: int | None = None
    trigger: SlotTrigger = "schedule"
    skipped: tuple[SkippedSlots, ...] = ()


def plan_slots(slots: JobSlots, timing: JobTiming, now_ms: int, misfire: Misfire) -> SlotPlan:
    """Plan the slots that are due. A cursor after now is that of a clock that was set back."""
    skipped, low_ms = list[SkippedSlots](), min(timing.cursor_ms, now_ms)
    if misfire.policy == "all" and _gap_end_ms(timing, now_ms) > now_ms:
        return SlotPlan(low_ms)  # they run later: none is skipped
    for until_ms, reason in _blocked(timing, now_ms, misfire):
        if until_ms > low_ms:
            skipped += _skip(slots, low_ms, min(until_ms, now_ms), reason)
            low_ms = min(until_ms, now_ms)
    if misfire.policy == "all":
        run_ms = next(iter(slots.list(low_ms, now_ms, 1)), None)
        cursor_ms = low_ms if run_ms is None else run_ms
    else:
        run_ms, cursor_ms = slots.last(low_ms, now_ms), now_ms
        if run_ms is not None:
            skipped += _skip(slots, low_ms, run_ms - 1, REPLACED)
    if run_ms is None:
        return SlotPlan(max(cursor_ms, low_ms), skipped=tuple(skipped))
    trigger: SlotTrigger = "schedule" if now_ms - run_ms <= ON_TIME_MS else "catch-up"
    return SlotPlan(cursor_ms, run_ms, trigger, tuple(skipped))


def rebase_timing(timing: JobTiming, now_ms: int) -> JobTiming:
    """Return the timing after the clock was set back: no run is in the future, no wait too long.

    Slots that have run are not run again: they have rows.
    """
    return JobTiming(
        min(timing.cursor_ms, now_ms),
        timing.started_ms if timing.started_ms <= now_ms else 0,
        timing.ended_ms if timing.ended_ms <= now_ms else 0,
        min(timing.not_before_ms, now_ms + MAX_WAIT_MS),
        min(timing.retry_ms, now_ms + MAX_WAIT_MS),
        timing.attempt,
    )


def next_run_ms(slots: JobSlots, timing: JobTiming, now_ms: int, misfire: Misfire) -> int | None:
    """Return when the job runs next; a time that has passed means that it is due."""
    after_ms = max(min(timing.cursor_ms, now_ms), timing.not_before_ms - 1)
    gap_end_ms = _gap_end_ms(timing, now_ms)
    if misfire.policy == "all":
        found_ms = slots.first(after_ms)
        found_ms = found_ms and max(found_ms, gap_end_ms)
    else:
        found_ms = slots.first(max(after_ms, gap_end_ms - 1))
    if timing.retry_ms:
        return min(timing.retry_ms, found_ms or timing.retry_ms)
    return found_ms


def _gap_end_ms(timing: JobTiming, now_ms: int) -> int:
    """Return when the next run may start; a start after now is that of a clock set back."""
    return timing.started_ms + MIN_GAP_MS if timing.started_ms <= now_ms else 0


def _blocked(timing: JobTiming, now_ms: int, misfire: Misfire) -> list[tuple[int, str]]:
    """Return until when slots are skipped, and why, in the order of time."""
    blocked = [(timing.not_before_ms - 1, BACKING_OFF)]
    if misfire.policy == "skip":
        blocked.append((now_ms - ON_TIME_MS - 1, f"{MISSED}; the misfire policy is skip"))
    else:
        minutes = misfire.max_age_minutes
        age_ms = max(ON_TIME_MS, minutes * 60_000)
        blocked.append((now_ms - age_ms - 1, f"{MISSED} for more than {minutes} minutes"))
    if misfire.policy != "all":
        blocked.append((_gap_end_ms(timing, now_ms) - 1, TOO_SOON))
        if timing.ended_ms <= now_ms:
            blocked.append((timing.ended_ms, BUSY))
    return sorted(blocked)


def _skip(slots: JobSlots, after_ms: int, until_ms: int, reason: str) -> list[SkippedSlots]:
    if not (found := slots.list(after_ms, until_ms, MAX_ROWS + 1)):
        return []
    if len(found) <= MAX_ROWS:
        return [SkippedSlots(slot_ms, reason) for slot_ms in found]
    total = slots.range(after_ms, until_ms)
    assert total is not None  # noqa: S101 - there are slots
    return [SkippedSlots(total.first_ms, reason, total.count, total.last_ms, total.is_exact)]
