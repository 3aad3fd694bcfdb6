"""Actions of operators in chats of Telegram: pins, topics, members and moderation."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from homarus.channels.telegram.call_sender import CallSender
from homarus.channels.telegram.fields import get_bool, get_int, get_object, get_str
from homarus.channels.telegram.inbound import parse_message_id
from homarus.channels.telegram.outbound import (
    BotApiCall,
    chat_id,
    require_message_id,
    target_params,
)
from homarus.core.chat_action import ChatAction, ChatActionName
from homarus.core.errors import SendError
from homarus.core.message import Address, Json

_MIN_TIMEOUT_S, _MAX_TIMEOUT_S = 30, 366 * 86_400  # beyond them Telegram restricts for ever
_SILENT: Final = (
    "can_send_messages", "can_send_audios", "can_send_documents", "can_send_photos",
    "can_send_videos", "can_send_video_notes", "can_send_voice_notes", "can_send_polls",
    "can_send_other_messages", "can_add_web_page_previews",
)  # fmt: skip
_RIGHTS: Final = (
    "can_delete_messages",
    "can_restrict_members",
    "can_pin_messages",
    "can_manage_chat",
)
_Run: TypeAlias = Callable[[CallSender, Address, ChatAction], Awaitable[dict[str, Json]]]


async def run_chat_action(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    """Do an action in a chat. Raises SendError for one that bots cannot do."""
    run = _ACTIONS.get(action.name)
    if run is None:
        raise SendError(f"Telegram has no {action.name} for bots", retryable=False)
    return await run(sender, to, action)


async def _call(sender: CallSender, method: str, to: Address, **params: Json) -> Mapping[str, Json]:
    call = BotApiCall(method, {"chat_id": chat_id(to.chat), **params})
    result = await sender.send(call)
    return result if isinstance(result, dict) else {"result": result}


async def _pin(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    message = require_message_id(action.message_id, to)
    await _call(sender, "pinChatMessage", to, message_id=message, disable_notification=True)
    return {"messageId": str(message), "pinned": True}


async def _unpin(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    message = require_message_id(action.message_id, to)
    await _call(sender, "unpinChatMessage", to, message_id=message)
    return {"messageId": str(message), "pinned": False}


async def _pins(sender: CallSender, to: Address, _action: ChatAction) -> dict[str, Json]:
    """Return the newest pinned message: bots are not told of the others."""
    found = get_object(await _call(sender, "getChat", to), "pinned_message")
    return {"messages": [_message(found)] if found else [], "newestOnly": True}


async def _permissions(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    member = await _member(sender, to, _user(action) if action.user else await _me(sender, to))
    may = {name: value for name, value in member.items() if name.startswith("can_")}
    return {"user": _id_of(member), "status": get_str(member, "status"), "may": may}


async def _me(sender: CallSender, to: Address) -> int:
    return get_int(await _call(sender, "getMe", to), "id")


async def _kick(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    """Ban and unban: Telegram has no other way to remove a member, who may come back."""
    user = _user(action)
    await _call(sender, "banChatMember", to, user_id=user)
    await _call(sender, "unbanChatMember", to, user_id=user, only_if_banned=True)
    return {"user": str(user), "kicked": True}


async def _ban(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    user = _user(action)
    if action.remove:
        await _call(sender, "unbanChatMember", to, user_id=user, only_if_banned=True)
    else:
        await _call(sender, "banChatMember", to, user_id=user)
    return {"user": str(user), "banned": not action.remove}


async def _timeout(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    user = _user(action)
    if action.remove:
        allowed = dict.fromkeys(_SILENT, True)
        await _call(sender, "restrictChatMember", to, user_id=user, permissions=allowed)
        return {"user": str(user), "silenced": False}
    if not _MIN_TIMEOUT_S <= action.duration_s <= _MAX_TIMEOUT_S:
        raise SendError(
            "Telegram silences a member for 30 seconds to 366 days", retryable=False,
            fix="give --duration within that",
        )  # fmt: skip
    until_s = int(time.time()) + action.duration_s
    refused = dict.fromkeys(_SILENT, False)
    await _call(
        sender, "restrictChatMember", to, user_id=user, permissions=refused, until_date=until_s
    )
    return {"user": str(user), "silenced": True, "untilMs": until_s * 1000}


async def _role_info(sender: CallSender, to: Address, _action: ChatAction) -> dict[str, Json]:
    found = (await _call(sender, "getChatAdministrators", to)).get("result")
    members = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    rows = [
        {
            "user": _id_of(one),
            "name": get_str(get_object(one, "user"), "first_name"),
            "role": get_str(one, "custom_title") or get_str(one, "status"),
        }
        for one in members
    ]
    return {"roles": ["administrator"], "members": rows}


async def _role_add(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    """Make a member an administrator who looks after messages; any other text is their title."""
    user, title = _user(action), action.text.strip()
    await _call(sender, "promoteChatMember", to, user_id=user, **dict.fromkeys(_RIGHTS, True))
    if title.lower() not in {"", "administrator"}:
        await _call(
            sender, "setChatAdministratorCustomTitle", to, user_id=user, custom_title=title[:16]
        )
    return {"user": str(user), "role": title or "administrator"}


async def _role_remove(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    user = _user(action)
    await _call(sender, "promoteChatMember", to, user_id=user, **dict.fromkeys(_RIGHTS, False))
    return {"user": str(user), "role": "member"}


async def _thread_create(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    if not action.text:
        raise SendError("a topic has a name", retryable=False, fix="give --name")
    found = await _call(sender, "createForumTopic", to, name=action.text[:128])
    return {"threadId": str(get_int(found, "message_thread_id")), "name": get_str(found, "name")}


async def _member_info(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    member = await _member(sender, to, _user(action))
    user = get_object(member, "user")
    names = (get_str(user, "first_name"), get_str(user, "last_name"))
    return {
        "user": _id_of(member),
        "name": " ".join(name for name in names if name),
        "username": get_str(user, "username"),
        "membership": get_str(member, "status"),
        "bot": get_bool(user, "is_bot"),
    }


async def _channel_info(sender: CallSender, to: Address, _action: ChatAction) -> dict[str, Json]:
    chat = await _call(sender, "getChat", to)
    count = await _call(sender, "getChatMemberCount", to)
    return {
        "id": str(chat.get("id") or to.chat),
        "name": get_str(chat, "title") or get_str(chat, "first_name"),
        "kind": get_str(chat, "type"),
        "topic": get_str(chat, "description") or get_str(chat, "bio"),
        "members": get_int(count, "result"),
    }


async def _sticker_send(sender: CallSender, to: Address, action: ChatAction) -> dict[str, Json]:
    """Send a sticker by its id, which a received sticker has, or by a URL."""
    call = BotApiCall("sendSticker", {**target_params(to), "sticker": action.text})
    return {"messageId": _message(_as_object(await sender.send(call)))["id"]}


async def _member(sender: CallSender, to: Address, user: int) -> Mapping[str, Json]:
    return await _call(sender, "getChatMember", to, user_id=user)


def _id_of(member: Mapping[str, Json]) -> str:
    return str(get_int(get_object(member, "user"), "id"))


def _user(action: ChatAction) -> int:
    if not (user := parse_message_id(action.user, "")):
        raise SendError(
            f"{action.user!r} is no person of Telegram", retryable=False,
            fix="a person is a positive number, which their messages have",
        )  # fmt: skip
    return user


def _as_object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _message(found: Mapping[str, Any]) -> dict[str, Json]:
    sender = get_object(found, "from")
    return {
        "id": str(get_int(found, "message_id") or ""),
        "sender": str(get_int(sender, "id") or ""),
        "text": get_str(found, "text") or get_str(found, "caption"),
        "timestamp": get_int(found, "date") * 1000,
    }


_ACTIONS: Final[Mapping[ChatActionName, _Run]] = {
    "ban": _ban,
    "channel-info": _channel_info,
    "kick": _kick,
    "member-info": _member_info,
    "permissions": _permissions,
    "pin": _pin,
    "pins": _pins,
    "role-add": _role_add,
    "role-info": _role_info,
    "role-remove": _role_remove,
    "sticker-send": _sticker_send,
    "thread-create": _thread_create,
    "timeout": _timeout,
    "unpin": _unpin,
}
