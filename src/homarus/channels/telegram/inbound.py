"""Translate Telegram updates to messages and events; no update raises an error.

Ids are numbers and never names. A message is `<chat>:<message>` within its account, by poll or
webhook; an edit adds its date, a button press is `callback:…`, a reaction `reaction:…`. Where one
message names another (`reply_to`, receipts), it is the number alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final, Literal

from homarus.channels.telegram.content import message_media, message_text
from homarus.channels.telegram.fields import (
    get_bool,
    get_int,
    get_object,
    get_objects,
    get_str,
    slice_utf16,
)
from homarus.core.approval_button import parse_approval_button
from homarus.core.channel_event import (
    ButtonPressed,
    InboundEvent,
    MemberJoined,
    MessageEdited,
    ReactionChanged,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, ChatKind, Inbound, InboundMetadata, Json
from homarus.core.text import one_line

GENERAL: Final = "1"  # the topic of messages without one
KINDS: Final = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
)
REACTION: Final = "message_reaction"
_CHATS: Final[dict[str, ChatKind]] = {
    "private": "direct",
    "group": "group",
    "supergroup": "group",
    "channel": "channel",
}
_MAX_QUOTED_CHARS: Final = 4_096
_MAX_LABEL_CHARS: Final = 64  # a longer label is not visible completely
_MAX_MEMBERS: Final = 10
_MAX_ENTITIES: Final = 200  # twice the maximum of Telegram


@dataclass(frozen=True, slots=True)
class TelegramIdentity:
    """Our bot; `reads_all` says that it receives all messages of groups."""

    id: int
    username: str
    reads_all: bool = False


@dataclass(frozen=True, slots=True)
class UpdateTranslator:
    """Translate updates of one account. `reactions` says which are passed on."""

    channel: str
    account: str
    me: TelegramIdentity
    reactions: Literal["off", "own", "all"] = "off"

    def to_event(self, update: Mapping[str, Json], now_ms: int) -> InboundEvent | None:
        """Return the message or the event of an update; None when there is none."""
        for kind in KINDS[:-1]:
            if message := get_object(update, kind):
                if kind.startswith("edited"):
                    return self._edit(message)
                return self._message(message) or self._join(message)
        if query := get_object(update, "callback_query"):
            return self._press(query, now_ms)
        if reaction := get_object(update, REACTION):
            return self._reaction(reaction)
        return None

    def _edit(self, message: Mapping[str, Json]) -> MessageEdited | None:
        inbound, edited_s = self._message(message), get_int(message, "edit_date")
        if inbound is None:
            return None
        return MessageEdited(
            f"{inbound.id}:{edited_s}",
            inbound.address,
            inbound.sender,
            str(get_int(message, "message_id")),
            inbound.text,
            at_ms=edited_s * 1000,
            metadata=inbound.metadata,
        )

    def _join(self, message: Mapping[str, Json]) -> MemberJoined | None:
        """Translate the notice about new members; it has the id of the first."""
        address, number_ = self._address(message), get_int(message, "message_id")
        members = islice(get_objects(message, "new_chat_members"), _MAX_MEMBERS)
        people = [one for one in members if get_int(one, "id") not in {0, self.me.id}]
        is_group = get_str(get_object(message, "chat"), "type") != "private"
        if not (address and number_ and people and is_group):
            return None
        chat, person = get_object(message, "chat"), people[0]
        metadata = InboundMetadata(
            kind=_CHATS[get_str(chat, "type")],
            title=get_str(chat, "title"),
            name=", ".join(map(_name, people)),
            handle=get_str(person, "username"),
            is_bot=get_bool(person, "is_bot"),
        )
        return MemberJoined(
            f"{address.chat}:{number_}",
            address,
            str(get_int(person, "id")),
            get_int(message, "date") * 1000,
            metadata,
        )

    def _message(self, message: Mapping[str, Json]) -> Inbound | None:
        chat, sender = get_object(message, "chat"), _sender(message)
        address, number_ = self._address(message), get_int(message, "message_id")
        text, media = message_text(message), message_media(message)
        if not (address and number_ and (text or media)):
            return None
        if get_int(sender, "id") in {0, self.me.id}:
            return None
        text, mentioned, elsewhere = self._addressed(message, text)
        occasion = InboundMetadata(
            kind=_CHATS[get_str(chat, "type")],
            title=get_str(chat, "title"),
            name=_name(sender),
            handle=get_str(sender, "username"),
            is_bot=get_bool(sender, "is_bot"),
            mentioned=mentioned,
            mentions_others=elsewhere,
            detects_mentions=bool(self.me.username),
            forwarded=_forwarded(message),
            via_bot=_name(via) or "somebody's" if (via := get_object(message, "via_bot")) else "",
            album=get_str(message, "media_group_id"),
        )
        return Inbound(
            f"{address.chat}:{number_}",
            address,
            str(get_int(sender, "id")),
            text,
            at_ms=get_int(message, "date") * 1000,
            metadata=self._answering(message, occasion),
            media=media,
        )

    def _press(self, query: Mapping[str, Json], now_ms: int) -> ButtonPressed | None:
        """Translate a button press: the visible label is the text, never the hidden data."""
        under, sender = get_object(query, "message"), get_object(query, "from")
        address, label = self._address(under), _pressed_label(under, get_str(query, "data"))
        id_ = get_str(query, "id")
        if not (address and label and id_ and get_int(sender, "id")):
            return None
        occasion = InboundMetadata(
            kind=_CHATS[get_str(get_object(under, "chat"), "type")],
            title=get_str(get_object(under, "chat"), "title"),
            name=_name(sender),
            handle=get_str(sender, "username"),
            is_bot=get_bool(sender, "is_bot"),
        )
        return ButtonPressed(
            f"callback:{id_}",
            address,
            str(get_int(sender, "id")),
            label,
            message_id=str(get_int(under, "message_id") or ""),
            quoted=message_text(under)[:_MAX_QUOTED_CHARS],
            approval=self._pressed_approval(under, get_str(query, "data")),
            at_ms=now_ms,
            metadata=occasion,
        )

    def _pressed_approval(self, under: Mapping[str, Json], data: str) -> str:
        """Return the decision of a button under our own message; other buttons have none."""
        is_ours = get_int(get_object(under, "from"), "id") == self.me.id
        return parse_approval_button(data) if is_ours else ""

    def _reaction(self, reaction: Mapping[str, Json]) -> ReactionChanged | None:
        """Translate added and removed emoji; the caller knows whether the message was ours."""
        sender = get_object(reaction, "user") or get_object(reaction, "actor_chat")
        address, number_ = self._address(reaction), get_int(reaction, "message_id")
        before = [_emoji(one) for one in get_objects(reaction, "old_reaction")]
        after = [_emoji(one) for one in get_objects(reaction, "new_reaction")]
        added = tuple(emoji for emoji in after if emoji not in before)
        removed = tuple(emoji for emoji in before if emoji not in after)
        is_known = address and number_ and get_int(sender, "id")
        if self.reactions == "off" or not address or not is_known or not (added or removed):
            return None
        chat, at_s = get_object(reaction, "chat"), get_int(reaction, "date")
        signs = "".join([*added, *(f"-{emoji}" for emoji in removed)])
        occasion = InboundMetadata(
            kind=_CHATS[get_str(chat, "type")],
            title=get_str(chat, "title"),
            name=_name(sender),
            handle=get_str(sender, "username"),
            is_bot=get_bool(sender, "is_bot"),
        )
        return ReactionChanged(
            f"reaction:{address.chat}:{number_}:{get_int(sender, 'id')}:{at_s}:{signs}",
            address,
            str(get_int(sender, "id")),
            str(number_),
            added,
            removed,
            at_ms=at_s * 1000,
            metadata=occasion,
        )

    def _address(self, message: Mapping[str, Json]) -> Address | None:
        chat = get_object(message, "chat")
        id_ = get_int(chat, "id")
        if not id_ or get_str(chat, "type") not in _CHATS:
            return None
        return Address(self.channel, str(id_), self.account, _topic(message, chat))

    def _addressed(self, message: Mapping[str, Json], text: str) -> tuple[str, bool, bool]:
        """Return the text without `@us` in a command, and whom it mentions: us, others."""
        source = "text" if get_str(message, "text") else "caption"
        written = get_str(message, source)
        entities = "entities" if source == "text" else "caption_entities"
        us, mentioned, elsewhere = self.me.username.lower(), False, False
        for entity in islice(get_objects(message, entities), _MAX_ENTITIES):
            offset, length = get_int(entity, "offset"), get_int(entity, "length")
            named = slice_utf16(written, offset, length)
            match get_str(entity, "type"):
                case "mention":
                    is_us = bool(us) and named[1:].lower() == us
                case "text_mention":
                    is_us = get_int(get_object(entity, "user"), "id") == self.me.id
                case "bot_command" if "@" in named:
                    command, _, bot = named.partition("@")
                    is_us = bool(us) and bot.lower() == us
                    if is_us and offset == 0 and text.startswith(named):
                        text = command + text[len(named) :]
                case _:
                    continue
            mentioned, elsewhere = mentioned or is_us, elsewhere or not is_us
        return text, mentioned, elsewhere

    def _answering(self, message: Mapping[str, Json], occasion: InboundMetadata) -> InboundMetadata:
        """Add the replied message. In a topic, Telegram also sets the topic's first message."""
        to, quote = (
            get_object(message, "reply_to_message"),
            get_str(get_object(message, "quote"), "text"),
        )
        is_head = "forum_topic_created" in to or (
            get_bool(message, "is_topic_message")
            and get_int(to, "message_id") == get_int(message, "message_thread_id")
        )
        if is_head or not get_int(to, "message_id"):
            return replace(occasion, quoted=quote)  # of another chat, or invalid
        return replace(
            occasion,
            reply_to=str(get_int(to, "message_id")),
            replies_to_us=get_int(_sender(to), "id") == self.me.id,
            quoted=(quote or message_text(to))[:_MAX_QUOTED_CHARS],
        )


def callback_query_id(update: Mapping[str, Json]) -> str:
    """Return the id to answer a button press with; "" for other messages."""
    return get_str(get_object(update, "callback_query"), "id")


def parse_message_id(message_id: str, chat: str) -> int:
    """Return the number of a message from any of our ids for it in this chat; else 0."""
    steps = message_id.split(":")
    if len(steps) > 1 and steps.pop(0) != chat:
        return 0
    found = steps[0]
    return int(found) if found.isascii() and found.isdigit() and len(found) < 19 else 0


def _sender(message: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the sender: the chat if a channel or an anonymous admin writes."""
    return get_object(message, "sender_chat") or get_object(message, "from")


def _name(sender: Mapping[str, Json]) -> str:
    full = f"{get_str(sender, 'first_name')} {get_str(sender, 'last_name')}".strip()
    return full or get_str(sender, "title") or get_str(sender, "username")


def _topic(message: Mapping[str, Json], chat: Mapping[str, Json]) -> str | None:
    """Return the topic; in other groups the same field is only a chain of replies."""
    thread = get_int(message, "message_thread_id")
    if thread and get_bool(message, "is_topic_message"):
        return str(thread)
    return GENERAL if get_bool(chat, "is_forum") and get_str(chat, "type") == "supergroup" else None


def _emoji(reaction: Mapping[str, Json]) -> str:
    return get_str(reaction, "emoji") or f"({get_str(reaction, 'type') or 'something'})"


def _pressed_label(under: Mapping[str, Json], data: str) -> str:
    """Return the label of the button with this data; "" unless exactly one label has it."""
    rows = get_object(under, "reply_markup").get("inline_keyboard")
    buttons = (one for row in (rows if isinstance(rows, list) else ()) for one in _objects(row))
    labels = {get_str(one, "text") for one in buttons if get_str(one, "callback_data") == data}
    return one_line(labels.pop(), _MAX_LABEL_CHARS) if data and len(labels) == 1 else ""


def _objects(row: Json) -> Iterator[Mapping[str, Json]]:
    return (one for one in (row if isinstance(row, list) else ()) if isinstance(one, dict))


def _forwarded(message: Mapping[str, Json]) -> str:
    """Return the original author of a forwarded message; older servers have other fields."""
    origin = get_object(message, "forward_origin")
    if not origin and not get_int(message, "forward_date"):
        return ""
    by = (
        get_object(origin, "sender_user")
        or get_object(origin, "sender_chat")
        or get_object(origin, "chat")
        or get_object(message, "forward_from")
        or get_object(message, "forward_from_chat")
    )
    hidden = get_str(origin, "sender_user_name") or get_str(message, "forward_sender_name")
    return _name(by) or hidden or "somebody"
