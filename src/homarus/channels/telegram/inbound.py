"""Translate Telegram updates to inbound messages; no update raises an error.

Ids are numbers and never names. A message is `<chat>:<message>` within its account, by poll or
webhook; an edit adds its date, a button press is `callback:…`, a reaction `reaction:…`. Where one
message names another (`reply_to`, receipts), it is the number alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Final, Literal

from homarus.channels.telegram.content import media_of, words_of
from homarus.channels.telegram.fields import cut, flag, number, part, parts, text
from homarus.core.message import Address, ChatKind, Inbound, Json, Occasion
from homarus.core.value import dataclass

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
_MAX_ENTITIES: Final = 200  # twice the maximum of Telegram


@dataclass(frozen=True, slots=True)
class Me:
    """Our bot; `reads_all` says that it receives all messages of groups."""

    id: int
    username: str
    reads_all: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """Translate updates of one account. `reactions` says which are passed on."""

    channel: str
    account: str
    me: Me
    reactions: Literal["off", "own", "all"] = "off"

    def read(self, update: Mapping[str, Json], now_ms: int) -> Inbound | None:
        """Return the message of an update; None when there is none."""
        for kind in KINDS[:-1]:
            if message := part(update, kind):
                return self._message(message, is_edit=kind.startswith("edited"))
        if query := part(update, "callback_query"):
            return self._press(query, now_ms)
        if reaction := part(update, REACTION):
            return self._reaction(reaction)
        return None

    def _message(self, message: Mapping[str, Json], *, is_edit: bool) -> Inbound | None:
        chat, sender = part(message, "chat"), _sender(message)
        address, number_ = self._address(message), number(message, "message_id")
        words, media = words_of(message), media_of(message)
        if not (address and number_ and (words or media)):
            return None
        if number(sender, "id") in {0, self.me.id}:
            return None
        words, mentioned, elsewhere = self._addressed(message, words)
        at_s = number(message, "edit_date" if is_edit else "date")
        occasion = Occasion(
            kind=_CHATS[text(chat, "type")],
            title=text(chat, "title"),
            name=_name(sender),
            handle=text(sender, "username"),
            is_bot=flag(sender, "is_bot"),
            is_edit=is_edit,
            mentioned=mentioned,
            elsewhere=elsewhere,
            detects=bool(self.me.username),
            forwarded=_forwarded(part(message, "forward_origin")),
            album=text(message, "media_group_id"),
        )
        edited = f":{at_s}" if is_edit else ""
        return Inbound(
            f"{address.chat}:{number_}{edited}",
            address,
            str(number(sender, "id")),
            words,
            at_ms=at_s * 1000,
            occasion=self._answering(message, occasion),
            media=media,
        )

    def _press(self, query: Mapping[str, Json], now_ms: int) -> Inbound | None:
        """Translate a button press: its data is the text."""
        under, sender = part(query, "message"), part(query, "from")
        address, data = self._address(under), text(query, "data")
        id_ = text(query, "id")
        if not (address and data and id_ and number(sender, "id")):
            return None
        occasion = Occasion(
            kind=_CHATS[text(part(under, "chat"), "type")],
            title=text(part(under, "chat"), "title"),
            name=_name(sender),
            handle=text(sender, "username"),
            is_bot=flag(sender, "is_bot"),
            mentioned=True,
            reply_to=str(number(under, "message_id") or ""),
            answers_us=True,
            quoted=words_of(under)[:_MAX_QUOTED_CHARS],
        )
        return Inbound(
            f"callback:{id_}",
            address,
            str(number(sender, "id")),
            data,
            at_ms=now_ms,
            occasion=occasion,
        )

    def _reaction(self, reaction: Mapping[str, Json]) -> Inbound | None:
        """Translate added emoji; the caller knows whether the message was ours."""
        sender = part(reaction, "user") or part(reaction, "actor_chat")
        address, number_ = self._address(reaction), number(reaction, "message_id")
        before = {_emoji(one) for one in parts(reaction, "old_reaction")}
        added = [e for one in parts(reaction, "new_reaction") if (e := _emoji(one)) not in before]
        if not (self.reactions != "off" and address and number_ and added and number(sender, "id")):
            return None
        chat, at_s, signs = part(reaction, "chat"), number(reaction, "date"), "".join(added)
        occasion = Occasion(
            kind=_CHATS[text(chat, "type")],
            title=text(chat, "title"),
            name=_name(sender),
            handle=text(sender, "username"),
            is_bot=flag(sender, "is_bot"),
            reply_to=str(number_),
        )
        return Inbound(
            f"reaction:{address.chat}:{number_}:{number(sender, 'id')}:{at_s}:{signs}",
            address,
            str(number(sender, "id")),
            f"[reacted with {' '.join(added)} to message {number_}]",
            at_ms=at_s * 1000,
            occasion=occasion,
        )

    def _address(self, message: Mapping[str, Json]) -> Address | None:
        chat = part(message, "chat")
        id_ = number(chat, "id")
        if not id_ or text(chat, "type") not in _CHATS:
            return None
        return Address(self.channel, str(id_), self.account, _topic(message, chat))

    def _addressed(self, message: Mapping[str, Json], words: str) -> tuple[str, bool, bool]:
        """Return the text without `@us` in a command, and whom it mentions: us, others."""
        source = "text" if text(message, "text") else "caption"
        written = text(message, source)
        entities = "entities" if source == "text" else "caption_entities"
        us, mentioned, elsewhere = self.me.username.lower(), False, False
        for entity in islice(parts(message, entities), _MAX_ENTITIES):
            offset, length = number(entity, "offset"), number(entity, "length")
            named = cut(written, offset, length)
            match text(entity, "type"):
                case "mention":
                    is_us = bool(us) and named[1:].lower() == us
                case "text_mention":
                    is_us = number(part(entity, "user"), "id") == self.me.id
                case "bot_command" if "@" in named:
                    command, _, bot = named.partition("@")
                    is_us = bool(us) and bot.lower() == us
                    if is_us and offset == 0 and words.startswith(named):
                        words = command + words[len(named) :]
                case _:
                    continue
            mentioned, elsewhere = mentioned or is_us, elsewhere or not is_us
        return words, mentioned, elsewhere

    def _answering(self, message: Mapping[str, Json], occasion: Occasion) -> Occasion:
        """Add the replied message. In a topic, Telegram also sets the topic's first message."""
        to, quote = part(message, "reply_to_message"), text(part(message, "quote"), "text")
        is_head = "forum_topic_created" in to or (
            flag(message, "is_topic_message")
            and number(to, "message_id") == number(message, "message_thread_id")
        )
        if is_head or not number(to, "message_id"):
            return replace(occasion, quoted=quote)  # of another chat, or invalid
        return replace(
            occasion,
            reply_to=str(number(to, "message_id")),
            answers_us=number(_sender(to), "id") == self.me.id,
            quoted=(quote or words_of(to))[:_MAX_QUOTED_CHARS],
        )


def is_press(update: Mapping[str, Json]) -> str:
    """Return the id to answer a button press with; "" for other messages."""
    return text(part(update, "callback_query"), "id")


def is_reaction(inbound: Inbound) -> bool:
    """Return whether the message is a reaction."""
    return inbound.id.startswith("reaction:")


def message_number(message_id: str, chat: str) -> int:
    """Return the number of a message from any of our ids for it in this chat; else 0."""
    steps = message_id.split(":")
    if len(steps) > 1 and steps.pop(0) != chat:
        return 0
    found = steps[0]
    return int(found) if found.isascii() and found.isdigit() and len(found) < 19 else 0


def _sender(message: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the sender: the chat if a channel or an anonymous admin writes."""
    return part(message, "sender_chat") or part(message, "from")


def _name(sender: Mapping[str, Json]) -> str:
    full = f"{text(sender, 'first_name')} {text(sender, 'last_name')}".strip()
    return full or text(sender, "title") or text(sender, "username")


def _topic(message: Mapping[str, Json], chat: Mapping[str, Json]) -> str | None:
    """Return the topic; in other groups the same field is only a chain of replies."""
    thread = number(message, "message_thread_id")
    if thread and flag(message, "is_topic_message"):
        return str(thread)
    return GENERAL if flag(chat, "is_forum") and text(chat, "type") == "supergroup" else None


def _emoji(reaction: Mapping[str, Json]) -> str:
    return text(reaction, "emoji") or f"({text(reaction, 'type') or 'something'})"


def _forwarded(origin: Mapping[str, Json]) -> str:
    if not origin:
        return ""
    by = part(origin, "sender_user") or part(origin, "sender_chat") or part(origin, "chat")
    return _name(by) or text(origin, "sender_user_name") or "somebody"
