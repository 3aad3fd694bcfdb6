"""Time zones of schedules: by name, or this machine's."""

from datetime import UTC, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Final

from homarus.config.timezone import load_zone, zone_name
from homarus.core.errors import UserError
from homarus.core.text import closest_names, one_line

_LOCAL_FILE: Final = Path("/etc/localtime")
_UTC_NAMES: Final = frozenset({"utc", "etc/utc", "gmt", "etc/gmt", "z"})
_MAX_NAME_CHARS: Final = 64  # the longest has 32


class UnknownTimeZoneError(UserError):
    """A time zone does not exist, or this machine has no data about it."""

    code = "user.time_zone"


def get_zone(name: str) -> tzinfo:
    """Return a zone by its name, in any case. Raises UnknownTimeZoneError."""
    name = name.strip()
    if name.casefold() in _UTC_NAMES:
        return UTC  # needs no data
    if zone := load_zone(name) if len(name) <= _MAX_NAME_CHARS else None:
        return zone
    names = _zone_names()
    if not names:
        raise UnknownTimeZoneError(
            f"the time zone {one_line(name)!r} cannot be used: this machine has no time-zone data",
            fix="install the package tzdata of the operating system, or of Python: "
            "pip install tzdata",
        )
    if zone := load_zone(names.get(name.casefold(), "")):
        return zone
    nearest = closest_names(name[:_MAX_NAME_CHARS], names.values())
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else "use one as Europe/Berlin"
    raise UnknownTimeZoneError(f"the time zone {one_line(name)!r} is unknown", fix=hint)


def local_zone() -> tzinfo:
    """Return the zone of this machine; UTC if it has none."""
    return load_zone(zone_name(None)) or _zone_from_file() or UTC


@lru_cache(1)
def _zone_names() -> dict[str, str]:
    """Return all zone names by their form without case."""
    from zoneinfo import available_timezones

    return {name.casefold(): name for name in sorted(available_timezones())}


@lru_cache(1)
def _zone_from_file() -> tzinfo | None:
    """Return the zone of a machine whose zone has no name, only data."""
    from zoneinfo import ZoneInfo

    try:
        with _LOCAL_FILE.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return None
