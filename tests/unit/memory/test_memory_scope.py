"""Which conversations have a memory to search."""

from typing import Any

import pytest

from homarus.config.memory import MemorySettings, Scope
from homarus.memory.scope import may_search

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:7"
DIRECT = "agent:main:telegram:direct:1"
USUAL = MemorySettings().qmd.scope


def scope(*rules: dict[str, Any], default: str = "deny") -> Scope:
    return Scope.model_validate({"default": default, "rules": list(rules)})


@pytest.mark.parametrize("given", [None, USUAL])
def test_scope_default_allows_direct_chats(given: Scope | None) -> None:
    assert may_search(given, MAIN) and may_search(given, DIRECT)
    assert may_search(given, MAIN, chat_type="dm")
    for key in (GROUP, "agent:main:slack:channel:c1", f"{GROUP}:topic:2"):
        assert not may_search(given, key)
    assert not may_search(given, MAIN, chat_type="group")


def test_scope_deny_rule_wins_in_any_order() -> None:
    allow = {"action": "allow", "match": {"chatType": "group"}}
    deny = {"action": "deny", "match": {"keyPrefix": "telegram:group:7"}}
    for rules in ((allow, deny), (deny, allow)):
        assert not may_search(scope(*rules), GROUP)
        assert may_search(scope(*rules), "agent:main:telegram:group:8")
    assert not may_search(scope(allow), DIRECT)
    assert may_search(scope(default="allow"), GROUP)


def test_scope_rule_matches_channel_or_key() -> None:
    one = scope({"action": "allow", "match": {"channel": "Telegram", "chatType": "dm"}})
    assert may_search(one, DIRECT) and not may_search(one, GROUP)
    assert may_search(one, MAIN, channel="Telegram") and not may_search(one, MAIN, channel="irc")
    raw = scope({"action": "allow", "match": {"rawKeyPrefix": "agent:main:telegram:"}})
    assert may_search(raw, DIRECT.upper()) and not may_search(raw, "agent:ops:telegram:direct:1")
