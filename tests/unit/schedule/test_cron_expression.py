"""Parse cron expressions and find their next time."""

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from homarus.core.errors import UserError
from homarus.schedule.cron_expression import CronExpression
from homarus.schedule.cron_fields import CronExpressionError

START = "2026-02-17T00:00:00Z"


def to_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def runs(text: str, count: int = 3, start: str = START, zone: str = "UTC") -> list[str]:
    """Return the next times as text, in UTC."""
    expression, at_ms, found = CronExpression.parse(text), to_ms(start), []
    for _ in range(count):
        result = expression.next_after(at_ms, ZoneInfo(zone))
        if result is None:
            break
        at_ms = result
        found.append(datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    return found


def days(text: str, count: int = 3, start: str = START) -> list[str]:
    return [run.removesuffix("T00:00:00") for run in runs(text, count, start)]


@pytest.mark.parametrize(
    ("nickname", "fields"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        (" @Daily ", "0 0 * * *"),
        ("@MIDNIGHT", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_cron_nickname_means_its_fields(nickname: str, fields: str) -> None:
    assert CronExpression.parse(nickname).fields == CronExpression.parse(fields).fields


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("0 0 * JAN-mar MON", "0 0 * 1,2,3 1"),
        ("0 0 * * FRI-SUN", "0 0 * * 5,6,0"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 0-7", "0 0 * * 0-6"),
        ("00 007 * * *", "0 7 * * *"),
        ("*/20,5 * * * *", "0,5,20,40 * * * *"),
        ("10-30/10 * * * *", "10,20,30 * * * *"),
        ("?/30 ? * * *", "0,30 * * * *"),
        ("0 0 */10 */5 */3", "0 0 1,11,21,31 1,6,11 0,3,6"),
        ("0\t0\u00a0*\u3000* *", "0 0 * * *"),
        ("0 0 * * 5L", "0 0 * * FRI#L"),
        ("0 30 1 * * *", "30 1 * * *"),
        ("0 30 1 * * * *", "30 1 * * *"),
    ],
)
def test_cron_spellings_have_the_same_fields(text: str, same: str) -> None:
    assert CronExpression.parse(text).fields == CronExpression.parse(same).fields


def test_cron_day_and_weekday_match_one_of_them() -> None:
    assert days("0 0 13 * 5", 4) == ["2026-02-20", "2026-02-27", "2026-03-06", "2026-03-13"]
    assert days("0 0 13 * +5") == ["2026-03-13", "2026-11-13", "2027-08-13"]
    assert days("0 0 13 * *", 2) == ["2026-03-13", "2026-04-13"]
    assert days("0 0 * * 5", 2) == ["2026-02-20", "2026-02-27"]


def test_cron_question_mark_is_every_day_as_in_croner() -> None:
    assert days("0 0 ? * 5", 2) == ["2026-02-18", "2026-02-19"]


def test_cron_last_and_nearest_days_match() -> None:
    assert days("0 0 L * *") == ["2026-02-28", "2026-03-31", "2026-04-30"]
    assert days("0 0 LW * *") == ["2026-02-27", "2026-03-31", "2026-04-30"]
    assert days("0 0 15W * *") == ["2026-03-16", "2026-04-15", "2026-05-15"]
    assert days("0 0 1W 8 *") == ["2026-08-03", "2027-08-02", "2028-08-01"]
    assert days("0 0 31W * *") == ["2026-03-31", "2026-05-29", "2026-07-31"]
    assert days("0 0 15,L * *") == ["2026-02-28", "2026-03-15", "2026-03-31"]


def test_cron_nth_and_last_weekdays_match() -> None:
    assert days("0 0 * * FRI#2") == ["2026-03-13", "2026-04-10", "2026-05-08"]
    assert days("0 0 * * 5#5") == ["2026-05-29", "2026-07-31", "2026-10-30"]
    assert days("0 0 * * 7#L") == ["2026-02-22", "2026-03-29", "2026-04-26"]
    assert days("0 0 * * MON,FRI#2") == ["2026-02-23", "2026-03-02", "2026-03-09"]


def test_cron_after_a_short_month_misses_no_day() -> None:
    assert days("0 0 31,1 * *") == ["2026-03-01", "2026-03-31", "2026-04-01"]


def test_cron_year_field_limits_the_search() -> None:
    assert runs("0 0 0 1 1 * 2027,2030") == ["2027-01-01T00:00:00", "2030-01-01T00:00:00"]
    assert runs("0 0 0 1 1 * 2020") == []
    assert runs("0 0 0 29 2 * 2027-2099/2") == []


def test_cron_next_is_strictly_after_the_instant() -> None:
    expression, noon = CronExpression.parse("* * * * * *"), to_ms("2026-02-17T12:00:00Z")
    for before_ms in (noon, noon + 1, noon + 999):
        assert expression.next_after(before_ms, UTC) == noon + 1000
    assert expression.next_after(noon - 1, UTC) == noon


def test_cron_skipped_time_runs_at_the_shifted_time() -> None:
    new_york = {"start": "2026-03-08T05:00:00Z", "zone": "America/New_York"}
    assert runs("30 2 * * *", 2, **new_york) == ["2026-03-08T07:30:00", "2026-03-09T06:30:00"]
    assert runs("*/15 2 * * *", 2, **new_york) == ["2026-03-08T07:00:00", "2026-03-09T06:00:00"]
    after = {"start": "2026-03-08T07:10:00Z", "zone": "America/New_York"}
    assert runs("30 2 * * *", 1, **after) == ["2026-03-08T07:30:00"]  # croner: the next day


def test_cron_skipped_date_runs_a_day_later() -> None:
    apia = {"start": "2011-12-28T12:00:00Z", "zone": "Pacific/Apia"}
    assert runs("0 12 30 12 *", 2, **apia) == ["2011-12-30T22:00:00", "2012-12-29T22:00:00"]


def test_cron_repeated_hour_runs_once_at_its_first_occurrence() -> None:
    new_york = {"start": "2026-11-01T05:15:00Z", "zone": "America/New_York"}
    assert runs("*/30 * * * *", 2, **new_york) == ["2026-11-01T05:30:00", "2026-11-01T07:00:00"]
    again = {"start": "2026-11-01T06:15:00Z", "zone": "America/New_York"}
    assert runs("*/30 * * * *", 1, **again) == ["2026-11-01T07:00:00"]  # croner: in the past


def test_cron_repeated_half_hour_runs_once_at_its_second_occurrence() -> None:
    for start in ("2026-04-04T14:00:00Z", "2026-04-04T14:50:00Z"):
        found = runs("45 1 * * *", 2, start, "Australia/Lord_Howe")
        assert found == ["2026-04-04T15:15:00", "2026-04-05T15:15:00"]


@pytest.mark.parametrize(
    "text", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6 *", "0 0 0 30 2 * 1-9999/3", "0 0 29W 2 +SUN"]
)
def test_cron_expression_without_a_date_ends_quickly(text: str) -> None:
    expression, started_s = CronExpression.parse(text), time.process_time()
    assert expression.next_after(to_ms(START), ZoneInfo("America/New_York")) is None
    assert time.process_time() - started_s < 0.5


def test_cron_rare_date_is_found() -> None:
    assert days("0 0 29 2 +1", 3) == ["2044-02-29", "2072-02-29", "2112-02-29"]
    assert days("0 0 29 2 +1", 1, "2072-03-01T00:00:00Z") == ["2112-02-29"]


@pytest.mark.parametrize("at_ms", [-(10**30), -1, 253_402_300_799_999, 10**30])
def test_cron_instant_out_of_range_raises_nothing(at_ms: int) -> None:
    for zone in ("UTC", "America/New_York", "Pacific/Kiritimati"):
        found = CronExpression.parse("0 0 1 1 *").next_after(at_ms, ZoneInfo(zone))
        assert found is None or found > at_ms


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("60 * * * *", "minute", "60"),
        ("* 24 * * *", "hour", "24"),
        ("* * 0 * *", "day of month", "0"),
        ("* * 32W * *", "day of month", "32W"),
        ("* * * 13 *", "month", "13"),
        ("* * * JANUARY *", "month", "JANUARY"),
        ("* * * JANFEB *", "month", "JANFEB"),
        ("* * * * 8", "weekday", "8"),
        ("* * * * 5#6", "weekday", "5#6"),
        ("* * * * 5#1#2", "weekday", "5#1#2"),
        ("* * * * *#1", "weekday", "*#1"),
        ("* * * * L", "weekday", "L"),
        ("* * LW,1 * *", "day of month", "LW"),
        ("* * 15WW * *", "day of month", "15WW"),
        ("* * L-2 * *", "day of month", "L-2"),
        ("0 0 0 1 1 * 10000", "year", "10000"),
        ("0 0 0 1 1 * */4", "year", "*/4"),
        ("61 * * * * *", "second", "61"),
        ("22-2 * * * *", "minute", "22-2"),
        ("* * * * SAT-MON", "weekday", "SAT-MON"),
        ("5/15 * * * *", "minute", "5/15"),
        ("/10 * * * *", "minute", "/10"),
        ("*/0 * * * *", "minute", "*/0"),
        ("*/61 * * * *", "minute", "*/61"),
        ("*/-5 * * * *", "minute", "*/-5"),
        ("1/2/3 * * * *", "minute", "1/2/3"),
        ("*/5/5/5 * * * *", "minute", "*/5/5/5"),
        ("1-2-3 * * * *", "minute", "1-2-3"),
        ("-1 * * * *", "minute", "-1"),
        ("1- * * * *", "minute", "1-"),
        ("1,,2 * * * *", "minute", "an empty value"),
        ("** * * * *", "minute", "**"),
        ("1.5 * * * *", "minute", "1.5"),
        ("1e1 * * * *", "minute", "1E1"),
        ("٣ * * * *", "minute", "٣"),
        ("１ * * * *", "minute", "１"),
        ("99999999999999999999 * * * *", "minute", "99999999999999999999"),
        ("L * * * *", "minute", "L"),
        ("* * * * +", "weekday", "an empty value"),
        ("* * * * ++5", "weekday", "+5"),
        ("ß * * * *", "minute", "SS"),
    ],
)
def test_cron_bad_field_is_named_with_value_and_fix(text: str, field: str, value: str) -> None:
    with pytest.raises(CronExpressionError) as caught:
        CronExpression.parse(text)
    assert caught.value.message.startswith(f"the {field} ")
    assert value in caught.value.message and caught.value.fix
    assert isinstance(caught.value, UserError)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "nope",
        "* * * *",
        "* * * * * * * *",
        "@reboot",
        "@every 5m",
        "@daily x",
        "@a b c d e",
        "2027-01-01T00:00:00",
        "2027-01-01",
        "0 0 1 * + 5",
        "* * * * *\x00",
    ],
)
def test_cron_text_that_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(CronExpressionError) as caught:
        CronExpression.parse(text)
    assert caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "*" * 10_000,
        "1," * 5_000 + "1 * * * *",
        "* * * * " + "1#1," * 100_000,
        "*" + "/1" * 400 + " * * * *",
        "1" * 900 + " * * * *",
        "*/" + "9" * 900 + " * * * *",
        "1-" * 400 + "2 * * * *",
        " " * 1_000_000,
        "0 0 0 1 1 * 1-" + "9" * 900,
        "\ud800 * * * *",
    ],
)
def test_cron_hostile_text_is_refused_quickly(text: str) -> None:
    started_s = time.process_time()
    with pytest.raises(CronExpressionError) as caught:
        CronExpression.parse(text)
    assert time.process_time() - started_s < 0.2
    assert len(str(caught.value)) < 400 and len(caught.value.fix) < 200


def test_cron_longest_list_is_parsed_quickly() -> None:
    text = ",".join(["1-9999/1"] * 105) + " "
    started_s = time.process_time()
    assert CronExpression.parse(f"0 0 0 1 1 * {text}").next_after(0, UTC) == 31_536_000_000
    assert time.process_time() - started_s < 0.5


def test_cron_common_search_takes_microseconds() -> None:
    expression, zone, at_ms = CronExpression.parse("0 9 * * 1-5"), ZoneInfo("Europe/Berlin"), 0
    started_s = time.process_time()
    for _ in range(2_000):
        found = expression.next_after(at_ms, zone)
        assert found is not None
        at_ms = found
    assert (time.process_time() - started_s) / 2_000 < 0.001  # 20 µs on a slow machine
