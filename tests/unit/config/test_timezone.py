from datetime import UTC, datetime

import pytest

from homarus.config.timezone import is_within_hours


def at(hour: int, minute: int = 0) -> int:
    return round(datetime(2026, 2, 17, hour, minute, tzinfo=UTC).timestamp() * 1000)


def test_hours_exclude_their_end_and_may_cross_midnight() -> None:
    assert is_within_hours("08:00", "22:00", "UTC", at(8)) and is_within_hours(
        "08:00", "22:00", "UTC", at(21, 59)
    )
    assert not is_within_hours("08:00", "22:00", "UTC", at(22))
    assert is_within_hours("22:00", "06:00", "UTC", at(5, 59)) and not is_within_hours(
        "22:00", "06:00", "UTC", at(6)
    )
    assert is_within_hours("08:00", "24:00", "UTC", at(23, 59))


def test_hours_use_the_time_zone() -> None:
    assert not is_within_hours("08:00", "22:00", "Asia/Tokyo", at(13))  # 22:00 there
    assert is_within_hours("08:00", "22:00", "Asia/Tokyo", at(12, 59))


@pytest.mark.parametrize("start", ["", "8", "8:00", "25:00", "08:60", "0x:00", "²³:00", "24:01"])
def test_hours_invalid_mean_always(start: str) -> None:
    assert is_within_hours(start, "09:00", "UTC", at(23))
