"""Parse the fields of a cron expression into bit masks.

The syntax is that of croner, which OpenClaw uses. croner also accepts some texts by accident, such
as `JANFEB`, `15WW` or `5#1#2`; those are refused here, because their meaning is a guess.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

MAX_CHARS: Final = 1_000  # a list of all minutes has 170
MAX_YEAR: Final = 9_999
LAST: Final = 6  # the index of "the last one of the month" in `CronFields.weekdays`

_NICKNAMES: Final = MappingProxyType(
    {
        "@YEARLY": "0 0 1 1 *",
        "@ANNUALLY": "0 0 1 1 *",
        "@MONTHLY": "0 0 1 * *",
        "@WEEKLY": "0 0 * * 0",
        "@DAILY": "0 0 * * *",
        "@MIDNIGHT": "0 0 * * *",
        "@HOURLY": "0 * * * *",
    }
)
# What JavaScript calls white space; Python's differs in a few control characters.
_SPACES: Final = re.compile(
    "[\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+"
)
_TIMESTAMP: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?")
_NUMBER: Final = re.compile(r"[0-9]+")
_ITEM: Final = re.compile(
    r"(?:(?P<any>\*)|(?P<low>[^-/]*)(?P<dash>-(?P<high>[^/]*))?)(?P<step>/.*)?"
)
_NEAREST: Final = re.compile(r"([0-9]+)W")
_NTH: Final = re.compile(r"(?P<days>[^#]*)#(?P<nth>[1-5]|L)")


class CronExpressionError(UserError):
    """A cron expression is wrong in a known field."""

    code = "user.cron_expression"


@dataclass(frozen=True, slots=True)
class CronField:
    """The name and the limits of one field."""

    name: str
    min: int
    max: int
    max_step: int
    names: Mapping[str, int]
    special: str = ""

    @property
    def syntax(self) -> str:
        """What may be in the field, for people."""
        values = f"{self.min} to {self.max}"
        if self.names:
            values += f" or {' '.join(self.names)}"
        return f"{values}, lists such as {self.min},{self.min + 1}, ranges, steps{self.special}"


def _number(first: int, names: str) -> Mapping[str, int]:
    return MappingProxyType({name: n for n, name in enumerate(names.split(), start=first)})


_MONTHS: Final = _number(1, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")
_WEEKDAYS: Final = _number(0, "SUN MON TUE WED THU FRI SAT")
_NO_NAMES: Final[Mapping[str, int]] = MappingProxyType({})

_SECOND: Final = CronField("second", 0, 59, 60, _NO_NAMES)
_MINUTE: Final = CronField("minute", 0, 59, 60, _NO_NAMES)
_HOUR: Final = CronField("hour", 0, 23, 24, _NO_NAMES)
_DAY: Final = CronField("day of month", 1, 31, 31, _NO_NAMES, ", L, LW or 15W")
_MONTH: Final = CronField("month", 1, 12, 12, _MONTHS)
_WEEKDAY: Final = CronField("weekday", 0, 7, 7, _WEEKDAYS, ", FRI#2, FRI#L or FRIL")
_YEAR: Final = CronField("year", 1, MAX_YEAR, MAX_YEAR + 1, _NO_NAMES)


@dataclass(frozen=True, slots=True)
class CronFields:
    """The parsed fields: bit n of a mask is set when the value n matches."""

    seconds: int
    minutes: int
    hours: int
    days: int
    nearest_days: int
    has_last_day: bool
    has_last_working_day: bool
    months: int
    weekdays: tuple[int, ...]  # index 0: every week; 1 to 5: the nth of the month; LAST
    years: int
    # Whether a date must match both the day of month and the weekday, instead of one of them.
    needs_both_days: bool


def parse_fields(text: str) -> CronFields:
    """Parse an expression of 5, 6 or 7 fields, or a form such as `@daily`.

    Raises CronExpressionError.
    """
    parts = _split(text)
    second = "0" if len(parts) == 5 else parts.pop(0)
    year = parts.pop() if len(parts) == 6 else "*"
    minute, hour, day, month, weekday = parts
    parser = _FieldParser(text)
    plain, nearest, has_last, has_last_working = parser.parse_days(day)
    weekdays = parser.parse_weekdays(weekday.removeprefix("+"))
    return CronFields(
        seconds=parser.parse_list(_SECOND, second),
        minutes=parser.parse_list(_MINUTE, minute),
        hours=parser.parse_list(_HOUR, hour),
        days=plain,
        nearest_days=nearest,
        has_last_day=has_last,
        has_last_working_day=has_last_working,
        months=parser.parse_list(_MONTH, month),
        weekdays=weekdays,
        years=parser.parse_list(_YEAR, year),
        # As in croner, only a literal `*` is unrestricted: `0 9 ? * 1` runs every day.
        needs_both_days="*" in {day, weekday} or weekday.startswith("+"),
    )


def _split(text: str) -> list[str]:
    if len(text) > MAX_CHARS:
        raise CronExpressionError(
            f"the cron expression has {len(text)} characters", fix=f"use at most {MAX_CHARS}"
        )
    upper = _SPACES.sub(" ", text).strip(" ").upper()
    if upper == "@REBOOT":
        raise CronExpressionError(
            "@reboot is not a time", fix="use @daily, @hourly or fields such as 0 9 * * *"
        )
    if _TIMESTAMP.fullmatch(upper):
        raise CronExpressionError(
            f"{one_line(text)!r} is a date, not a cron expression",
            fix='use a schedule of kind "at" for one run',
        )
    parts = _NICKNAMES.get(upper, upper).split(" ")
    if not 5 <= len(parts) <= 7 or (upper.startswith("@") and upper not in _NICKNAMES):
        count = f"{len(parts)} field{'' if len(parts) == 1 else 's'}" if upper else "no fields"
        raise CronExpressionError(
            f"the cron expression {one_line(text)!r} has {count}",
            fix="write minute, hour, day of month, month and weekday, such as 0 9 * * 1-5 "
            "(6 fields start with the second, the 7th is the year), or @daily",
        )
    return parts


@dataclass(frozen=True, slots=True)
class _FieldParser:
    """Parses fields, and names the expression in errors."""

    text: str

    def parse_list(self, field: CronField, text: str) -> int:
        mask = 0
        for item in text.split(","):
            mask |= self.parse_item(field, item)
        return mask

    def parse_days(self, text: str) -> tuple[int, int, bool, bool]:
        """Return the days, those with a `W`, and whether L and LW were given."""
        if text == "LW":
            return 0, 0, False, True
        days = nearest = 0
        has_last = False
        for item in text.split(","):
            if item == "L":
                has_last = True
            elif found := _NEAREST.fullmatch(item):
                nearest |= 1 << self._parse_value(_DAY, found[1], item)
            elif item == "LW":
                self._refuse(_DAY, item, "is not allowed in a list", "use LW alone")
            else:
                days |= self.parse_item(_DAY, item)
        return days, nearest, has_last, False

    def parse_weekdays(self, text: str) -> tuple[int, ...]:
        masks = [0] * (LAST + 1)
        for item in text.split(","):
            days, nth = item, 0
            if found := _NTH.fullmatch(item):
                days, nth = found["days"], LAST if found["nth"] == "L" else int(found["nth"])
            elif item.endswith("L"):
                days, nth = item[:-1], LAST
            elif "#" in item:
                self._refuse(_WEEKDAY, item, "has no valid #", "use #1 to #5 or #L")
            if nth and days in {"", "*", "?"}:
                self._refuse(_WEEKDAY, item, "names no weekday", "write for example FRI#2 or FRI#L")
            mask = self.parse_item(_WEEKDAY, days, item)
            masks[nth] |= (mask | mask >> 7) & 0x7F  # 7 is Sunday, as 0
        return tuple(masks)

    def parse_item(self, field: CronField, item: str, shown: str = "") -> int:
        """Return the mask of `*`, a value or a range, with a step or without."""
        shown = shown or item
        found = _ITEM.fullmatch("*" + item[1:] if item.startswith("?") else item)
        if found is None:
            self._refuse(field, shown, "is not understood", f"use {field.syntax}")
        low, high = field.min, field.max
        if not found["any"]:
            low = self._parse_value(field, found["low"], shown)
            high = low
            if found["dash"]:
                high = self._parse_value(field, found["high"], shown, is_end=True)
        elif field is _WEEKDAY:
            high = 6
        if low > high:
            self._refuse(field, shown, "ends before it starts", "write two ranges, as 22-23,0-2")
        step = self._parse_step(field, found, shown) if found["step"] else 1
        if step == 1:
            return (1 << high + 1) - (1 << low)
        return sum(1 << value for value in range(low, high + 1, step))

    def _parse_step(self, field: CronField, found: re.Match[str], shown: str) -> int:
        text = found["step"][1:]
        if not (found["any"] or found["dash"]):
            fix = f"write {found['low'] or field.min}-{field.max}/{text} or */{text}"
            self._refuse(field, shown, "has a step without a range", one_line(fix))
        # croner counts the steps of all years from 0, which is not a year, and refuses them.
        if found["any"] and field is _YEAR:
            self._refuse(
                field, shown, "has a step without a range", "write for example 2026-2036/2"
            )
        if not _NUMBER.fullmatch(text) or not 1 <= _to_int(text) <= field.max_step:
            self._refuse(field, shown, "has no valid step", f"use a step of 1 to {field.max_step}")
        return int(text)

    def _parse_value(self, field: CronField, text: str, shown: str, *, is_end: bool = False) -> int:
        value = field.names.get(text)
        if value is not None:
            return 7 if is_end and text == "SUN" else value
        if not _NUMBER.fullmatch(text):
            self._refuse(field, shown, "is not understood", f"use {field.syntax}")
        value = _to_int(text)
        if not field.min <= value <= field.max:
            self._refuse(field, shown, "is out of range", f"use {field.min} to {field.max}")
        return value

    def _refuse(self, field: CronField, shown: str, problem: str, fix: str) -> NoReturn:
        value = f"{one_line(shown, 40)!r}" if shown else "an empty value"
        raise CronExpressionError(
            f"the {field.name} {value} of the cron expression {one_line(self.text)!r} {problem}",
            fix=fix,
        )


def _to_int(digits: str) -> int:
    """Return the number; a very long one only as one that is too large for every field."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= 6 else 10**6
