"""Summarise usage of sessions: tokens, cost, messages and latency by day and model. Pure.

A summary is made of a transcript's entries, and summaries add up. The caller maps times to days,
because it knows the time zone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Usage
from homarus.store.base import TranscriptEntry
from homarus.store.usage import UsageTotal, decode_usage

_MAX_WAIT_MS = 24 * 3_600_000  # a longer gap is not a wait for an answer


@dataclass(slots=True)
class ModelUsage:
    """Tokens and cost of some answers; `unpriced` counts those without a price."""

    usage: Usage = field(default_factory=Usage)
    answers: int = 0
    unpriced: int = 0

    def add(self, other: "ModelUsage") -> None:
        self.usage += other.usage
        self.answers += other.answers
        self.unpriced += other.unpriced


@dataclass(slots=True)
class MessageCounts:
    """Numbers of messages by kind."""

    user: int = 0
    assistant: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    errors: int = 0

    @property
    def total(self) -> int:
        return self.user + self.assistant

    def add(self, other: "MessageCounts") -> None:
        self.user += other.user
        self.assistant += other.assistant
        self.tool_calls += other.tool_calls
        self.tool_results += other.tool_results
        self.errors += other.errors


@dataclass(slots=True)
class DailyUsage:
    """One day of a session; usage by (provider, model)."""

    talk: MessageCounts = field(default_factory=MessageCounts)
    models: dict[tuple[str, str], ModelUsage] = field(default_factory=dict)
    tools: Counter[str] = field(default_factory=Counter)
    waits_ms: list[int] = field(default_factory=list)

    @property
    def spent(self) -> ModelUsage:
        total = ModelUsage()
        for one in self.models.values():
            total.add(one)
        return total

    def add(self, other: "DailyUsage") -> None:
        self.talk.add(other.talk)
        for model, spent in other.models.items():
            self.models.setdefault(model, ModelUsage()).add(spent)
        self.tools.update(other.tools)
        self.waits_ms += other.waits_ms


@dataclass(slots=True)
class UsageSummary:
    """A session by day, and the times of its first and last message."""

    days: dict[str, DailyUsage] = field(default_factory=dict)
    first_ms: int = 0
    last_ms: int = 0

    def between(self, first_day: str, last_day: str) -> "UsageSummary":
        """Return only these days, both included."""
        days = {day: one for day, one in self.days.items() if first_day <= day <= last_day}
        return UsageSummary(days, self.first_ms, self.last_ms)

    def with_calls(self, calls: Iterable[UsageTotal]) -> "UsageSummary":
        """Return the summary with the usage of these calls instead of that of its answers."""
        days = {day: replace(one, models={}) for day, one in self.days.items()}
        for call in calls:
            models = days.setdefault(call.group["day"], DailyUsage()).models
            name = (call.group["provider"], call.group["model"])
            models.setdefault(name, ModelUsage()).add(to_model_usage(call))
        return UsageSummary(days, self.first_ms, self.last_ms)

    def add(self, other: "UsageSummary") -> None:
        for day, one in other.days.items():
            self.days.setdefault(day, DailyUsage()).add(one)

    @property
    def totals(self) -> DailyUsage:
        """The sum of all days."""
        day = DailyUsage()
        for one in self.days.values():
            day.add(one)
        return day


def to_model_usage(total: UsageTotal) -> ModelUsage:
    """Return the usage of calls; one that failed was no answer."""
    return ModelUsage(total.usage, total.calls - total.failed, total.unpriced)


def last_prompt_tokens(data: Mapping[str, Json] | None) -> int | None:
    """Return the recorded size of a session's last prompt; None when it is outdated."""
    total = data.get("totalTokens") if data else None
    if not isinstance(total, int) or total < 0:
        return None
    if data and data.get("totalTokensFresh") is False:
        return None
    return total


def summarize_usage(
    entries: Iterable[TranscriptEntry], day_of: Callable[[int], str]
) -> UsageSummary:
    """Summarise a transcript; entries of abandoned branches count too, as they cost."""
    summary = UsageSummary()
    previous: tuple[str, int] | None = None  # role and time of the previous message
    for entry in entries:
        message = entry.data.get("message") if entry.type == "message" else None
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(role, str):
            continue
        day = summary.days.setdefault(day_of(entry.at_ms), DailyUsage())
        summary.first_ms = summary.first_ms or entry.at_ms
        summary.last_ms = max(summary.last_ms, entry.at_ms)
        if role == "user":
            day.talk.user += 1
        elif role == "toolResult":
            day.talk.tool_results += 1
        elif role == "assistant":
            _answer(day, message)
            if (
                previous
                and previous[0] != "assistant"
                and 0 <= entry.at_ms - previous[1] < _MAX_WAIT_MS
            ):
                day.waits_ms.append(entry.at_ms - previous[1])
        previous = (role, entry.at_ms)
    return summary


def _answer(day: DailyUsage, message: dict[str, Json]) -> None:
    day.talk.assistant += 1
    day.talk.errors += message.get("stopReason") in {"error", "aborted"}
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "toolCall":
            day.talk.tool_calls += 1
            name = part.get("name")
            day.tools[name[:100] if isinstance(name, str) else "?"] += 1
    raw = message.get("usage")
    usage = decode_usage(raw)
    priced = isinstance(raw, dict) and isinstance(raw.get("cost"), dict)
    spent = ModelUsage(usage, 1, 0 if priced or not usage.total else 1)
    provider, model = message.get("provider"), message.get("model")
    model_key = (str(provider or "unknown")[:100], str(model or "unknown")[:200])
    day.models.setdefault(model_key, ModelUsage()).add(spent)
