"""The line that says what time it is, for messages that no person sent."""

from datetime import datetime
from typing import Final

from homarus.config.timezone import load_zone

_SUFFIXES: Final = {1: "st", 2: "nd", 3: "rd"}


def current_time_line(at_ms: int, zone: str, *, uses_12_hours: bool = False) -> str:
    """Return for example `Current time: Tuesday, February 17th, 2026 — 13:34 (Europe/Berlin)`.

    Without a zone it is the time of this machine, with its short name.
    """
    found = load_zone(zone) if zone else None
    now = datetime.fromtimestamp(at_ms / 1000, found).astimezone(found)
    suffix = "th" if 10 < now.day < 14 else _SUFFIXES.get(now.day % 10, "th")
    hour = f"{now.hour % 12 or 12}:{now:%M} {now:%p}" if uses_12_hours else f"{now:%H:%M}"
    name = zone if found else f"{now:%Z}"
    return f"Current time: {now:%A, %B} {now.day}{suffix}, {now.year} — {hour} ({name})"
