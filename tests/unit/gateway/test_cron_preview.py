"""`cron.preview`: the times of schedules that jobs have, or that a form holds."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import InvalidRequestError
from tests.unit.gateway.app_harness import run

DAY_MS = 86_400_000
FROM_MS = 1_770_000_000_000  # 2026-02-02T02:40:00Z


def every(ms: int, **more: Any) -> dict[str, Any]:
    return {"kind": "every", "everyMs": ms, "anchorMs": FROM_MS, **more}


async def preview(it: Any, *schedules: dict[str, Any], **more: Any) -> Any:
    params = {
        "schedules": [{"id": f"job-{at}", "schedule": one} for at, one in enumerate(schedules)],
        "fromMs": FROM_MS,
        "toMs": FROM_MS + 7 * DAY_MS,
        **more,
    }
    return (await it.ask("cron.preview", params, "read"))["previews"]


async def test_preview_returns_the_times_of_each_kind(tmp_path: Path) -> None:
    cron = {"kind": "cron", "expr": "30 7 * * 1", "tz": "Europe/Berlin"}
    at = {"kind": "at", "at": "2026-02-03T10:00:00Z"}
    async with run(tmp_path) as it:
        found = await preview(it, cron, every(DAY_MS), at)
    assert [one["id"] for one in found] == ["job-0", "job-1", "job-2"]
    assert found[0]["times"] == [1_770_013_800_000]  # 07:30 in Berlin
    assert found[1]["times"] == [FROM_MS + day * DAY_MS for day in range(1, 8)]
    assert found[2]["times"] == [1_770_112_800_000]


async def test_preview_cuts_many_times_and_says_so(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        [one] = await preview(it, every(60_000), limit=5)
        many = await preview(it, *[every(1_000)] * 50, limit=1_000)
    assert (len(one["times"]), one["truncated"]) == (5, True)
    assert sum(len(each["times"]) for each in many) == 5_000
    assert all(each["truncated"] for each in many)


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ({"kind": "cron", "expr": "99 * * * *"}, "99"),
        ({"kind": "cron", "expr": "0 0 * * *", "tz": "Mars/Base"}, "time zone"),
        ({"kind": "cron", "expr": "0 0 30 2 *"}, "never"),
        ({"kind": "at", "at": "soon"}, "not understood"),
        ({"kind": "every", "everyMs": 0}, "too short"),
        ({"kind": "moon"}, "no known kind"),
    ],
)
async def test_preview_of_wrong_schedule_is_an_error_of_that_schedule(
    schedule: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    async with run(tmp_path) as it:
        wrong, right = await preview(it, schedule, every(DAY_MS))
    assert problem in wrong["error"]
    assert wrong["times"] == []
    assert right["times"]


@pytest.mark.parametrize("to_ms", [FROM_MS, FROM_MS - 1, FROM_MS + 401 * DAY_MS])
async def test_preview_of_wrong_period_is_refused(to_ms: int, tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match="at toMs"):
            await preview(it, every(DAY_MS), toMs=to_ms)
