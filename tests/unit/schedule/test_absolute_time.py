"""Read absolute times, and write them."""

import pytest

from homarus.schedule.absolute_time import format_iso_ms, parse_absolute_time_ms

TEN = 1_771_322_400_000  # 2026-02-17T10:00:00Z


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2026-02-17T10:00:00Z", TEN),
        ("2026-02-17t10:00z", TEN),
        (" 2026-02-17T11:00:00+01:00 ", TEN),
        ("2026-02-17T04:30:00-0530", TEN),
        ("2026-02-17T10:00:00.5", TEN + 500),
        ("2026-02-17T10:00:00.123456789Z", TEN + 123),
        ("2026-02-17 10:00 +00:00", TEN),
        (str(TEN), TEN),
        ("1", 1),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_absolute_time_is_read(text: str, at_ms: int) -> None:
    assert parse_absolute_time_ms(text) == at_ms


def test_absolute_time_with_a_space_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    assert parse_absolute_time_ms("2026-02-17 15:30") == TEN
    assert parse_absolute_time_ms("2026-02-17T10:00:00") == TEN


@pytest.mark.parametrize(
    "text",
    [
        "", "soon", "2026-02-30", "2026-13-01", "2026-02-17T24:00:01Z", "2026-02-17T10", "-5",
        "1.5", "٢٠٢٦-02-17", "2026-02-17T10:00.5", "0001-01-01T00:00:00+23:59x", "9" * 17, "9" * 16,
        "9" * 100_000, "2026-02-17T10:00:00+99:99", "1e3", "2026-W08-2", "20260217T100000",
    ],
)  # fmt: skip
def test_absolute_time_that_is_none_is_not_read(text: str) -> None:
    assert parse_absolute_time_ms(text) is None


@pytest.mark.parametrize("at_ms", [0, 1, TEN, TEN + 7, 253_402_300_799_999])
def test_absolute_time_is_written_as_it_is_read(at_ms: int) -> None:
    text = format_iso_ms(at_ms)
    assert len(text) == 24 and parse_absolute_time_ms(text) == at_ms
