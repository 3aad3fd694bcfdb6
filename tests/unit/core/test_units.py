"""Durations and sizes as people write them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import UserError
from homarus.core.units import parse_byte_size, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "unit", "ms"),
    [
        ("500ms", "ms", 500),
        ("10s", "ms", 10_000),
        ("1.5m", "ms", 90_000),
        ("2h", "ms", 7_200_000),
        ("1d", "ms", 86_400_000),
        ("0", "ms", 0),
        ("30", "m", 1_800_000),
        ("30s", "m", 30_000),
        (" 2H ", "ms", 7_200_000),
        ("0.5ms", "ms", 1),
    ],
)
def test_parse_duration_uses_the_unit(text: str, unit: str, ms: int) -> None:
    assert parse_duration_ms(text, unit) == ms


@pytest.mark.parametrize(
    ("text", "unit", "size"),
    [
        ("512", "b", 512),
        ("10mb", "b", 10_485_760),
        ("10", "mb", 10_485_760),
        ("1gb", "b", 1_073_741_824),
        ("1g", "b", 1_073_741_824),
        ("1.5k", "b", 1_536),
        ("2tb", "b", 2 << 40),
    ],
)
def test_parse_byte_size_uses_the_unit(text: str, unit: str, size: int) -> None:
    assert parse_byte_size(text, unit) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-5s",
        "1h30m",
        "x",
        "s",
        "1.s",
        ".5s",
        "1e3s",
        "1_000s",
        "inf",
        "nan",
        "5 5s",
        "+1s",
    ],
)
def test_parse_units_invalid_raises_user_error_with_example(text: str) -> None:
    for parse in (parse_duration_ms, parse_byte_size):
        with pytest.raises(UserError) as caught:
            parse(text)
        assert "for example" in caught.value.fix


@pytest.mark.parametrize("text", ["9" * 400 + "h", "9" * 20 + "d", "1" + "0" * 308 + ".5s"])
def test_parse_units_too_large_raises_short_error(text: str) -> None:
    with pytest.raises(UserError, match="too large") as caught:
        parse_duration_ms(text)
    assert len(caught.value.message) < 100


def test_parse_units_of_other_kind_raises_user_error() -> None:
    with pytest.raises(UserError):
        parse_duration_ms("10mb")
    with pytest.raises(UserError):
        parse_byte_size("10s")


@given(st.text(max_size=30))
def test_parse_units_any_text_gives_int_or_user_error(text: str) -> None:
    for parse in (parse_duration_ms, parse_byte_size):
        with suppress(UserError):
            assert parse(text) >= 0


@pytest.mark.parametrize("text", ["5 kb", "1 gb", "5\u00a0b", "\uff11kb"])
def test_byte_size_with_space_or_other_digits_is_rejected(text: str) -> None:
    with pytest.raises(UserError, match="invalid size"):
        parse_byte_size(text)
    with pytest.raises(UserError, match="invalid duration"):
        parse_duration_ms("5 s")
