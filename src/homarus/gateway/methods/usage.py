"""Methods for usage and cost by day, session and model, summed from transcripts."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Annotated

from pydantic import Field

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import Count, Day, Name
from homarus.gateway.session_rows import SessionDefaults, session_row
from homarus.sessions.usage import DailyUsage, MessageCounts, ModelUsage, UsageSummary
from homarus.store.base import SessionRecord

_COST_DAYS = 31
_SESSION_DAYS = 30
_MAX_DAYS = 3_660
_MAX_SESSIONS = 1_000
_NO_DEFAULTS = SessionDefaults(None, None, None)


@method("usage.status", scope="read", params=NoParams)
async def status(call: MethodCall, _params: NoParams) -> Json:
    """How much of each provider's quota is used; no provider here tells that."""
    return {"updatedAt": call.services.clock.now_ms(), "providers": []}


class UsageCostParams(Params):
    """The first and the last day, both included."""

    start_date: Day | None = None
    end_date: Day | None = None
    days: Annotated[int, Field(ge=1, le=_MAX_DAYS)] | None = None


@method("usage.cost", scope="read", params=UsageCostParams)
async def cost(call: MethodCall, params: UsageCostParams) -> Json:
    """Tokens and dollars by day, over every session. Without dates, of the last 31 days."""
    first, last = _range(call, params.start_date, params.end_date, params.days or _COST_DAYS)
    totals = UsageSummary()
    for record in await _records(call, first):
        summary = await call.gateway.usage.summary_of(call.services.store, record)
        totals.add(summary.between(str(first), str(last)))
    daily = [{"date": day, **_totals(totals.days[day].spent)} for day in sorted(totals.days)]
    return {
        "updatedAt": call.services.clock.now_ms(),
        "days": (last - first).days + 1,
        "daily": daily,
        "totals": _totals(totals.totals.spent),
    }


class SessionsUsageParams(Params):
    """The sessions, and the first and last day."""

    key: Name | None = None
    start_date: Day | None = None
    end_date: Day | None = None
    limit: Count = 50
    include_context_weight: bool = False


@method("sessions.usage", scope="admin", params=SessionsUsageParams, advertised=False)
async def sessions(call: MethodCall, params: SessionsUsageParams) -> Json:
    """What sessions cost, each by day and model, and all together. The newest 50, or `limit`."""
    first, last = _range(call, params.start_date, params.end_date, _SESSION_DAYS)
    if params.key:
        found = await call.services.store.session(call.services.control.resolve_key(params.key))
        records: Sequence[SessionRecord] = [found] if found else []
    else:
        records = await _records(call, first, min(params.limit, _MAX_SESSIONS))
    totals, rows = UsageTotals(), list[Json]()
    for record in records:
        summary = await call.gateway.usage.summary_of(call.services.store, record)
        selected = summary.between(str(first), str(last))
        totals.add(record, selected)
        rows.append(_session(record, selected))
    return {
        "updatedAt": call.services.clock.now_ms(),
        "startDate": str(first),
        "endDate": str(last),
        "sessions": rows,
        "totals": _totals(totals.summary.totals.spent),
        "aggregates": totals.aggregates(),
    }


async def _records(
    call: MethodCall, first: date, limit: int | None = None
) -> Sequence[SessionRecord]:
    """Return the sessions that were used since a day."""
    since_ms = round(datetime.combine(first, time()).astimezone().timestamp() * 1000)
    return await call.services.store.sessions(since_ms=since_ms, limit=limit)


def _range(call: MethodCall, start: str | None, end: str | None, days: int) -> tuple[date, date]:
    """Return the first and the last day of the range."""
    today = datetime.fromtimestamp(call.services.clock.now_ms() / 1000).astimezone().date()
    try:
        last = date.fromisoformat(end) if end else today
        first = date.fromisoformat(start) if start else last - timedelta(days=days - 1)
    except (ValueError, OverflowError):
        raise InvalidRequestError("startDate and endDate must be days of the calendar") from None
    if not 1971 <= first.year <= last.year <= 9_998 or not 0 <= (last - first).days < _MAX_DAYS:
        raise InvalidRequestError(
            f"the days from {first} to {last} are not between 1 and {_MAX_DAYS}"
        )
    return first, last


class UsageTotals:
    """All totals, grouped as clients show them."""

    def __init__(self) -> None:
        self.summary = UsageSummary()
        self._agents: dict[str, ModelUsage] = {}
        self._channels: dict[str, ModelUsage] = {}

    def add(self, record: SessionRecord, summary: UsageSummary) -> None:
        self.summary.add(summary)
        usage = summary.totals.spent
        self._agents.setdefault(record.agent, ModelUsage()).add(usage)
        channel = record.data.get("lastChannel")
        if isinstance(channel, str) and channel:
            self._channels.setdefault(channel[:100], ModelUsage()).add(usage)

    def aggregates(self) -> dict[str, Json]:
        day = self.summary.totals
        providers: dict[str, ModelUsage] = {}
        for (provider, _), usage in day.models.items():
            providers.setdefault(provider, ModelUsage()).add(usage)
        fields: dict[str, Json] = {
            "messages": _message_counts(day.talk),
            "tools": _tools(day),
            "byModel": _models(day),
            "byProvider": [
                {"provider": name, "count": usage.answers, "totals": _totals(usage)}
                for name, usage in providers.items()
            ],
            "byAgent": [
                {"agentId": n, "totals": _totals(usage)} for n, usage in self._agents.items()
            ],
            "byChannel": [
                {"channel": n, "totals": _totals(usage)} for n, usage in self._channels.items()
            ],
            "modelDaily": _models_daily(self.summary),
            "daily": [_daily(name, self.summary.days[name]) for name in sorted(self.summary.days)],
        }
        if day.waits_ms:
            fields["latency"] = _latency(day.waits_ms)
        return {**fields, "dailyLatency": _latency_daily(self.summary)}


def _session(record: SessionRecord, summary: UsageSummary) -> dict[str, Json]:
    row = session_row(record, _NO_DEFAULTS)
    fields = ("label", "channel", "chatType", "origin", "modelProvider", "model")
    return {
        "key": record.key,
        "sessionId": record.session_id,
        "updatedAt": record.updated_ms,
        "agentId": record.agent,
        **{name: row[name] for name in fields if row.get(name)},
        "usage": _usage(record, summary),
    }


def _usage(record: SessionRecord, summary: UsageSummary) -> dict[str, Json]:
    day, names = summary.totals, sorted(summary.days)
    fields: dict[str, Json] = {
        "sessionId": record.session_id,
        "sessionFile": record.data.get("sessionFile") or "",
        "firstActivity": summary.first_ms,
        "lastActivity": summary.last_ms,
        "durationMs": summary.last_ms - summary.first_ms,
        "activityDates": names,
        "dailyBreakdown": [{"date": name, **_spent(summary.days[name].spent)} for name in names],
        "dailyMessageCounts": [{"date": n, **_message_counts(summary.days[n].talk)} for n in names],
        "dailyLatency": _latency_daily(summary),
        "dailyModelUsage": _models_daily(summary),
        "messageCounts": _message_counts(day.talk),
        "modelUsage": _models(day),
    }
    if day.tools:
        fields["toolUsage"] = _tools(day)
    if day.waits_ms:
        fields["latency"] = _latency(day.waits_ms)
    return {**fields, **_totals(day.spent)}


def _totals(model_usage: ModelUsage) -> dict[str, Json]:
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


def _spent(usage: ModelUsage) -> dict[str, Json]:
    return {"tokens": usage.usage.total, "cost": usage.usage.cost}


def _message_counts(counts: MessageCounts) -> dict[str, Json]:
    return {
        "total": counts.total,
        "user": counts.user,
        "assistant": counts.assistant,
        "toolCalls": counts.tool_calls,
        "toolResults": counts.tool_results,
        "errors": counts.errors,
    }


def _daily(name: str, day: DailyUsage) -> dict[str, Json]:
    return {
        "date": name,
        **_spent(day.spent),
        "messages": day.talk.total,
        "toolCalls": day.talk.tool_calls,
        "errors": day.talk.errors,
    }


def _tools(day: DailyUsage) -> dict[str, Json]:
    counted: Mapping[str, int] = day.tools
    return {
        "totalCalls": sum(counted.values()),
        "uniqueTools": len(counted),
        "tools": [{"name": name, "count": count} for name, count in day.tools.most_common(100)],
    }


def _models(day: DailyUsage) -> list[Json]:
    by_tokens = sorted(day.models.items(), key=lambda item: -item[1].usage.total)
    return [
        {"provider": provider, "model": model, "count": usage.answers, "totals": _totals(usage)}
        for (provider, model), usage in by_tokens
    ]


def _models_daily(summary: UsageSummary) -> list[Json]:
    return [
        {"date": day, "provider": provider, "model": model, **_spent(usage), "count": usage.answers}
        for day in sorted(summary.days)
        for (provider, model), usage in summary.days[day].models.items()
    ]


def _latency(waits_ms: Sequence[int]) -> dict[str, Json]:
    ordered = sorted(waits_ms)
    return {
        "count": len(ordered),
        "avgMs": sum(ordered) / len(ordered),
        "p95Ms": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
        "minMs": ordered[0],
        "maxMs": ordered[-1],
    }


def _latency_daily(summary: UsageSummary) -> list[Json]:
    return [
        {"date": name, **_latency(summary.days[name].waits_ms)}
        for name in sorted(summary.days)
        if summary.days[name].waits_ms
    ]
