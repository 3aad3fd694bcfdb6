"""What the config tells an agent about one chat: words of its group and topic, reactions. Pure."""

from collections.abc import Mapping
from typing import Final, Literal

from homarus.core.message import Address, Json
from homarus.core.value import dataclass


@dataclass(frozen=True, slots=True)
class Chat:
    """What a prompt says about the chat it is for."""

    told: str = ""
    reactions: Literal["", "minimal", "extensive"] = ""


NO_CHAT: Final = Chat()


def chat_of(channels: Mapping[str, Json], here: Address) -> Chat:
    """What is set for a chat; what holds for all groups is under `*`."""
    if here.channel not in channels:
        return NO_CHAT
    from homarus.config.channels import merged  # for who has channels

    section = merged(channels, here.channel, here.account)
    group = _either(section.get("groups"), here.chat)
    topic = _either(group.get("topics"), here.thread or "") if here.thread else {}
    told = [text for part in (group, topic) if isinstance(text := part.get("systemPrompt"), str)]
    level = section.get("reactionLevel")
    return Chat(
        "\n\n".join(text.strip() for text in told if text.strip()),
        level if level in ("minimal", "extensive") else "",
    )


def last_chat(entry: Mapping[str, Json]) -> Address:
    """Where a session was last spoken to, by its record."""
    channel, chat, account, thread = (
        value if isinstance(value := entry.get(name), str) else ""
        for name in ("lastChannel", "lastTo", "lastAccountId", "lastThreadId")
    )
    return Address(channel, chat, account or "default", thread or None)


def _either(found: Json, name: str) -> Mapping[str, Json]:
    """The settings under a name, else those for all."""
    if not isinstance(found, Mapping):
        return {}
    own = found.get(name, found.get("*"))
    return own if isinstance(own, Mapping) else {}
