"""Usage of model calls in groups, as `usage.totals` returns it and `homarus usage` shows it."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Final, Literal, TypeAlias

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.sessions.usage import ModelUsage, to_model_usage
from homarus.store.base import Store
from homarus.store.usage import UsageField, UsageFilter, UsageTotal

MAX_DAYS: Final = 3_660
UsageGroup: TypeAlias = Literal[
    "day", "agent", "session", "channel", "purpose", "provider", "model"
]
_FIELDS: Final[Mapping[UsageGroup, tuple[UsageField, ...]]] = {
    "day": ("day",),
    "agent": ("agent",),
    "session": ("session",),
    "channel": ("channel",),
    "purpose": ("purpose",),
    "provider": ("provider",),
    "model": ("provider", "model"),
}
_NAMES: Final[Mapping[UsageField, str]] = {"day": "date", "agent": "agentId", "session": "key"}


def day_range(start: str | None, end: str | None, days: int, now_ms: int) -> tuple[date, date]:
    """Return the first and the last day of a range; without dates, of the last days."""
    today = datetime.fromtimestamp(now_ms / 1000).astimezone().date()
    try:
        last = date.fromisoformat(end) if end else today
        first = date.fromisoformat(start) if start else last - timedelta(days=days - 1)
    except (ValueError, OverflowError):
        raise InvalidRequestError("startDate and endDate must be days of the calendar") from None
    if not 1971 <= first.year <= last.year <= 9_998 or not 0 <= (last - first).days < MAX_DAYS:
        raise InvalidRequestError(
            f"the days from {first} to {last} are not between 1 and {MAX_DAYS}"
        )
    return first, last


async def read_usage(
    store: Store, by: Sequence[UsageGroup], wanted: UsageFilter, now_ms: int
) -> dict[str, Json]:
    """Return the totals of groups, the most expensive first, or in the order of days."""
    fields = tuple(dict.fromkeys(field for group in by for field in _FIELDS[group]))
    found = await store.usage_totals(fields, wanted)
    total = sum(found, UsageTotal())
    if "day" not in fields:
        found = sorted(found, key=lambda one: (-one.usage.cost, -one.usage.total))
    return {
        "updatedAt": now_ms,
        "startDate": wanted.first_day,
        "endDate": wanted.last_day,
        "by": [*by],
        "rows": [_row(one) for one in found],
        "totals": {"calls": total.calls, "failed": total.failed, **_totals_of(total)},
    }


def _row(total: UsageTotal) -> dict[str, Json]:
    group = {_NAMES.get(name, name): value for name, value in total.group.items()}
    return {**group, "calls": total.calls, "failed": total.failed, **_totals_of(total)}


def _totals_of(total: UsageTotal) -> dict[str, Json]:
    return encode_totals(to_model_usage(total))


def encode_totals(model_usage: ModelUsage) -> dict[str, Json]:
    """Return tokens and cost in the protocol's names."""
    usage = model_usage.usage
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "totalTokens": usage.total,
        "totalCost": usage.cost,
        # Prices are known for a complete answer, not for its parts.
        "inputCost": 0,
        "outputCost": 0,
        "cacheReadCost": 0,
        "cacheWriteCost": 0,
        "missingCostEntries": model_usage.unpriced,
    }
