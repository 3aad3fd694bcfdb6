"""A second implementation of cron expressions, which shares no code with the first.

It lists the times of a year by trying every local minute of it. Zones are used in one direction
only, from UTC to local time, by looking at every minute of the year.
"""

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

MONTHS = ("", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MINUTE = timedelta(minutes=1)


@lru_cache(4096)
def values(text: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    """Return what a list of values, ranges and steps means."""
    found = set[int]()
    for item in text.upper().replace("?", "*").split(","):
        body, _, step = item.partition("/")
        first, dash, last = body.partition("-")
        if body == "*":
            span = range(low, high + 1)
        else:
            start = names.index(first) if first in names else int(first)
            end = start
            if dash:
                end = 7 if last == "SUN" else names.index(last) if last in names else int(last)
            span = range(start, end + 1)
        found |= set(span[:: int(step or 1)])
    return frozenset(found)


@dataclass(frozen=True)
class Oracle:
    """Answers whether a local minute matches a 5-field expression."""

    text: str

    def matches_day(self, day: datetime) -> bool:
        _, _, days, months, weekdays = self.text.split()
        if day.month not in values(months, 1, 12, MONTHS):
            return False
        by_day = any(self._is_day(item, day) for item in days.split(","))
        plain = weekdays.removeprefix("+")
        by_weekday = any(self._is_weekday(item, day) for item in plain.split(","))
        if days == "*" or weekdays == "*" or weekdays != plain:
            return by_day and by_weekday
        return by_day or by_weekday

    def _is_day(self, item: str, day: datetime) -> bool:
        length = calendar.monthrange(day.year, day.month)[1]
        if item == "L":
            return day.day == length
        if item.endswith("W"):
            wanted = length if item == "LW" else int(item[:-1])
            return wanted <= length and day.day == nearest_weekday(day, wanted, length)
        return day.day in values(item, 1, 31)

    def _is_weekday(self, item: str, day: datetime) -> bool:
        body, nth = item, ""
        if "#" in item:
            body, _, nth = item.partition("#")
        elif item.endswith("L"):
            body, nth = item[:-1], "L"
        if day.isoweekday() % 7 not in {n % 7 for n in values(body, 0, 6, DAYS)}:
            return False
        if nth == "L":
            return (day + timedelta(days=7)).month != day.month
        return (
            not nth
            or (day - timedelta(days=7 * int(nth))).month
            != day.month
            == (day - timedelta(days=7 * (int(nth) - 1))).month
        )

    def times(self, day: datetime) -> Iterator[datetime]:
        minutes, hours = self.text.split()[:2]
        for hour in sorted(values(hours, 0, 23)):
            for minute in sorted(values(minutes, 0, 59)):
                yield day.replace(hour=hour, minute=minute)


def nearest_weekday(day: datetime, wanted: int, length: int) -> int:
    """Return the weekday of the month that is nearest to a day."""
    weekdays = [n for n in range(1, length + 1) if day.replace(day=n).weekday() < 5]
    return min(weekdays, key=lambda n: abs(n - wanted))


@lru_cache(16)
def minutes_of_year(zone: tzinfo, year: int) -> dict[datetime, list[datetime]]:
    """Return when each local minute of a year occurs: once, twice, or never."""
    found: dict[datetime, list[datetime]] = {}
    moment = datetime(year - 1, 12, 31, tzinfo=UTC)
    end = datetime(year + 1, 1, 2, tzinfo=UTC)
    while moment < end:
        local = moment.astimezone(zone).replace(tzinfo=None, fold=0)
        found.setdefault(local, []).append(moment)
        moment += MINUTE
    return found


def runs_of_year(text: str, zone: tzinfo, year: int) -> list[int]:
    """Return the runs in a local year, in milliseconds since 1970."""
    occurs, oracle = minutes_of_year(zone, year), Oracle(text)
    runs: list[datetime] = []
    day = datetime(year, 1, 1)  # noqa: DTZ001 - a local time
    clock = day - MINUTE  # what clocks there show at the last run
    while day.year == year:
        for local in oracle.times(day) if oracle.matches_day(day) else ():
            if local > clock:
                runs.append(run := moment_of(local, occurs))
                clock = run.astimezone(zone).replace(tzinfo=None)
        day += timedelta(days=1)
    return [round(run.timestamp() * 1000) for run in runs]


def moment_of(local: datetime, occurs: dict[datetime, list[datetime]]) -> datetime:
    """Return when a local minute runs."""
    if local in occurs:
        first, last = occurs[local][0], occurs[local][-1]
        return first if last - first in {timedelta(0), timedelta(hours=1)} else last
    # Clocks skipped it: it is as long after the last minute before it as they read.
    before = local
    while before not in occurs:
        before -= MINUTE
    return occurs[before][-1] + (local - before)
