"""sessions.usage.timeseries and sessions.usage.logs, and the limits in usage.status."""

from pathlib import Path

import pytest

from homarus.core.errors import InvalidRequestError
from homarus.core.message import ToolCall
from tests.unit.gateway.app_harness import answer, run

POINT = {
    "timestamp", "input", "output", "cacheRead", "cacheWrite", "totalTokens", "cost",
    "cumulativeTokens", "cumulativeCost",
}  # fmt: skip


async def test_timeseries_has_a_point_for_each_answer(tmp_path: Path) -> None:
    call = ToolCall("c", "read", {"path": "AGENTS.md"})
    async with run(tmp_path, answer(call), answer("x"), answer("y")) as it:
        await it.send("one", "a", "agent:main:x")
        await it.send("two", "b", "agent:main:x")
        series = await it.ask("sessions.usage.timeseries", key="x")
        points = series["points"]
        assert len(points) == 3 and set(points[0]) == POINT
        assert points[-1]["cumulativeCost"] == pytest.approx(0.75)
        assert points[-1]["cumulativeTokens"] == sum(point["totalTokens"] for point in points)
        record = await it.app.store.session("agent:main:x")
        assert record and series["sessionId"] == record.session_id


async def test_usage_logs_are_the_newest_messages_in_order(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x"), answer("y" * 5_000)) as it:
        await it.send("one", "a", "agent:main:x")
        await it.send("two", "b", "agent:main:x")
        rows = (await it.ask("sessions.usage.logs", key="agent:main:x"))["logs"]
        assert [row["role"] for row in rows] == ["user", "assistant"] * 2
        assert rows[0]["content"] == "one" and "tokens" not in rows[0]
        assert rows[1]["content"] == "x" and rows[1]["cost"] == pytest.approx(0.25)
        assert rows[3]["content"] == "y" * 2_000 + "…"
        newest = (await it.ask("sessions.usage.logs", key="agent:main:x", limit=1))["logs"]
        assert newest == rows[-1:]


async def test_usage_log_row_of_a_tool_has_the_form_of_openclaw(tmp_path: Path) -> None:
    call = ToolCall("c", "read", {"path": "no-such-file"})
    async with run(tmp_path, answer(call), answer("x")) as it:
        await it.send("one", "a", "agent:main:x")
        rows = (await it.ask("sessions.usage.logs", key="agent:main:x"))["logs"]
        assert [row["role"] for row in rows] == ["user", "assistant", "toolResult", "assistant"]
        assert rows[2]["content"].startswith("[Tool: read]\n[Tool Result]\n")
        assert [set(row) for row in rows[2:]] == [
            {"timestamp", "role", "content"},
            {"timestamp", "role", "content", "tokens", "cost"},
        ]


async def test_usage_of_an_unknown_session_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        for method in ("sessions.usage.timeseries", "sessions.usage.logs"):
            with pytest.raises(InvalidRequestError, match="there is no session"):
                await it.ask(method, key="agent:main:absent")
            with pytest.raises(InvalidRequestError, match="key"):
                await it.ask(method)


async def test_usage_status_has_the_spend_limits(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        spend = (await it.ask("usage.status"))["spend"]
        assert spend == {
            "day": it.app.local_date(it.app.clock.now_ms()),
            "perRunUsd": None, "perDayUsd": None, "usedUsd": None,
        }  # fmt: skip


async def test_usage_status_counts_what_was_spent_today(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"spend": {"perDayUsd": 5}}}}
    async with run(tmp_path, config=config) as it:
        day = it.app.local_date(it.app.clock.now_ms())
        async with it.app.store.transaction() as transaction:
            transaction.put_record("spend", day, {"usd": 1.5, "held": 0.25})
        spend = (await it.ask("usage.status"))["spend"]
        assert (spend["perDayUsd"], spend["usedUsd"]) == (5, 1.75)


async def test_usage_totals_group_calls_and_agree_with_cost(tmp_path: Path) -> None:
    call = ToolCall("c", "read", {"path": "AGENTS.md"})
    async with run(tmp_path, answer(call), answer("x"), answer("y")) as it:
        await it.send("one", "a", "agent:main:x")
        await it.send("two", "b", "agent:main:y")
        found = await it.ask("usage.totals", by=["session", "purpose"])
        assert [(row["key"], row["purpose"], row["calls"]) for row in found["rows"]] == [
            ("agent:main:x", "turn", 2), ("agent:main:y", "turn", 1),
        ]  # fmt: skip
        cost = (await it.ask("usage.cost"))["totals"]
        assert {name: found["totals"][name] for name in cost} == cost
        one = await it.ask("usage.totals", by=["model"], key="y", agentId="main", days=1)
        assert one["totals"]["calls"] == 1
        used = (await it.ask("sessions.usage", key="y"))["sessions"][0]["usage"]
        assert used["totalTokens"] == one["totals"]["totalTokens"]
        with pytest.raises(InvalidRequestError, match="by"):
            await it.ask("usage.totals", by=["team"])


async def test_usage_of_a_reset_session_still_costs(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x"), answer("y")) as it:
        await it.send("one", "a", "agent:main:x")
        before = (await it.ask("usage.cost"))["totals"]
        await it.ask("sessions.reset", key="agent:main:x")
        assert (await it.ask("usage.cost"))["totals"] == before
        (row,) = (await it.ask("sessions.usage", key="agent:main:x"))["sessions"]
        assert row["usage"]["totalTokens"] == 0
