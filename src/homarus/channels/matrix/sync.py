"""Sync with the homeserver: long polls, and the events that they leave out.

A response has the events since a position, and the next position. A message is passed on with the
position before its response, the last one with the position after: a stop in the middle reads the
response again, and stored messages are recognised by their ids.
"""

import asyncio
import json
import logging
from collections.abc import Coroutine, Iterable
from functools import cache
from typing import Final

from homarus.channels.base import Acknowledge, InboundHandler
from homarus.channels.matrix.account import DIRECT, MatrixAccount
from homarus.channels.matrix.api import MatrixRefusedError, Object, get_object, get_objects, get_str
from homarus.channels.matrix.chat_events import REACTION, REDACTION, EventOrigin
from homarus.channels.matrix.content import transaction
from homarus.channels.matrix.event_reader import CHAT_EVENTS, ChatEventReader
from homarus.channels.matrix.events import (
    ENCRYPTED,
    MEMBER,
    MESSAGE,
    STICKER,
    MatrixIdentity,
    joins,
    quoted_message,
    since_invited,
    switches_encryption_on,
    to_message,
    with_quote,
)
from homarus.channels.matrix.rooms import MatrixRoom
from homarus.channels.matrix.settings import MatrixSettings
from homarus.channels.matrix.upgrades import CREATE, TOMBSTONE, UPGRADES, RoomUpgrades
from homarus.core.channel_event import ChatEvent, MessageEdited
from homarus.core.clock import Clock
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Inbound

log = logging.getLogger(__name__)

POLL_TIMEOUT_S: Final = 30  # how long the homeserver may wait for events
RESPONSE_MARGIN_S: Final = 30  # how much longer we wait for it
FIRST_SYNC_TIMEOUT_S: Final = 300.0  # an account with many rooms takes its time
JOIN_TIMEOUT_S: Final = 120.0  # the room may be on another server
JOIN_TRIES, JOIN_RETRY_S = 5, 30.0
PAGE: Final = 100
MAX_PAGES: Final = 10  # of what one room missed
MAX_STRIKES: Final = 3
ENCRYPTION_NOTIFIED: Final = "homarus.encryption"  # account data: notified rooms
CANNOT_READ: Final = (
    "This room is encrypted, and I cannot read encrypted messages. Please talk to me in a room"
    " without encryption."
)
_STATE: Final = (
    MEMBER,
    "m.room.name",
    "m.room.canonical_alias",
    "m.room.encryption",
    CREATE,
    TOMBSTONE,
)
_TYPES: Final = (MESSAGE, STICKER, ENCRYPTED, REACTION, REDACTION, *_STATE)


class SyncLoop:
    """Sync one account. `group` is for tasks that are not awaited.

    `strikes` counts, across runs, how often the missed events of a room could not be fetched.
    """

    def __init__(
        self,
        account: MatrixAccount,
        settings: MatrixSettings,
        identity: MatrixIdentity,
        *,
        clock: Clock,
        group: asyncio.TaskGroup,
        strikes: dict[str, int],
    ) -> None:
        self._account, self._settings, self._identity = account, settings, identity
        self._clock, self._strikes = clock, strikes
        self._group: asyncio.TaskGroup = group
        self._reader = ChatEventReader(account, settings.reaction_notifications)
        self._upgrades = RoomUpgrades(account, settings.common.groups)
        self._joining: set[str] = set()
        self._late_invites: dict[str, list[Object]] = {}  # that came while a room was joined
        self._notified: set[str] = set()  # rooms that were notified of their encryption
        self._unsent_receipts: dict[str, str] = {}  # by room: the last stored message
        self._has_receipts = asyncio.Event()

    async def run(self, receive: InboundHandler) -> None:
        """Sync until cancelled, from the cursor, or from now if there is none."""
        stored, now = await self._read_state(receive)
        self._group.create_task(self._send_receipts(), name="read receipts of Matrix")
        since = stored or now
        while True:
            try:
                response = await self._sync(since, self._settings.initial_sync_limit)
            except MatrixRefusedError as exc:
                if since != stored or since == now:
                    raise
                log.warning("Matrix no longer knows how far was read, so it goes on now: %s", exc)
                since = now
                continue
            since = await self._handle_response(response, since, receive)

    async def _read_state(self, receive: InboundHandler) -> tuple[str, str]:
        """Read the state of all rooms; return the cursor, "" if there was none, and the position.

        Without a cursor, the position is stored: messages from there on are not lost in a crash.
        """
        first = await self._sync("", 1, timeout_s=FIRST_SYNC_TIMEOUT_S)
        now, crypto, rooms = _position(first), self._account.crypto, self._account.rooms
        self._apply_account_data(first)
        for id_, data in get_object(first, "rooms", "join").items():
            if isinstance(data, dict):
                rooms[id_].apply_sync(data)
        for room in rooms:
            self._follow_upgrade(room)
        stored = get_str(await receive.load_cursor() or {}, "since")
        if not stored:
            if crypto:  # what came to our device before is not offered again
                await crypto.handle_sync(first)
                crypto.remember_encrypted(*(room.id for room in rooms if room.is_encrypted))
            await receive.save_cursor({"since": now})
        return stored, now

    async def _sync(
        self, since: str, limit: int, *, timeout_s: float = POLL_TIMEOUT_S + RESPONSE_MARGIN_S
    ) -> Object:
        query: dict[str, str | int] = {"filter": _filter(limit, self._account.me)}
        if since:
            query |= {"since": since, "timeout": POLL_TIMEOUT_S * 1000}
        else:
            # Nothing is awaited, but some homeservers cache the response for minutes.
            query["timeout"] = self._clock.now_ms() % (POLL_TIMEOUT_S * 1000)
        return await self._account.server.get("sync", timeout_s=timeout_s, query=query)

    async def _handle_response(self, response: Object, since: str, receive: InboundHandler) -> str:
        """Pass on the messages of a response, and return the next position."""
        after = _position(response)
        self._apply_account_data(response)
        if self._account.crypto:  # keys first: they open the events of this response
            await self._account.crypto.handle_sync(response)
        events = list[tuple[str, Inbound | ChatEvent]]()
        rooms = get_object(response, "rooms", "join")
        # Known rooms first: a tombstone in one may name a new one.
        for room, data in sorted(
            rooms.items(), key=lambda item: item[0] not in self._account.rooms
        ):
            if isinstance(data, dict):
                events += [(room, event) for event in await self._read_room(room, data, since)]
        events = await self._read_waiting() + events
        for number, (room, event) in enumerate(events, 1):
            cursor = after if number == len(events) else since
            await receive(event, {"since": cursor}, self._acknowledge(room, event.id))
        if self._account.crypto:
            await self._account.crypto.settle()
        return after

    async def _read_waiting(self) -> list[tuple[str, Inbound | ChatEvent]]:
        """Return messages whose keys arrived after them, with their rooms."""
        crypto, found = self._account.crypto, list[tuple[str, Inbound | ChatEvent]]()
        for room, event in await crypto.read_waiting() if crypto else ():
            if event.get("type") in {MESSAGE, STICKER} and room in self._account.rooms:
                read = await self._to_event(event, self._account.rooms[room])
                found += [(room, read)] if read else []
        return found

    def _apply_account_data(self, response: Object) -> None:
        """Apply account data: direct rooms, joined rooms and invites."""
        rooms = self._account.rooms
        for event in get_objects(get_object(response, "account_data"), "events"):
            if event.get("type") == DIRECT:
                rooms.direct = get_object(event, "content")
            elif event.get("type") == UPGRADES:
                self._upgrades.load(get_object(event, "content"))
        for room in get_object(response, "rooms", "leave"):
            rooms.forget(room)
        for room, data in get_object(response, "rooms", "invite").items():
            if isinstance(data, dict):
                state = get_objects(get_object(data, "invite_state"), "events")
                if room in self._joining:
                    self._late_invites[room] = state
                else:
                    self._handle_invite(room, state)

    # Messages

    async def _read_room(self, id_: str, data: Object, since: str) -> list[Inbound | ChatEvent]:
        timeline = get_object(data, "timeline")
        state = get_objects(get_object(data, "state"), "events")
        is_new = id_ not in self._account.rooms and (
            timeline.get("limited") is True
            or any(joins(event, self._account.me) for event in state)
        )
        is_first = id_ not in self._account.rooms
        room = self._account.rooms[id_]
        room.apply_sync(data)
        self._follow_upgrade(room)
        is_new = is_new and room.chat == id_  # all of a replacement is later than what was read
        found = list[Inbound | ChatEvent]()
        events = await self._events(room, timeline, since, is_new=is_new)
        if any(event.get("type") == ENCRYPTED for event in events):
            await self._check_encryption(room)
        if crypto := self._account.crypto:
            if timeline.get("limited") is not True:  # then the state is from before the events
                state = get_objects(get_object(data, "state"), "events")
                events = [*(one for one in state if switches_encryption_on(one)), *events]
            is_encrypted = self._account.is_known_encrypted(room.id)
            events = await crypto.open_events(room.id, events, is_encrypted=is_encrypted)
        for event in events:
            if event.get("type") == ENCRYPTED and event.get("sender") != self._account.me:
                if room.is_encrypted:
                    self._on_encrypted(room)
            elif (kind := event.get("type")) in {MESSAGE, STICKER} or (
                kind in CHAT_EVENTS and not (is_first and kind == MEMBER)
            ):
                told = await self._to_event(event, room)
                found += [told] if told else []
        return found

    async def _events(
        self, room: MatrixRoom, timeline: Object, since: str, *, is_new: bool
    ) -> list[Object]:
        """Return the new events of a room, without those before our invite."""
        events = get_objects(timeline, "events")
        visible = since_invited(events, self._account.me)
        if visible is not None:
            return visible
        start = get_str(timeline, "prev_batch")
        if timeline.get("limited") is True and start:
            missed, invited = await self._fill_gap(room, start, "" if is_new else since)
            return [*missed, *events] if invited or not is_new else []
        return [] if is_new else events

    async def _fill_gap(
        self, room: MatrixRoom, start: str, since: str
    ) -> tuple[list[Object], bool]:
        """Fetch missed events. A room where that fails must not block the others."""
        try:
            found = await self._fetch_missed(room, start, since)
        except ChannelAuthError:
            raise
        except ChannelError as exc:
            strikes = self._strikes[room.id] = self._strikes.get(room.id, 0) + 1
            if not isinstance(exc, MatrixRefusedError) and strikes < MAX_STRIKES:
                raise
            log.warning("what was missed in %s cannot be had, and is not read: %s", room.id, exc)
            found = [], False
        self._strikes.pop(room.id, None)
        return found

    async def _fetch_missed(
        self, room: MatrixRoom, start: str, since: str
    ) -> tuple[list[Object], bool]:
        """Return the events before a response's, and whether our invite is the first.

        Without a position to go back to, it fetches one page only.
        """
        pages = MAX_PAGES if since else 1
        found = list[Object]()  # newest first
        query: dict[str, str | int] = {"dir": "b", "limit": PAGE}
        query["filter"] = json.dumps(_timeline(self._account.me))
        if since:
            query["to"] = since
        while start and pages:
            query["from"], pages = start, pages - 1
            data = await self._account.server.get("rooms", room.id, "messages", query=query)
            room.apply_state(get_objects(data, "state"))
            page = get_objects(data, "chunk")
            visible = since_invited(page[::-1], self._account.me)
            if visible is not None:
                return [*visible, *found[::-1]], True
            found += page
            start = get_str(data, "end")
        if start and since:
            log.warning("%s: too much was missed; what is older is not read", room.id)
        return found[::-1], False

    async def _to_event(self, event: Object, room: MatrixRoom) -> Inbound | ChatEvent | None:
        account = self._account
        await account.count_people(room)
        is_direct = account.rooms.is_direct(room) and room.chat not in self._settings.common.groups
        now_ms = self._clock.now_ms()
        if event.get("type") in CHAT_EVENTS:
            origin = EventOrigin(room, self._identity, is_direct, now_ms)
            return await self._reader.read(event, origin)
        inbound = to_message(event, room, self._identity, is_direct=is_direct, at_ms=now_ms)
        if isinstance(inbound, MessageEdited):
            return await self._reader.check_edit(inbound)
        if inbound is None:
            return None
        account.cache_event(inbound.id, quoted_message(event, self._identity.thread_replies))
        if reply_to := inbound.metadata.reply_to:
            try:
                answered = await account.find_event(room.id, reply_to)
            except ChannelError as exc:
                log.warning("what a message in %s answers cannot be had: %s", room.id, exc)
            else:
                inbound = with_quote(inbound, answered, account.me) if answered else inbound
        return inbound

    # Requests

    def _acknowledge(self, room: str, event_id: str) -> Acknowledge:
        async def acknowledge() -> None:
            self._unsent_receipts[room] = event_id
            self._has_receipts.set()

        return acknowledge

    async def _send_receipts(self) -> None:
        """Send read receipts, for the last message of each room."""
        while True:
            await self._has_receipts.wait()
            self._has_receipts.clear()
            while self._unsent_receipts:
                room, event = self._unsent_receipts.popitem()
                try:
                    await self._account.server.post(
                        "rooms", room, "receipt", "m.read", event, data={}
                    )
                except ChannelError as exc:
                    log.info("no read receipt in %s: %s", room, exc)

    def _handle_invite(self, room: str, state: Iterable[Object]) -> None:
        """Accept an invite, or leave it pending."""
        alias = inviter = ""
        is_direct = False
        for event in state:
            content = get_object(event, "content")
            if event.get("type") == "m.room.canonical_alias":
                alias = get_str(content, "alias")
            elif event.get("type") == MEMBER and event.get("state_key") == self._account.me:
                inviter = get_str(event, "sender")
                is_direct = content.get("is_direct") is True
        if self._upgrades.is_expected(room) or self._settings.joins(
            room, alias, inviter, is_direct=is_direct
        ):
            self._joining.add(room)
            person = inviter if is_direct else ""
            self._group.create_task(self._join(room, person), name=f"joining {room}")
        else:
            log.info("an invitation of %s to %s is left alone (autoJoin)", inviter, room)

    def _follow_upgrade(self, room: MatrixRoom) -> None:
        """Follow an upgrade of a room or to it: join the replacement, and store what is known."""
        self._upgrades.set_chat(room)
        if upgrades := self._upgrades.link(room):
            self._account.moving -= {old for old, _ in upgrades}
            self._group.create_task(self._upgrades.save(upgrades), name=f"upgrade of {room.id}")
        for old in self._upgrades.unproved(room):
            self._account.moving.discard(old)
            self._group.create_task(self._leave(room.id), name=f"leaving {room.id}")
        new = self._upgrades.room_to_join(room)
        if new and new not in self._joining:
            self._joining.add(new)
            self._account.moving.add(room.id)
            joining = self._join(new, "", room.replacement_server)
            self._group.create_task(self._join_replacement(room.id, joining), name=f"joining {new}")

    async def _join_replacement(self, old: str, joining: Coroutine[None, None, bool]) -> None:
        if not await joining:  # it may need an invite, which may have come meanwhile
            self._account.moving.discard(old)
            new = self._account.rooms[old].replacement
            if state := self._late_invites.pop(new, None):
                self._handle_invite(new, state)

    async def _leave(self, room: str) -> None:
        try:
            await self._account.server.post("rooms", room, "leave", data={})
        except ChannelError as exc:
            log.warning("the room %s could not be left: %s", room, exc)

    async def _join(self, room: str, person: str, server: str = "") -> bool:
        """Join a room, and return whether that succeeded. `server` is one that knows it."""
        if person:  # messages of a room may arrive before our join does
            self._account.rooms.add_direct(room, person)
        try:
            for attempts_left in reversed(range(JOIN_TRIES)):
                try:
                    via: dict[str, str | int] = {"server_name": server, "via": server}
                    await self._account.server.post(
                        "join", room, data={}, query=via if server else None,
                        timeout_s=JOIN_TIMEOUT_S,
                    )  # fmt: skip
                    break
                except SendError as exc:
                    if not (exc.retryable and attempts_left):
                        raise
                    await self._clock.sleep(exc.after_s or JOIN_RETRY_S)
            if person:
                await self._account.save_direct(room, person)
        except ChannelError as exc:
            log.warning("the room %s could not be joined: %s", room, exc)
            return False
        finally:
            self._joining.discard(room)
        return True

    async def _check_encryption(self, room: MatrixRoom) -> None:
        """Request whether a room with an encrypted event is encrypted, if its state did not say so.

        Any member can send such an event to any room; and the sync leaves out a state that was set
        with this account elsewhere.
        """
        if not self._account.is_known_encrypted(room.id):
            try:
                room.is_encrypted = await self._account.fetch_is_encrypted(room.id)
            except MatrixRefusedError as exc:  # as after we were removed
                log.info("it is not known whether %s is encrypted: %s", room.id, exc)

    def _on_encrypted(self, room: MatrixRoom) -> None:
        if room.id not in self._notified:
            self._notified.add(room.id)
            log.warning("%s is encrypted: what is said there cannot be read", room.id)
            self._group.create_task(self._notify_encrypted(room.id), name=f"telling {room.id}")

    async def _notify_encrypted(self, room: str) -> None:
        """Notify an encrypted room once, across restarts."""
        server, data_path = self._account.server, ("user", self._account.me, "rooms", room)
        try:
            try:
                await server.get(*data_path, "account_data", ENCRYPTION_NOTIFIED)
            except MatrixRefusedError:  # not notified yet
                content = {"msgtype": "m.notice", "body": CANNOT_READ, "m.mentions": {}}
                transaction_id = transaction(room, ENCRYPTION_NOTIFIED)
                await server.put("rooms", room, "send", MESSAGE, transaction_id, data=content)
                await server.put(
                    *data_path, "account_data", ENCRYPTION_NOTIFIED, data={"told": True}
                )
        except ChannelError as exc:
            log.warning("it could not be said in %s that it is encrypted: %s", room, exc)


def _position(response: Object) -> str:
    found = get_str(response, "next_batch")
    if not found:
        raise ChannelError("Matrix did not say how far was read")
    return found


def _timeline(me: str) -> dict[str, object]:
    """Return the filter of events: not our own, with the senders' names."""
    return {
        "types": _TYPES,
        "not_senders": [me],
        "lazy_load_members": True,
        "include_redundant_members": True,
    }


@cache
def _filter(limit: int, me: str) -> str:
    no_types: dict[str, list[str]] = {"types": []}
    data = {
        "presence": no_types,
        "account_data": {"types": [DIRECT, UPGRADES]},
        "room": {
            "ephemeral": no_types,
            "account_data": no_types,
            "state": {
                "types": _STATE,
                "lazy_load_members": True,
                "include_redundant_members": True,
            },
            "timeline": {**_timeline(me), "limit": limit},
        },
    }
    return json.dumps(data, separators=(",", ":"))
