"""How `homarus cron` shows jobs and runs to a person."""

from typing import Any

import pytest

from homarus.cli.cron_output import (
    TimeView,
    describe_duration,
    describe_schedule,
    internal_lines,
    job_lines,
    job_status,
    list_lines,
    run_line,
)

NOW_MS = 1_795_000_000_000  # 2026-11-18T11:06:40Z
VIEW = TimeView("Europe/Berlin", NOW_MS)
JOB: dict[str, Any] = {
    "id": "1f3c",
    "name": "ne\x1bws",
    "enabled": True,
    "schedule": {"kind": "cron", "expr": "0 8 * * *", "tz": "UTC"},
    "payload": {"kind": "agentTurn", "message": "News?"},
    "delivery": {"mode": "announce", "channel": "last"},
    "state": {
        "nextRunAtMs": NOW_MS + 7_500_000,
        "lastRunAtMs": NOW_MS - 90_000,
        "lastStatus": "error",
        "lastError": "the model\nfailed",
    },
}


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (999, "0s"), (61_000, "1m 1s"), (7_500_000, "2h 5m"), (86_400_000, "1d")],
)
def test_duration_has_its_two_largest_units(ms: int, text: str) -> None:
    assert describe_duration(ms) == text


def test_list_shows_next_and_last_run_in_the_users_zone() -> None:
    assert list(list_lines([JOB], VIEW)) == [
        "1f3c  ne\\u{1b}ws  [error]",
        "  0 8 * * * (UTC), next run Wed 2026-11-18 14:11 CET (in 2h 5m)",
        "  last run Wed 2026-11-18 12:05 CET (1m 30s ago): error: the model failed",
    ]


def test_job_that_never_runs_again_has_no_next_run() -> None:
    once = {"kind": "at", "at": "2026-11-18T12:00:00Z"}
    job = {**JOB, "enabled": False, "schedule": once, "state": {"nextRunAtMs": "soon"}}
    assert list(list_lines([job], VIEW))[1] == "  once at Wed 2026-11-18 13:00 CET (in 53m 20s)"
    assert job_status(job) == "disabled"
    assert job_status({**JOB, "state": {"runningAtMs": 1}}) == "running"
    assert job_status({**JOB, "state": {}}) == "waiting"


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ({"kind": "every", "everyMs": 7_200_000}, "every 2h"),
        ({"kind": "at", "at": "bogus"}, "at bogus"),
        ({"kind": "stream"}, "stream"),
        (None, "-"),
    ],
)
def test_schedule_of_every_kind_is_described(schedule: Any, text: str) -> None:
    assert describe_schedule(schedule, VIEW) == text


def test_one_job_shows_what_it_does_and_where_it_answers() -> None:
    shown = "\n".join(job_lines({**JOB, "agentId": "work"}, VIEW))
    assert "message   News?" in shown and "delivery  announce last" in shown
    assert "agent     work" in shown and "next run  Wed 2026-11-18 14:11 CET" in shown


def test_run_shows_status_duration_and_error() -> None:
    entry = {"ts": NOW_MS, "runAtMs": NOW_MS - 2_000, "status": "error", "error": "it\nbroke"}
    assert run_line({**entry, "durationMs": 2_000}, VIEW) == (
        "Wed 2026-11-18 12:06 CET (2s ago)  error, 2s  it broke"
    )
    assert run_line({"ts": 10**18, "status": "ok"}, VIEW) == "-  ok"


def test_internal_jobs_say_that_they_are_internal() -> None:
    job = {
        "name": "maintenance", "description": "Old sessions", "schedule": "every 1h",
        "nextRunAtMs": NOW_MS + 1_000, "lastRunAtMs": NOW_MS, "lastError": "disk",
    }  # fmt: skip
    first, second, third = internal_lines([job], VIEW)
    assert first == "maintenance  [internal]  Old sessions"
    assert second.startswith("  every 1h, next run ") and third.endswith(": error: disk")
