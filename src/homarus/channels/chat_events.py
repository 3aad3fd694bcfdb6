"""Turn edits, deletions, reactions and joins into notices before the next message of a session.

An event is checked like a message of its sender. It starts no run and no heartbeat, and none is
noted for a session that does not exist. The notice is stored in the transaction that moves the
channel's cursor. A text in it is quoted in one line, and counts as external content unless its
sender is the owner.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from homarus.channels.access_control import AccessControl
from homarus.channels.registry import find_traits
from homarus.config.schema import Config
from homarus.core.channel_event import (
    ChatEvent,
    MemberJoined,
    MessageDeleted,
    MessageEdited,
    ReactionChanged,
)
from homarus.core.channel_traits import channel_title
from homarus.core.clock import Clock
from homarus.core.message import Inbound
from homarus.core.text import one_line
from homarus.sessions.envelope import sender_label
from homarus.sessions.notices import Notices, PlannedNotice
from homarus.sessions.routing import Route
from homarus.store.base import Store
from homarus.store.journal import Cursor

MAX_TEXT_CHARS: Final = 1_000
_MAX_ID_CHARS: Final = 80
_MAX_EMOJI_CHARS: Final = 80

# Returns the routes of a message whose sessions exist.
FindRoutes: TypeAlias = Callable[[Config, Inbound], Awaitable[tuple[Route, ...]]]


class ChatEventHandler:
    """Record the events of all channels."""

    def __init__(
        self,
        config: Callable[[], Config],
        store: Store,
        notices: Notices,
        clock: Clock,
        *,
        access: AccessControl,
        find_routes: FindRoutes,
    ) -> None:
        self._config, self._store, self._notices, self._clock = config, store, notices, clock
        self._access, self._find_routes = access, find_routes

    async def record(self, event: ChatEvent, cursor: Cursor | None) -> None:
        """Store the notices of an event, and the cursor, in one transaction."""
        planned = await self._plan(event)
        amended = self._access.take_changes()
        if not planned and not amended and cursor is None:
            return
        async with self._store.transaction() as transaction:
            if cursor:
                transaction.save_cursor(cursor)
            transaction.put_chat_records(*amended)
            for notice in planned:
                notice.write(transaction)
        for notice in planned:
            notice.publish()

    async def _plan(self, event: ChatEvent) -> list[PlannedNotice]:
        """Return the notices of an event, and amend the group history.

        A deletion by no known sender is one by an administrator or by the service: it only removes
        the message from the history.
        """
        text = event.text if isinstance(event, MessageEdited) else ""
        sender = Inbound(
            event.id, event.address, event.sender, text, at_ms=event.at_ms, metadata=event.metadata
        )
        planned, described = list[PlannedNotice](), _describe(event, sender)
        for route in await self._find_routes(self._config(), sender):
            authority = self._access.check_event(sender, route) if event.sender else None
            is_deleted = isinstance(event, MessageDeleted)
            if isinstance(event, MessageEdited | MessageDeleted) and (authority or is_deleted):
                await self._access.load(sender, route, self._store.journal)
                self._access.amend_history(sender, route, event.message_id, is_deleted=is_deleted)
            if authority is None:
                continue
            is_external = isinstance(event, MessageEdited) and authority != "owner"
            source = f"chat:{event.address.channel}" if is_external else "chat"
            planned.append(
                self._notices.plan(
                    route.key,
                    described,
                    event.at_ms or self._clock.now_ms(),
                    source=source,
                    wake_mode="next-message",
                )
            )
        return planned


def _describe(event: ChatEvent, sender: Inbound) -> str:
    """Return the text of the notice."""
    channel = event.address.channel
    lead = f"{channel_title(channel, find_traits(channel))}: {sender_label(sender)}"
    match event:
        case MessageEdited():
            text = one_line(event.text, MAX_TEXT_CHARS)
            return f'{lead} edited message {_id(event.message_id)}, which now reads: "{text}"'
        case MessageDeleted():
            return f"{lead} deleted message {_id(event.message_id)}"
        case ReactionChanged():
            target = "your message" if event.metadata.replies_to_us else "message"
            return f"{lead} {_reactions(event)} {target} {_id(event.message_id)}"
        case MemberJoined():
            return f"{lead} joined {one_line(event.metadata.title, MAX_TEXT_CHARS) or 'the chat'}"


def _reactions(event: ReactionChanged) -> str:
    added, removed = (
        one_line(" ".join(emoji), _MAX_EMOJI_CHARS) for emoji in (event.added, event.removed)
    )
    if added and removed:
        return f"changed {removed} to {added} on"
    return f"reacted with {added} to" if added else f"removed {removed} from"


def _id(message_id: str) -> str:
    return one_line(message_id, _MAX_ID_CHARS)
