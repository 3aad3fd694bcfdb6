"""Schedules: their JSON, next runs, slots and stagger."""

import hashlib
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from homarus.core.errors import UserError
from homarus.schedule.cron_expression import CronExpression
from homarus.schedule.cron_fields import CronExpressionError
from homarus.schedule.schedules import (
    AtSchedule,
    CronSchedule,
    EverySchedule,
    Schedule,
    ScheduleError,
    check_schedule,
    encode_schedule,
    next_run_at_ms,
    parse_schedule,
    resolve_stagger_ms,
    slots_between,
    stagger_offset_ms,
)
from homarus.schedule.zones import UnknownTimeZoneError

NOW = 1_771_286_400_000  # 2026-02-17T00:00:00Z
HOUR = 3_600_000


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "at", "at": "2026-02-17T10:00:00.000Z"},
        {"kind": "every", "everyMs": 60_000},
        {"kind": "every", "everyMs": 60_000, "anchorMs": 5},
        {"kind": "cron", "expr": "0 9 * * *"},
        {"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Berlin", "staggerMs": 0},
    ],
)
def test_schedule_json_survives_a_round_trip(raw: dict[str, Any]) -> None:
    assert encode_schedule(parse_schedule(raw)) == raw


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"atMs": 1_700_000_000_000}, AtSchedule("2023-11-14T22:13:20.000Z")),
        ({"atMs": "1700000000000"}, AtSchedule("2023-11-14T22:13:20.000Z")),
        ({"kind": "AT", "at": " tomorrow "}, AtSchedule("tomorrow")),
        ({"everyMs": 1_000.9}, EverySchedule(1_000)),
        ({"everyMs": "5000", "anchorMs": "7"}, EverySchedule(5_000, 7)),
        ({"cron": "* * * * *", "tz": " UTC "}, CronSchedule("* * * * *", "UTC")),
        ({"expr": "0 * * * *", "staggerMs": "-5"}, CronSchedule("0 * * * *", "", 0)),
        ({"kind": "at", "atMs": 2**52}, AtSchedule(str(2**52))),
    ],
)
def test_schedule_in_an_old_form_is_understood(raw: dict[str, Any], expected: Schedule) -> None:
    assert parse_schedule(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "0 9 * * *",
        [],
        {},
        {"kind": "moon"},
        {"kind": "at"},
        {"kind": "at", "atMs": -1},
        {"kind": "every", "everyMs": float("nan")},
        {"kind": "every", "everyMs": True},
        {"kind": "every", "everyMs": 10**400},
        {"kind": "every", "everyMs": "9" * 5_000},
        {"kind": "every", "everyMs": "--5"},
        {"kind": "cron", "expr": 5},
    ],
)
def test_schedule_that_is_incomplete_is_refused(raw: object) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(raw)
    assert caught.value.fix and len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        (AtSchedule("soon"), ScheduleError),
        (EverySchedule(0), ScheduleError),
        (CronSchedule("nope"), CronExpressionError),
        (CronSchedule(""), CronExpressionError),
        (CronSchedule("0 0 31 2 *"), CronExpressionError),
        (CronSchedule("0 0 0 1 1 * 2020"), CronExpressionError),
        (CronSchedule("0 0 * * *", "Mars/Olympus"), UnknownTimeZoneError),
    ],
)
def test_schedule_check_names_what_cannot_run(schedule: Schedule, problem: type[UserError]) -> None:
    with pytest.raises(problem) as caught:
        check_schedule(schedule, NOW)
    assert caught.value.fix


@pytest.mark.parametrize(
    "schedule",
    [AtSchedule("2020-01-01"), EverySchedule(1), CronSchedule("@daily", "europe/berlin")],
)
def test_schedule_check_passes_what_can_run(schedule: Schedule) -> None:
    check_schedule(schedule, NOW)


def test_schedule_uses_its_zone_then_the_default_one() -> None:
    own, other = CronSchedule("0 9 * * *", "Asia/Kolkata"), CronSchedule("0 9 * * *")
    assert next_run_at_ms(own, NOW, default_zone="UTC") == NOW + 3.5 * HOUR
    assert next_run_at_ms(other, NOW, default_zone="UTC") == NOW + 9 * HOUR
    assert next_run_at_ms(other, NOW, default_zone="Europe/Berlin") == NOW + 8 * HOUR


def test_schedule_every_steps_from_its_anchor() -> None:
    schedule = EverySchedule(30_000, 1_000_000)
    assert next_run_at_ms(schedule, 999_999) == 1_000_000
    assert next_run_at_ms(schedule, 1_000_000) == 1_030_000
    assert next_run_at_ms(schedule, 1_030_000) == 1_030_000
    assert next_run_at_ms(schedule, 1_030_001) == 1_060_000


def test_schedule_at_runs_once_and_not_in_the_past() -> None:
    schedule = AtSchedule("2026-02-17T01:00:00Z")
    assert next_run_at_ms(schedule, NOW) == NOW + HOUR
    assert next_run_at_ms(schedule, NOW + HOUR) is None
    assert slots_between(schedule, NOW, NOW + HOUR, 10) == [NOW + HOUR]
    assert slots_between(schedule, NOW, NOW + HOUR - 1, 10) == []
    assert slots_between(schedule, NOW + HOUR, NOW + 2 * HOUR, 10) == []


@pytest.mark.parametrize(
    "schedule",
    [
        EverySchedule(HOUR, NOW),
        EverySchedule(7 * HOUR // 3, NOW - 12_345),
        CronSchedule("*/20 * * * *", "UTC"),
        CronSchedule("0 * * * *", "America/New_York"),
    ],
)
def test_schedule_slots_of_two_spans_are_those_of_both(schedule: Schedule) -> None:
    end, middle = NOW + 30 * HOUR, NOW + 11 * HOUR
    complete = slots_between(schedule, NOW, end, 1_000, job_id="job")
    first = slots_between(schedule, NOW, middle, 1_000, job_id="job")
    assert first + slots_between(schedule, middle, end, 1_000, job_id="job") == complete
    assert complete == sorted(set(complete)) and complete[0] > NOW and complete[-1] <= end
    assert slots_between(schedule, NOW, end, 3, job_id="job") == complete[:3]
    assert slots_between(schedule, NOW, NOW, 3, job_id="job") == []
    assert slots_between(schedule, end, NOW, 3, job_id="job") == []


def test_schedule_slots_after_a_long_sleep_stop_at_the_limit() -> None:
    assert len(slots_between(EverySchedule(1, 0), 0, NOW, 50)) == 50
    assert len(slots_between(CronSchedule("* * * * * *", "UTC"), 0, NOW, 50)) == 50


def test_schedule_slots_before_the_anchor_are_none() -> None:
    assert slots_between(EverySchedule(10, 1_000), 0, 1_020, 9) == [1_000, 1_010, 1_020]


def test_schedule_stagger_is_stable_and_below_its_maximum() -> None:
    job = "53416408-9b48-4bb7-8fd2-a37de1c9b908"  # OpenClaw runs this one 99361 ms after the hour
    assert stagger_offset_ms(job, 300_000) == 99_361
    for number in range(200):
        name = hashlib.md5(str(number).encode()).hexdigest()
        assert 0 <= stagger_offset_ms(name, 5_000) < 5_000
    assert stagger_offset_ms(job, 1) == stagger_offset_ms(job, 0) == 0
    assert stagger_offset_ms("\ud800", 300_000) >= 0


def test_schedule_staggered_run_of_this_hour_is_not_skipped() -> None:
    schedule = CronSchedule("0 * * * *", "UTC")
    offset = stagger_offset_ms("job", resolve_stagger_ms(schedule))
    assert 0 < offset < 300_000
    assert next_run_at_ms(schedule, NOW, job_id="job") == NOW + offset
    assert next_run_at_ms(schedule, NOW + offset - 1, job_id="job") == NOW + offset
    assert next_run_at_ms(schedule, NOW + offset, job_id="job") == NOW + HOUR + offset
    assert next_run_at_ms(schedule, NOW) == NOW + HOUR
    exact = CronSchedule("0 * * * *", "UTC", 0)
    assert next_run_at_ms(exact, NOW, job_id="job") == NOW + HOUR


def test_schedule_run_by_run_gives_the_times_of_its_expression() -> None:
    schedule, zone = CronSchedule("15 */6 * * *", "Europe/Berlin"), ZoneInfo("Europe/Berlin")
    found = slots_between(schedule, NOW, NOW + 48 * HOUR, 100)
    assert len(found) == 8
    expression = CronExpression.parse("15 */6 * * *")
    assert all(expression.next_after(at_ms - 1, zone) == at_ms for at_ms in found)
