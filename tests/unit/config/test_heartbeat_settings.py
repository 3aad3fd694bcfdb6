"""The heartbeat of an agent, from the config."""

from typing import Any

import pytest
from pydantic import ValidationError

from homarus.config.heartbeat_settings import (
    HeartbeatVisibility,
    heartbeat_agent_ids,
    resolve_heartbeat,
    resolve_visibility,
)
from homarus.config.schema import Config

_MINUTE_MS = 60_000


def config(heartbeat: Any = None, agents: Any = (), channels: Any = None) -> Config:
    defaults = {"userTimezone": "Asia/Tokyo", "heartbeat": heartbeat or {}}
    tree = {"agents": {"defaults": defaults, "list": list(agents)}, "channels": channels or {}}
    return Config.model_validate(tree)


def test_heartbeat_is_on_by_default_for_the_default_agent() -> None:
    found = resolve_heartbeat(config(), "main")
    assert (found.is_enabled, found.every, found.every_ms) == (True, "30m", 30 * _MINUTE_MS)
    assert (found.target, found.ack_max_chars, found.direct_policy) == ("last", 30, "allow")
    two = config(agents=[{"id": "a"}, {"id": "b", "default": True}])
    assert heartbeat_agent_ids(two) == ("b",)
    assert not resolve_heartbeat(two, "a").is_enabled


def test_agents_with_a_section_are_the_only_ones() -> None:
    agents = [{"id": "a", "default": True}, {"id": "b", "heartbeat": {"every": "5m"}}]
    found = config({"every": "1h", "prompt": "Look.", "ackMaxChars": 7}, agents)
    assert heartbeat_agent_ids(found) == ("b",)
    assert not resolve_heartbeat(found, "a").is_enabled
    own = resolve_heartbeat(found, "b")
    assert (own.every_ms, own.prompt, own.ack_max_chars) == (5 * _MINUTE_MS, "Look.", 7)


@pytest.mark.parametrize("off", [{"enabled": False}, {"every": "0m"}, {"every": "0"}])
def test_heartbeat_that_is_off_has_no_interval(off: dict[str, Any]) -> None:
    found = resolve_heartbeat(config(off), "main")
    assert (found.is_enabled, found.every) == (False, "disabled")


@pytest.mark.parametrize(
    ("hours", "start", "end", "zone"),
    [
        ({"start": "08:00", "end": "24:00"}, "08:00", "24:00", "Asia/Tokyo"),
        ({"start": "08:00"}, "08:00", "24:00", "Asia/Tokyo"),
        ({"end": "22:00", "timezone": "user"}, "00:00", "22:00", "Asia/Tokyo"),
        ({"start": "22:00", "end": "06:00", "timezone": "UTC"}, "22:00", "06:00", "UTC"),
        ({"start": "22:00", "end": "06:00", "timezone": "local"}, "22:00", "06:00", ""),
    ],
)
def test_active_hours_have_a_zone_and_both_ends(
    hours: dict[str, str], start: str, end: str, zone: str
) -> None:
    found = resolve_heartbeat(config({"activeHours": hours}), "main")
    assert (found.start, found.end, found.zone) == (start, end, zone)


@pytest.mark.parametrize(
    "wrong",
    [
        {"activeHours": {"start": "8"}},
        {"activeHours": {"end": "25:00"}},
        {"activeHours": {"timezone": "Berlin"}},
        {"every": "often"},
        {"ackMaxChars": -1},
        {"directPolicy": "maybe"},
        {"unknown": 1},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(wrong)


def test_visibility_is_merged_field_by_field() -> None:
    channels = {
        "defaults": {"heartbeat": {"showOk": True, "useIndicator": False}},
        "telegram": {
            "heartbeat": {"showAlerts": False},
            "accounts": {"Work": {"heartbeat": {"showOk": False}}},
        },
        "irc": {"host": "irc.example", "nick": "bot"},
    }
    found = config(channels=channels)
    assert resolve_visibility(found, "") == HeartbeatVisibility(True, True, False)
    assert resolve_visibility(found, "irc", "default") == HeartbeatVisibility(True, True, False)
    assert resolve_visibility(found, "telegram", "work") == HeartbeatVisibility(False, False, False)
    assert resolve_visibility(config(), "telegram") == HeartbeatVisibility()
