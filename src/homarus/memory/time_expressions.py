"""Parse the time expressions of a query into spans of days: `on 3 May`, `last week`.

A note is usually written on the day it is about or some days later, so days around a span count as
well, but less than those inside it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from typing import Final

from homarus.core.fast_dataclass import dataclass

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
_SHORT = {name[:3]: number for number, name in enumerate(_MONTHS, 1)} | {"sept": 9}
_NUMBERS = {name: number for number, name in enumerate(_MONTHS, 1)} | _SHORT
_MONTH = "(" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + r")\b\.?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s*(?:of\s+)?((?:19|20)\d\d))?\b"
_DAY_FIRST = re.compile(rf"\b{_DAY}(?:\s+of)?\s+{_MONTH}{_YEAR}")
_MONTH_FIRST = re.compile(rf"\b{_MONTH}\s+{_DAY}\b(?!\d){_YEAR}")
_MONTH_ONLY = re.compile(rf"\b{_MONTH}{_YEAR}")
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)-(\d\d)\b")
_YEAR_ONLY = re.compile(r"\b((?:19|20)\d\d)\b")
# `may` and `march` are also verbs: alone they are months only after a word like these.
_BEFORE_MONTH = re.compile(
    r"\b(?:in|of|during|since|until|by|last|this|next|early|late|mid)[\s-]+$"
)
_AMBIGUOUS = frozenset({"may", "march", "mar", "sep", "dec", "jan"})

INSIDE: Final = 1.0
_YEAR_WEIGHT: Final = 0.2
_AFTER_DAY: Final = ((10, 0.5),)
_BEFORE_DAY: Final = ((7, 0.3),)
_AFTER_MONTH: Final = ((12, 0.4),)

_RELATIVE: tuple[tuple[re.Pattern[str], Callable[[date], tuple[date, date]]], ...] = (
    (re.compile(r"\btoday\b"), lambda now: (now, now)),
    (re.compile(r"\byesterday\b"), lambda now: (_back(now, 1), _back(now, 1))),
    (re.compile(r"\b(?:this|past) week\b"), lambda now: (_back(now, 7), now)),
    (re.compile(r"\blast week\b"), lambda now: (_back(now, 14), _back(now, 3))),
    (re.compile(r"\b(?:this|past) month\b"), lambda now: (_back(now, 31), now)),
    (re.compile(r"\blast month\b"), lambda now: (_back(now, 62), _back(now, 14))),
    (re.compile(r"\b(?:recently|lately)\b"), lambda now: (_back(now, 21), now)),
)


@dataclass(frozen=True, slots=True)
class DateSpan:
    """A range of days, first and last inclusive; `near` is how far days around it count."""

    first: date
    last: date
    weight: float = INSIDE
    after: tuple[tuple[int, float], ...] = ()
    before: tuple[tuple[int, float], ...] = ()

    def score(self, day: date) -> float:
        """Return how well a note of this day matches."""
        if self.first <= day <= self.last:
            return self.weight
        for days, weight in self.after:
            if self.last < day <= self.last + timedelta(days=days):
                return weight
        for days, weight in self.before:
            if self.first - timedelta(days=days) <= day < self.first:
                return weight
        return 0.0


@dataclass(frozen=True, slots=True)
class TimeExpressions:
    """The time expressions of a query, and the query text without them."""

    spans: tuple[DateSpan, ...]
    rest: str

    def score(self, day: date | None) -> float:
        return max((span.score(day) for span in self.spans), default=0.0) if day else 0.0


def parse_time_expressions(
    question: str, years: Iterable[int], now: date | None = None
) -> TimeExpressions:
    """Parse the expressions; `years` complete a day without one, `now` relative ones."""
    low = question.lower()
    spans: list[DateSpan] = []
    taken: list[tuple[int, int]] = []
    tried = sorted({year for year in years if 0 < year < 9999})
    for start, end, found in _read(low, tried, now):
        if all(end <= first or last <= start for first, last in taken):
            spans += found
            taken.append((start, end))
    rest = low_without(question, taken)
    return TimeExpressions(tuple(spans), rest)


def low_without(text: str, taken: Iterable[tuple[int, int]]) -> str:
    """Return the text in lower case with some ranges blanked; unchanged if its length changes."""
    if len(text) != len(text.lower()):
        return text
    letters = list(text)
    for start, end in taken:
        letters[start:end] = " " * (end - start)
    return "".join(letters)


_Found = Iterator[tuple[int, int, list[DateSpan]]]


def _read(low: str, years: list[int], now: date | None) -> _Found:
    """Yield every reading, the most exact first."""
    for found in _ISO.finditer(low):
        yield *found.span(), _days([int(found[1])], int(found[2]), int(found[3]))
    for found in _DAY_FIRST.finditer(low):
        which = [int(found[3])] if found[3] else years
        yield *found.span(), _days(which, _NUMBERS[found[2]], int(found[1]))
    for found in _MONTH_FIRST.finditer(low):
        which = [int(found[3])] if found[3] else years
        yield *found.span(), _days(which, _NUMBERS[found[1]], int(found[2]))
    yield from _whole_months(low, years)
    for found in _YEAR_ONLY.finditer(low):
        year = int(found[1])
        yield *found.span(), [DateSpan(date(year, 1, 1), date(year, 12, 31), _YEAR_WEIGHT)]
    if now:
        for pattern, span in _RELATIVE:
            for found in pattern.finditer(low):
                yield *found.span(), [DateSpan(*span(now))]


def _whole_months(low: str, years: list[int]) -> _Found:
    for found in _MONTH_ONLY.finditer(low):
        alone = not found[2] and not _BEFORE_MONTH.search(low, 0, found.start())
        if found[1] in _AMBIGUOUS and alone:
            continue
        which = [int(found[2])] if found[2] else years
        yield *found.span(), [_month(year, _NUMBERS[found[1]]) for year in which]


def _days(years: Iterable[int], month: int, day: int) -> list[DateSpan]:
    spans: list[DateSpan] = []
    for year in years:
        try:
            when = date(year, month, day)
        except ValueError:  # there is no such day
            continue
        spans.append(DateSpan(when, when, after=_AFTER_DAY, before=_BEFORE_DAY))
    return spans


def _month(year: int, month: int) -> DateSpan:
    after = date(year + month // 12, month % 12 + 1, 1)
    return DateSpan(date(year, month, 1), after - timedelta(days=1), after=_AFTER_MONTH)


def _back(now: date, days: int) -> date:
    return now - timedelta(days=days)


_DATED = re.compile(r"(?<!\d)((?:19|20)\d\d-\d\d-\d\d)(?!\d)")


def day_in(path: str) -> str | None:
    """Return the date in a file name such as `2023-05-08.md`."""
    found = _DATED.search(path.rsplit("/", 1)[-1])
    try:
        return date.fromisoformat(found[1]).isoformat() if found else None
    except ValueError:
        return None
