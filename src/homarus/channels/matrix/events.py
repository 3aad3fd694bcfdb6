"""Translate room events to inbound messages, without requests.

Events are untrusted: they may have any shape, and an invalid one is no message.
"""

import json
import re
from dataclasses import replace
from functools import cache
from typing import Final, TypeAlias
from urllib.parse import quote

from homarus.channels.matrix.api import Object, get_int, get_object, get_str
from homarus.channels.matrix.rooms import MatrixRoom
from homarus.channels.matrix.settings import ThreadReplies
from homarus.core.channel_event import MessageEdited
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound, InboundMetadata, Media, MediaKind
from homarus.core.text import one_line

MESSAGE, STICKER, ENCRYPTED, MEMBER = (
    "m.room.message",
    "m.sticker",
    "m.room.encrypted",
    "m.room.member",
)
MAX_QUOTE_CHARS: Final = 1_000
_FILES: Final[dict[str, MediaKind]] = {
    "m.image": "image",
    "m.audio": "audio",
    "m.video": "video",
    "m.file": "document",
    STICKER: "sticker",
}
_WORDS: Final = frozenset({"m.text", "m.notice", "m.emote", "m.server_notice", "m.location"})
_BOTS: Final = frozenset({"m.notice", "m.server_notice"})
_FALLBACK: Final = re.compile(r"> (?:\* )?<@[^>\n]+>")  # how a quote of an older client starts

Pattern: TypeAlias = re.Pattern[str]


@dataclass(frozen=True, slots=True)
class MatrixIdentity:
    """Our account, its user id and display name."""

    channel: str
    account: str
    me: str
    my_name: str = ""
    thread_replies: ThreadReplies = "inbound"
    decrypts_files: bool = False


@dataclass(frozen=True, slots=True)
class QuotedMessage:
    """Text, sender and thread of an event that another event is about."""

    sender: str
    text: str
    thread: str | None = None
    kind: str = MESSAGE


def to_message(
    event: Object, room: MatrixRoom, identity: MatrixIdentity, *, is_direct: bool, at_ms: int
) -> Inbound | MessageEdited | None:
    """Return the message or the edit of an event; None for other events and for our own."""
    id_, sender = event_id(event), get_str(event, "sender")
    content = get_object(event, "content")
    relation = get_object(content, "m.relates_to")
    is_edit = get_str(relation, "rel_type") == "m.replace"
    if is_edit:
        content = get_object(content, "m.new_content")
    kind = STICKER if event.get("type") == STICKER else get_str(content, "msgtype")
    if not id_ or not sender or sender == identity.me or kind not in _WORDS | _FILES.keys():
        return None
    reply_to = _reply_to(relation)
    is_file = kind in _FILES
    media = (_file(kind, content, decrypts=identity.decrypts_files),) if is_file else ()
    text = _caption(content) if media else get_str(content, "body")
    if "m.in_reply_to" in relation:
        text = without_fallback(text)
    if not text.strip() and not media:
        return None
    name = room.name_of(sender)
    mentioned, elsewhere = _mentions(content, text, identity)
    inbound = Inbound(
        id_,
        Address(
            identity.channel,
            room.chat,
            identity.account,
            _thread(relation, id_, identity.thread_replies),
        ),
        sender,
        f"* {name} {text}" if kind == "m.emote" else text,
        # The sender's server sets the time; it cannot be in the future.
        at_ms=min(get_int(event, "origin_server_ts") or at_ms, at_ms),
        metadata=replace(
            event_metadata(sender, room, is_direct=is_direct),
            is_bot=kind in _BOTS,
            mentioned=mentioned,
            mentions_others=elsewhere,
            reply_to=reply_to,
        ),
        media=media,
    )
    if not is_edit:
        return inbound
    edited = event_id(relation)
    return MessageEdited(
        id_, inbound.address, sender, edited, text, inbound.at_ms, inbound.metadata
    )


def event_metadata(sender: str, room: MatrixRoom, *, is_direct: bool) -> InboundMetadata:
    """Return the room and the sender of an event."""
    return InboundMetadata(
        kind="direct" if is_direct else "group",
        title="" if is_direct else room.title,
        name=room.name_of(sender),
        handle=one_line(sender.partition(":")[0].removeprefix("@")),
    )


def quoted_message(event: Object, replies: ThreadReplies = "inbound") -> QuotedMessage:
    """Return the current text of an event, without its files."""
    newest = get_object(event, "unsigned", "m.relations", "m.replace", "content", "m.new_content")
    content = newest or get_object(event, "content")
    text = without_fallback(get_str(content, "body"))[:MAX_QUOTE_CHARS]
    relation, kind = get_object(event, "content", "m.relates_to"), get_str(event, "type")
    thread = _thread(relation, event_id(event), replies)
    return QuotedMessage(get_str(event, "sender"), text, thread or None, kind)


def with_quote(inbound: Inbound, answered: QuotedMessage, me: str) -> Inbound:
    """Return the message with the quoted message it replies to."""
    ours = answered.sender == me
    metadata = replace(inbound.metadata, quoted=answered.text, replies_to_us=ours)
    return replace(inbound, metadata=metadata)


def invites(event: Object, user: str) -> bool:
    """Return whether the event invites a user."""
    return (
        event.get("type") == MEMBER
        and event.get("state_key") == user
        and get_str(get_object(event, "content"), "membership") == "invite"
    )


def joins(event: Object, user: str) -> bool:
    """Return whether the event is a user's join."""
    return (
        event.get("type") == MEMBER
        and event.get("state_key") == user
        and get_str(get_object(event, "content"), "membership") == "join"
    )


def switches_encryption_on(event: Object) -> bool:
    """Return whether the event is the state that makes a room encrypted."""
    return event.get("type") == "m.room.encryption" and "state_key" in event


def since_invited(events: list[Object], user: str) -> list[Object] | None:
    """Return the events after a user's last invite; None when there is no invite."""
    for number in range(len(events) - 1, -1, -1):
        if invites(events[number], user):
            return events[number + 1 :]
    return None


def without_fallback(text: str) -> str:
    """Remove the quote that older clients put before a reply."""
    if not _FALLBACK.match(text):
        return text
    lines = text.split("\n")
    first = next((n for n, line in enumerate(lines) if not line.startswith(">")), len(lines))
    return "\n".join(lines[first:]).removeprefix("\n")


def event_id(data: Object) -> str:
    """Return an event's id; "" if it cannot be one."""
    id_ = get_str(data, "event_id")
    return id_ if id_.startswith("$") else ""


def _reply_to(relation: Object) -> str:
    """Return the replied event. In a thread, the fallback for older clients is none."""
    if relation.get("rel_type") == "m.thread" and relation.get("is_falling_back") is True:
        return ""
    return event_id(get_object(relation, "m.in_reply_to"))


def _thread(relation: Object, id_: str, replies: ThreadReplies) -> str | None:
    if replies == "off":
        return None
    if relation.get("rel_type") == "m.thread" and (root := event_id(relation)):
        return root
    return id_ if replies == "always" and relation.get("rel_type") != "m.replace" else None


def _file(kind: str, content: Object, *, decrypts: bool) -> Media:
    info = get_object(content, "info")
    is_voice = kind == "m.audio" and "org.matrix.msc3245.voice" in content
    ref, file = get_str(content, "url"), get_object(content, "file")
    sealed = "it is encrypted" if file else "it has no address"
    is_readable = ref.startswith("mxc://")
    if decrypts and get_str(file, "url").startswith("mxc://"):
        ref, is_readable = json.dumps(file), True  # its address and its key
    return Media(
        kind="voice" if is_voice else _FILES[kind],
        mime=one_line(get_str(info, "mimetype")),
        name=one_line(get_str(content, "filename") or get_str(content, "body"), 200),
        size=get_int(info, "size"),
        ref=ref,
        problem="" if is_readable else sealed,
    )


def _caption(content: Object) -> str:
    """Return the text of a file; without a file name, the body is the name."""
    name, body = get_str(content, "filename"), get_str(content, "body")
    return body if name and body != name else ""


def _mentions(content: Object, text: str, identity: MatrixIdentity) -> tuple[bool, bool]:
    """Return whether it mentions us, and whether it mentions others instead.

    Current clients list mentions; for others they are found in links and names. A message that
    starts with our name mentions us in any case, as in clients without completion.
    """
    addressed = bool(identity.my_name and _opening(identity.my_name).match(text))
    addressed = addressed or bool(_id(identity.me).search(text))
    meant = content.get("m.mentions")
    if isinstance(meant, dict):
        users = meant.get("user_ids")
        named = users if isinstance(users, list) else []
        mine = addressed or identity.me in named
        return mine, not mine and (bool(named) or meant.get("room") is True)
    html = get_str(content, "formatted_body")
    linked = bool(_pill(identity.me).search(html))
    called = bool(identity.my_name and _word(identity.my_name).search(text))
    mine = addressed or linked or called
    return mine, not mine and "matrix.to/#/@" in html.replace("%40", "@")


@cache
def _pill(user: str) -> Pattern:
    shapes = {user, quote(user, safe=""), quote(user, safe="@"), quote(user, safe="@:")}
    known = "|".join(map(re.escape, shapes))
    return re.compile(rf"matrix\.to/#/(?:{known})(?![\w.:-]*\w)", re.I)


@cache
def _id(user: str) -> Pattern:
    return re.compile(re.escape(user) + r"(?![\w.:-]*\w)")


@cache
def _word(name: str) -> Pattern:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.I)


@cache
def _opening(name: str) -> Pattern:
    return re.compile(rf"\s*@?{re.escape(name)}(?!\w)", re.I)
