"""Cron expressions with the semantics of croner: which time is next."""

from collections.abc import MutableMapping
from dataclasses import field
from datetime import date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.schedule.cron_fields import LAST, CronFields, parse_fields
from homarus.schedule.local_time import SECOND, find_skipped, to_local, to_timestamp

_DAY: Final = timedelta(days=1)
# Python's dates end in 9999 and start in 1. A day of margin at both ends is for time zones.
_MIN_S: Final = -62_135_596_800 + 2 * 86_400
_MAX_S: Final = 253_402_300_799 - 2 * 86_400


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed cron expression.

    Its times do not depend on the moment of the question: `next_after` returns the first of them
    after any given time. Of several matching local times that clocks skip at once, the first one
    runs, at the shifted time; a repeated local time runs once.
    """

    text: str
    fields: CronFields
    # The matching days by the length of a month and the weekday of its first day.
    _days: MutableMapping[tuple[int, int], int] = field(
        default_factory=dict, compare=False, repr=False
    )

    @staticmethod
    def parse(text: str) -> "CronExpression":
        """Parse an expression. Raises CronExpressionError, which names the field and the fix."""
        return _parse(text)

    def next_after(self, instant_ms: int, zone: tzinfo) -> int | None:
        """Return the first time after an instant in milliseconds; None if there is none."""
        now = max(instant_ms // 1000, _MIN_S)
        if now >= _MAX_S:
            return None
        if skipped := find_skipped(now, zone):
            first = self._first_from(skipped.start)
            if first is not None and first < skipped.end:
                shifted = to_timestamp(first, zone)
                if shifted > now:
                    return shifted * 1000
        found = self._first_from(to_local(now, zone) + SECOND)
        return None if found is None else to_timestamp(found, zone) * 1000

    def _first_from(self, local: datetime) -> datetime | None:
        """Return the first matching local time that is not before the given one."""
        day = local.date()
        if self._matches(day) and (found := self._first_time(local)):
            return found
        if day >= _LAST_DAY:
            return None
        next_day = self._first_date(day + _DAY)
        if next_day is None:
            return None
        fields = self.fields
        return datetime(  # noqa: DTZ001 - a local time; the caller has its zone
            next_day.year,
            next_day.month,
            next_day.day,
            _next_bit(fields.hours, 0),
            _next_bit(fields.minutes, 0),
            _next_bit(fields.seconds, 0),
        )

    def _first_time(self, local: datetime) -> datetime | None:
        """Return the first matching time of the same day that is not before the given one."""
        fields, hour, minute = self.fields, local.hour, local.minute
        if fields.hours >> hour & 1:
            if fields.minutes >> minute & 1:
                second = _next_bit(fields.seconds, local.second)
                if second >= 0:
                    return local.replace(second=second)
            minute = _next_bit(fields.minutes, minute + 1)
            if minute >= 0:
                return local.replace(minute=minute, second=_next_bit(fields.seconds, 0))
        hour = _next_bit(fields.hours, hour + 1)
        if hour < 0:
            return None
        minute, second = _next_bit(fields.minutes, 0), _next_bit(fields.seconds, 0)
        return local.replace(hour=hour, minute=minute, second=second)

    def _matches(self, day: date) -> bool:
        if not (self.fields.years >> day.year & 1 and self.fields.months >> day.month & 1):
            return False
        return bool(self._days_of_month(day.year, day.month) >> day.day & 1)

    def _first_date(self, start: date) -> date | None:
        """Return the first matching date that is not before the given one.

        Two years are the same if their length and their first weekday are: after one of each of
        the 14 kinds without a matching day there will be none.
        """
        year, month, day = start.year, start.month, start.day
        empty = set[tuple[int, int]]()
        while (found := _next_bit(self.fields.years, year)) >= 0:
            if found != year:
                year, month, day = found, 1, 1
            kind = _days_in(year, 2), date(year, 1, 1).weekday()
            if kind not in empty:
                match = self._first_of_year(year, month, day)
                if match:
                    return match
                if (month, day) == (1, 1):
                    empty.add(kind)
                    if len(empty) == 14:
                        return None
            year, month, day = year + 1, 1, 1
        return None

    def _first_of_year(self, year: int, month: int, day: int) -> date | None:
        while (found := _next_bit(self.fields.months, month)) >= 0:
            match = _next_bit(self._days_of_month(year, found), day if found == month else 1)
            if match >= 0:
                return date(year, found, match)
            month, day = found + 1, 1
        return None

    def _days_of_month(self, year: int, month: int) -> int:
        key = _days_in(year, month), (date(year, month, 1).weekday() + 1) % 7
        days = self._days.get(key)
        if days is None:
            days = self._days[key] = _matching_days(self.fields, *key)
        return days


@lru_cache(512)
def _parse(text: str) -> CronExpression:
    return CronExpression(text, parse_fields(text))


_LAST_DAY: Final = date(9999, 12, 31)


def _next_bit(mask: int, start: int) -> int:
    """Return the lowest set bit from `start` on; -1 if there is none."""
    rest = mask >> start
    return (rest & -rest).bit_length() - 1 + start if rest else -1


def _days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in {4, 6, 9, 11} else 31


def _matching_days(fields: CronFields, length: int, first_weekday: int) -> int:
    """Return the days that match in a month whose first day is this weekday (0 is Sunday)."""
    by_day = _by_day_of_month(fields, length, first_weekday)
    by_weekday = _by_weekday(fields, length, first_weekday)
    return by_day & by_weekday if fields.needs_both_days else by_day | by_weekday


def _by_day_of_month(fields: CronFields, length: int, first_weekday: int) -> int:
    result = fields.days & (1 << length + 1) - 1
    if fields.has_last_day:
        result |= 1 << length
    if fields.has_last_working_day:
        result |= 1 << _nearest_working_day(length, length, first_weekday)
    for day in range(1, length + 1):
        if fields.nearest_days >> day & 1:
            result |= 1 << _nearest_working_day(day, length, first_weekday)
    return result


def _nearest_working_day(day: int, length: int, first_weekday: int) -> int:
    """Return the nearest day of the same month that is not a Saturday or Sunday."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(fields: CronFields, length: int, first_weekday: int) -> int:
    result = 0
    for day in range(1, length + 1):
        bit = 1 << (first_weekday + day - 1) % 7
        nth = (day + 6) // 7
        if (fields.weekdays[0] | fields.weekdays[nth]) & bit or (
            day + 7 > length and fields.weekdays[LAST] & bit
        ):
            result |= 1 << day
    return result
