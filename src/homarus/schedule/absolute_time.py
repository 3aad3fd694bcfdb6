"""Absolute times in schedules: read from text as OpenClaw does, and written for it."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from homarus.schedule.zones import local_zone

# The largest time of JavaScript has 16 digits; year 9999 is the last one of Python.
_MAX_MS: Final = 253_402_300_799_999
_DIGITS: Final = re.compile(r"[0-9]{1,16}")
_ISO: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:(?P<mark>[Tt ])(?P<time>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r" ?(?P<zone>[Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)
_MAX_CHARS: Final = 64


def parse_absolute_time_ms(text: str) -> int | None:
    """Return the milliseconds since 1970 of a time, or None if it is not one.

    Digits are milliseconds. A date, and a date and time with `T`, are in UTC if they name no
    offset. With a space instead of the `T` they are in this machine's time zone, as in OpenClaw.
    """
    text = text.strip()
    if len(text) > _MAX_CHARS:
        return None
    if _DIGITS.fullmatch(text):
        return _from_digits(int(text))
    found = _ISO.fullmatch(text)
    if found is None or (found["fraction"] and found["time"].count(":") != 2):
        return None
    zone = local_zone() if found["mark"] == " " and not found["zone"] else UTC
    return _from_parts(found, zone)


def _from_digits(value: int) -> int | None:
    if value > 0:
        return value if value <= _MAX_MS else None
    # OpenClaw gives a 0 to JavaScript's Date, which reads it as the year 2000.
    return _to_ms(datetime(2000, 1, 1, tzinfo=local_zone()))


def _from_parts(found: re.Match[str], zone: tzinfo) -> int | None:
    fraction = (found["fraction"] or "")[:3].ljust(3, "0")
    offset = (found["zone"] or "").upper()
    try:
        moment = datetime.fromisoformat(f"{found['date']}T{found['time'] or '00:00'}{offset}")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return _to_ms(moment) + int(fraction)
    except (ValueError, OverflowError):  # a 31st of February, or year 0 after the offset
        return None


def _to_ms(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def format_iso_ms(at_ms: int) -> str:
    """Return a time in UTC as `2026-02-17T10:00:00.000Z`. Raises OverflowError."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").rjust(20, "0") + f"{at_ms % 1000:03}Z"
