"""Where alerts go."""

from typing import Any

import pytest

from homarus.channels.registry import find_traits
from homarus.config.heartbeat_settings import HeartbeatSettings
from homarus.core.message import Address
from homarus.schedule.heartbeat_target import HeartbeatTarget, resolve_target

LAST = {
    "lastChannel": "telegram",
    "lastTo": "42",
    "lastAccountId": "work",
    "lastThreadId": "7",
    "chatType": "direct",
}
WEB = {**LAST, "lastChannel": "webchat", "lastTo": "telegram:42", "lastThreadId": None}
GROUP = {**LAST, "lastTo": "-100", "chatType": "group"}
ACCOUNTS = {("telegram", "work"), ("telegram", "default"), ("irc", "default")}


def resolve(entry: dict[str, Any], **settings: Any) -> HeartbeatTarget:
    return resolve_target(HeartbeatSettings("main", **settings), entry, ACCOUNTS, find_traits)


@pytest.mark.parametrize(
    ("entry", "settings", "address"),
    [
        (LAST, {}, Address("telegram", "42", "work", "7")),
        (WEB, {}, Address("telegram", "42", "work")),
        (LAST, {"target": "telegram"}, Address("telegram", "42", "work", "7")),
        (LAST, {"to": "99"}, Address("telegram", "99", "work")),
        (LAST, {"target": "irc", "to": "#room"}, Address("irc", "#room")),
        (LAST, {"target": "irc", "to": "irc:#room"}, Address("irc", "#room")),
        (LAST, {"account": "default"}, Address("telegram", "42", "default", "7")),
        (GROUP, {"direct_policy": "block"}, Address("telegram", "-100", "work", "7")),
    ],
)
def test_target_is_the_last_or_configured_chat(
    entry: dict[str, Any], settings: dict[str, Any], address: Address
) -> None:
    found = resolve(entry, **settings)
    assert (found.address, found.reason) == (address, "")
    assert found.deliver_to[:3] == (address.channel, address.chat, address.account)


@pytest.mark.parametrize(
    ("entry", "settings", "reason"),
    [
        ({}, {}, "no-target"),
        (LAST, {"target": "none"}, "no-target"),
        (LAST, {"target": "irc"}, "no-target"),
        ({"lastChannel": "webchat"}, {}, "no-target"),
        ({"lastChannel": "signal", "lastTo": "+1"}, {}, "no-target"),
        (LAST, {"account": "other"}, "unknown-account"),
        (LAST, {"target": "signal", "to": "+1"}, "unknown-account"),
        (LAST, {"direct_policy": "block"}, "dm-blocked"),
        (LAST, {"to": "99", "direct_policy": "block"}, "dm-blocked"),
    ],
)
def test_target_that_is_missing_has_a_reason(
    entry: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    found = resolve(entry, **settings)
    assert (found.address, found.reason, found.deliver_to) == (None, reason, ())
