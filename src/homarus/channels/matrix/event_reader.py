"""Read the events of a room that are no messages: edits, reactions, redactions and joins.

They name another event, whose sender decides what they mean. When it cannot be fetched, the event
is ignored: an edit by anyone but the author must not count.
"""

import logging

from homarus.channels.matrix.account import MatrixAccount
from homarus.channels.matrix.api import Object
from homarus.channels.matrix.chat_events import (
    REACTION,
    REDACTION,
    EventOrigin,
    RecentReactions,
    parse_reaction,
    redacted_id,
    to_deletion,
    to_join,
    to_reaction,
)
from homarus.channels.matrix.events import (
    ENCRYPTED,
    MEMBER,
    MESSAGE,
    STICKER,
    QuotedMessage,
    event_id,
)
from homarus.channels.matrix.settings import ReactionNotifications
from homarus.core.channel_event import ChatEvent, MessageDeleted, MessageEdited, ReactionChanged
from homarus.core.errors import ChannelError
from homarus.core.fast_dataclass import replace

log = logging.getLogger(__name__)

CHAT_EVENTS = frozenset({REACTION, REDACTION, MEMBER})
_MESSAGES = frozenset({MESSAGE, STICKER, ENCRYPTED})


class ChatEventReader:
    """Read the events of one account. `reactions` says which are passed on."""

    def __init__(self, account: MatrixAccount, reactions: ReactionNotifications) -> None:
        self._account, self._reactions = account, reactions
        self._recent = RecentReactions()

    async def read(self, event: Object, origin: EventOrigin) -> ChatEvent | None:
        """Return what an event says; None when it says nothing, or nothing of interest."""
        match event.get("type"):
            case "m.reaction":
                return await self._reaction(event, origin)
            case "m.room.redaction":
                return await self._redaction(event, origin)
        return to_join(event, origin)

    async def check_edit(self, edit: MessageEdited) -> MessageEdited | None:
        """Return an edit in the thread of its message; None unless its author made it."""
        edited = await self._find(edit.address.chat, edit.message_id)
        if edited is None or edited.sender != edit.sender:
            log.info("an edit of %s is ignored: it is not its sender's", edit.message_id)
            return None
        self._account.cache_event(edit.message_id, replace(edited, text=edit.text))
        return replace(edit, address=replace(edit.address, thread=edited.thread))

    async def _reaction(self, event: Object, origin: EventOrigin) -> ReactionChanged | None:
        reaction = None if self._reactions == "off" else parse_reaction(event)
        if reaction is None:
            return None
        target = await self._find(origin.room.id, reaction.message_id)
        changed = to_reaction(event, origin, reaction, target)
        if changed is None or not self._is_wanted(changed):
            return None
        self._recent.add(changed.id, reaction)
        return changed

    async def _redaction(
        self, event: Object, origin: EventOrigin
    ) -> MessageDeleted | ReactionChanged | None:
        redacted = redacted_id(event)
        if not redacted or not event_id(event):
            return None
        if reaction := self._recent.take(redacted):
            target = await self._find(origin.room.id, reaction.message_id)
            return to_reaction(event, origin, reaction, target, is_removed=True)
        target = self._account.forget_event(redacted)
        if target is None:
            target = await self._find(origin.room.id, redacted)
            self._account.forget_event(redacted)  # its text must not be quoted any more
        if target is None or target.kind not in _MESSAGES:
            return None
        return to_deletion(event, origin, target)

    def _is_wanted(self, changed: ReactionChanged) -> bool:
        return self._reactions == "all" or changed.metadata.replies_to_us

    async def _find(self, chat: str, id_: str) -> QuotedMessage | None:
        """Return an event; None if it cannot be fetched, which must not block the others."""
        if not id_:
            return None
        room = self._account.rooms.newest(chat)
        rooms = [room, *self._account.rooms.predecessors(room)]
        for one in rooms:
            try:
                if found := await self._account.find_event(one, id_):
                    return found
            except ChannelError as exc:
                log.warning("the event %s of %s cannot be fetched: %s", id_, one, exc)
        return None
