"""Translate Slack's events and interactions to messages and events of ours.

A message is `<conversation>:<ts>` within its account, by socket, webhook or history; Slack sends
`app_mention` besides `message` for the same message, and both have that id. An edit adds its time.
A press is `press:…`, a slash command `slash:…`, a reaction `reaction:…`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from homarus.channels.registry import find_traits
from homarus.channels.slack.directory import (
    ConversationKind,
    Person,
    SlackConversation,
    SlackDirectory,
)
from homarus.channels.slack.emoji import emoji_sign
from homarus.channels.slack.fields import get_bool, get_int, get_object, get_objects, get_str
from homarus.channels.slack.settings import SlackSettings
from homarus.channels.slack.text import DecodedText, decode_text, mentioned_people
from homarus.channels.slack.timestamps import is_ts, ts_to_ms
from homarus.channels.slack.traits import TRAITS
from homarus.core.channel_event import (
    InboundEvent,
    MemberJoined,
    MessageDeleted,
    MessageEdited,
    ReactionChanged,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, ChatKind, Inbound, InboundMetadata, Json, Media, MediaKind
from homarus.core.text import one_line
from homarus.policy.access import is_listed

_MESSAGES: Final = frozenset(
    {"", "file_share", "me_message", "thread_broadcast", "bot_message", "document_mention"}
)
_KINDS: Final[Mapping[ConversationKind, ChatKind]] = {
    "im": "direct",
    "mpim": "group",
    "channel": "channel",
    "group": "channel",
}
_MAX_QUOTED_CHARS: Final = 4_096
_MAX_FILES: Final = 20
_MAX_NAMES: Final = 20  # people in one message whose names are looked up


@dataclass(frozen=True, slots=True)
class SlackIdentity:
    """Our bot and its workspace."""

    user: str
    bot: str = ""
    name: str = ""
    team: str = ""
    team_name: str = ""

    def is_own(self, message: Mapping[str, Json]) -> bool:
        """Return whether we sent a message."""
        user, bot = get_str(message, "user"), get_str(message, "bot_id")
        return user == self.user or bool(bot and bot == self.bot)


@dataclass(frozen=True, slots=True)
class SlackEventTranslator:
    """Translate the events of one account."""

    channel: str
    account: str
    me: SlackIdentity
    directory: SlackDirectory
    settings: SlackSettings

    async def to_event(self, event: Mapping[str, Json], now_ms: int) -> InboundEvent | None:
        """Return the message or the event of one of Slack's; None when there is none."""
        match get_str(event, "type"):
            case "message":
                return await self._from_message(event, now_ms)
            case "app_mention":
                return await self._message(event)
            case "reaction_added" | "reaction_removed":
                return await self._reaction(event)
            case "member_joined_channel":
                return await self._join(event)
        return None

    async def _from_message(self, event: Mapping[str, Json], now_ms: int) -> InboundEvent | None:
        match get_str(event, "subtype"):
            case "message_changed":
                return await self._edit(event)
            case "message_deleted":
                return await self._deletion(event, now_ms)
            case subtype if subtype in _MESSAGES:
                return await self._message(event)
        return None

    async def _message(self, event: Mapping[str, Json]) -> Inbound | None:
        sender, ts = _sender_id(event), get_str(event, "ts")
        chat = await self._chat(event)
        media = tuple(_media(event))
        if not (chat and sender and is_ts(ts)) or self.me.is_own(event):
            return None
        decoded, forwarded, quoted = await self._decode(event)
        if not (decoded.text.strip() or media):
            return None
        person = await self._person(event, sender)
        thread = _thread_of(event)
        metadata = replace(
            self._metadata(chat, person, is_bot=bool(get_str(event, "bot_id"))),
            mentioned=self.me.user in decoded.people,
            mentions_others=decoded.mentions_group
            or any(each != self.me.user for each in decoded.people),
            reply_to=thread or "",
            replies_to_us=bool(thread) and get_str(event, "parent_user_id") == self.me.user,
            quoted=quoted[:_MAX_QUOTED_CHARS],
            quotes_others=bool(quoted),  # what a link or a shared message shows
            forwarded=forwarded,
        )
        return Inbound(
            f"{chat.id}:{ts}",
            Address(self.channel, chat.id, self.account, thread),
            sender,
            decoded.text,
            at_ms=ts_to_ms(ts),
            metadata=metadata,
            media=media,
        )

    async def _edit(self, event: Mapping[str, Json]) -> MessageEdited | None:
        """Translate an edit; Slack sends one too when it adds the preview of a link."""
        message, before = get_object(event, "message"), get_object(event, "previous_message")
        edited = get_object(message, "edited")
        is_same = get_str(message, "text") == get_str(before, "text") and bool(before)
        if is_same or not edited or get_str(message, "subtype") == "tombstone":
            return None
        inbound = await self._message(_within(event, message))
        if inbound is None:
            return None
        return MessageEdited(
            f"{inbound.id}:{get_str(edited, 'ts')}",
            inbound.address,
            inbound.sender,
            get_str(message, "ts"),
            inbound.text,
            at_ms=ts_to_ms(get_str(edited, "ts")),
            metadata=inbound.metadata,
        )

    async def _deletion(self, event: Mapping[str, Json], now_ms: int) -> MessageDeleted | None:
        """Translate a deletion; Slack does not say who deleted it."""
        ts, before = get_str(event, "deleted_ts"), get_object(event, "previous_message")
        chat = await self._chat(event)
        if not (chat and is_ts(ts)) or self.me.is_own(before):
            return None
        return MessageDeleted(
            f"{chat.id}:{ts}:deleted",
            Address(self.channel, chat.id, self.account, _thread_of(before)),
            "",
            ts,
            at_ms=ts_to_ms(get_str(event, "event_ts")) or now_ms,
            metadata=self._metadata(chat, Person("")),
        )

    async def _reaction(self, event: Mapping[str, Json]) -> ReactionChanged | None:
        item, user, name = (
            get_object(event, "item"),
            get_str(event, "user"),
            get_str(event, "reaction"),
        )
        ts, at_ts = get_str(item, "ts"), get_str(event, "event_ts")
        is_ours = get_str(event, "item_user") == self.me.user
        if get_str(item, "type") != "message" or user in {"", self.me.user} or not is_ts(ts):
            return None
        chat = await self._chat({"channel": get_str(item, "channel")})
        if chat is None or not emoji_sign(name) or not self._wants_reaction(user, is_ours=is_ours):
            return None
        person, is_added = await self.directory.find_person(user), event["type"] == "reaction_added"
        sign = (emoji_sign(name),)
        return ReactionChanged(
            f"reaction:{chat.id}:{ts}:{user}:{at_ts}:{'' if is_added else '-'}{name}",
            Address(self.channel, chat.id, self.account),
            user,
            ts,
            added=sign if is_added else (),
            removed=() if is_added else sign,
            at_ms=ts_to_ms(at_ts),
            metadata=replace(self._metadata(chat, person), replies_to_us=is_ours),
        )

    def _wants_reaction(self, user: str, *, is_ours: bool) -> bool:
        match self.settings.reaction_notifications:
            case "all":
                return True
            case "own":
                return is_ours
            case "allowlist":
                return is_listed(self.channel, user, self.settings.reaction_allowlist, find_traits)
        return False

    async def _join(self, event: Mapping[str, Json]) -> MemberJoined | None:
        chat, user, at_ts = (
            await self._chat(event),
            get_str(event, "user"),
            get_str(event, "event_ts"),
        )
        if chat is None or user in {"", self.me.user}:
            return None
        person = await self.directory.find_person(user)
        return MemberJoined(
            f"join:{chat.id}:{user}:{at_ts}",
            Address(self.channel, chat.id, self.account),
            user,
            at_ms=ts_to_ms(at_ts),
            metadata=self._metadata(chat, person),
        )

    async def _chat(self, event: Mapping[str, Json]) -> SlackConversation | None:
        """Return the conversation of an event; None for one where the bot does not take part."""
        id_ = get_str(event, "channel")
        if not TRAITS.normalize_id(id_) or id_[0] not in "CDG":
            return None
        return await self.find_chat(id_, get_str(event, "channel_type"))

    async def find_chat(self, id_: str, given: str = "") -> SlackConversation | None:
        """Return a conversation by its id; None for a group chat that is not allowed.

        Where Slack does not say what a `G…` is, it counts as a group chat, which needs more.
        """
        chat = await self.directory.find_conversation(id_)
        kind = chat.kind or next((each for each in _KINDS if each == given), "")
        chat = replace(chat, kind=kind or ("mpim" if id_.startswith("G") else "channel"))
        if chat.kind == "mpim" and not self.settings.allows_group_chat(id_):
            return None
        return chat

    async def _decode(self, event: Mapping[str, Json]) -> tuple[DecodedText, str, str]:
        """Return the text, the author of a forwarded message, and the text that is quoted."""
        markup = get_str(event, "text")
        shared = next((one for one in get_objects(event, "attachments") if _is_share(one)), None)
        others = [get_str(one, "fallback") for one in get_objects(event, "attachments")]
        foreign = get_str(shared, "text") if shared else "\n".join(filter(None, others[:5]))
        forwarded = ""
        if not markup.strip() and foreign:
            markup, foreign = foreign, ""
            forwarded = (get_str(shared, "author_name") if shared else "") or "another app"
        names = await self._names(markup, foreign)
        decoded = decode_text(markup, names)
        if get_str(event, "subtype") == "me_message":
            decoded = replace(decoded, text=f"* {decoded.text}")
        return decoded, forwarded, decode_text(foreign, names).text

    async def to_plain_text(self, markup: str) -> str:
        """Return a text with the names of the people in it."""
        return decode_text(markup, await self._names(markup)).text

    async def _names(self, *texts: str) -> dict[str, str]:
        people = {each for text in texts for each in mentioned_people(text)}
        return {each: await self._name(each) for each in sorted(people)[:_MAX_NAMES]}

    async def _name(self, id_: str) -> str:
        if id_ == self.me.user:
            return self.me.name
        return (await self.directory.find_person(id_)).name

    async def _person(self, event: Mapping[str, Json], sender: str) -> Person:
        """Return the sender; a bot without a user has its name in the message."""
        if sender[0] in "UW":
            return await self.directory.find_person(sender)
        profile = get_object(event, "bot_profile")
        name = get_str(event, "username") or get_str(profile, "name")
        return Person(sender, one_line(name, 80), is_bot=True)

    def _metadata(
        self, chat: SlackConversation, person: Person, *, is_bot: bool = False
    ) -> InboundMetadata:
        kind = _KINDS[chat.kind]
        title = f"#{chat.name}" if chat.name and kind == "channel" else chat.name
        return InboundMetadata(
            kind=kind,
            title="" if kind == "direct" else title,
            name=person.name,
            handle=person.handle,
            is_bot=is_bot or person.is_bot,
            team=self.me.team,
        )

    async def metadata_of(self, chat: SlackConversation, sender: str) -> InboundMetadata:
        """Return what is known of a person's action in a conversation."""
        return self._metadata(chat, await self.directory.find_person(sender))


def _within(event: Mapping[str, Json], message: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return a message within another event as an event of its own."""
    place = {name: event[name] for name in ("channel", "channel_type") if name in event}
    return {**message, **place}


def _sender_id(event: Mapping[str, Json]) -> str:
    """Return who wrote: a person, else a bot; "" when it is no id."""
    return TRAITS.normalize_id(get_str(event, "user") or get_str(event, "bot_id"))


def _thread_of(event: Mapping[str, Json]) -> str | None:
    """Return the thread of a message; the message that a thread starts with is outside of it."""
    thread = get_str(event, "thread_ts")
    return thread if is_ts(thread) and thread != get_str(event, "ts") else None


def _is_share(attachment: Mapping[str, Json]) -> bool:
    return get_bool(attachment, "is_share") or get_bool(attachment, "is_msg_unfurl")


def _media(event: Mapping[str, Json]) -> Iterator[Media]:
    for file in islice(get_objects(event, "files"), _MAX_FILES):
        id_, mime = get_str(file, "id"), get_str(file, "mimetype")
        if id_ and get_str(file, "mode") not in {"tombstone", "hidden_by_limit"}:
            name = get_str(file, "name") or get_str(file, "title")
            size = max(0, get_int(file, "size"))
            yield Media(_media_kind(file, mime), mime, name, size, id_)


def _media_kind(file: Mapping[str, Json], mime: str) -> MediaKind:
    if get_str(file, "subtype") == "slack_audio":
        return "voice"
    kinds: Mapping[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}
    return kinds.get(mime.partition("/")[0], "document")
