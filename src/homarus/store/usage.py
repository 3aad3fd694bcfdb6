"""The usage of model calls: groups of it, and what the answers of a transcript used.

Every call of ours is a row (`UsageRecord`). An answer that another program wrote, or that was
copied from another home, becomes a row when its entry is added to the store: a call is counted
once, and every total is a sum of rows. The totals of a day are kept when the rows are pruned.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Final, Literal, TypeAlias, get_args

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Usage
from homarus.store.base import TranscriptEntry, UsageRecord

# What a total can be grouped by; `session` is a key, `session_id` one conversation under it.
UsageField: TypeAlias = Literal[
    "day", "agent", "session", "session_id", "channel", "purpose", "provider", "model"
]
USAGE_FIELDS: Final[tuple[UsageField, ...]] = get_args(UsageField)
IMPORTED: Final = "imported"  # the purpose of an answer that another program asked for
_MAX_TOKENS, _MAX_USD = 1 << 40, 1e9  # of one call: sums then fit a column
_MAX_NAME_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which days (`2026-02-17`, both included), and of which agent or session; "" is all."""

    first_day: str = ""
    last_day: str = ""
    agent: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """The calls of a group, which has a value for each field that was grouped by.

    `failed` calls have no usage; `unpriced` ones used tokens whose price is not known.
    """

    group: Mapping[UsageField, str] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    failed: int = 0
    unpriced: int = 0

    def __add__(self, other: "UsageTotal") -> "UsageTotal":
        return UsageTotal(
            self.group,
            self.usage + other.usage,
            self.calls + other.calls,
            self.failed + other.failed,
            self.unpriced + other.unpriced,
        )


def local_day(at_ms: int) -> str:
    """Return the day in this machine's time zone."""
    try:
        return str(datetime.fromtimestamp(at_ms / 1000).astimezone().date())
    except (OverflowError, OSError, ValueError):  # a time outside the calendar
        return "1970-01-01"


def transcript_usage(
    entries: Iterable[TranscriptEntry], *, agent: str, session: str, session_id: str
) -> Iterator[UsageRecord]:
    """Yield a usage record for each answer of a model that used tokens or cost something."""
    for entry in entries:
        message = entry.data.get("message") if entry.type == "message" else None
        if not isinstance(message, dict) or message.get("role") != "assistant":
            continue
        raw = message.get("usage")
        usage = _bounded(decode_usage(raw))
        if not (usage.total or usage.cost):
            continue
        provider, model = message.get("provider"), message.get("model")
        yield UsageRecord(
            "", session, str(provider or "unknown")[:_MAX_NAME_CHARS],
            str(model or "unknown")[:_MAX_NAME_CHARS], entry.at_ms, usage,
            agent=agent, session_id=session_id, purpose=IMPORTED,
            is_priced=isinstance(raw, dict) and isinstance(raw.get("cost"), dict),
        )  # fmt: skip


def sum_usage(
    calls: Iterable[UsageRecord], by: tuple[UsageField, ...], wanted: UsageFilter
) -> list[UsageTotal]:
    """Return the totals of some calls, as `Store.usage_totals` does."""
    totals = dict[tuple[str, ...], UsageTotal]()
    for call in calls:
        fields: dict[UsageField, str] = {
            "day": local_day(call.at_ms), "agent": call.agent, "session": call.session,
            "session_id": call.session_id, "channel": call.channel, "purpose": call.purpose,
            "provider": call.provider, "model": call.model,
        }  # fmt: skip
        day = fields["day"]
        if (
            day < wanted.first_day
            or (wanted.last_day and day > wanted.last_day)
            or wanted.agent not in {"", call.agent}
            or wanted.session not in {"", call.session}
        ):
            continue
        one = UsageTotal(
            {name: fields[name] for name in by}, call.usage, 1, int(bool(call.error)),
            int(not call.is_priced),
        )  # fmt: skip
        group = tuple(one.group.values())
        totals[group] = totals[group] + one if group in totals else one
    return [totals[group] for group in sorted(totals)]


_NO_USAGE = Usage()


def decode_usage(usage: Json) -> Usage:
    """Decode tokens and cost from any JSON."""
    if not isinstance(usage, dict):
        return _NO_USAGE
    cost = usage.get("cost")
    return Usage(
        read_whole_number(usage.get("input")),
        read_whole_number(usage.get("output")),
        read_whole_number(usage.get("cacheRead")),
        read_whole_number(usage.get("cacheWrite")),
        read_whole_number(usage.get("reasoning")),
        _float(cost.get("total")) if isinstance(cost, dict) else 0.0,
    )


def _bounded(usage: Usage) -> Usage:
    """Return a usage of another program with numbers that can be added up."""

    def bound(count: int) -> int:
        return min(max(0, count), _MAX_TOKENS)

    return Usage(
        bound(usage.input), bound(usage.output), bound(usage.cache_read),
        bound(usage.cache_write), bound(usage.reasoning), min(max(0.0, usage.cost), _MAX_USD),
    )  # fmt: skip


def read_whole_number(value: Json) -> int:
    """Return a whole number from any JSON, 0 for anything else."""
    if value.__class__ is int:  # by far the most common case
        return value
    return int(value) if isinstance(value, float) and math.isfinite(value) else 0


def _float(value: Json) -> float:
    try:
        number = float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0
