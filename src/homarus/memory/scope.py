"""Decide in which sessions memory can be searched. Pure.

What a search then finds depends on the session's view.
"""

from typing import TYPE_CHECKING

from homarus.core.keys import chat_type_in
from homarus.policy.conversation import judge

if TYPE_CHECKING:  # not imported where it is not configured
    from homarus.config.memory import Scope


def may_search(scope: "Scope | None", key: str, channel: str = "", chat_type: str = "") -> bool:
    """Return whether a session can search memory; without a scope, only direct chats can."""
    if scope is None:
        return (chat_type or chat_type_in(key)) in {"direct", "dm"}
    found = judge(scope.rules, scope.default, key, channel=channel.lower(), chat_type=chat_type)
    return found == "allow"
