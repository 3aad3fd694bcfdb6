"""Which conversations are answered."""

from typing import Any

import pytest

from homarus.config.schema import SendPolicy
from homarus.sessions.send_policy import send_policy

GROUP = "agent:main:telegram:group:1"


def rules(*given: dict[str, Any], default: str = "allow") -> SendPolicy:
    return SendPolicy.model_validate({"default": default, "rules": list(given)})


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
def test_a_rule_is_about_what_it_says(match: dict[str, str], is_about: bool) -> None:
    found = send_policy(rules(deny(**match)), GROUP)
    assert found == ("deny" if is_about else "allow")


def test_who_denies_wins_whatever_the_order() -> None:
    given = [allow(channel="telegram"), deny(chatType="group")]
    assert send_policy(rules(*given), GROUP) == "deny"
    assert send_policy(rules(*reversed(given)), GROUP) == "deny"
    assert send_policy(rules(*given, default="deny"), "agent:main:telegram:direct:1") == "allow"
    assert send_policy(rules(*given, default="deny"), "agent:main:main") == "deny"


def test_the_entry_of_a_session_says_more_than_any_rule() -> None:
    assert send_policy(rules(deny()), GROUP, {"sendPolicy": "allow"}) == "allow"
    assert send_policy(rules(deny()), GROUP, {"sendPolicy": ["allow"]}) == "deny"


def test_an_entry_tells_where_a_session_is_when_its_key_does_not() -> None:
    entry = {"lastChannel": "discord", "chatType": "direct"}
    assert send_policy(rules(deny(channel="discord")), "agent:main:main", entry) == "deny"
    found = send_policy(
        rules(deny(channel="discord")), "agent:main:main", entry, channel="telegram"
    )
    assert found == "allow"
