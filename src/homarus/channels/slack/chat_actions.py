"""Actions of operators in Slack: reading, searching, pins, threads, members and channels."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias

from homarus.channels.slack.api import SlackClient, SlackRefusedError
from homarus.channels.slack.directory import SlackDirectory
from homarus.channels.slack.emoji import emoji_sign
from homarus.channels.slack.fields import get_bool, get_int, get_object, get_objects, get_str
from homarus.channels.slack.inbound import SlackIdentity
from homarus.channels.slack.sender import SlackMessageSender
from homarus.channels.slack.text import escape_text
from homarus.channels.slack.timestamps import require_ts, ts_to_ms
from homarus.channels.slack.traits import TRAITS
from homarus.core.chat_action import ChatAction, ChatActionName
from homarus.core.errors import ChannelAuthError, SendError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Extras, Json, Outbound

MAX_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class ActionServices:
    """What the actions use: the account's client, and the token for searches if there is one."""

    api: SlackClient
    directory: SlackDirectory
    sender: SlackMessageSender
    me: SlackIdentity
    user_token: str = ""


_Run: TypeAlias = Callable[[ActionServices, Address, ChatAction], Awaitable[dict[str, Json]]]


async def run_chat_action(
    services: ActionServices, to: Address, action: ChatAction
) -> dict[str, Json]:
    """Do an action in a chat. Raises SendError for one that Slack does not have."""
    run = _ACTIONS.get(action.name)
    if run is None:
        raise SendError(f"Slack has no {action.name} for bots", retryable=False)
    return await run(services, to, action)


async def _read(services: ActionServices, to: Address, action: ChatAction) -> dict[str, Json]:
    chat, limit = await services.directory.resolve_chat(to.chat), _limit(action)
    params: dict[str, Json] = {"channel": chat, "limit": limit}
    if action.before:
        params["latest"] = require_ts(action.before, to)
    if to.thread:
        params["ts"] = to.thread
    method = "conversations.replies" if to.thread else "conversations.history"
    found = await services.api.call(method, params)
    return {"messages": _rows(get_objects(found, "messages"))}


async def _search(services: ActionServices, _to: Address, action: ChatAction) -> dict[str, Json]:
    """Search the workspace, which only a person's token may."""
    if not services.user_token:
        raise SendError(
            "Slack lets no bot search", retryable=False,
            fix="set channels.slack.userToken, with the scope search:read",
        )  # fmt: skip
    params = {"query": action.text, "count": _limit(action), "sort": "timestamp"}
    try:
        found = await services.api.call("search.messages", params, token=services.user_token)
    except ChannelAuthError as exc:  # the bot's own token is right
        raise SendError(f"the user token: {exc}", retryable=False) from exc
    messages = get_object(found, "messages")
    rows = [
        {**row, "chat": get_str(get_object(one, "channel"), "id")}
        for one in get_objects(messages, "matches")
        for row in _rows([one])
    ]
    return {"messages": rows, "count": get_int(messages, "total")}


async def _reactions(services: ActionServices, to: Address, action: ChatAction) -> dict[str, Json]:
    params = await _message(services, to, action) | {"full": True}
    found = get_object(await services.api.call("reactions.get", params), "message")
    rows = [
        {
            "emoji": emoji_sign(get_str(one, "name")),
            "count": get_int(one, "count"),
            "users": [user for user in one.get("users") or () if isinstance(user, str)],
        }
        for one in get_objects(found, "reactions")
    ]
    return {"reactions": rows}


async def _pin(services: ActionServices, to: Address, action: ChatAction) -> dict[str, Json]:
    await _once(services, "pins.add", await _message(services, to, action), "already_pinned")
    return {"messageId": require_ts(action.message_id, to), "pinned": True}


async def _unpin(services: ActionServices, to: Address, action: ChatAction) -> dict[str, Json]:
    await _once(services, "pins.remove", await _message(services, to, action), "no_pin")
    return {"messageId": require_ts(action.message_id, to), "pinned": False}


async def _pins(services: ActionServices, to: Address, _action: ChatAction) -> dict[str, Json]:
    chat = await services.directory.resolve_chat(to.chat)
    found = await services.api.call("pins.list", {"channel": chat})
    messages = (get_object(one, "message") for one in get_objects(found, "items"))
    return {"messages": _rows(one for one in messages if one)}


async def _permissions(
    services: ActionServices, _to: Address, action: ChatAction
) -> dict[str, Json]:
    """Return the scopes of the bot, or what a person is in the workspace."""
    if action.user and action.user != services.me.user:
        user = await _user_row(services, action)
        names = ("is_owner", "is_admin", "is_restricted", "is_ultra_restricted", "is_bot")
        return {"user": get_str(user, "id"), "may": {name: get_bool(user, name) for name in names}}
    await services.api.call("auth.test")
    scopes = sorted(filter(None, services.api.scopes.replace(" ", "").split(",")))
    return {"user": services.me.user, "scopes": scopes}


async def _kick(services: ActionServices, to: Address, action: ChatAction) -> dict[str, Json]:
    chat, user = await services.directory.resolve_chat(to.chat), _user(action)
    await _once(services, "conversations.kick", {"channel": chat, "user": user}, "not_in_channel")
    return {"user": user, "kicked": True}


async def _member_info(
    services: ActionServices, _to: Address, action: ChatAction
) -> dict[str, Json]:
    user = await _user_row(services, action)
    profile = get_object(user, "profile")
    return {
        "user": get_str(user, "id"),
        "name": get_str(profile, "real_name") or get_str(user, "real_name"),
        "username": get_str(user, "name"),
        "title": get_str(profile, "title"),
        "timezone": get_str(user, "tz"),
        "bot": get_bool(user, "is_bot"),
        "deleted": get_bool(user, "deleted"),
    }


async def _channel_info(
    services: ActionServices, to: Address, _action: ChatAction
) -> dict[str, Json]:
    chat = await services.directory.resolve_chat(to.chat)
    params = {"channel": chat, "include_num_members": True}
    found = get_object(await services.api.call("conversations.info", params), "channel")
    return {
        "id": get_str(found, "id"),
        "name": get_str(found, "name"),
        "topic": get_str(get_object(found, "topic"), "value"),
        "purpose": get_str(get_object(found, "purpose"), "value"),
        "members": get_int(found, "num_members"),
        "private": get_bool(found, "is_private"),
        "archived": get_bool(found, "is_archived"),
    }


async def _channel_list(
    services: ActionServices, _to: Address, action: ChatAction
) -> dict[str, Json]:
    rows: list[Json] = []
    async for chat in services.directory.list_conversations(is_member=False):
        if action.text.lower().lstrip("#") in chat.name.lower():
            rows.append({"id": chat.id, "name": chat.name, "private": chat.kind == "group"})
        if len(rows) >= _limit(action):
            break
    return {"channels": rows, "count": len(rows)}


async def _thread_create(
    services: ActionServices, to: Address, action: ChatAction
) -> dict[str, Json]:
    """Start a thread at a message of the channel, or with a new message."""
    if not action.text:
        raise SendError("a thread of Slack starts with a text", retryable=False, fix="give --name")
    thread = require_ts(action.message_id, to) if action.message_id else None
    text, place = escape_text(action.text), Address(to.channel, to.chat, to.account, thread)
    extras = Extras(thread_title="" if thread else action.text)
    sent = await services.sender.send(Outbound(place, text if thread else "", action.key, extras))
    return {"threadId": thread or sent.message_id, "messageId": sent.message_id}


async def _thread_list(
    services: ActionServices, to: Address, action: ChatAction
) -> dict[str, Json]:
    chat = await services.directory.resolve_chat(to.chat)
    params: dict[str, Json] = {"channel": chat, "limit": MAX_ROWS}
    if action.before:
        params["latest"] = require_ts(action.before, to)
    found = await services.api.call("conversations.history", params)
    heads = (one for one in get_objects(found, "messages") if get_int(one, "reply_count"))
    rows = [
        {"threadId": row["id"], **row, "replies": get_int(head, "reply_count")}
        for head in islice(heads, _limit(action))
        for row in _rows([head])
    ]
    return {"threads": rows}


async def _message(services: ActionServices, to: Address, action: ChatAction) -> dict[str, Json]:
    chat = await services.directory.resolve_chat(to.chat)
    return {"channel": chat, "timestamp": require_ts(action.message_id, to)}


async def _once(
    services: ActionServices, method: str, params: Mapping[str, Json], done: str
) -> None:
    """Call a method; the error that says it is so already is none."""
    try:
        await services.api.call(method, params)
    except SlackRefusedError as exc:
        if exc.error != done:
            raise


async def _user_row(services: ActionServices, action: ChatAction) -> Mapping[str, Json]:
    return get_object(await services.api.call("users.info", {"user": _user(action)}), "user")


def _user(action: ChatAction) -> str:
    user = TRAITS.normalize_id(action.user.removeprefix("user:"))
    if not user.startswith(("U", "W")):
        raise SendError(
            f"{action.user!r} is no person of Slack", retryable=False, fix="give their id, U…"
        )
    return user


def _limit(action: ChatAction) -> int:
    return max(1, min(action.limit, MAX_ROWS))


def _rows(messages: Iterable[Mapping[str, Json]]) -> list[dict[str, Json]]:
    return [
        {
            "id": get_str(one, "ts"),
            "sender": get_str(one, "user") or get_str(one, "bot_id"),
            "text": get_str(one, "text"),
            "timestamp": ts_to_ms(get_str(one, "ts")),
        }
        for one in messages
    ]


_ACTIONS: Final[Mapping[ChatActionName, _Run]] = {
    "channel-info": _channel_info,
    "channel-list": _channel_list,
    "kick": _kick,
    "member-info": _member_info,
    "permissions": _permissions,
    "pin": _pin,
    "pins": _pins,
    "reactions": _reactions,
    "read": _read,
    "search": _search,
    "thread-create": _thread_create,
    "thread-list": _thread_list,
    "unpin": _unpin,
}
