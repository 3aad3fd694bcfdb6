"""Where a session was last spoken to: the fields of its record that say so. Pure.

They decide where an answer goes that nobody asked for just now, and what the config says of the
conversation. A run that a program asked for, or a person at this machine's terminal, came by no way
that leads back: it leaves them alone. So does a page that shows the conversation of a group: that
stays the group's.
"""

from collections.abc import Mapping
from typing import Final

from homarus.core.keys import parse_agent_key
from homarus.core.message import Address, Json

# Ways in that no answer can be sent back by.
_NO_WAY_BACK: Final = frozenset({"agent", "cli", "wake"})
_WEBCHAT: Final = "webchat"  # reads the session itself: it has no address


def route_fields(entry: Mapping[str, Json], came_by: Address, *, key: str = "") -> dict[str, Json]:
    """What a message that came this way changes in a session's record."""
    if came_by.channel in _NO_WAY_BACK or not came_by.chat:
        return {}
    if came_by.channel == _WEBCHAT and entry.get("lastTo") and _is_of_group(key):
        return {}
    channel, to = came_by.channel, None if came_by.channel == _WEBCHAT else came_by.chat
    account = came_by.account if to and came_by.account != "default" else None
    where = {"to": to, "accountId": account, "threadId": came_by.thread}
    known = {name: value for name, value in where.items() if value is not None}
    before, kind = entry.get("origin"), entry.get("chatType")
    if not isinstance(before, dict) or before.get("provider") != channel:
        before = {}  # else it has a label or a sender to keep
    return {
        "origin": {
            **before,
            "provider": channel,
            "surface": channel,
            **({"chatType": kind} if isinstance(kind, str) else {}),
            **known,
        },
        "deliveryContext": {"channel": channel, **known},
        "lastChannel": channel,
        "lastTo": to,
        "lastAccountId": account,
        "lastThreadId": came_by.thread,
    }


def last_chat(entry: Mapping[str, Json]) -> Address:
    """Where a session was last spoken to, by its record."""
    channel, chat, account, thread = (
        value if isinstance(value := entry.get(name), str) else ""
        for name in ("lastChannel", "lastTo", "lastAccountId", "lastThreadId")
    )
    return Address(channel, chat, account or "default", thread or None)


def _is_of_group(key: str) -> bool:
    parsed = parse_agent_key(key)
    return parsed is not None and bool({"group", "channel"} & {*parsed.rest.split(":")})
