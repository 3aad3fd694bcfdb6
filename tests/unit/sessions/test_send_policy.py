"""Resolve the send policy of a session."""

from typing import Any

import pytest

from homarus.config.schema import SendPolicyConfig
from homarus.sessions.send_policy import send_policy

GROUP = "agent:main:telegram:group:1"


def rules(*given: dict[str, Any], default: str = "allow") -> SendPolicyConfig:
    return SendPolicyConfig.model_validate({"default": default, "rules": list(given)})


def deny(**match: str) -> dict[str, Any]:
    return {"action": "deny", "match": match}


def allow(**match: str) -> dict[str, Any]:
    return {"action": "allow", "match": match}


@pytest.mark.parametrize(
    ("match", "is_about"),
    [
        ({}, True),
        ({"channel": "Telegram"}, True),
        ({"channel": "discord"}, False),
        ({"chatType": "group"}, True),
        ({"chatType": "dm"}, False),
        ({"keyPrefix": "telegram:"}, True),
        ({"keyPrefix": "agent:main:telegram"}, True),
        ({"rawKeyPrefix": "telegram:"}, False),
        ({"rawKeyPrefix": "AGENT:main"}, True),
        ({"channel": "telegram", "chatType": "direct"}, False),
    ],
)
def test_send_policy_rule_matches_its_fields(match: dict[str, str], is_about: bool) -> None:
    found = send_policy(rules(deny(**match)), GROUP)
    assert found == ("deny" if is_about else "allow")


def test_send_policy_deny_wins_in_any_order() -> None:
    given = [allow(channel="telegram"), deny(chatType="group")]
    assert send_policy(rules(*given), GROUP) == "deny"
    assert send_policy(rules(*reversed(given)), GROUP) == "deny"
    assert send_policy(rules(*given, default="deny"), "agent:main:telegram:direct:1") == "allow"
    assert send_policy(rules(*given, default="deny"), "agent:main:main") == "deny"


def test_send_policy_of_entry_overrides_rules() -> None:
    assert send_policy(rules(deny()), GROUP, {"sendPolicy": "allow"}) == "allow"
    assert send_policy(rules(deny()), GROUP, {"sendPolicy": ["allow"]}) == "deny"


def test_send_policy_uses_channel_of_entry() -> None:
    entry = {"lastChannel": "discord", "chatType": "direct"}
    assert send_policy(rules(deny(channel="discord")), "agent:main:main", entry) == "deny"
    found = send_policy(
        rules(deny(channel="discord")), "agent:main:main", entry, channel="telegram"
    )
    assert found == "allow"
