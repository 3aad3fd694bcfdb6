"""Actions of operators in rooms of Matrix: reading, searching, pins, threads and moderation."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from html import escape
from typing import Final, TypeAlias

from homarus.channels.matrix.account import MatrixAccount
from homarus.channels.matrix.api import (
    CLIENT_V1,
    MatrixRefusedError,
    Object,
    get_int,
    get_object,
    get_objects,
    get_str,
)
from homarus.channels.matrix.content import text_content, transaction
from homarus.channels.matrix.events import ENCRYPTED, MESSAGE
from homarus.core.chat_action import ChatAction, ChatActionName
from homarus.core.errors import SendError
from homarus.core.message import Json

_PINNED: Final = "m.room.pinned_events"
_POWER: Final = "m.room.power_levels"
_ROLES: Final[Mapping[str, int]] = {"admin": 100, "moderator": 50}
_MAX_ROOMS: Final = 200
_MAX_PINS: Final = 50
_UNREADABLE: Final = "(encrypted: it cannot be read)"
_Run: TypeAlias = Callable[[MatrixAccount, str, ChatAction], Awaitable[dict[str, Json]]]


async def run_chat_action(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    """Do an action in a room. Raises SendError for one that Matrix does not have."""
    run = _ACTIONS.get(action.name)
    if run is None:
        raise SendError(f"Matrix has no {action.name}", retryable=False)
    result = await run(account, room, action)
    if account.crypto and action.name in {"ban", "kick"}:  # our own events are not in the sync
        account.crypto.forget_audience(room)
    return result


async def _read(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    query: dict[str, str | int] = {"dir": "b", "limit": action.limit}
    if action.before:
        around = await account.server.get(
            "rooms", room, "context", action.before, query={"limit": 0}
        )
        query["from"] = get_str(around, "start")
    found = await account.server.get("rooms", room, "messages", query=query)
    return {"messages": await _rows(account, room, get_objects(found, "chunk"))}


async def _search(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    if await account.is_encrypted(room):
        raise SendError(
            f"{room} is encrypted: its homeserver cannot search it", retryable=False,
            fix="read its newest messages",
        )  # fmt: skip
    events = {
        "search_term": action.text,
        "order_by": "recent",
        "filter": {"rooms": [room], "limit": action.limit},
    }
    answer = await account.server.post(
        "search", data={"search_categories": {"room_events": events}}
    )
    found = get_object(answer, "search_categories", "room_events")
    results = (get_object(one, "result") for one in get_objects(found, "results"))
    rows = await _rows(account, room, results)
    return {"messages": rows, "count": get_int(found, "count")}


async def _reactions(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    steps = ("rooms", room, "relations", action.message_id, "m.annotation", "m.reaction")
    answer = await account.server.get(*steps, base=CLIENT_V1, query={"limit": 100})
    users: dict[str, list[str]] = {}
    for event in get_objects(answer, "chunk"):
        emoji = get_str(get_object(event, "content", "m.relates_to"), "key")
        users.setdefault(emoji, []).append(get_str(event, "sender"))
    return {
        "reactions": [{"emoji": e, "count": len(who), "users": who} for e, who in users.items()]
    }


async def _pinned(account: MatrixAccount, room: str) -> list[str]:
    state = await _state(account, room, _PINNED)
    pinned = state.get("pinned")
    return [one for one in pinned if isinstance(one, str)] if isinstance(pinned, list) else []


async def _pin(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    pinned = await _pinned(account, room)
    if action.message_id not in pinned:
        data = {"pinned": [*pinned, action.message_id]}
        await account.server.put("rooms", room, "state", _PINNED, data=data)
    return {"messageId": action.message_id, "pinned": True}


async def _unpin(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    pinned = await _pinned(account, room)
    if action.message_id in pinned:
        data = {"pinned": [one for one in pinned if one != action.message_id]}
        await account.server.put("rooms", room, "state", _PINNED, data=data)
    return {"messageId": action.message_id, "pinned": False}


async def _pins(account: MatrixAccount, room: str, _action: ChatAction) -> dict[str, Json]:
    rows: list[Json] = []
    for event_id in (await _pinned(account, room))[-_MAX_PINS:]:
        found = await account.find_event(room, event_id)
        text = {"sender": found.sender, "text": found.text} if found else {}
        rows.append({"id": event_id, **text})
    return {"messages": rows}


async def _permissions(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    state, user = await _state(account, room, _POWER), action.user or account.me
    users = get_object(state, "users")
    level = _level(users, user, _level(state, "users_default", 0))
    needed = {name: _level(state, name, 50) for name in ("ban", "kick", "redact")}
    needed["invite"] = _level(state, "invite", 0)
    needed["send"] = _level(state, "events_default", 0)
    needed["state"] = _level(state, "state_default", 50)
    may = {name: level >= least for name, least in needed.items()}
    return {"user": user, "level": level, "may": may, "needed": needed}


async def _role_info(account: MatrixAccount, room: str, _action: ChatAction) -> dict[str, Json]:
    """Return who has which power; a role of Matrix is a number from 0 to 100."""
    state = await _state(account, room, _POWER)
    users = get_object(state, "users")
    rows = [
        {"user": user, "level": level, "role": _role_name(level)}
        for user in users
        if (level := _level(users, user, 0))
    ]
    default = _level(state, "users_default", 0)
    return {"roles": [*_ROLES], "members": rows, "defaultLevel": default}


async def _role_add(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    name = action.text.strip().lower()
    if name not in _ROLES:
        raise SendError(
            f"Matrix has no role {name!r}", retryable=False, fix=f"use {', '.join(_ROLES)}"
        )
    return await _set_level(account, room, action.user, _ROLES[name])


async def _role_remove(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    return await _set_level(account, room, action.user, None)


async def _set_level(
    account: MatrixAccount, room: str, user: str, level: int | None
) -> dict[str, Json]:
    """Change the power of one member; everything else of the state stays as it is."""
    state = await _state(account, room, _POWER)
    if not state:
        raise SendError(f"{room} does not show who may do what", retryable=False)
    users = {name: value for name, value in get_object(state, "users").items() if name != user}
    data = {**state, "users": users if level is None else {**users, user: level}}
    await account.server.put("rooms", room, "state", _POWER, data=data)
    shown = _level(state, "users_default", 0) if level is None else level
    return {"user": user, "level": shown, "role": _role_name(shown)}


def _role_name(level: int) -> str:
    return next((name for name, least in _ROLES.items() if level >= least), "member")


async def _kick(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    await account.server.post("rooms", room, "kick", data=_whom(action))
    return {"user": action.user, "kicked": True}


async def _ban(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    await account.server.post(
        "rooms", room, "unban" if action.remove else "ban", data=_whom(action)
    )
    return {"user": action.user, "banned": not action.remove}


async def _thread_create(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    """Begin a thread: on Matrix that is the first message which belongs to another one."""
    if not action.message_id or not action.text:
        raise SendError(
            "a thread of Matrix starts at a message", retryable=False,
            fix="give --message-id and --message",
        )  # fmt: skip
    content = text_content(escape(action.text, quote=False), action.text, thread=action.message_id)
    sent = await account.send_event(room, MESSAGE, content, transaction(action.key))
    return {"threadId": action.message_id, "messageId": sent}


async def _thread_list(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    steps = ("rooms", room, "threads")
    found = await account.server.get(*steps, base=CLIENT_V1, query={"limit": action.limit})
    rows = await _rows(account, room, get_objects(found, "chunk"))
    return {"threads": [{"threadId": row["id"], **row} for row in rows]}


async def _member_info(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    try:
        state = await _state(account, room, "m.room.member", action.user)
    except MatrixRefusedError as exc:
        if exc.errcode != "M_NOT_FOUND":
            raise
        state = {}
    return {
        "user": action.user,
        "name": get_str(state, "displayname"),
        "membership": get_str(state, "membership") or "none",
        "avatar": get_str(state, "avatar_url"),
    }


async def _channel_info(account: MatrixAccount, room: str, _action: ChatAction) -> dict[str, Json]:
    state = await account.server.get("rooms", room, "joined_members")
    known = account.rooms.get(room)
    name, topic = (
        await _state(account, room, "m.room.name"),
        await _state(account, room, "m.room.topic"),
    )
    return {
        "id": room,
        "name": get_str(name, "name"),
        "topic": get_str(topic, "topic"),
        "members": len(get_object(state, "joined")),
        "encrypted": bool(known and known.is_encrypted),
    }


async def _channel_list(account: MatrixAccount, _room: str, action: ChatAction) -> dict[str, Json]:
    found = (await account.server.get("joined_rooms")).get("joined_rooms")
    ids = [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
    rows: list[Json] = []
    for room in ids[: min(action.limit, _MAX_ROOMS)]:
        known = account.rooms.get(room)
        title = known.title if known else ""
        rows.append(
            {
                "id": room,
                "name": title or get_str(await _state(account, room, "m.room.name"), "name"),
            }
        )
    return {"channels": rows, "count": len(ids)}


async def _sticker_send(account: MatrixAccount, room: str, action: ChatAction) -> dict[str, Json]:
    if not action.text.startswith("mxc://"):
        raise SendError("a sticker of Matrix is an mxc:// address", retryable=False)
    content = {"body": "sticker", "url": action.text, "info": {}}
    sent = await account.send_event(room, "m.sticker", content, transaction(action.key))
    return {"messageId": sent}


async def _state(account: MatrixAccount, room: str, kind: str, key: str = "") -> Object:
    """Return the content of a state; an empty one if the room has none."""
    steps = ("rooms", room, "state", kind, key) if key else ("rooms", room, "state", kind)
    try:
        return await account.server.get(*steps)
    except MatrixRefusedError as exc:
        if exc.errcode != "M_NOT_FOUND":
            raise
        return {}


def _level(data: Object, key: str, default: int) -> int:
    found = data.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def _whom(action: ChatAction) -> dict[str, Json]:
    return {"user_id": action.user, **({"reason": action.text} if action.text else {})}


async def _rows(
    account: MatrixAccount, room: str, events: Iterable[Object]
) -> list[dict[str, Json]]:
    """Return messages, newest first as the homeserver has them; other events are left out."""
    opened = [await account.decrypted(room, event) for event in events]
    return [
        {
            "id": get_str(event, "event_id"),
            "sender": get_str(event, "sender"),
            "text": _UNREADABLE if event.get("type") == ENCRYPTED else _body(event),
            "timestamp": get_int(event, "origin_server_ts"),
        }
        for event in opened
        if event.get("type") in {MESSAGE, "m.sticker", ENCRYPTED}
    ]


def _body(event: Object) -> str:
    return get_str(get_object(event, "content"), "body")


_ACTIONS: Final[Mapping[ChatActionName, _Run]] = {
    "ban": _ban,
    "channel-info": _channel_info,
    "channel-list": _channel_list,
    "kick": _kick,
    "member-info": _member_info,
    "permissions": _permissions,
    "pin": _pin,
    "pins": _pins,
    "reactions": _reactions,
    "read": _read,
    "role-add": _role_add,
    "role-info": _role_info,
    "role-remove": _role_remove,
    "search": _search,
    "sticker-send": _sticker_send,
    "thread-create": _thread_create,
    "thread-list": _thread_list,
    "unpin": _unpin,
}
