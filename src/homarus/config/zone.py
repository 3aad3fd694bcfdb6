"""The person's time zone: as configured, else this machine's."""

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
