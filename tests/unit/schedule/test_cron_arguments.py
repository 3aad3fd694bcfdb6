"""The job in the arguments of the `cron` tool, as models write it."""

from typing import Any

import pytest

from homarus.core.errors import ToolError
from homarus.schedule.cron_arguments import read_job, read_job_id
from homarus.schedule.job_input import normalize_job_create

AT = "2026-12-24T18:00:00+01:00"
TEA = {"schedule": {"kind": "at", "at": "2026-12-24T17:00:00.000Z"}, "deleteAfterRun": True}


@pytest.mark.parametrize(
    "args",
    [
        {"job": {"name": "tea", "schedule": {"at": AT}, "payload": {"text": "Tea"}}},
        {"job": {"job": {"name": "tea", "schedule": {"at": AT}, "payload": {"text": "Tea"}}}},
        {"job": {"data": {"name": "tea", "schedule": {"at": AT}, "text": "Tea"}}},
        {"name": "tea", "schedule": {"kind": "at", "at": AT}, "text": "Tea"},
        {"name": "tea", "at": AT, "text": "Tea", "job": {}},
        {"name": "tea", "schedule": AT, "payload": {"kind": "systemevent", "text": "Tea"}},
    ],
)
def test_job_of_a_reminder_is_read_in_every_form(args: dict[str, Any]) -> None:
    found = normalize_job_create(read_job({"action": "add", **args}, "add"))
    assert found == {
        **TEA,
        "name": "tea",
        "payload": {"kind": "systemEvent", "text": "Tea"},
        "sessionTarget": "main",
        "wakeMode": "now",
        "enabled": True,
    }


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("0 9 * * 1-5", {"kind": "cron", "expr": "0 9 * * 1-5"}),
        ("@daily", {"kind": "cron", "expr": "@daily"}),
        ("2026-12-24", {"kind": "at", "at": "2026-12-24"}),
    ],
)
def test_schedule_that_is_a_text_is_understood(schedule: str, expected: dict[str, Any]) -> None:
    args = {"name": "n", "message": "Hi", "schedule": schedule}
    assert read_job(args, "add") == {"name": "n", "message": "Hi", "schedule": expected}


def test_flat_turn_keeps_model_and_interval() -> None:
    args = {"action": "add", "everyMs": 60_000, "message": "Hi", "model": "m/x", "mode": "now"}
    found = normalize_job_create(read_job(args, "add")) or {}
    assert found["schedule"] == {"kind": "every", "everyMs": 60_000}
    assert found["payload"] == {"kind": "agentTurn", "message": "Hi", "model": "m/x"}


def test_patch_is_read_nested_and_flat() -> None:
    assert read_job({"jobId": "j", "patch": {"enabled": False}}, "update") == {"enabled": False}
    assert read_job({"id": "j", "enabled": False}, "update") == {"enabled": False}


@pytest.mark.parametrize("args", [{}, {"job": {}}, {"job": None, "mode": "now"}])
def test_add_without_a_job_shows_an_example(args: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="add needs a job") as refused:
        read_job(args, "add")
    assert "schedule" in refused.value.fix


def test_schedule_that_means_nothing_is_refused() -> None:
    with pytest.raises(ToolError, match="tomorrow"):
        read_job({"schedule": "tomorrow", "text": "x"}, "add")


def test_job_id_has_two_names_and_is_required() -> None:
    assert read_job_id({"jobId": " a "}, "run") == read_job_id({"id": "a"}, "run") == "a"
    with pytest.raises(ToolError, match="run needs a jobId"):
        read_job_id({"jobId": 7}, "run")
