"""Fields of a job that would have no effect are refused, with the closest name."""

from typing import Any

import pytest

from homarus.core.errors import UserError
from homarus.schedule.job_fields import check_job_fields

JOB = {
    "name": "n",
    "schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "UTC", "staggerMs": 0},
    "payload": {"kind": "agentTurn", "message": "m", "timeoutSeconds": 5, "toolsAllow": ["*"]},
    "delivery": {"mode": "announce", "channel": "last", "bestEffort": True},
    "misfire": {"policy": "skip"},
}


def test_known_fields_are_accepted() -> None:
    check_job_fields(JOB)
    check_job_fields({"enabled": False, "agentId": None})


@pytest.mark.parametrize(
    ("changed", "field", "fix"),
    [
        ({"scedule": {}}, "scedule", "did you mean schedule"),
        ({"payload": {"message": "m", "toolsAllow": ["read"]}}, "payload.toolsAllow", "leave it"),
        ({"delivery": {"chanel": "irc"}}, "delivery.chanel", "did you mean delivery.channel"),
        ({"schedule": {"every": 5}}, "schedule.every", "did you mean schedule.everyMs"),
        ({"trigger": {}}, "trigger", "leave it out"),
        ({"state": {"nextRunAtMs": 1}}, "state", "leave it out"),
    ],
)
def test_field_without_effect_is_refused(changed: dict[str, Any], field: str, fix: str) -> None:
    with pytest.raises(UserError, match=f"no field {field} ") as refused:
        check_job_fields({**JOB, **changed})
    assert fix in refused.value.fix
