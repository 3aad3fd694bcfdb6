"""Reset policies, freshness and triggers."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.schema import ResetConfig, SessionConfig
from homarus.sessions.reset import (
    ResetPolicy,
    freshness,
    is_fresh,
    is_stale,
    last_daily_reset_ms,
    reset_policy,
    reset_type,
    resolve_reset_policy,
    text_after_trigger,
)
from homarus.store.base import SessionRecord

DAY_MS = 86_400_000
times_ms = st.integers(min_value=946_684_800_000, max_value=4_102_444_800_000)
policies = st.builds(
    ResetPolicy,
    st.sampled_from(["daily", "idle"]),
    st.integers(0, 23),
    st.none() | st.integers(1, 100_000),
)


def record(key: str = "agent:main:main", at_ms: int = 0, **data: Any) -> SessionRecord:
    return SessionRecord(key, "main", "id", at_ms, data, version=1)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@given(times_ms, st.integers(0, 23), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]))
def test_last_daily_reset_is_at_hour_within_last_day(now_ms: int, hour: int, name: str) -> None:
    zone = ZoneInfo(name)
    began_ms = last_daily_reset_ms(now_ms, hour, zone)
    assert 0 <= now_ms - began_ms <= DAY_MS + 3_600_000  # a day of 25 hours is one, too
    began = datetime.fromtimestamp(began_ms / 1000, zone)
    skipped = began.replace(tzinfo=None) + timedelta(hours=-1)
    assert hour in {began.hour, skipped.hour} and (began.minute, began.second) == (0, 0)


@given(times_ms, policies)
def test_freshness_just_used_is_fresh(now_ms: int, policy: ResetPolicy) -> None:
    assert freshness(now_ms, now_ms, policy, UTC).is_fresh


@given(times_ms, st.integers(0, 3 * DAY_MS), st.integers(0, 3 * DAY_MS), policies)
def test_freshness_once_stale_never_becomes_fresh(
    used_ms: int, wait_ms: int, more_ms: int, policy: ResetPolicy
) -> None:
    if not freshness(used_ms, used_ms + wait_ms, policy, UTC).is_fresh:
        assert not freshness(used_ms, used_ms + wait_ms + more_ms, policy, UTC).is_fresh


def test_staleness_of_new_cron_and_subagent_is_false() -> None:
    policy, now_ms = ResetPolicy("idle", 4, 1), at("2027-01-15T12:00")
    assert is_stale(record(), now_ms, policy)
    assert not is_stale(SessionRecord("agent:main:main", "main", "id", 0), now_ms, policy)
    for key in ("agent:main:cron:job", "agent:main:subagent:1"):
        assert not is_stale(record(key), now_ms, policy)


@pytest.mark.parametrize(
    ("key", "data", "channel", "minutes"),
    [
        ("agent:main:main", {}, "webchat", 10),
        ("agent:main:main", {}, " Telegram ", 50),
        ("agent:main:telegram:group:1", {}, "other", 20),
        ("agent:main:main", {"chatType": "channel"}, "other", 20),
        ("agent:main:telegram:group:1:topic:2", {}, "other", 30),
        ("agent:main:slack:channel:c:thread:1", {"chatType": 5}, "", 30),
        ("agent:main:telegram:group:1:topic:2", {}, "telegram", 50),
    ],
)
def test_reset_policy_channel_overrides_kind_and_general(
    key: str, data: dict[str, Any], channel: str, minutes: int
) -> None:
    config = SessionConfig.model_validate(
        {
            "reset": {"mode": "idle", "idleMinutes": 99},
            "resetByType": {
                "dm": {"idleMinutes": 10},
                "group": {"idleMinutes": 20},
                "thread": {"idleMinutes": 30},
            },
            "resetByChannel": {"telegram": {"mode": "idle", "idleMinutes": 50}},
        }
    )
    assert resolve_reset_policy(config, record(key, **data), channel).idle_minutes == minutes


def test_reset_policy_default_is_daily_at_four() -> None:
    assert resolve_reset_policy(SessionConfig(), record()) == ResetPolicy("daily", 4, None)
    legacy = SessionConfig.model_validate({"idleMinutes": 5})
    assert resolve_reset_policy(legacy, record()) == ResetPolicy("idle", 4, 5)
    assert is_fresh(legacy, record(at_ms=1_000), "webchat", 301_000)
    assert not is_fresh(legacy, record(at_ms=1_000), "webchat", 301_001)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("/new", ""),
        ("  /NEW  ", ""),
        ("/new hello there", "hello there"),
        ("/new\nhello", "hello"),
        ("/newer", None),
        ("say /new", None),
        ("start over now", "now"),
        ("", None),
        ("/", None),
    ],
)
def test_text_after_trigger_is_returned(text: str, rest: str | None) -> None:
    assert text_after_trigger(text, ["", "  ", "/new", "start over"]) == rest


def test_reset_type_is_derived_from_key() -> None:
    assert reset_type("agent:main:telegram:direct:1") == "direct"
    assert reset_type("AGENT:main:Telegram:GROUP:1") == "group"
    assert reset_type("agent:main:slack:channel:c:THREAD:1") == "thread"
    assert reset_type(None) == "direct"


def test_reset_type_named_by_caller_wins_over_key() -> None:
    assert reset_type("agent:main:main", is_group=True) == "group"
    assert reset_type(None, is_group=True, is_thread=True) == "thread"


def test_reset_policy_of_channel_ignores_the_general_one() -> None:
    config = SessionConfig.model_validate(
        {
            "reset": {"mode": "daily", "atHour": 9, "idleMinutes": 5},
            "resetByChannel": {"telegram": {"mode": "idle"}},
        }
    )
    assert resolve_reset_policy(config, record(), "telegram") == ResetPolicy("idle", 4, 60)


@pytest.mark.parametrize(("hour", "used"), [(-1, 0), (25, 23), (4.5, 4)])
def test_daily_reset_at_an_invalid_hour_uses_a_valid_one(hour: Any, used: int) -> None:
    now_ms = 1_771_329_600_000
    assert last_daily_reset_ms(now_ms, hour, UTC) == last_daily_reset_ms(now_ms, used, UTC)
    rule = ResetConfig.model_construct(mode="daily", at_hour=hour)
    assert reset_policy(SessionConfig.model_construct(reset=rule), "direct").at_hour == used
