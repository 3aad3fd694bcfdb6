"""Actions of operators in channels of Discord: pins, threads, members, roles and moderation."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias
from urllib.parse import quote

from homarus.channels.discord.channel_directory import FORUMS, ChannelDirectory
from homarus.channels.discord.outbound import MAX_TITLE_CHARS, NO_MENTIONS, nonce_for, require_id
from homarus.channels.discord.rest import DiscordRest
from homarus.channels.discord.snowflake import time_of
from homarus.core.chat_action import ChatAction, ChatActionName
from homarus.core.errors import SendError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Json
from homarus.core.text import one_line

_MAX_TIMEOUT_S: Final = 28 * 86_400
_PUBLIC_THREAD: Final = 11
_MAX_SEARCHED: Final = 1_000
_PAGE: Final = 100
_OFF_BY_DEFAULT: Final[Mapping[str, str]] = {
    "ban": "moderation", "kick": "moderation", "timeout": "moderation",
    "role-add": "roles", "role-remove": "roles",
}  # fmt: skip
_PERMISSIONS: Final = {
    "administrator": 3, "manage_channels": 4, "manage_guild": 5, "add_reactions": 6,
    "view_channel": 10, "send_messages": 11, "manage_messages": 13, "embed_links": 14,
    "attach_files": 15, "read_message_history": 16, "mention_everyone": 17,
    "kick_members": 1, "ban_members": 2, "manage_roles": 28, "manage_threads": 34,
    "create_public_threads": 35, "send_messages_in_threads": 38, "moderate_members": 40,
}  # fmt: skip
_KINDS: Final = {
    0: "text", 1: "direct", 2: "voice", 4: "category", 5: "announcement", 10: "thread",
    11: "thread", 12: "thread", 13: "stage", 15: "forum", 16: "media",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an action is done: the channel and its server, "" for a direct chat."""

    rest: DiscordRest
    channel: str
    guild: str
    kind: int

    @property
    def path(self) -> str:
        return f"/channels/{self.channel}"

    @property
    def guild_path(self) -> str:
        if not self.guild:
            raise SendError("that is for servers: a direct chat has none", retryable=False)
        return f"/guilds/{self.guild}"


_Run: TypeAlias = Callable[[_Place, ChatAction], Awaitable[dict[str, Json]]]


def check_enabled(action: ChatActionName, settings: Mapping[str, bool]) -> None:
    """Raise SendError for an action that is off unless `actions` says otherwise, as in OpenClaw."""
    name = _OFF_BY_DEFAULT.get(action)
    if name and not settings.get(name):
        raise SendError(
            f"channels.discord.actions.{name} is off",
            retryable=False,
            fix=f"homarus config set channels.discord.actions.{name} true",
        )


async def run_chat_action(
    rest: DiscordRest, directory: ChannelDirectory, to: Address, action: ChatAction
) -> dict[str, Json]:
    """Do an action in a chat. Raises SendError for one that Discord does not have."""
    run = _ACTIONS.get(action.name)
    if run is None:
        raise SendError(f"Discord has no {action.name} for bots", retryable=False)
    channel = await directory.resolve(to)
    facts = await directory.facts(channel)
    return await run(_Place(rest, channel, facts.guild, facts.kind), action)


# Messages


async def _pin(place: _Place, action: ChatAction) -> dict[str, Json]:
    message = require_id(action.message_id, "message")
    await place.rest.call("PUT", f"{place.path}/messages/pins/{message}")
    return {"messageId": message, "pinned": True}


async def _unpin(place: _Place, action: ChatAction) -> dict[str, Json]:
    message = require_id(action.message_id, "message")
    await place.rest.call("DELETE", f"{place.path}/messages/pins/{message}")
    return {"messageId": message, "pinned": False}


async def _pins(place: _Place, action: ChatAction) -> dict[str, Json]:
    found = await place.rest.get(f"{place.path}/messages/pins", limit=min(50, action.limit))
    items = _rows(found, "items")
    return {"messages": [_message(_object(item, "message")) for item in items]}


async def _read(place: _Place, action: ChatAction) -> dict[str, Json]:
    rows = await _history(place, min(_PAGE, max(1, action.limit)), action.before)
    return {"messages": [_message(row) for row in rows]}


async def _search(place: _Place, action: ChatAction) -> dict[str, Json]:
    """Search the newest messages of the channel, as bots have no search of their own."""
    wanted, found, before = action.text.casefold(), list[Json](), action.before
    for _ in range(_MAX_SEARCHED // _PAGE):
        rows = await _history(place, _PAGE, before)
        found += [
            _message(row)
            for row in rows
            if wanted in _text(row, "content").casefold()
            and (not action.user or _text(_object(row, "author"), "id") == action.user)
        ]
        if len(found) >= action.limit or len(rows) < _PAGE:
            break
        before = _text(rows[-1], "id")
    return {"messages": found[: action.limit]}


async def _reactions(place: _Place, action: ChatAction) -> dict[str, Json]:
    message = require_id(action.message_id, "message")
    row = await place.rest.get(f"{place.path}/messages/{message}")
    found = list[Json]()
    for each in _rows(row, "reactions"):
        emoji = _object(each, "emoji")
        name, id_ = _text(emoji, "name"), _text(emoji, "id")
        path = quote(f"{name}:{id_}" if id_ else name, safe=":")
        users = await place.rest.get(f"{place.path}/messages/{message}/reactions/{path}", limit=100)
        found.append(
            {
                "emoji": name,
                "count": each.get("count"),
                "users": [_text(one, "id") for one in _list(users)],
            }
        )
    return {"reactions": found}


async def _sticker_send(place: _Place, action: ChatAction) -> dict[str, Json]:
    data: dict[str, Json] = {
        "sticker_ids": [require_id(action.text, "sticker")],
        "allowed_mentions": NO_MENTIONS,
    }
    if action.key:
        data |= {"nonce": nonce_for(action.key), "enforce_nonce": True}
    found = await place.rest.call("POST", f"{place.path}/messages", data)
    return {"messageId": _text(found, "id")}


# Threads and channels


async def _thread_create(place: _Place, action: ChatAction) -> dict[str, Json]:
    name = one_line(action.text, MAX_TITLE_CHARS)
    if not name:
        raise SendError("a thread has a name", retryable=False, fix="give --name")
    if action.message_id:
        message = require_id(action.message_id, "message")
        path, data = f"{place.path}/messages/{message}/threads", dict[str, Json](name=name)
    elif place.kind in FORUMS:
        first = {"content": name, "allowed_mentions": NO_MENTIONS}
        path, data = f"{place.path}/threads", {"name": name, "message": first}
    else:
        path, data = f"{place.path}/threads", {"name": name, "type": _PUBLIC_THREAD}
    found = await place.rest.call("POST", path, data)
    return {"threadId": _text(found, "id"), "name": _text(found, "name")}


async def _thread_list(place: _Place, action: ChatAction) -> dict[str, Json]:
    found = await place.rest.get(f"{place.guild_path}/threads/active")
    rows = [row for row in _rows(found, "threads") if _text(row, "parent_id") == place.channel]
    return {
        "threads": [
            {
                "id": _text(row, "id"),
                "name": _text(row, "name"),
                "messages": row.get("message_count"),
            }
            for row in rows[: action.limit]
        ]
    }


async def _channel_info(place: _Place, _action: ChatAction) -> dict[str, Json]:
    return _channel(_as_object(await place.rest.get(place.path)))


async def _channel_list(place: _Place, _action: ChatAction) -> dict[str, Json]:
    found = await place.rest.get(f"{place.guild_path}/channels")
    return {"channels": [_channel(row) for row in _list(found)]}


# Members and roles


async def _member_info(place: _Place, action: ChatAction) -> dict[str, Json]:
    member = await _member(place, action)
    user = _object(member, "user")
    return {
        "user": _text(user, "id"),
        "name": _text(member, "nick") or _text(user, "global_name") or _text(user, "username"),
        "username": _text(user, "username"),
        "bot": bool(user.get("bot")),
        "roles": member.get("roles") or [],
        "joined": _text(member, "joined_at"),
    }


async def _role_info(place: _Place, _action: ChatAction) -> dict[str, Json]:
    rows = _list(await place.rest.get(f"{place.guild_path}/roles"))
    return {
        "roles": [
            {
                "id": _text(row, "id"),
                "name": _text(row, "name"),
                "managed": bool(row.get("managed")),
            }
            for row in rows
        ]
    }


async def _role_add(place: _Place, action: ChatAction) -> dict[str, Json]:
    return await _change_role(place, action, "PUT")


async def _role_remove(place: _Place, action: ChatAction) -> dict[str, Json]:
    return await _change_role(place, action, "DELETE")


async def _change_role(place: _Place, action: ChatAction, method: str) -> dict[str, Json]:
    user, role = require_id(action.user, "person"), require_id(action.text.strip(), "role")
    await place.rest.call(method, f"{place.guild_path}/members/{user}/roles/{role}")
    return {"user": user, "role": role}


async def _permissions(place: _Place, action: ChatAction) -> dict[str, Json]:
    """Return what a member may do in the server by their roles; ours without a member."""
    user = action.user or _text(await place.rest.get("/users/@me"), "id")
    member = _as_object(
        await place.rest.get(f"{place.guild_path}/members/{require_id(user, 'person')}")
    )
    roles = {place.guild, *map(str, member.get("roles") or ())}
    rows = _list(await place.rest.get(f"{place.guild_path}/roles"))
    bits = 0
    for row in rows:
        if _text(row, "id") in roles:
            bits |= int(_text(row, "permissions") or 0)
    is_admin = bool(bits >> _PERMISSIONS["administrator"] & 1)
    may = {name: is_admin or bool(bits >> bit & 1) for name, bit in _PERMISSIONS.items()}
    return {"user": user, "may": may}


async def _kick(place: _Place, action: ChatAction) -> dict[str, Json]:
    user = require_id(action.user, "person")
    path = f"{place.guild_path}/members/{user}"
    await place.rest.call("DELETE", path, reason=action.text)
    return {"user": user, "kicked": True}


async def _ban(place: _Place, action: ChatAction) -> dict[str, Json]:
    user = require_id(action.user, "person")
    method = "DELETE" if action.remove else "PUT"
    path = f"{place.guild_path}/bans/{user}"
    await place.rest.call(method, path, reason=action.text)
    return {"user": user, "banned": not action.remove}


async def _timeout(place: _Place, action: ChatAction) -> dict[str, Json]:
    user, until = require_id(action.user, "person"), None
    if not action.remove:
        if not 1 <= action.duration_s <= _MAX_TIMEOUT_S:
            raise SendError(
                "Discord silences a member for up to 28 days", retryable=False,
                fix="give --duration within that",
            )  # fmt: skip
        until = datetime.now(UTC) + timedelta(seconds=action.duration_s)
    data = {"communication_disabled_until": until.isoformat() if until else None}
    await place.rest.call("PATCH", f"{place.guild_path}/members/{user}", data)
    result: dict[str, Json] = {"user": user, "silenced": until is not None}
    return result | ({"untilMs": round(until.timestamp() * 1000)} if until else {})


async def _member(place: _Place, action: ChatAction) -> Mapping[str, Json]:
    user = require_id(action.user, "person")
    return _as_object(await place.rest.get(f"{place.guild_path}/members/{user}"))


async def _history(place: _Place, limit: int, before: str) -> list[Mapping[str, Json]]:
    more = {"before": require_id(before, "message")} if before else {}
    return _list(await place.rest.get(f"{place.path}/messages", limit=limit, **more))


# Rows


def _channel(row: Mapping[str, Json]) -> dict[str, Json]:
    kind = row.get("type")
    return {
        "id": _text(row, "id"),
        "name": _text(row, "name"),
        "kind": _KINDS.get(kind, "other") if isinstance(kind, int) else "other",
        "topic": _text(row, "topic"),
    }


def _message(row: Mapping[str, Json]) -> dict[str, Json]:
    id_ = _text(row, "id")
    return {
        "id": id_,
        "sender": _text(_object(row, "author"), "id"),
        "text": _text(row, "content"),
        "timestamp": time_of(int(id_)) if id_.isdigit() else 0,
    }


def _text(row: Json, name: str) -> str:
    value = row.get(name) if isinstance(row, dict) else None
    return "" if value is None else str(value)


def _object(row: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    return _as_object(row.get(name))


def _as_object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _list(rows: Json) -> list[Mapping[str, Json]]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _rows(found: Json, name: str) -> list[Mapping[str, Json]]:
    return _list(found.get(name)) if isinstance(found, dict) else []


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
    "timeout": _timeout,
    "unpin": _unpin,
}
