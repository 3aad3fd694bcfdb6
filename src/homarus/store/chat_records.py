"""What is remembered of a chat between its messages, in the journal.

Such a record is a line of a group that nobody answered, the turns of a chat that may be a loop, or
a reaction that is removed later. It is written in the transaction that moves the channel's cursor,
so that it costs no commit of its own, and a kill loses none that the service was told we have.
"""

import json
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Json

ChatRecordKind: TypeAlias = Literal["history", "turns", "ack"]
# Kind, chat, id, time and JSON; None for a record that is deleted.
ChatRow: TypeAlias = tuple[str, str, str, int, str | None]

MAX_CHAT_RECORDS: Final = 20_000  # the oldest are deleted when the journal is pruned


@dataclass(frozen=True, slots=True)
class ChatRecord:
    """One thing to remember of a chat; `chat` is the key of the chat, or of its account.

    Putting a record replaces the one with the same kind, chat and id, and makes it the newest.
    Without data it is deleted.
    """

    kind: ChatRecordKind
    chat: str
    id: str
    at_ms: int = 0
    data: Mapping[str, Json] | None = None


def chat_key(address: Address, *more: str) -> str:
    """Return the key of a chat in its records."""
    thread = address.thread or ""
    return json.dumps([address.channel, address.account, address.chat, thread, *more])
