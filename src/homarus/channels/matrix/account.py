"""One logged-in account: its homeserver, its rooms, and recent events."""

import logging
from typing import TYPE_CHECKING, Final

from homarus.channels.base import BeforeWrite
from homarus.channels.matrix.api import (
    HomeserverClient,
    MatrixRefusedError,
    Object,
    get_object,
    get_str,
)
from homarus.channels.matrix.content import transaction
from homarus.channels.matrix.events import ENCRYPTED, QuotedMessage, quoted_message
from homarus.channels.matrix.rooms import JoinedRooms, MatrixRoom
from homarus.channels.matrix.settings import ThreadReplies
from homarus.core.errors import ChannelAuthError, ChannelError, SendError

if TYPE_CHECKING:
    from homarus.channels.matrix.encryption.crypto import MatrixCrypto

log = logging.getLogger(__name__)

DIRECT: Final = "m.direct"
MAX_RECENT: Final = 500
_ALWAYS_CLEAR: Final = frozenset({"m.reaction"})  # also in encrypted rooms
_ENCRYPTION: Final = {
    "type": "m.room.encryption",
    "state_key": "",
    "content": {"algorithm": "m.megolm.v1.aes-sha2"},
}


class MatrixAccount:
    """Our identity on a homeserver, and its state. `crypto` is None without encryption."""

    def __init__(
        self,
        server: HomeserverClient,
        me: str,
        thread_replies: ThreadReplies = "inbound",
        *,
        crypto: "MatrixCrypto | None" = None,
    ) -> None:
        self.server, self.me, self._thread_replies = server, me, thread_replies
        self.crypto = crypto
        self.rooms = JoinedRooms()
        self.moving: set[str] = set()  # rooms whose replacement is being joined
        self._recent: dict[str, QuotedMessage] = {}
        self._aliases: dict[str, str] = {}

    async def room_for(self, chat: str) -> str:
        """Return the room of a target: by id, by alias, or by the other person's id.

        For a room that was upgraded, it is the newest one.
        """
        room = self.rooms.newest(await self._find_room(chat))
        if room in self.moving:
            raise SendError(f"{room} is being replaced by another room", retryable=True)
        return room

    async def _find_room(self, chat: str) -> str:
        target = chat.removeprefix("room:").removeprefix("user:")
        match target[:1]:
            case "!":
                return target
            case "#":
                return await self._resolve_alias(target)
            case "@":
                known = self.rooms.with_person(target, encrypted=self.crypto is not None)
                return known or await self._open_direct(target)
        raise SendError(
            f"{chat!r} is no place of Matrix",
            retryable=False,
            fix="use a room's id (!…), its alias (#…:server), or a person's id (@…:server)",
        )

    async def save_direct(self, room: str, user: str) -> None:
        """Record in our account data that a room is direct."""
        response = self.rooms.add_direct(room, user)
        await self.server.put("user", self.me, "account_data", DIRECT, data=response)

    async def count_people(self, room: MatrixRoom) -> None:
        """Count the members of a room if the homeserver did not send the number."""
        if room.people is None:
            try:
                response = await self.server.get("rooms", room.id, "joined_members")
            except ChannelError as exc:
                log.warning("nobody knows how many people are in %s: %s", room.id, exc)
            else:
                room.people = room.joined = len(get_object(response, "joined"))

    def cache_event(self, event_id: str, message: QuotedMessage) -> None:
        """Cache an event's text, for replies to it; the oldest is dropped."""
        self._recent.pop(event_id, None)
        while len(self._recent) >= MAX_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[event_id] = message

    def forget_event(self, event_id: str) -> QuotedMessage | None:
        """Remove a deleted event from the cache, and return it if it was there."""
        return self._recent.pop(event_id, None)

    async def find_event(self, room: str, event_id: str) -> QuotedMessage | None:
        """Return the text of an event; None when it cannot be fetched."""
        if found := self._recent.get(event_id):
            return found
        try:
            event = await self.server.get("rooms", room, "event", event_id)
        except MatrixRefusedError:
            return None
        found = quoted_message(await self.decrypted(room, event), self._thread_replies)
        self.cache_event(event_id, found)
        return found

    def is_known_encrypted(self, room: str) -> bool:
        """Return whether a room is encrypted as far as we know; also one that replaced such a room.

        An account without encryption may go on in a replacement that is not encrypted.
        """
        rooms = (room, *self.rooms.predecessors(room)) if self.crypto else (room,)
        return any(map(self._has_encrypted, rooms))

    def _has_encrypted(self, room: str) -> bool:
        known = self.rooms.get(room)
        is_kept = self.crypto is not None and self.crypto.is_encrypted(room)
        return is_kept or bool(known and known.is_encrypted)

    async def is_encrypted(self, room: str) -> bool:
        """Return whether what is sent to a room must be encrypted."""
        if self.is_known_encrypted(room):
            return True
        # Before the first response of the sync, nothing is known of any room.
        return self.rooms.get(room) is None and await self.fetch_is_encrypted(room)

    async def fetch_is_encrypted(self, room: str) -> bool:
        """Request from the homeserver whether a room is encrypted."""
        try:
            await self.server.get("rooms", room, "state", "m.room.encryption")
        except MatrixRefusedError as exc:
            if exc.errcode != "M_NOT_FOUND":
                raise
            return False
        return True

    async def send_event(
        self,
        room: str,
        kind: str,
        content: Object,
        transaction_id: str = "",
        *,
        before_write: BeforeWrite | None = None,
    ) -> str:
        """Send an event, encrypted if the room is, and return its id."""
        if kind not in _ALWAYS_CLEAR and await self.is_encrypted(room):
            if self.crypto is None:
                raise SendError(
                    f"{room} is encrypted, and this account is not set up for that",
                    retryable=False,
                    fix="set encryption to true, or use another room",
                )
            kind, content = ENCRYPTED, await self.crypto.encrypt(room, kind, content)
        steps = ("rooms", room, "send", kind, transaction_id or transaction(""))
        response = await self.server.put(*steps, data=content, before_write=before_write)
        return get_str(response, "event_id")

    async def decrypted(self, room: str, event: Object) -> Object:
        """Return an event, decrypted if it is encrypted and its key is here."""
        if self.crypto is None or event.get("type") != ENCRYPTED:
            return event
        try:
            return await self.crypto.read_event(room, event)
        except ChannelAuthError:
            raise
        except ChannelError as exc:
            log.info("an earlier message in %s cannot be read: %s", room, exc)
            return event

    async def _resolve_alias(self, alias: str) -> str:
        if alias not in self._aliases:
            room = get_str(await self.server.get("directory", "room", alias), "room_id")
            if not room:
                raise ChannelError(f"Matrix did not say which room {alias} is")
            self._aliases[alias] = room
        return self._aliases[alias]

    async def _open_direct(self, user: str) -> str:
        request = {
            "preset": "trusted_private_chat",
            "is_direct": True,
            "invite": [user],
            **({"initial_state": [_ENCRYPTION]} if self.crypto else {}),
        }
        room = get_str(await self.server.post("createRoom", data=request), "room_id")
        if not room:
            raise ChannelError(f"Matrix did not say where we can talk with {user}")
        if self.crypto:
            self.rooms[room].is_encrypted = True
            self.crypto.remember_encrypted(room)
        self.rooms[room].people = 2  # both of us; already known when the sync reports it
        await self.save_direct(room, user)
        return room
