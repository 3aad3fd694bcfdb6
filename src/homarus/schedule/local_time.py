"""Local times that a time zone skips or repeats, handled as croner does.

A skipped local time (clocks go forward) means the time that is as much later as the clocks moved:
02:30 becomes 03:30. A repeated local time (clocks go back) means its first occurrence if the
clocks moved by one hour, else its second.
"""

from datetime import datetime, timedelta, tzinfo
from typing import Final

from homarus.core.fast_dataclass import dataclass

SECOND: Final = timedelta(seconds=1)
_HOUR: Final = timedelta(hours=1)
_NO_TIME: Final = timedelta(0)
# The largest change of a zone skipped a complete day.
_LOOK_BACK_S: Final = 25 * 3600


@dataclass(frozen=True, slots=True)
class SkippedTimes:
    """The local times that do not exist, because clocks went forward; `end` is excluded."""

    start: datetime
    end: datetime


def to_timestamp(local: datetime, zone: tzinfo) -> int:
    """Return the seconds since 1970 at a local time without a zone."""
    aware = local.replace(tzinfo=zone)
    before = aware.utcoffset() or _NO_TIME
    after = aware.replace(fold=1).utcoffset() or _NO_TIME
    # Of a skipped time, the offset before the change gives the later time.
    offset = after if _is_second_used(before, after) else before
    return _seconds(local - offset)


def to_local(timestamp: int, zone: tzinfo) -> datetime:
    """Return the local time after which a search for the next local time starts.

    It is the time of clocks there, except while a local time occurs that is not used: in the
    repetition of an hour whose first occurrence is used, it is the last moment of that hour; in
    the first occurrence of times whose repetition is used, it is the moment before them.
    """
    aware = datetime.fromtimestamp(timestamp, zone)
    local = aware.replace(tzinfo=None, fold=0)
    before = aware.replace(fold=0).utcoffset() or _NO_TIME
    after = aware.replace(fold=1).utcoffset() or _NO_TIME
    if before <= after:
        return local
    is_second_used = _is_second_used(before, after)
    shift_s = int((before - after).total_seconds())
    if aware.fold and not is_second_used:
        change = _find_change(timestamp - shift_s, timestamp, zone)
        return _naive(change) + before - SECOND
    if not aware.fold and is_second_used:
        change = _find_change(timestamp, timestamp + shift_s, zone)
        return _naive(change) + after - SECOND
    return local


def find_skipped(timestamp: int, zone: tzinfo) -> SkippedTimes | None:
    """Return the skipped times whose replacements are not all in the past."""
    before, after = _offset(timestamp - _LOOK_BACK_S, zone), _offset(timestamp, zone)
    if before >= after:
        return None
    change = _find_change(timestamp - _LOOK_BACK_S, timestamp, zone)
    if timestamp - change >= (after - before).total_seconds():
        return None
    return SkippedTimes(_naive(change) + before, _naive(change) + after)


def _is_second_used(before: timedelta, after: timedelta) -> bool:
    return before > after and before - after != _HOUR


def _find_change(low: int, high: int, zone: tzinfo) -> int:
    """Return the first second with the offset of `high`; there is one change after `low`."""
    wanted = _offset(high, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(middle, zone) == wanted:
            high = middle
        else:
            low = middle
    return high


def _offset(timestamp: int, zone: tzinfo) -> timedelta:
    return datetime.fromtimestamp(timestamp, zone).utcoffset() or _NO_TIME


_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is added to it by offsets


def _naive(timestamp: int) -> datetime:
    return _EPOCH + timedelta(seconds=timestamp)


def _seconds(utc: datetime) -> int:
    passed = utc - _EPOCH
    return passed.days * 86_400 + passed.seconds
