"""Which conversations have a memory to search. Pure.

What a conversation then finds is another matter: its view is its own, whatever stands here.
"""

from typing import TYPE_CHECKING

from homarus.core.keys import chat_type_in
from homarus.policy.conversation import judge

if TYPE_CHECKING:  # who has nothing configured does not load what it could be
    from homarus.config.memory import Scope


def may_search(scope: "Scope | None", key: str, channel: str = "", chat_type: str = "") -> bool:
    """Whether memory is searched in a conversation; without a scope, in direct chats only."""
    if scope is None:
        return (chat_type or chat_type_in(key)) in {"direct", "dm"}
    found = judge(scope.rules, scope.default, key, channel=channel.lower(), chat_type=chat_type)
    return found == "allow"
