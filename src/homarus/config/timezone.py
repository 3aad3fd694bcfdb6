"""The user's time zone: the configured one, else this machine's; their date and hours."""

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_LINK = Path("/etc/localtime")
_NAME = Path("/etc/timezone")
_ZONEINFO = "zoneinfo/"


def zone_name(configured: str | None) -> str:
    """Return the zone's name, as `Europe/Berlin`; empty when it is unknown."""
    for name in (configured, os.environ.get("TZ"), _machine_zone()):
        if name and load_zone(name.strip().removeprefix(":")):
            return name.strip().removeprefix(":")
    return ""


@lru_cache(32)
def load_zone(name: str) -> "ZoneInfo | None":
    """Return a zone by its name; None for an invalid name."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # slow to import and not always needed

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


@lru_cache(1)
def _machine_zone() -> str:
    try:
        target = str(_LINK.resolve(strict=True))
        if _ZONEINFO in target:
            return target.rpartition(_ZONEINFO)[2]
        return _NAME.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def local_date(name: str, at_ms: int) -> str:
    """Return the date in a zone, as 2026-01-31; without a zone, in this machine's."""
    from datetime import datetime

    zone = load_zone(name) if name else None
    return f"{datetime.fromtimestamp(at_ms / 1000, zone):%Y-%m-%d}"


def hours_zone_name(configured: str | None, user_zone: str | None) -> str:
    """Return the zone of active hours: a zone, `local` for this machine's, else the user's."""
    name = (configured or "").strip()
    if name == "local":
        return ""
    return name if name and load_zone(name) else zone_name(user_zone)


def is_within_hours(start: str, end: str, name: str, at_ms: int) -> bool:
    """Return whether a time is between two times of day in a zone, as 08:00 and 24:00.

    The range excludes its end and may cross midnight. Invalid or equal times mean always.
    """
    from datetime import datetime

    first, last = minutes_of_day(start), minutes_of_day(end)
    if first is None or last is None or first == last:
        return True
    now = datetime.fromtimestamp(at_ms / 1000, load_zone(name) if name else None)
    minute = now.hour * 60 + now.minute
    return first <= minute < last if first < last else minute >= first or minute < last


def minutes_of_day(time: str) -> int | None:
    """Return the minutes since midnight of a time such as 08:00; None for an invalid one."""
    hours, colon, minutes = time.partition(":")
    if not (colon and len(hours) == len(minutes) == 2 and (hours + minutes).isdecimal()):
        return None
    total = int(hours) * 60 + int(minutes)
    return total if int(minutes) < 60 and total <= 24 * 60 else None
