"""Usage of a session over time: groups, sums, and messages of any form."""

from typing import Any

import pytest

from homarus.gateway.usage_series import usage_points
from homarus.store.base import TranscriptEntry


def entry(number: int, message: Any) -> TranscriptEntry:
    return TranscriptEntry(f"e{number}", None, "message", number, {"message": message})


def reply(tokens: int, cost: float = 0.0) -> dict[str, Any]:
    return {"role": "assistant", "usage": {"input": tokens, "cost": {"total": cost}}}


def test_usage_points_join_answers_beyond_the_limit() -> None:
    entries = [entry(number, reply(10, 0.5)) for number in range(1, 8)]
    points = usage_points(entries, 3)
    assert [point.at_ms for point in points] == [3, 6, 7]
    assert [point.usage.input for point in points] == [30, 30, 10]
    assert [point.total_tokens for point in points] == [30, 60, 70]
    assert points[-1].total_cost == pytest.approx(3.5)


def test_usage_points_skip_what_used_no_tokens() -> None:
    others: list[Any] = [None, 5, {}, {"role": "user"}, {"role": "assistant", "usage": "x"}]
    entries = [
        *(entry(number, message) for number, message in enumerate(others)),
        entry(9, reply(1)),
    ]
    assert [point.at_ms for point in usage_points(entries, 200)] == [9]
    assert usage_points([], 200) == []
