"""Encrypt and decrypt the rooms of one account, with requests of our own.

Order matters: what came to our device is handled, and its keys are on disk, before the events of
the same response are read and before the next request tells the homeserver to forget them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from uuid import uuid4

from nio.event_builders import ToDeviceMessage

from homarus.channels.matrix.api import (
    HomeserverClient,
    MatrixRefusedError,
    Object,
    get_int,
    get_object,
    get_objects,
)
from homarus.channels.matrix.api import get_str as text_of
from homarus.channels.matrix.chat_events import REDACTION, redacted_id
from homarus.channels.matrix.content import fit_content
from homarus.channels.matrix.encryption.machine import (
    DeviceId,
    MissingKeyError,
    OlmMachine,
    UnknownDeviceError,
    UnreadableError,
)
from homarus.channels.matrix.encryption.store import KeyStore, UnreadableEvent
from homarus.channels.matrix.encryption.verification import Verifications
from homarus.channels.matrix.events import switches_encryption_on
from homarus.core.clock import Clock
from homarus.core.errors import ChannelAuthError, ChannelError

log = logging.getLogger(__name__)

MAX_CONTENT_BYTES: Final = 44_000  # what is encrypted grows by a third
DEVICES_PER_REQUEST: Final = 100
QUERY_AGAIN_MS: Final = 60_000  # how soon a user's devices are requested again for an unknown one
CLAIM_AGAIN_MS: Final = 300_000  # how soon a key is requested again of a device that had none
NOTICE_AFTER_MS: Final = 60_000  # how long a key may take before the room is told
NOTICE_EVERY_MS: Final = 3_600_000  # in one room
CHECK_EVERY_S: Final = 15.0
MAX_REQUESTS: Final = 40  # for keys, after one response: each is a request to the homeserver
KEEP_MS: Final = 7 * 86_400_000
ENCRYPTED: Final = "m.room.encrypted"
_MESSAGES: Final = frozenset({"m.room.message", "m.sticker"})
_CHANGE_AUDIENCE: Final = frozenset({"m.room.member", "m.room.history_visibility"})
NOTICE: Final = (
    "I cannot read a message in this room: its key did not reach me. Please send it again. If that"
    " happens often, restart your client."
)


class LostKeysError(ChannelAuthError):
    """The homeserver has other keys of our device than we have."""


class MatrixCrypto:
    """The encryption of one account."""

    def __init__(
        self, server: HomeserverClient, machine: OlmMachine, store: KeyStore, clock: Clock
    ) -> None:
        self._server, self.machine, self._store, self._clock = server, machine, store, clock
        self._lock = asyncio.Lock()  # one send at a time: a key is shared before it is used
        self._audiences: dict[str, frozenset[str]] = {}
        self._fetching: set[str] = set()  # rooms whose members did not change since the request
        self._queried_ms: dict[str, int] = {}
        self._failed_ms: dict[str, int] = {}
        self._claimed_ms: dict[DeviceId, int] = {}
        self._reported: set[tuple[str, str]] = set()
        self._told_ms: dict[str, int] = {}
        self._rooms: set[str] = set(store.load_encrypted_rooms())
        self._confidential: set[str] = set()  # with encrypted messages from others
        self._has_read_all = False  # the kept events are tried once after the start
        self._read: list[str] = []
        self.verifications = Verifications(machine, clock, self.send_to_device)
        self.verifications.on_verified = self.read_again

    # Life cycle

    async def start(self) -> None:
        """Compare our device with the homeserver's copy and publish it. Raises LostKeysError."""
        machine = self.machine
        me, mine = machine.user_id, machine.device_id
        devices = await self._query([me])
        known = get_object(devices, me, mine, "keys")
        if known and text_of(known, f"ed25519:{mine}") != machine.ed25519:
            raise LostKeysError(
                f"the keys of device {mine} of {me} are lost: other devices know it by others",
                fix="give it a new accessToken, which makes a new device",
            )
        machine.account.shared = bool(known)
        machine.apply_devices(me, get_object(devices, me))
        if not known:
            await self._upload_keys()
            log.info("device %s of %s has published its keys", mine, me)

    def close(self) -> None:
        self._store.close()

    # Sync

    async def handle_sync(self, response: Object) -> None:
        """Handle what came to our device, and send what that requires."""
        machine, verifications = self.machine, list[Object]()
        for event in get_objects(get_object(response, "to_device"), "events"):
            kind = text_of(event, "type")
            if kind in {ENCRYPTED, "m.room_key_request"}:
                machine.receive(event)
            elif kind.startswith("m.key.verification."):
                verifications.append(event)
        counts = response.get("device_one_time_keys_count")
        if isinstance(counts, dict):
            machine.uploaded_key_count = get_int(counts, "signed_curve25519")
        await self._apply_device_lists(get_object(response, "device_lists"))
        await self._receive_verifications(verifications)
        for room, data in get_object(response, "rooms", "join").items():
            if isinstance(data, dict):
                self._apply_members(room, data)
        machine.answer_key_requests()
        await self._exchange()

    async def _exchange(self) -> None:
        """Send what is queued; what fails stays queued, and reading goes on."""
        try:
            await self._send_queued()
        except ChannelAuthError:
            raise
        except ChannelError as exc:
            log.warning("keys could not be exchanged, which is tried again: %s", exc)

    async def _receive_verifications(self, events: list[Object]) -> None:
        """Handle messages of verifications; unknown devices that begin one are fetched first."""
        unknown = [
            sender
            for event in events
            if text_of(event, "type").endswith((".request", ".start"))
            and (device := text_of(get_object(event, "content"), "from_device"))
            and not self.machine.device(sender := text_of(event, "sender"), device)
        ]
        await self._try_query(unknown)
        for event in events:
            await self.verifications.receive(event)

    async def _try_query(self, users: Iterable[str]) -> bool:
        """Fetch the devices of users in one request; False if that failed or is not due."""
        due = {user for user in users if self._may_query(user)}
        if not due:
            return False
        try:
            await self.query_devices(due)
        except ChannelAuthError:
            raise
        except ChannelError as exc:
            log.warning("devices of %s could not be fetched: %s", ", ".join(sorted(due)), exc)
            return False
        return True

    def _may_query(self, user: str) -> bool:
        """Return whether a user's devices may be fetched again, for one that is not known."""
        before_ms = self._clock.now_ms() - QUERY_AGAIN_MS
        if self._failed_ms.get(user, before_ms) > before_ms:
            return False  # each try would wait for the user's homeserver
        is_stale = user in self.machine.users_for_key_query
        return is_stale or self._queried_ms.get(user, before_ms) <= before_ms

    async def _apply_device_lists(self, lists: Object) -> None:
        changed, left = lists.get("changed"), lists.get("left")
        stale = {
            user
            for user in (changed if isinstance(changed, list) else ())
            if isinstance(user, str) and user in self.machine.tracked_users
        }
        self.machine.add_changed_users(stale)
        for user in left if isinstance(left, list) else ():
            if isinstance(user, str):
                self.machine.tracked_users.discard(user)
        if stale:  # a message that waits may be of a device that was not published before
            waiting = {text_of(one.event, "sender") for one in self._store.unreadable()}
            if await self._try_query(stale & waiting):
                self.read_again()

    def _apply_members(self, room: str, data: Object) -> None:
        timeline = get_object(data, "timeline")  # the state repeats the members who wrote
        if timeline.get("limited") is True or any(
            event.get("type") in _CHANGE_AUDIENCE for event in get_objects(timeline, "events")
        ):
            self.forget_audience(room)

    def forget_audience(self, room: str) -> None:
        """Fetch the members of a room before the next send there."""
        self._audiences.pop(room, None)
        self._fetching.discard(room)

    async def _send_queued(self) -> None:
        machine = self.machine
        if machine.should_upload_keys:
            await self._upload_keys()
        if machine.wedged_devices or machine.key_request_devices_no_session:
            await self._claim(
                (user, device)
                for user, devices in machine.get_users_for_key_claiming().items()
                for device in devices
            )
            machine.wedged_devices.clear()  # those that have no key are tried when they write again
            machine.key_request_devices_no_session.clear()
            machine.answer_key_requests()
        for message in machine.outgoing():
            await self.send_to_device(message)
            machine.mark_sent(message)

    async def send_to_device(self, message: ToDeviceMessage) -> None:
        """Send one message to a device."""
        await self._send_messages(message.type, message.as_dict()["messages"])

    async def _send_messages(self, kind: str, messages: Object) -> None:
        await self._server.put("sendToDevice", kind, uuid4().hex, data={"messages": messages})

    async def _upload_keys(self) -> None:
        body = self.machine.keys_to_upload()
        try:
            answer = await self._server.post("keys", "upload", data=body)
        except MatrixRefusedError:
            self.machine.replace_one_time_keys()
            raise
        self.machine.mark_uploaded(get_object(answer, "one_time_key_counts"))

    async def _query(self, users: Iterable[str]) -> Object:
        data: Object = {"device_keys": {user: [] for user in users}}
        return get_object(await self._server.post("keys", "query", data=data), "device_keys")

    async def query_devices(self, users: Iterable[str]) -> None:
        """Fetch the devices of users."""
        wanted, machine = sorted(users), self.machine
        machine.tracked_users.update(wanted)  # what changes during the request is noted
        machine.users_for_key_query.difference_update(wanted)
        try:
            found = await self._query(wanted)
        except BaseException:
            machine.add_changed_users({*wanted})
            raise
        changed = machine.users_for_key_query & {*wanted}
        for user in wanted:
            self._queried_ms[user] = self._clock.now_ms()
            if user in found:
                self._failed_ms.pop(user, None)
                machine.apply_devices(user, get_object(found, user))
            else:  # the user's homeserver is away
                self._failed_ms[user] = self._clock.now_ms()
                changed.add(user)
        machine.add_changed_users(changed)

    async def _claim(self, devices: Iterable[DeviceId]) -> None:
        now_ms = self._clock.now_ms()
        before_ms = now_ms - CLAIM_AGAIN_MS
        wanted = [one for one in devices if self._claimed_ms.get(one, before_ms) <= before_ms]
        for start in range(0, len(wanted), DEVICES_PER_REQUEST):
            asked: dict[str, dict[str, str]] = {}
            part = wanted[start : start + DEVICES_PER_REQUEST]
            for user, device in part:
                asked.setdefault(user, {})[device] = "signed_curve25519"
            answer = await self._server.post("keys", "claim", data={"one_time_keys": asked})
            self._claimed_ms |= dict.fromkeys(part, now_ms)
            self.machine.apply_claimed(get_object(answer, "one_time_keys"))

    # Sending

    def is_encrypted(self, room: str) -> bool:
        """Return whether a room was ever seen encrypted, which cannot be turned off.

        What was written encrypted is answered so, even if the homeserver hides the room's state.
        """
        return room in self._rooms or room in self._confidential

    def remember_encrypted(self, *rooms: str) -> None:
        """Keep that rooms are encrypted; from here on, unencrypted messages are ignored there."""
        if added := [room for room in rooms if room not in self._rooms]:
            self._rooms.update(added)
            self._store.save_encrypted_rooms(added)

    async def encrypt(self, room: str, kind: str, content: Object) -> Object:
        """Return the encrypted content, after its key is with everyone who may read it."""
        content = fit_content(dict(content), MAX_CONTENT_BYTES)
        async with self._lock:
            users = await self._audience(room)
            await self._update_devices(users)
            machine = self.machine
            devices = machine.recipients(users)
            machine.begin_room_session(room, {(one.user_id, one.id) for one in devices})
            unshared = machine.unshared(room, devices)
            await self._claim(
                (one.user_id, one.id)
                for one in unshared
                if not machine.session_store.get(one.curve25519)
            )
            for start in range(0, len(unshared), DEVICES_PER_REQUEST):
                messages = machine.encrypt_room_key(
                    room, unshared[start : start + DEVICES_PER_REQUEST]
                )
                if messages:
                    await self._send_messages(ENCRYPTED, messages)
                    machine.mark_shared(room, messages)
            return machine.encrypt(room, kind, content)

    async def _audience(self, room: str) -> frozenset[str]:
        """Return who may read a room: members, and invited people where they see what was said."""
        if room in self._audiences:
            return self._audiences[room]
        self._fetching.add(room)
        query = {"not_membership": "leave"}
        answer = await self._server.get("rooms", room, "members", query=query)
        people: dict[str, set[str]] = {"join": set(), "invite": set()}
        for event in get_objects(answer, "chunk"):
            membership = text_of(get_object(event, "content"), "membership")
            people.get(membership, set()).add(text_of(event, "state_key"))
        users = people["join"]
        if people["invite"] and await self._history_visibility(room) != "joined":
            users |= people["invite"]
        audience = frozenset(users - {""})
        if room in self._fetching:  # no member came or went meanwhile
            self._audiences[room] = audience
        return audience

    async def _history_visibility(self, room: str) -> str:
        try:
            state = await self._server.get("rooms", room, "state", "m.room.history_visibility")
        except MatrixRefusedError as exc:
            if exc.errcode != "M_NOT_FOUND":
                raise
            return "shared"  # the specification's default
        return text_of(state, "history_visibility")

    async def _update_devices(self, users: Iterable[str]) -> None:
        machine = self.machine
        stale = {u for u in users if u not in machine.tracked_users} | (
            machine.users_for_key_query & set(users)
        )
        before_ms = self._clock.now_ms() - QUERY_AGAIN_MS
        if due := [user for user in stale if self._failed_ms.get(user, before_ms) <= before_ms]:
            await self.query_devices(due)

    # Reading

    async def open_events(
        self, room: str, events: Iterable[Object], *, is_encrypted: bool
    ) -> list[Object]:
        """Return events of a room as they were written; those that cannot be read are left out.

        In a room that was encrypted before them, unencrypted messages are left out too: its people
        trust that only its members can write there.
        """
        opened, guarded = list[Object](), room in self._rooms
        for event in events:
            kind = event.get("type")
            if kind == ENCRYPTED:
                guarded = guarded or is_encrypted
                if event.get("sender") != self.machine.user_id:
                    read = await self.decrypt(room, event)
                    if read:
                        self._confidential.add(room)
                    opened += [read] if read and read["type"] in _MESSAGES else []
            elif kind in _MESSAGES and guarded:
                self._report(room, event, UnreadableError("it is not encrypted, and the room is"))
            else:
                if kind == REDACTION and (redacted := redacted_id(event)):
                    self._store.remove_unreadable([redacted], room)
                guarded = guarded or switches_encryption_on(event)
                opened.append(event)
        if is_encrypted:
            self.remember_encrypted(room)
        return opened

    async def decrypt(self, room: str, event: Object) -> Object | None:
        """Return the event that an encrypted one holds; None if it is kept, or unreadable."""
        try:
            return await self.read_event(room, event)
        except (MissingKeyError, UnknownDeviceError) as exc:
            self._keep(room, event, exc)
        except UnreadableError as exc:
            self._report(room, event, exc)
        return None

    async def read_event(self, room: str, event: Object) -> Object:
        """Decrypt an event, with the newest devices of its sender. Raises UnreadableError."""
        try:
            return self.machine.decrypt_room_event(room, event)
        except UnknownDeviceError:
            if not await self._try_query([text_of(event, "sender")]):
                raise
            return self.machine.decrypt_room_event(room, event)

    def _keep(self, room: str, event: Object, why: UnreadableError) -> None:
        """Keep an event until its key arrives, and request the key."""
        if not text_of(event, "event_id"):
            return
        session = text_of(get_object(event, "content"), "session_id")
        kept = {key: value for key, value in event.items() if key != "unsigned"}
        if not self._store.add_unreadable(room, session, kept, self._clock.now_ms()):
            return
        self._report(room, event, why)
        queued = len(self.machine.outgoing_to_device_messages)
        if isinstance(why, MissingKeyError) and queued < MAX_REQUESTS:
            self.machine.request_room_key(room, event)

    def _report(self, room: str, event: Object, why: UnreadableError) -> None:
        place = (room, text_of(event, "sender"))
        if place not in self._reported:
            self._reported.add(place)
            log.warning("a message of %s in %s cannot be read: %s", place[1], room, why.message)

    async def read_waiting(self) -> list[tuple[str, Object]]:
        """Return kept events that can be read now, with their rooms; they are kept until `settle`.

        A stop before that reads them again; stored messages are recognised by their ids.
        """
        gained, self.machine.gained = self.machine.gained, set()
        if self._has_read_all and not gained:
            return []
        found = list[tuple[str, Object]]()
        for waiting in self._store.unreadable():
            if self._has_read_all and waiting.session_id not in gained:
                continue
            try:
                event = await self.read_event(waiting.room, waiting.event)
            except (MissingKeyError, UnknownDeviceError):
                continue
            except UnreadableError as exc:
                self._report(waiting.room, waiting.event, exc)
            else:
                found.append((waiting.room, event))
            self._read.append(waiting.event_id)
        self._has_read_all = True
        return found

    async def settle(self) -> None:
        """Forget the kept events that were passed on, and request the keys that are missing."""
        self._store.remove_unreadable(self._read)
        self._read.clear()
        if self.machine.outgoing_to_device_messages:
            await self._exchange()

    def read_again(self) -> None:
        """Let the next response try every kept event, because a device became known or trusted."""
        self._has_read_all = False

    def waiting(self) -> list[UnreadableEvent]:
        return self._store.unreadable()

    def count_waiting(self) -> int:
        return self._store.count_unreadable()

    async def watch_unreadable(self, send_notice: Callable[[str, str], Awaitable[object]]) -> None:
        """Tell each room once in a while that a message in it cannot be read."""
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            for room in self._untold_rooms():
                self._store.mark_told(room)
                self._told_ms[room] = self._clock.now_ms()
                try:
                    await send_notice(room, NOTICE)
                except ChannelError as exc:
                    log.warning("%s could not be told of an unreadable message: %s", room, exc)

    def _untold_rooms(self) -> list[str]:
        """Return the rooms to tell, and drop what is too old to be answered."""
        now_ms = self._clock.now_ms()
        self._store.remove_unreadable_before(now_ms - KEEP_MS)
        return [
            room
            for room in self._store.find_untold_rooms(now_ms - KEEP_MS, now_ms - NOTICE_AFTER_MS)
            if now_ms - self._told_ms.get(room, -NOTICE_EVERY_MS) >= NOTICE_EVERY_MS
        ]
