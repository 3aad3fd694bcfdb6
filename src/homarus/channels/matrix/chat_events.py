"""Translate reactions, redactions and joins of a room, without requests.

Like messages, these events are untrusted and may have any shape.
"""

from typing import Final

from homarus.channels.matrix.api import Object, get_int, get_object, get_str
from homarus.channels.matrix.events import (
    MEMBER,
    MatrixIdentity,
    QuotedMessage,
    event_id,
    event_metadata,
)
from homarus.channels.matrix.rooms import MatrixRoom
from homarus.core.channel_event import MemberJoined, MessageDeleted, ReactionChanged
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Address
from homarus.core.text import one_line

REACTION, REDACTION = "m.reaction", "m.room.redaction"
_MAX_EMOJI_CHARS: Final = 80
_MAX_REACTIONS: Final = 500


@dataclass(frozen=True, slots=True)
class Reaction:
    """The emoji of a reaction event, and the event it is about."""

    message_id: str
    emoji: str


class RecentReactions:
    """The recent reactions by their event ids: a redaction removes what they say."""

    def __init__(self) -> None:
        self._found: dict[str, Reaction] = {}

    def add(self, id_: str, reaction: Reaction) -> None:
        """Remember a reaction; the oldest is dropped."""
        self._found[id_] = reaction
        if len(self._found) > _MAX_REACTIONS:
            del self._found[next(iter(self._found))]

    def take(self, id_: str) -> Reaction | None:
        """Return a reaction and forget it; None if it is not known."""
        return self._found.pop(id_, None)


@dataclass(frozen=True, slots=True)
class EventOrigin:
    """Where an event happened: the room, and our account in it."""

    room: MatrixRoom
    identity: MatrixIdentity
    is_direct: bool
    now_ms: int

    def address(self, thread: str | None = None) -> Address:
        """Return the address of the room, or of a thread in it."""
        return Address(self.identity.channel, self.room.chat, self.identity.account, thread)

    def at_ms(self, event: Object) -> int:
        """Return an event's time. The sender's server sets it; it cannot be in the future."""
        return min(get_int(event, "origin_server_ts") or self.now_ms, self.now_ms)


def parse_reaction(event: Object) -> Reaction | None:
    """Return what a reaction event says; None when it is none."""
    relation = get_object(event, "content", "m.relates_to")
    target, emoji = event_id(relation), one_line(get_str(relation, "key"), _MAX_EMOJI_CHARS)
    is_valid = get_str(relation, "rel_type") == "m.annotation" and target and emoji.strip()
    return Reaction(target, emoji) if is_valid else None


def redacted_id(event: Object) -> str:
    """Return the event that a redaction removes; newer rooms have it in the content."""
    content = get_object(event, "content")
    for source in (content, event):
        if (found := get_str(source, "redacts")).startswith("$"):
            return found
    return ""


def to_reaction(
    event: Object,
    origin: EventOrigin,
    reaction: Reaction,
    target: QuotedMessage | None,
    *,
    is_removed: bool = False,
) -> ReactionChanged | None:
    """Return a reaction that another user added or removed. `target` is what it is about."""
    id_, sender, me = event_id(event), get_str(event, "sender"), origin.identity.me
    if not id_ or not sender or sender == me:
        return None
    metadata = event_metadata(sender, origin.room, is_direct=origin.is_direct)
    return ReactionChanged(
        id_,
        origin.address(target.thread if target else None),
        sender,
        reaction.message_id,
        () if is_removed else (reaction.emoji,),
        (reaction.emoji,) if is_removed else (),
        at_ms=origin.at_ms(event),
        metadata=replace(metadata, replies_to_us=bool(target and target.sender == me)),
    )


def to_deletion(event: Object, origin: EventOrigin, target: QuotedMessage) -> MessageDeleted | None:
    """Return the deletion of a message by another user; its sender is who deleted it."""
    id_, sender = event_id(event), get_str(event, "sender")
    if not id_ or not sender or sender == origin.identity.me:
        return None
    return MessageDeleted(
        id_,
        origin.address(target.thread),
        sender,
        redacted_id(event),
        at_ms=origin.at_ms(event),
        metadata=event_metadata(sender, origin.room, is_direct=origin.is_direct),
    )


def to_join(event: Object, origin: EventOrigin) -> MemberJoined | None:
    """Return a join of a group; None for other changes of a member, as of the name."""
    id_, user = event_id(event), get_str(event, "state_key")
    is_someone = id_ and user not in {"", origin.identity.me} and user == get_str(event, "sender")
    if not is_someone or origin.is_direct or not _is_real_join(event):
        return None
    metadata = event_metadata(user, origin.room, is_direct=False)
    return MemberJoined(id_, origin.address(), user, origin.at_ms(event), metadata)


def _is_real_join(event: Object) -> bool:
    """Return whether a member was not in the room before this event."""
    if event.get("type") != MEMBER or _membership(get_object(event, "content")) != "join":
        return False
    # Homeservers put the state before either into `unsigned` or into the event.
    places = (get_object(event, "unsigned"), event)
    before = next((one for one in places if isinstance(one.get("prev_content"), dict)), None)
    if before is None:  # unknown if there was any
        return not any(get_str(one, "replaces_state") for one in places)
    return _membership(get_object(before, "prev_content")) != "join"


def _membership(content: Object) -> str:
    return get_str(content, "membership")
