"""Actions of operators in chats, which the tools of agents do not have."""

from typing import Final, Literal, TypeAlias, get_args

from homarus.core.fast_dataclass import dataclass

ChatActionName: TypeAlias = Literal[
    "ban", "channel-info", "channel-list", "kick", "member-info", "permissions", "pin", "pins",
    "reactions", "read", "role-add", "role-info", "role-remove", "search", "sticker-send",
    "thread-create", "thread-list", "timeout", "unpin",
]  # fmt: skip
CHAT_ACTIONS: Final[tuple[ChatActionName, ...]] = get_args(ChatActionName)


@dataclass(frozen=True, slots=True)
class ChatAction:
    """An action in a chat: its name, and what it is about.

    `user` is whom it concerns, `message_id` which message; `text` is a query, a name, a reason or
    words, `limit` how many results, `before` the message before which they are. `remove` undoes
    it. `key` is the same for a repetition.
    """

    name: ChatActionName
    message_id: str = ""
    user: str = ""
    text: str = ""
    before: str = ""
    limit: int = 20
    duration_s: int = 0
    remove: bool = False
    key: str = ""
