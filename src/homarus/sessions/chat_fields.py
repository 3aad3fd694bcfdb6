"""The fields of a session's record that describe its chat: group, names, sender. Pure.

    chat_fields(entry, inbound, key)   # {"subject": "Family", "groupId": "-100", …, "origin": {…}}

The service reports these names, and their users choose them: they are for display alone. Each
message of the chat brings them up to date. Messages of the gateway's own clients have none.
"""

import re
from collections.abc import Mapping
from typing import Final

from homarus.core.message import NO_OUTBOX_CHANNELS, Address, Inbound, Json
from homarus.core.session_keys import channel_of, parse_agent_key
from homarus.core.text import one_line
from homarus.sessions.envelope import MULTIPLE_SENDERS
from homarus.sessions.last_route import is_group_key

_MAX_CHARS: Final = 200
_UNNAMEABLE: Final = re.compile(r"[^\w#@.+-]+")
_DASHES: Final = re.compile(r"-{2,}")
_GROUP_FIELDS: Final = ("subject", "groupChannel", "space")


def chat_fields(entry: Mapping[str, Json], inbound: Inbound, key: str) -> dict[str, Json]:
    """Return the fields of a session's record that a message of its chat changes.

    `entry` has the route of the message already (`last_route.route_fields`). A message of a group
    in a session that is no group's describes its sender alone.
    """
    channel, metadata = inbound.address.channel, inbound.metadata
    if channel in NO_OUTBOX_CHANNELS or not inbound.address.chat:
        return {}
    fields: dict[str, Json] = {}
    is_group = metadata.kind != "direct" and is_group_key(key)
    if is_group:
        fields = _group_fields(entry, inbound, key)
        label, sender = _group_label(inbound), f"{channel}:group:{fields['groupId']}"
    else:
        label, sender = _sender_label(inbound), f"{channel}:{inbound.sender}"
        if channel_of(key) == channel:
            fields["channel"] = channel
    origin = entry.get("origin")
    if isinstance(origin, dict) and (is_group or inbound.sender != MULTIPLE_SENDERS):
        kind = fields.get("chatType") or entry.get("chatType") or metadata.kind
        fields["origin"] = {**origin, "label": label, "chatType": kind, "from": _clean(sender)}
    return fields


def named_group_fields(
    entry: Mapping[str, Json], channel: str, group_id: str, group_channel: str, space: str
) -> dict[str, Json]:
    """Return the fields that a client of the gateway names; a stored channel is not changed."""
    given = {"groupId": group_id, "groupChannel": group_channel, "space": space}
    fields: dict[str, Json] = {name: _clean(text) for name, text in given.items() if text.strip()}
    if channel.strip() and not entry.get("channel"):
        fields["channel"] = _clean(channel.strip().lower())
    return fields


def display_name(entry: Mapping[str, Json], key: str) -> str:
    """Return the name that a list shows for a session, "" when it has none.

    That is the stored one, else one made of the group's name, else the label of the session or of
    its sender.
    """
    if name := _text(entry, "displayName"):
        return name
    channel = _text(entry, "channel") or channel_of(key)
    if channel and is_group_key(key):
        return group_name(channel, entry, key)
    origin = entry.get("origin")
    return _text(entry, "label") or (_text(origin, "label") if isinstance(origin, dict) else "")


def session_name(entry: Mapping[str, Json], key: str) -> str:
    """Return a name for headings that stays the same while the session is used."""
    own = next((name for field in ("label", "subject") if (name := _text(entry, field))), "")
    parsed = parse_agent_key(key)
    return one_line(own or (parsed.rest if parsed else key), 80)


def group_name(channel: str, entry: Mapping[str, Json], group_id: str) -> str:
    """Return a group's name as OpenClaw writes it: `telegram:g-family`, `slack:acme#general`."""
    subject, group_channel, space = (_text(entry, name) for name in _GROUP_FIELDS)
    if group_channel and space:
        detail = f"{space}#{group_channel.removeprefix('#')}"
    else:
        detail = group_channel or subject or space
    name = _slug(detail) or _slug(_text(entry, "groupId") or group_id)
    if not group_channel:
        name = name.lstrip("#")
    if name and "#" not in name and not name.startswith(("@", "g-")):
        name = f"g-{name}"
    return f"{channel}:{name}" if name else channel


def _group_fields(entry: Mapping[str, Json], inbound: Inbound, key: str) -> dict[str, Json]:
    address, metadata = inbound.address, inbound.metadata
    fields: dict[str, Json] = {"channel": address.channel, "groupId": _group_id(address, key)}
    if not _text(entry, "chatType"):
        fields["chatType"] = metadata.kind
    title, space = _clean(metadata.title), _clean(metadata.guild or metadata.team)
    if title:
        # A group has one of both names: that of a channel starts with #.
        is_channel = metadata.kind == "channel" and title.startswith("#")
        fields |= {
            "subject": None if is_channel else title,
            "groupChannel": title if is_channel else None,
        }
    if space:
        fields["space"] = space
    named = {**entry, **fields}
    fields["displayName"] = group_name(address.channel, named, address.chat)
    return {name: value for name, value in fields.items() if value is not None or name in entry}


def _group_id(address: Address, key: str) -> str:
    """Return the id of a group; one of a topic that has a session of its own names the topic."""
    topic = f":topic:{address.thread}"
    return _clean(address.chat + topic if address.thread and key.endswith(topic) else address.chat)


def _group_label(inbound: Inbound) -> str:
    title, chat = _clean(inbound.metadata.title), _clean(inbound.address.chat)
    label = f"{title} id:{chat}" if title and title != chat else chat
    return f"{label} topic:{_clean(inbound.address.thread)}" if inbound.address.thread else label


def _sender_label(inbound: Inbound) -> str:
    name, handle = _clean(inbound.metadata.name), _clean(inbound.metadata.handle)
    sender = _clean(inbound.sender)
    if not name or name == sender:
        return sender
    shown = f"{name} (@{handle})" if handle and handle != name else name
    return f"{shown} id:{sender}"


def _slug(text: str) -> str:
    plain = _UNNAMEABLE.sub("-", text.strip().lower())
    return _DASHES.sub("-", plain).strip("-.")


def _clean(text: str) -> str:
    return one_line(text, _MAX_CHARS)


def _text(entry: Mapping[str, Json], name: str) -> str:
    value = entry.get(name)
    return value.strip() if isinstance(value, str) else ""
