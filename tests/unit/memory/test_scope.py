"""Which conversations have a memory to search."""

from typing import Any

import pytest

from homarus.config.memory import MemoryConfig, MemoryScopeConfig
from homarus.memory.scope import is_search_allowed

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:7"
DIRECT = "agent:main:telegram:direct:1"
USUAL = MemoryConfig().qmd.scope


def scope(*rules: dict[str, Any], default: str = "deny") -> MemoryScopeConfig:
    return MemoryScopeConfig.model_validate({"default": default, "rules": list(rules)})


@pytest.mark.parametrize("given", [None, USUAL])
def test_scope_default_allows_direct_chats(given: MemoryScopeConfig | None) -> None:
    assert is_search_allowed(given, MAIN) and is_search_allowed(given, DIRECT)
    assert is_search_allowed(given, MAIN, chat_type="dm")
    for key in (GROUP, "agent:main:slack:channel:c1", f"{GROUP}:topic:2"):
        assert not is_search_allowed(given, key)
    assert not is_search_allowed(given, MAIN, chat_type="group")


def test_scope_deny_rule_wins_in_any_order() -> None:
    allow = {"action": "allow", "match": {"chatType": "group"}}
    deny = {"action": "deny", "match": {"keyPrefix": "telegram:group:7"}}
    for rules in ((allow, deny), (deny, allow)):
        assert not is_search_allowed(scope(*rules), GROUP)
        assert is_search_allowed(scope(*rules), "agent:main:telegram:group:8")
    assert not is_search_allowed(scope(allow), DIRECT)
    assert is_search_allowed(scope(default="allow"), GROUP)


def test_scope_rule_matches_channel_or_key() -> None:
    one = scope({"action": "allow", "match": {"channel": "Telegram", "chatType": "dm"}})
    assert is_search_allowed(one, DIRECT) and not is_search_allowed(one, GROUP)
    assert is_search_allowed(one, MAIN, channel="Telegram") and not is_search_allowed(
        one, MAIN, channel="irc"
    )
    raw = scope({"action": "allow", "match": {"rawKeyPrefix": "agent:main:telegram:"}})
    assert is_search_allowed(raw, DIRECT.upper()) and not is_search_allowed(
        raw, "agent:ops:telegram:direct:1"
    )
