"""The slots of a job between two times: the first, the last and how many there are."""

import pytest

from homarus.schedule.job_slots import MAX_COUNTED, JobSlots
from homarus.schedule.schedules import AtSchedule, CronSchedule, EverySchedule, Schedule

MONDAY = 1_771_200_000_000  # 2026-02-16T00:00:00Z
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("schedule", "until_ms", "last_ms"),
    [
        (CronSchedule("* * 3 * * *", "UTC"), 5 * HOUR, 4 * HOUR - SECOND),
        (CronSchedule("* * * * 1-5", "UTC"), 6 * DAY + 20 * HOUR, 5 * DAY - MINUTE),
        (CronSchedule("*/5 * * * 1-5", "UTC"), 6 * DAY + 20 * HOUR, 5 * DAY - 5 * MINUTE),
        (CronSchedule("0 9 * * *", "UTC"), 2 * DAY, DAY + 9 * HOUR),
        (CronSchedule("0 9 * * *", "UTC"), 9 * HOUR, 9 * HOUR),
        (CronSchedule("0 9 * * *", "UTC"), 9 * HOUR - 1, None),
        (EverySchedule(MINUTE, MONDAY), 90 * SECOND, MINUTE),
        (AtSchedule("2026-02-16T01:00Z"), DAY, HOUR),
        (AtSchedule("2026-02-16T01:00Z"), HOUR - 1, None),
    ],
)
def test_last_slot_is_the_one_before_the_end(
    schedule: Schedule, until_ms: int, last_ms: int | None
) -> None:
    expected = None if last_ms is None else MONDAY + last_ms
    assert JobSlots(schedule, "").last(MONDAY, MONDAY + until_ms) == expected


def test_many_slots_are_counted_up_to_a_limit() -> None:
    slots = JobSlots(CronSchedule("* * * * 1-5", "UTC"), "")
    found = slots.range(MONDAY, MONDAY + 6 * DAY)
    assert found is not None and (found.count, found.is_exact) == (MAX_COUNTED, False)
    assert (found.first_ms, found.last_ms) == (MONDAY + MINUTE, MONDAY + 5 * DAY - MINUTE)
    assert slots.range(MONDAY + 5 * DAY, MONDAY + 6 * DAY) is None
