"""Methods for usage and cost by day, session and model.

Tokens and cost are sums of the calls of models. The numbers of messages and tool calls, and how
long answers took, are those of transcripts.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Annotated

from pydantic import Field

from homarus.config.timezone import local_date, zone_name
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import Count, Day, Name
from homarus.gateway.session_rows import SessionDefaults, session_row
from homarus.gateway.usage_report import (
    MAX_DAYS,
    UsageGroup,
    day_range,
    encode_totals,
    read_usage,
)
from homarus.sessions.usage import (
    DailyUsage,
    MessageCounts,
    ModelUsage,
    UsageSummary,
    to_model_usage,
)
from homarus.store.base import SessionRecord
from homarus.store.usage import UsageField, UsageFilter, UsageTotal

_COST_DAYS = 31
_SESSION_DAYS = 30
_MAX_SESSIONS = 1_000
_NO_DEFAULTS = SessionDefaults(None, None, None)


@method("usage.status", scope="read", params=NoParams)
async def status(call: MethodCall, _params: NoParams) -> Json:
    """The spend limits and what today's calls cost; no provider tells how much quota is left.

    `usedUsd` includes what is reserved for calls in progress; it is null without a daily limit.
    """
    return {
        "updatedAt": call.services.clock.now_ms(),
        "providers": [],
        "spend": await _spend(call),
    }


async def _spend(call: MethodCall) -> dict[str, Json]:
    from homarus.agent.spend_limit import KIND

    services = call.services
    defaults = services.loaded.config.agents.defaults
    day = local_date(zone_name(defaults.user_timezone), services.clock.now_ms())
    record = await services.store.record(KIND, day) or {}
    used = sum(
        value for key in ("usd", "held") if isinstance(value := record.get(key), int | float)
    )
    limits = defaults.spend
    return {
        "day": day,
        "perRunUsd": limits.per_run_usd,
        "perDayUsd": limits.per_day_usd,
        "usedUsd": used if limits.per_day_usd is not None else None,
    }


class UsageCostParams(Params):
    """The first and the last day, both included."""

    start_date: Day | None = None
    end_date: Day | None = None
    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] | None = None


@method("usage.cost", scope="read", params=UsageCostParams)
async def cost(call: MethodCall, params: UsageCostParams) -> Json:
    """Tokens and dollars by day, of every call of a model. Without dates, of the last 31 days."""
    first, last = _range(call, params.start_date, params.end_date, params.days or _COST_DAYS)
    wanted = UsageFilter(str(first), str(last))
    days = await call.services.store.usage_totals(("day",), wanted)
    total = ModelUsage()
    for day in days:
        total.add(to_model_usage(day))
    return {
        "updatedAt": call.services.clock.now_ms(),
        "startDate": str(first),
        "endDate": str(last),
        "days": (last - first).days + 1,
        "daily": [{"date": day.group["day"], **encode_totals(to_model_usage(day))} for day in days],
        "totals": encode_totals(total),
    }


class UsageTotalsParams(UsageCostParams):
    """What to group by, and which calls."""

    by: Annotated[list[UsageGroup], Field(min_length=1, max_length=4)] = ["day"]  # noqa: RUF012 - pydantic copies it
    agent_id: Name | None = None
    key: Name | None = None


@method("usage.totals", scope="read", params=UsageTotalsParams, advertised=False)
async def totals(call: MethodCall, params: UsageTotalsParams) -> Json:
    """Tokens, cost and calls of models, by day, agent, session, channel, purpose or model."""
    services = call.services
    first, last = _range(call, params.start_date, params.end_date, params.days or _COST_DAYS)
    key = services.control.resolve_key(params.key) if params.key else ""
    wanted = UsageFilter(str(first), str(last), params.agent_id or "", key)
    return await read_usage(services.store, params.by, wanted, services.clock.now_ms())


class SessionsUsageParams(Params):
    """The sessions, and the first and last day, or how many days up to the last."""

    key: Name | None = None
    start_date: Day | None = None
    end_date: Day | None = None
    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] | None = None
    limit: Count = 50
    include_context_weight: bool = False


@method("sessions.usage", scope="admin", params=SessionsUsageParams, advertised=False)
async def sessions(call: MethodCall, params: SessionsUsageParams) -> Json:
    """What sessions cost, each by day and model, and all together. The newest 50, or `limit`."""
    first, last = _range(call, params.start_date, params.end_date, params.days or _SESSION_DAYS)
    if params.key:
        found = await call.services.store.session(call.services.control.resolve_key(params.key))
        records: Sequence[SessionRecord] = [found] if found else []
    else:
        records = await _records(call, first, min(params.limit, _MAX_SESSIONS))
    totals, rows = UsageTotals(), list[Json]()
    wanted = UsageFilter(
        str(first), str(last), session=records[0].key if params.key and records else ""
    )
    calls = await _calls_by_session(call, wanted) if records else {}
    for record in records:
        summary = await call.gateway.usage.summary_of(call.services.store, record)
        spent = [*calls.get(record.session_id, ()), *calls.get(record.key, ())]
        selected = summary.between(str(first), str(last)).with_calls(spent)
        totals.add(record, selected)
        rows.append(_session(record, selected))
    return {
        "updatedAt": call.services.clock.now_ms(),
        "startDate": str(first),
        "endDate": str(last),
        "sessions": rows,
        "totals": encode_totals(totals.summary.totals.spent),
        "aggregates": totals.aggregates(),
    }


async def _calls_by_session(
    call: MethodCall, wanted: UsageFilter
) -> Mapping[str, Sequence[UsageTotal]]:
    """Return the totals by the id of their conversation, or by the key of their session."""
    by: tuple[UsageField, ...] = ("session_id", "session", "day", "provider", "model")
    found = dict[str, list[UsageTotal]]()
    for total in await call.services.store.usage_totals(by, wanted):
        name = total.group["session_id"] or total.group["session"]
        found.setdefault(name, []).append(total)
    return found


async def _records(
    call: MethodCall, first: date, limit: int | None = None
) -> Sequence[SessionRecord]:
    """Return the sessions that were used since a day."""
    since_ms = round(datetime.combine(first, time()).astimezone().timestamp() * 1000)
    return await call.services.store.sessions(since_ms=since_ms, limit=limit)


def _range(call: MethodCall, start: str | None, end: str | None, days: int) -> tuple[date, date]:
    return day_range(start, end, days, call.services.clock.now_ms())


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
                {"provider": name, "count": usage.answers, "totals": encode_totals(usage)}
                for name, usage in providers.items()
            ],
            "byAgent": [
                {"agentId": n, "totals": encode_totals(usage)} for n, usage in self._agents.items()
            ],
            "byChannel": [
                {"channel": n, "totals": encode_totals(usage)}
                for n, usage in self._channels.items()
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
    return {**fields, **encode_totals(day.spent)}


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
        {
            "provider": provider,
            "model": model,
            "count": usage.answers,
            "totals": encode_totals(usage),
        }
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
