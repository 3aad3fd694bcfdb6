"""Normalise the input of a cron job. What is expected was observed at OpenClaw's gateway."""

from typing import Any

import pytest

from homarus.schedule.job_input import normalize_job_create, normalize_job_patch

EVERY = {"everyMs": 60_000}


def create(**raw: Any) -> dict[str, Any]:
    found = normalize_job_create({"name": "x", "schedule": EVERY, **raw})
    assert found is not None
    return found


def test_job_wrapped_by_a_model_is_unwrapped() -> None:
    job = {"name": "w", "schedule": EVERY, "message": " do it "}
    for wrapped in ({"job": job}, {"data": job}, job):
        found = normalize_job_create(wrapped)
        assert found is not None
        assert found["payload"] == {"kind": "agentTurn", "message": "do it"}
        assert found["sessionTarget"] == "isolated"
        assert found["delivery"] == {"mode": "announce"}
        assert "message" not in found


def test_job_text_alone_is_a_system_event() -> None:
    found = create(text="hello", enabled="false")
    assert found["payload"] == {"kind": "systemEvent", "text": "hello"}
    assert (found["sessionTarget"], found["enabled"]) == ("main", False)
    assert "delivery" not in found


def test_job_fields_at_the_top_level_go_to_the_payload() -> None:
    found = create(message="m", model=" gpt ", timeoutSeconds=5, deliver=True, to="1")
    assert found["payload"] == {
        "kind": "agentTurn",
        "message": "m",
        "model": "gpt",
        "timeoutSeconds": 5,
    }
    assert found["delivery"] == {"mode": "announce", "to": "1"}
    assert not {"model", "timeoutSeconds", "deliver", "to"} & found.keys()


@pytest.mark.parametrize(
    ("old", "delivery", "rest"),
    [
        ({"deliver": False}, {"mode": "none"}, {}),
        (
            {"to": "7", "bestEffortDeliver": True},
            {"mode": "announce", "to": "7", "bestEffort": True},
            {},
        ),
        ({"channel": "telegram"}, {"mode": "announce"}, {"channel": "telegram"}),
        (
            {"deliver": True, "provider": "Slack"},
            {"mode": "announce", "channel": "slack"},
            {},
        ),
    ],
)
def test_job_old_delivery_fields_become_a_delivery(
    old: dict[str, Any], delivery: dict[str, Any], rest: dict[str, Any]
) -> None:
    found = create(payload={"message": "m", **old})
    assert found["delivery"] == delivery
    assert found["payload"] == {"kind": "agentTurn", "message": "m", **rest}


def test_job_number_of_a_chat_becomes_text() -> None:
    found = create(payload={"message": "m", "deliver": True, "to": -100123})
    assert found["delivery"] == {"mode": "announce", "to": "-100123"}


def test_job_full_hour_gets_the_default_stagger() -> None:
    schedule = {"kind": "cron", "expr": "0 * * * *"}
    assert create(schedule=schedule, text="t")["schedule"]["staggerMs"] == 300_000
    own = {**schedule, "staggerMs": "5000"}
    assert create(schedule=own, text="t")["schedule"]["staggerMs"] == 5_000
    exact = {**schedule, "staggerMs": 0}
    assert create(schedule=exact, text="t")["schedule"]["staggerMs"] == 0
    daily = {"kind": "cron", "expr": "0 9 * * *"}
    assert "staggerMs" not in create(schedule=daily, text="t")["schedule"]


def test_job_without_a_name_is_named_after_its_text() -> None:
    found = normalize_job_create({"schedule": EVERY, "message": "summarise\nthe news"})
    assert found is not None and found["name"] == "summarise"
    found = normalize_job_create({"schedule": EVERY, "name": " ", "message": "a" * 500})
    assert found is not None and len(found["name"]) <= 60
    found = normalize_job_create({"schedule": EVERY})
    assert found is not None and found["name"] == "Cron job"


def test_job_delete_after_run_is_kept_for_one_shots() -> None:
    at = {"at": "2027-01-01T10:00:00Z"}
    assert create(schedule=at, text="t")["deleteAfterRun"] is True
    assert create(schedule=at, text="t", deleteAfterRun=False)["deleteAfterRun"] is False


def test_job_patch_has_no_defaults_and_keeps_nulls() -> None:
    assert normalize_job_patch({"agentId": None, "sessionKey": None}) == {
        "agentId": None,
        "sessionKey": None,
    }
    assert normalize_job_patch({"agentId": " ", "wakeMode": "NOW"}) == {"wakeMode": "now"}
    patch = {"payload": {"kind": "agentTurn", "thinking": " high "}}
    assert normalize_job_patch(patch) == {"payload": {"kind": "agentTurn", "thinking": "high"}}


@pytest.mark.parametrize(
    "raw",
    [
        {"sessionTarget": "weird"},
        {"wakeMode": 5},
        {"enabled": "perhaps"},
        {"schedule": {"kind": "at", "at": "soon"}},
        {"schedule": {"kind": "moon"}},
        {"schedule": "0 9 * * *"},
        {"payload": "text"},
        {"payload": {"kind": "poem"}},
        {"payload": {"kind": ["agentTurn"]}, "schedule": {"kind": {}}},
        {"agentId": ["a"], "delivery": {"to": {"chat": 1}, "channel": []}},
        {"delivery": {"mode": "pigeon"}},
        {"delivery": "announce"},
    ],
)
def test_job_value_that_is_not_understood_stays_for_the_check(raw: dict[str, Any]) -> None:
    assert normalize_job_patch(raw) == raw
    created = normalize_job_create(raw)
    assert created is not None and created | raw == created


@pytest.mark.parametrize("raw", [None, "str", 5, [], [{}]])
def test_job_that_is_no_object_is_none(raw: object) -> None:
    assert normalize_job_create(raw) is None
    assert normalize_job_patch(raw) is None


def test_job_input_is_not_changed() -> None:
    raw = {"name": " n ", "schedule": {"atMs": 5}, "payload": {"message": " m ", "deliver": True}}
    normalize_job_create(raw)
    assert raw == {
        "name": " n ",
        "schedule": {"atMs": 5},
        "payload": {"message": " m ", "deliver": True},
    }
