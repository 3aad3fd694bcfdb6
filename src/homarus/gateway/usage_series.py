"""Usage of one session over time: a point for each answer of a model. Pure."""

from collections.abc import Iterable, Sequence

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Usage
from homarus.store.base import TranscriptEntry
from homarus.store.usage import decode_usage


@dataclass(frozen=True, slots=True)
class UsagePoint:
    """Tokens and cost of one or more answers, and of all answers up to the last of them."""

    at_ms: int
    usage: Usage
    total_tokens: int
    total_cost: float


def usage_points(entries: Iterable[TranscriptEntry], max_points: int) -> Sequence[UsagePoint]:
    """Return the usage of a transcript over time, oldest first.

    More than `max_points` answers are joined into as many groups, so that sums stay exact.
    """
    answers = [
        (entry.at_ms, usage) for entry in entries if (usage := entry_usage(entry)) is not None
    ]
    size = max(1, -(-len(answers) // max_points))
    points, total = list[UsagePoint](), Usage()
    for start in range(0, len(answers), size):
        group = answers[start : start + size]
        joined = sum((usage for _, usage in group), Usage())
        total += joined
        points.append(UsagePoint(group[-1][0], joined, total.total, total.cost))
    return points


def entry_usage(entry: TranscriptEntry) -> Usage | None:
    """Return the usage of an entry; None when it is no answer of a model that used tokens."""
    message = entry.data.get("message") if entry.type == "message" else None
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    usage = decode_usage(message.get("usage"))
    return usage if usage.total or usage.cost else None
