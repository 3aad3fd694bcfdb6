"""The last route of a session: the fields of its record with channel and chat. Pure.

They decide where a message goes that answers no other, and which rules of the config apply. A
run of a program or of a terminal leaves them as they are, because nothing can be sent back there.
So does a web page that shows the session of a group: the route stays the group's. As in OpenClaw, a
message from a web page replaces the channel alone: the account and the chat stay, and the chat is
then written with its channel (`telegram:42`), so that an answer can still be delivered there.
"""

import re
from collections.abc import Mapping
from typing import Final

from homarus.core.message import HEARTBEAT_CHANNEL, Address, Json
from homarus.core.session_keys import parse_agent_key

# Channels that no later message can be sent to.
_NO_ROUTE: Final = frozenset({"agent", "cli", "wake", HEARTBEAT_CHANNEL})
_KIND: Final = re.compile(r"^(?:user|dm|direct|group|channel|room|chat):")
_WEBCHAT: Final = "webchat"  # its clients read the transcript: it has no address


def route_fields(entry: Mapping[str, Json], address: Address, *, key: str = "") -> dict[str, Json]:
    """Return the fields of a session's record that a message from this address changes.

    An address without a chat is that of a program: it changes none.
    """
    if address.channel in _NO_ROUTE or not address.chat:
        return {}
    if address.channel == _WEBCHAT and entry.get("lastTo") and is_group_key(key):
        return {}
    channel, to, account = address.channel, entry.get("lastTo"), entry.get("lastAccountId")
    last, own = entry.get("lastChannel"), dict[str, Json]()
    if channel == _WEBCHAT:
        if isinstance(to, str) and isinstance(last, str) and last != _WEBCHAT:
            to = f"{last}:{to.removeprefix(f'{last}:')}"
    else:
        is_same = last == channel and _chat_of(channel, to) == address.chat
        to, account = to if is_same else address.chat, address.account
        own = {"to": to, "accountId": account}
    to, account = (value if isinstance(value, str) else None for value in (to, account))
    fields = {"to": to, "accountId": account, "threadId": address.thread}
    fields_set = {name: value for name, value in fields.items() if value is not None}
    before, kind = entry.get("origin"), entry.get("chatType")
    if not isinstance(before, dict) or before.get("provider") != channel:
        before = {}  # else it has a label or a sender to keep
    return {
        "origin": {
            **before,
            "provider": channel,
            "surface": channel,
            **({"chatType": kind} if isinstance(kind, str) else {}),
            **own,
            **({"threadId": address.thread} if address.thread is not None else {}),
        },
        "deliveryContext": {"channel": channel, **fields_set},
        "lastChannel": channel,
        "lastTo": to,
        "lastAccountId": account,
        "lastThreadId": address.thread,
    }


def last_address(entry: Mapping[str, Json]) -> Address:
    """Return the address of a session's last message, by its record; a web page has no chat."""
    channel, chat, account, thread = (
        value if isinstance(value := entry.get(name), str) else ""
        for name in ("lastChannel", "lastTo", "lastAccountId", "lastThreadId")
    )
    chat = "" if channel == _WEBCHAT else _chat_of(channel, chat)
    return Address(channel, chat, account or "default", thread or None)


def last_chat(entry: Mapping[str, Json]) -> Address:
    """Return the last chat of a session that a message could be sent to.

    That is the chat of its last message, or of the last one before those from a web page.
    """
    last, to = last_address(entry), entry.get("lastTo")
    if last.channel != _WEBCHAT or not isinstance(to, str):
        return last
    channel, colon, _ = to.partition(":")
    return Address(channel, _chat_of(channel, to), last.account) if colon else last


def _chat_of(channel: str, to: Json) -> str:
    """Return the chat of `lastTo`, which OpenClaw writes with its channel: `telegram:42`."""
    chat = to if isinstance(to, str) else ""
    return _KIND.sub("", chat.removeprefix(f"{channel}:"), count=1)


def is_group_key(key: str) -> bool:
    """Return whether a session is that of a group or a channel."""
    parsed = parse_agent_key(key)
    return parsed is not None and bool({"group", "channel"} & {*parsed.rest.split(":")})
