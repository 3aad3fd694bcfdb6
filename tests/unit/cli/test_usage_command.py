"""`homarus usage`: groups, days, bars, and the formats for programs, without a gateway."""

import asyncio
import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.text_layout import width
from homarus.cli.usage import command, draw_bar, short_number, to_csv, to_table
from homarus.core.errors import HomarusError
from homarus.core.message import Usage
from homarus.store.base import UsageRecord
from homarus.store.sqlite import open_store
from homarus.store.usage import local_day

DAY_MS = 86_400_000
NOW_MS = time.time_ns() // 1_000_000


def call(model: str, agent: str, days_ago: int, usage: Usage, **more: Any) -> UsageRecord:
    at_ms = NOW_MS - days_ago * DAY_MS
    return UsageRecord("r", f"agent:{agent}:main", "acme", model, at_ms, usage, agent=agent, **more)


@pytest.fixture
def state(home: Path) -> Path:
    async def main() -> None:
        async with open_store(home / ".openclaw") as store, store.transaction() as transaction:
            transaction.add_usage(
                call("big", "home", 0, Usage(100, 50, 300, cost=3.0), channel="irc"),
                call("big", "home", 1, Usage(100, 50, cost=1.0), purpose="turn"),
                call("small", "work", 1, Usage(1_000, 9, cost=0.25), purpose="cron"),
                call("small", "work", 1, Usage(), error="busy", purpose="cron"),
                call("old", "work", 45, Usage(7, 7, cost=9.0)),
            )

    asyncio.run(main())
    return home


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def told(*args: str) -> Any:
    done = run(*args, "--json")
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


def test_usage_by_model_adds_up_every_call(state: Path) -> None:
    found = told("--by", "model")
    assert [(row["model"], row["calls"], row["failed"]) for row in found["rows"]] == [
        ("big", 2, 0), ("small", 2, 1),
    ]  # fmt: skip
    assert found["rows"][0]["totalCost"] == 4.0 and found["rows"][0]["cacheRead"] == 300
    assert found["totals"]["totalTokens"] == 1_609 and found["totals"]["calls"] == 4
    assert told("--by", "model", "--days", "60")["totals"]["totalCost"] == 13.25


def test_usage_by_each_group_names_it(state: Path) -> None:
    assert [row["agentId"] for row in told("--by", "agent")["rows"]] == ["home", "work"]
    assert [row["key"] for row in told("--by", "session", "--agent", "work")["rows"]] == [
        "agent:work:main"
    ]
    assert {row["purpose"] for row in told("--by", "purpose")["rows"]} == {"", "turn", "cron"}
    assert {row["channel"] for row in told("--by", "channel")["rows"]} == {"", "irc"}
    days = [row["date"] for row in told()["rows"]]
    assert days == [local_day(NOW_MS - DAY_MS), local_day(NOW_MS)]


def test_usage_of_some_days_includes_both_ends(state: Path) -> None:
    yesterday = local_day(NOW_MS - DAY_MS)
    assert told("--since", yesterday, "--until", yesterday)["totals"]["calls"] == 3
    assert told("--since", "yesterday", "--until", "1d")["totals"]["calls"] == 3
    assert told("--days", "1")["totals"]["calls"] == 1
    for wrong in ("soon", "2026-02-30", "9999999d"):
        error = run("--since", wrong).exception
        assert isinstance(error, HomarusError) and "day" in error.message
    assert isinstance(run("--since", "today", "--until", "yesterday").exception, HomarusError)


def test_csv_has_the_rows_of_json_and_no_formulas(state: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("--by", "model", "--csv").stdout)))
    assert [row["model"] for row in rows] == ["big", "small"]
    assert float(rows[0]["totalCost"]) == 4.0 and rows[1]["failed"] == "1"
    found = told("--by", "agent")
    found["rows"][0]["agentId"] = "=cmd|' /C calc'!A0\x1b"
    assert to_csv(found).splitlines()[1].startswith("'=cmd")
    assert "\x1b" not in to_csv(found)


def test_table_of_a_pipe_has_no_bars(state: Path) -> None:
    shown = run("--by", "agent").stdout
    assert "█" not in shown and [line.split()[0] for line in shown.splitlines()[1:]] == [
        "home", "work", "total",
    ]  # fmt: skip
    assert "60%" in shown and "$4.00" in shown and "$0.2500" in shown


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_table_of_a_terminal_fits_and_has_bars(state: Path, columns: int) -> None:
    found = told("--by", "session")
    found["rows"][0]["key"] = "agent:home:猫\x1b[2J" + "x" * 90
    lines = to_table(found, columns)
    assert all(width(line) <= max(columns, 55) and "\x1b" not in line for line in lines)
    assert any("█" in line for line in lines) == (columns > 55)


def test_usage_without_calls_says_so(home: Path) -> None:
    shown = run().stdout
    assert shown.startswith("No calls of models from ")
    assert told()["rows"] == [] and told()["totals"]["calls"] == 0


def test_two_formats_at_once_are_refused(home: Path) -> None:
    assert "exclude each other" in str(run("--csv", "--json").exception)


def test_bar_shows_eighths_and_never_less_than_one() -> None:
    assert draw_bar(1.0, 4) == "████" and draw_bar(0.5, 4) == "██"
    assert draw_bar(0.0001, 4) == "▏" and draw_bar(0, 4) == draw_bar(1, 0) == ""
    assert [short_number(n) for n in (0, 999, 1_000, 12_345, 345_678, 3_100_000)] == [
        "0", "999", "1.0k", "12.3k", "346k", "3.1M",
    ]  # fmt: skip
