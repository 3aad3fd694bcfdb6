"""Cron jobs that are here already, and jobs that are not valid."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import StoreError
from homarus.importing.cron_import import find_job_problem
from tests.unit.importing.source_homes import JOB, notes, outcomes, run_import, write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(tmp_path / "old/cron/jobs.json", {"version": 1, "jobs": [JOB]})
    return tmp_path / "old"


def jobs_file(home: Path) -> Path:
    return home / ".openclaw/cron/jobs.json"


def test_imported_job_is_not_running(home: Path, source: Path) -> None:
    run_import(home, source)
    stored = json.loads(jobs_file(home).read_text())
    assert stored == {"version": 1, "jobs": [{**JOB, "state": {"nextRunAtMs": 5}}]}


def test_job_that_only_ran_here_is_the_same(home: Path, source: Path) -> None:
    ours = {**JOB, "state": {"lastRunAtMs": 99}, "updatedAtMs": 99}
    write(jobs_file(home), {"version": 1, "jobs": [ours]})
    assert outcomes(run_import(home, source), "cronJobs")["present"] == 1


def test_job_that_is_different_here_stays(home: Path, source: Path) -> None:
    ours = {**JOB, "name": "Evening"}
    write(jobs_file(home), {"version": 1, "extra": 1, "jobs": [ours]})
    report = run_import(home, source)
    assert outcomes(report, "cronJobs") == {"source": 1, "before": 1, "conflicts": 1, "after": 1}
    assert "Morning: not imported: the job of this id is different here" in notes(report)
    assert json.loads(jobs_file(home).read_text())["jobs"] == [ours]


def test_damaged_jobs_of_the_target_stop_the_import(home: Path, source: Path) -> None:
    write(jobs_file(home), "{torn")
    with pytest.raises(StoreError, match="is damaged"):
        run_import(home, source)
    assert jobs_file(home).read_text() == "{torn"


def test_damaged_jobs_of_the_source_are_named(home: Path, source: Path) -> None:
    write(source / "cron/jobs.json", "{torn")
    report = run_import(home, source)
    assert "cron/jobs.json: skipped: it is damaged" in notes(report)
    assert not jobs_file(home).exists()


def test_jobs_go_where_the_config_says(home: Path, source: Path) -> None:
    (source / "cron/jobs.json").rename(source / "mine.json")
    write(source / "openclaw.json", {"cron": {"store": str(source / "mine.json")}})
    config = {"cron": {"store": str(home / "jobs.json")}}
    write(home / ".openclaw/openclaw.json", config)
    run_import(home, source)
    assert json.loads((home / "jobs.json").read_text())["jobs"][0]["id"] == "job-1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": ""}, "no valid id"),
        ({"id": "a\nb"}, "is a path"),
        ({"id": "../up"}, "is a path"),
        ({"declarationKey": "heartbeat:main"}, "OpenClaw makes"),
        ({"payload": {"kind": "shell", "text": "rm"}}, "payload"),
        ({"payload": {"kind": "agentTurn"}}, "no message"),
        ({"payload": {**JOB["payload"], "toolsAllow": ["read"]}}, "limits its tools"),
        ({"enabled": "no"}, "enabled is 'no'"),
        ({"sessionTarget": "main"}, "cannot run"),
        ({"schedule": None}, "no schedule"),
        ({"schedule": {"kind": "cron", "expr": "0 7"}}, "0 7"),
        ({"schedule": {"kind": "every", "everyMs": -1}}, "too short"),
        ({"schedule": {"kind": "at", "at": "soon"}}, "schedule is not valid"),
    ],
)
def test_invalid_job_is_refused_with_a_reason(change: dict[str, Any], reason: str) -> None:
    assert reason in find_job_problem({**JOB, **change})


@pytest.mark.parametrize(
    "schedule",
    [
        {"kind": "at", "at": "2027-01-01T00:00:00.000Z"},
        {"kind": "at", "atMs": 5},
        {"kind": "every", "everyMs": 60_000},
        {"kind": "cron", "expr": "@daily"},
    ],
)
def test_valid_schedules_are_accepted(schedule: dict[str, Any]) -> None:
    assert not find_job_problem({**JOB, "schedule": schedule})
