"""Events of a room as the messages they are. Pure: what has to be asked for is asked elsewhere.

Whatever stands in an event was written by somebody, on a server of their choice: it may have any
shape, and one that makes no sense is no message.
"""

import re
from dataclasses import replace
from functools import cache
from typing import Final, TypeAlias
from urllib.parse import quote

from homarus.channels.matrix.api import Object, number_of, object_of, text_of
from homarus.channels.matrix.rooms import Room
from homarus.channels.matrix.settings import ThreadReplies
from homarus.core.message import Address, Inbound, Media, MediaKind, Occasion
from homarus.core.text import one_line
from homarus.core.value import dataclass

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
_FALLBACK: Final = re.compile(r"> (?:\* )?<@[^>\n]+>")  # how an older client begins a quote

Pattern: TypeAlias = re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Ear:
    """Who listens: the account, its id, and how people call it."""

    channel: str
    account: str
    me: str
    my_name: str = ""
    thread_replies: ThreadReplies = "inbound"


@dataclass(frozen=True, slots=True)
class Said:
    """What an event said, and who; of one that is answered."""

    sender: str
    text: str


def read_event(
    event: Object, room: Room, ear: Ear, *, is_direct: bool, at_ms: int
) -> Inbound | None:
    """The message an event is; None for anything else, and for what we said ourselves."""
    id_, sender = _event_id(event), text_of(event, "sender")
    content = object_of(event, "content")
    relation = object_of(content, "m.relates_to")
    is_edit = text_of(relation, "rel_type") == "m.replace"
    if is_edit:
        content = object_of(content, "m.new_content")
    kind = STICKER if event.get("type") == STICKER else text_of(content, "msgtype")
    if not id_ or not sender or sender == ear.me or kind not in _WORDS | _FILES.keys():
        return None
    reply_to = _reply_to(relation)
    media = (_file(kind, content),) if kind in _FILES else ()
    text = _caption(content) if media else text_of(content, "body")
    if "m.in_reply_to" in relation:
        text = without_fallback(text)
    if not text.strip() and not media:
        return None
    name = room.name_of(sender)
    mentioned, elsewhere = _mentions(content, text, ear)
    return Inbound(
        id_,
        Address(ear.channel, room.id, ear.account, _thread(relation, id_, ear.thread_replies)),
        sender,
        f"* {name} {text}" if kind == "m.emote" else text,
        # The sender's server says when it was; it was not later than now.
        at_ms=min(number_of(event, "origin_server_ts") or at_ms, at_ms),
        occasion=Occasion(
            kind="direct" if is_direct else "group",
            title="" if is_direct else room.title,
            name=name,
            handle=one_line(sender.partition(":")[0].removeprefix("@")),
            is_bot=kind in _BOTS,
            is_edit=is_edit,
            mentioned=mentioned,
            elsewhere=elsewhere,
            reply_to=reply_to,
        ),
        media=media,
    )


def said(event: Object) -> Said:
    """What an event says as it stands now, without its files."""
    newest = object_of(event, "unsigned", "m.relations", "m.replace", "content", "m.new_content")
    content = newest or object_of(event, "content")
    text = without_fallback(text_of(content, "body"))
    return Said(text_of(event, "sender"), text[:MAX_QUOTE_CHARS])


def with_quote(inbound: Inbound, answered: Said, me: str) -> Inbound:
    """The message, knowing what it answers."""
    ours = answered.sender == me
    occasion = replace(inbound.occasion, quoted=answered.text, answers_us=ours)
    return replace(inbound, occasion=occasion)


def invites(event: Object, user: str) -> bool:
    """Whether somebody lets a person in with it."""
    return (
        event.get("type") == MEMBER
        and event.get("state_key") == user
        and text_of(object_of(event, "content"), "membership") == "invite"
    )


def joins(event: Object, user: str) -> bool:
    """Whether a person comes in with it."""
    return (
        event.get("type") == MEMBER
        and event.get("state_key") == user
        and text_of(object_of(event, "content"), "membership") == "join"
    )


def since_invited(events: list[Object], user: str) -> list[Object] | None:
    """What came after a person was let in the last time; None when that is not among them."""
    for number in range(len(events) - 1, -1, -1):
        if invites(events[number], user):
            return events[number + 1 :]
    return None


def without_fallback(text: str) -> str:
    """An answer without the quote that older clients put before it."""
    if not _FALLBACK.match(text):
        return text
    lines = text.split("\n")
    first = next((n for n, line in enumerate(lines) if not line.startswith(">")), len(lines))
    return "\n".join(lines[first:]).removeprefix("\n")


def _event_id(data: Object) -> str:
    """An event's id; "" for what cannot be one, whoever calls it so."""
    id_ = text_of(data, "event_id")
    return id_ if id_.startswith("$") else ""


def _reply_to(relation: Object) -> str:
    """The message that is answered. In a thread, what older clients show as one is none."""
    if relation.get("rel_type") == "m.thread" and relation.get("is_falling_back") is True:
        return ""
    return _event_id(object_of(relation, "m.in_reply_to"))


def _thread(relation: Object, id_: str, replies: ThreadReplies) -> str | None:
    if replies == "off":
        return None
    if relation.get("rel_type") == "m.thread" and (root := _event_id(relation)):
        return root
    return id_ if replies == "always" and relation.get("rel_type") != "m.replace" else None


def _file(kind: str, content: Object) -> Media:
    info = object_of(content, "info")
    is_voice = kind == "m.audio" and "org.matrix.msc3245.voice" in content
    ref = text_of(content, "url")
    sealed = "it is encrypted" if object_of(content, "file") else "it has no address"
    return Media(
        kind="voice" if is_voice else _FILES[kind],
        mime=one_line(text_of(info, "mimetype")),
        name=one_line(text_of(content, "filename") or text_of(content, "body"), 200),
        size=number_of(info, "size"),
        ref=ref,
        problem="" if ref.startswith("mxc://") else sealed,
    )


def _caption(content: Object) -> str:
    """Words that go with a file; where no file name is given, the words are the file's name."""
    name, body = text_of(content, "filename"), text_of(content, "body")
    return body if name and body != name else ""


def _mentions(content: Object, text: str, ear: Ear) -> tuple[bool, bool]:
    """Whether it speaks to us, and whether to others instead.

    Clients of today say whom they mean; of others it is read from links and names. Who begins
    with our name speaks to us in any case: that is how people address who does not complete names.
    """
    addressed = bool(ear.my_name and _opening(ear.my_name).match(text))
    addressed = addressed or bool(_id(ear.me).search(text))
    meant = content.get("m.mentions")
    if isinstance(meant, dict):
        users = meant.get("user_ids")
        named = users if isinstance(users, list) else []
        mine = addressed or ear.me in named
        return mine, not mine and (bool(named) or meant.get("room") is True)
    html = text_of(content, "formatted_body")
    linked = bool(_pill(ear.me).search(html))
    called = bool(ear.my_name and _word(ear.my_name).search(text))
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
