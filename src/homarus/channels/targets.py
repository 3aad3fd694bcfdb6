"""Parse targets: how people and models write the chat that a message is for.

123456789    telegram:123456789    group:-1001    -1001:topic:7    #room    @ann:example.org

The kind is part of the chat where the service needs it (`ChannelTraits.target_kinds`): `user:123`.
"""

import re
from collections.abc import Collection
from typing import Final

from homarus.core.errors import UserError
from homarus.core.text import one_line

MAX_CHARS: Final = 512
_KIND: Final = re.compile(r"(?:user|dm|direct|group|channel|room|chat):", re.IGNORECASE)
_THREAD: Final = re.compile(r"(.+?):(?:topic|thread):([^:\s]+)")


def parse_target(channel: str, text: str, kinds: Collection[str] = ()) -> tuple[str, str | None]:
    """Return chat and thread of a target. Raises UserError when it names no chat.

    Prefixes that are in `kinds` are kept, in lower case.
    """
    chat = text.strip()
    if chat.lower().startswith(f"{channel}:"):
        chat = chat[len(channel) + 1 :]
    kept = ""
    if kind := _KIND.match(chat):
        chat = chat[kind.end() :]
        kept = kind[0].lower() if kind[0].lower()[:-1] in kinds else ""
    thread = None
    if found := _THREAD.fullmatch(chat):
        chat, thread = found[1], found[2]
    chat = chat.strip()
    chat = f"{kept}{chat}" if chat else ""
    if not chat or len(chat) > MAX_CHARS or not chat.isprintable():
        raise UserError(
            f"{one_line(text, 40)!r} names no chat of {channel}",
            fix="write the id of a person or a group, for example from `homarus sessions`",
        )
    return chat, thread
