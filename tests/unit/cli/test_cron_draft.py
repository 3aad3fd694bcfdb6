"""The options of `homarus cron add` and `edit` as jobs and patches."""

from typing import Any

import pytest

from homarus.cli.cron_draft import make_draft, make_patch, parse_at
from homarus.cli.cron_options import job_options
from homarus.core.errors import UserError
from homarus.core.message import Json

NOW_MS = 1_795_000_000_000  # 2026-11-18T11:06:40Z


def options(**given: Any) -> dict[str, Any]:
    """Return the options of a command line: those that are not given are None."""

    @job_options
    def command() -> None: ...

    params = {option.name: None for option in vars(command)["__click_params__"]}
    assert given.keys() <= {*params, "enabled", "clear_agent", "clear_session"}
    return {**params, "enabled": None, **given}


def draft(**given: Any) -> dict[str, Json]:
    return make_draft(options(**{"name": "n", **given}), NOW_MS)


def test_part_of_a_second_is_still_a_limit() -> None:
    assert draft(every="1h", message="m", timeout_s=0.3)["payload"]["timeoutSeconds"] == 1


def test_event_goes_to_the_main_session() -> None:
    assert draft(at="20m", system_event="Tea") == {
        "name": "n",
        "schedule": {"kind": "at", "at": "2026-11-18T11:26:40.000Z"},
        "sessionTarget": "main",
        "wakeMode": "now",
        "payload": {"kind": "systemEvent", "text": "Tea"},
        "enabled": True,
    }


def test_message_runs_isolated_with_all_options() -> None:
    found = draft(
        cron=" 0 8 * * 1-5 ", tz="Europe/Berlin", exact=True, message="News?", model="m/x",
        thinking="low", timeout_s=90.0, channel="telegram", to="42", account="work", thread="9",
        best_effort=True, agent="work", key="agent:work:main", description="d", keeps=True,
        enabled=False, wake="next-heartbeat", misfire="skip",
    )  # fmt: skip
    assert found == {
        "name": "n",
        "description": "d",
        "agentId": "work",
        "sessionKey": "agent:work:main",
        "deleteAfterRun": False,
        "misfire": {"policy": "skip"},
        "schedule": {
            "kind": "cron", "expr": "0 8 * * 1-5", "tz": "Europe/Berlin", "staggerMs": 0,
        },
        "sessionTarget": "isolated",
        "wakeMode": "next-heartbeat",
        "payload": {
            "kind": "agentTurn", "message": "News?", "model": "m/x", "thinking": "low",
            "timeoutSeconds": 90,
        },
        "delivery": {
            "mode": "announce", "channel": "telegram", "to": "42", "accountId": "work",
            "threadId": "9", "bestEffort": True,
        },
        "enabled": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "delivery"),
    [
        ({}, None),
        ({"announce": True}, {"mode": "announce"}),
        ({"no_deliver": True}, {"mode": "none"}),
        ({"webhook": "https://a.example"}, {"mode": "webhook", "to": "https://a.example"}),
    ],
)
def test_delivery_is_what_the_options_name(given: dict[str, Any], delivery: Json) -> None:
    found = draft(every="2h", message="m", stagger=None, **given)
    assert found.get("delivery") == delivery
    assert found["schedule"] == {"kind": "every", "everyMs": 7_200_000}


@pytest.mark.parametrize(
    ("text", "tz", "expected"),
    [
        ("2026-12-24T18:00:00+01:00", "", "2026-12-24T17:00:00.000Z"),
        ("2026-12-24T18:00:00", "", "2026-12-24T18:00:00.000Z"),
        ("2026-12-24T18:00:00", "Europe/Berlin", "2026-12-24T17:00:00.000Z"),
        ("2026-12-24T18:00:00Z", "Europe/Berlin", "2026-12-24T18:00:00.000Z"),
        ("2026-07-01", "America/New_York", "2026-07-01T04:00:00.000Z"),
        ("+2h", "", "2026-11-18T13:06:40.000Z"),
        ("1795000060000", "", "2026-11-18T11:07:40.000Z"),
    ],
)
def test_time_is_absolute_in_a_zone_or_from_now(text: str, tz: str, expected: str) -> None:
    assert parse_at(text, tz, NOW_MS) == expected


@pytest.mark.parametrize(
    ("given", "reason", "fix"),
    [
        ({"message": "m"}, "when the job runs", "--at or --every or --cron"),
        ({"at": "5m"}, "what the job does", "--system-event or --message"),
        ({"at": "5m", "every": "5m", "message": "m"}, "--at and --every", "one of them"),
        ({"at": "5m", "message": "m", "system_event": "e"}, "contradict", "one of them"),
        ({"name": None, "at": "5m", "message": "m"}, "no name", "--name"),
        ({"at": "soon", "message": "m"}, "'soon' is no time", "20m"),
        ({"at": "5m", "message": "m", "tz": "Europe/Berlinn"}, "Berlinn", "Europe/Berlin"),
        ({"every": "0s", "message": "m"}, "too short", "10m"),
        ({"every": "often", "message": "m"}, "--every: invalid duration", "5m"),
        ({"cron": "* * * * *", "stagger": "x", "message": "m"}, "--stagger", "5m"),
        ({"cron": "* * * * *", "stagger": "1m", "exact": True, "message": "m"}, "--exact", "one"),
        ({"at": "5m", "message": "m", "target": "main"}, "system event", "--session isolated"),
        ({"at": "5m", "system_event": "m", "target": "isolated"}, "message", "--session main"),
        ({"at": "5m", "system_event": "m", "announce": True}, "no answer", "--message"),
        ({"at": "5m", "message": "m", "announce": True, "no_deliver": True}, "contradict", "one"),
        ({"at": "5m", "message": "m", "deletes": True, "keeps": True}, "contradict", "one"),
    ],
)
def test_wrong_options_name_the_fix(given: dict[str, Any], reason: str, fix: str) -> None:
    with pytest.raises(UserError) as refused:
        draft(**given)
    assert reason in refused.value.message and fix in refused.value.fix


def patch(**given: Any) -> dict[str, Json]:
    return make_patch(options(**given), NOW_MS)


def test_patch_has_only_what_was_given() -> None:
    assert patch(name="x") == {"name": "x"}
    assert patch(enabled=False) == {"enabled": False}
    assert patch(every="1m") == {"schedule": {"kind": "every", "everyMs": 60_000}}
    assert patch(model="m/x") == {"payload": {"kind": "agentTurn", "model": "m/x"}}
    assert patch(best_effort=False) == {"delivery": {"mode": "announce", "bestEffort": False}}
    assert patch(clear_agent=True, clear_session=True) == {"agentId": None, "sessionKey": None}
    with pytest.raises(UserError, match="nothing was given"):
        patch()
    with pytest.raises(UserError, match="belong to a schedule"):
        patch(tz="UTC")
