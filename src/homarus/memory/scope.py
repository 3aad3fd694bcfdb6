"""Decide in which sessions memory can be searched. Pure.

What a search then finds depends on the session's view.
"""

from typing import TYPE_CHECKING

from homarus.core.session_keys import chat_type_of
from homarus.policy.session_rules import evaluate_rules

if TYPE_CHECKING:  # not imported where it is not configured
    from homarus.config.memory import MemoryScopeConfig


def is_search_allowed(
    scope: "MemoryScopeConfig | None", key: str, channel: str = "", chat_type: str = ""
) -> bool:
    """Return whether a session can search memory; without a scope, only direct chats can."""
    if scope is None:
        return (chat_type or chat_type_of(key)) in {"direct", "dm"}
    found = evaluate_rules(
        scope.rules, scope.default, key, channel=channel.lower(), chat_type=chat_type
    )
    return found == "allow"
