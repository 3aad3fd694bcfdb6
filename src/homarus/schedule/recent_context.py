"""The last messages of a conversation, for a reminder that was created in it."""

from typing import Final

from homarus.config.redaction import redact
from homarus.core.envelope import strip_envelope
from homarus.core.message import Message
from homarus.core.text import one_line
from homarus.sessions.transcript import EntryTree, decode_message
from homarus.store.base import Store

MAX_MESSAGES: Final = 10
_MAX_MESSAGE_CHARS: Final = 220
_MAX_CHARS: Final = 700
_ENTRIES_PER_MESSAGE: Final = 6  # a turn has calls and results next to its texts
_NAMES: Final = {"user": "User", "assistant": "Assistant"}


async def read_recent_context(store: Store, session_key: str, count: int) -> str:
    """Return the last messages as lines, oldest first; "" if there are none.

    What does not fit is left out, oldest first.
    """
    record = await store.session(session_key) if count > 0 else None
    if record is None:
        return ""
    count = min(count, MAX_MESSAGES)
    entries = await store.entries(
        record.session_id, limit=count * _ENTRIES_PER_MESSAGE, newest=True
    )
    path = EntryTree(entries, await store.leaf(record.session_id)).path()
    messages = [message for entry in path if (message := decode_message(entry))]
    lines = [line for message in messages if (line := _line(message))][-count:]
    while lines and sum(map(len, lines)) > _MAX_CHARS:
        lines.pop(0)
    return "\n".join(lines)


def _line(message: Message) -> str:
    name = _NAMES.get(message.role)
    text = strip_envelope(message.text) if message.role == "user" else message.text
    if not name or not text.strip():
        return ""
    return f"- {name}: {one_line(redact(text.strip()), _MAX_MESSAGE_CHARS)}"
