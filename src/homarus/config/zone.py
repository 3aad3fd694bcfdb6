"""The person's time: their zone as configured, else this machine's; their date, their hours."""

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_LINK = Path("/etc/localtime")
_NAME = Path("/etc/timezone")
_MARK = "zoneinfo/"


def zone_name(configured: str | None) -> str:
    """The zone's name, as `Europe/Berlin`; empty when nothing tells it."""
    for name in (configured, os.environ.get("TZ"), _machine()):
        if name and find_zone(name.strip().removeprefix(":")):
            return name.strip().removeprefix(":")
    return ""


@lru_cache(32)
def find_zone(name: str) -> "ZoneInfo | None":
    """A zone by its name; None for what is none."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # slow to load; not every command asks

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


@lru_cache(1)
def _machine() -> str:
    try:
        target = str(_LINK.resolve(strict=True))
        if _MARK in target:
            return target.rpartition(_MARK)[2]
        return _NAME.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def day_in(name: str, at_ms: int) -> str:
    """The date there, as 2026-01-31; by this machine's clock where no zone is known."""
    from datetime import datetime

    zone = find_zone(name) if name else None
    return f"{datetime.fromtimestamp(at_ms / 1000, zone):%Y-%m-%d}"


def in_hours(start: str, end: str, name: str, at_ms: int) -> bool:
    """Whether it is between two times of the day there, as 08:00 and 24:00; past midnight, too.

    The end is not in it. Hours that are no hours, or begin where they end, keep nobody away.
    """
    from datetime import datetime

    first, last = _minutes(start), _minutes(end)
    if first is None or last is None or first == last:
        return True
    now = datetime.fromtimestamp(at_ms / 1000, find_zone(name) if name else None)
    minute = now.hour * 60 + now.minute
    return first <= minute < last if first < last else minute >= first or minute < last


def _minutes(time: str) -> int | None:
    hours, colon, minutes = time.partition(":")
    if not (colon and len(hours) == len(minutes) == 2 and (hours + minutes).isdecimal()):
        return None
    total = int(hours) * 60 + int(minutes)
    return total if int(minutes) < 60 and total <= 24 * 60 else None
