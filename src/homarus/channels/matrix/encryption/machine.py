"""The cryptographic state of our device: matrix-nio's machine, with stricter checks.

Everything that it is given was written by others and may have any shape; the library raises
whatever such data makes it raise. So each item is handled alone, and one that fails is logged.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import islice
from typing import Any, Final, TypeAlias, cast

import vodozemac
from nio.crypto import InboundGroupSession, Olm, OlmDevice
from nio.event_builders import RoomKeyRequestMessage, ToDeviceMessage
from nio.events import ToDeviceEvent
from nio.exceptions import EncryptionError, ProtocolError, VerificationError
from nio.responses import KeysClaimResponse, KeysQueryResponse, KeysUploadResponse, ToDeviceResponse

from homarus.channels.matrix.api import Object, get_int, get_object, get_str
from homarus.channels.matrix.encryption.store import KeyStore, RoomKeys
from homarus.core.errors import ChannelError
from homarus.core.message import Json

log = logging.getLogger(__name__)

MEGOLM: Final = "m.megolm.v1.aes-sha2"
MAX_DEVICES: Final = 200  # of one user
MAX_SESSIONS: Final = 20  # with one device
MAX_KEY_REQUESTS: Final = 1_000  # that were not answered
# What the library raises for malformed data. Errors of the store are not among them: a key that
# cannot be stored must not be taken for a malformed one.
LIBRARY_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EncryptionError,
    LookupError,
    ProtocolError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,  # all errors of vodozemac
    VerificationError,
)
DeviceId: TypeAlias = tuple[str, str]  # user and device
Messages: TypeAlias = dict[str, dict[str, Json]]  # contents by user and device


class UnreadableError(ChannelError):
    """An encrypted event cannot be read, and that cannot change."""


class MissingKeyError(UnreadableError):
    """The key of an event has not arrived."""


class UnknownDeviceError(UnreadableError):
    """The device that sent the key is not one that the sender has published."""


class OlmMachine(Olm):  # type: ignore[misc]  # the library has no types
    """Our device. `gained`: the sessions whose keys arrived since they were last looked at."""

    store: KeyStore
    inbound_group_store: RoomKeys

    def __init__(self, user: str, device: str, store: KeyStore, *, only_verified: bool) -> None:
        super().__init__(user, device, store)
        self._only_verified = only_verified
        self.gained: set[str] = set()

    # What we publish

    @property
    def curve25519(self) -> str:
        return str(self.account.identity_keys["curve25519"])

    @property
    def ed25519(self) -> str:
        return str(self.account.identity_keys["ed25519"])

    def keys_to_upload(self) -> Object:
        """Return the body of an upload. Its private keys are stored before anyone can use them."""
        body: Object = self.share_keys()
        self.save_account()
        return body

    def mark_uploaded(self, counts: Object) -> None:
        self.handle_response(KeysUploadResponse(0, get_int(counts, "signed_curve25519")))

    def replace_one_time_keys(self) -> None:
        """Upload other keys next time: the homeserver refuses names that it knows for others."""
        self.mark_keys_as_published()
        self.save_account()

    # Events to our device

    def receive(self, event: Object) -> None:
        """Handle an encrypted message or a key request that another device sent to ours.

        A message is opened once, so it is on disk as opened only together with what it holds.
        """
        with self.store.database.atomic():
            self._receive(event)

    def _receive(self, event: Object) -> None:
        sender, kind = get_str(event, "sender"), event.get("type")
        if kind == "m.room_key_request" and sender != self.user_id:
            return  # we give keys to our own verified devices alone
        if kind == "m.room_key_request" and not self._may_request(get_object(event, "content")):
            return
        try:
            parsed = ToDeviceEvent.parse_event(deepcopy(dict(event)))
            if parsed is not None:
                self.handle_to_device_event(parsed)
        except LIBRARY_ERRORS as exc:
            log.warning("%s sent our device a malformed %s: %s", sender, kind, type(exc).__name__)
        self._prune_sessions(get_str(get_object(event, "content"), "sender_key"))

    def _may_request(self, content: Object) -> bool:
        """Return whether a device of ours is verified and not logged out."""
        device = self.device(self.user_id, get_str(content, "requesting_device_id"))
        return device is not None and bool(device.verified) and not device.deleted

    def answer_key_requests(self) -> None:
        """Queue keys for our own verified devices that requested them."""
        self.collect_key_requests()
        self.key_request_from_untrusted.clear()

    def create_group_session(
        self, sender_key: str, sender_fp_key: str, room_id: str, session_id: str, session_key: str
    ) -> None:
        """Keep a room key that a device sent."""
        try:
            session = InboundGroupSession(session_key, sender_fp_key, sender_key, room_id)
        except ValueError as exc:
            log.warning("a key of %s is malformed: %s", room_id, exc)
            return
        if session.id != session_id:
            log.warning("a key of %s is not that of its session", room_id)
        else:
            self.add_room_key(session)

    def save_inbound_group_session(self, session: InboundGroupSession) -> None:
        super().save_inbound_group_session(session)
        self.gained.add(session.id)

    def add_room_key(self, session: InboundGroupSession) -> bool:
        """Keep a room key unless we have one that reads as much."""
        if not self.inbound_group_store.add(session):
            return False
        self.save_inbound_group_session(session)
        return True

    def add_room_keys(self, sessions: Iterable[InboundGroupSession]) -> int:
        """Keep many room keys in one transaction; return how many are new."""
        with self.store.database.atomic():
            return sum(self.add_room_key(one) for one in sessions)

    def _prune_sessions(self, sender_key: str) -> None:
        sessions = self.session_store[sender_key]
        if len(sessions) > MAX_SESSIONS:
            sessions.sort(key=lambda one: one.use_time, reverse=True)
            self.store.delete_sessions(one.id for one in sessions[MAX_SESSIONS:])
            del sessions[MAX_SESSIONS:]

    # Devices

    def device(self, user: str, device: str) -> OlmDevice | None:
        """Return a device that its user has published."""
        return self.device_store[user].get(device) if device else None

    def apply_devices(self, user: str, devices: Object) -> None:
        """Apply the device list of a user; devices whose keys are not signed are left out."""
        if len(devices) > MAX_DEVICES:
            log.warning("%s has %d devices; %d are used", user, len(devices), MAX_DEVICES)
        valid = {
            name: deepcopy(payload)
            for name, payload in islice(devices.items(), MAX_DEVICES)
            if isinstance(payload, dict) and self._is_signed(user, name, payload)
        }
        try:
            self.handle_response(KeysQueryResponse({user: valid}, {}))
        except LIBRARY_ERRORS as exc:
            log.warning("the devices of %s are malformed: %s", user, type(exc).__name__)
        for name, payload in valid.items():
            known = self.device_store[user].get(name)
            if known and known.deleted and known.ed25519 == payload["keys"][f"ed25519:{name}"]:
                known.deleted = False
                self.store.save_device_keys({user: {name: known}})
        self.tracked_users.add(user)
        self.users_for_key_query.discard(user)

    def _is_signed(self, user: str, device: str, payload: Object) -> bool:
        keys = get_object(payload, "keys")
        try:
            signing_key = get_str(keys, f"ed25519:{device}")
            vodozemac.Curve25519PublicKey.from_base64(get_str(keys, f"curve25519:{device}"))
            is_theirs = payload["user_id"] == user and payload["device_id"] == device
            copied = deepcopy(dict(payload))
            return bool(is_theirs and self.verify_json(copied, signing_key, user, device))
        except LIBRARY_ERRORS:
            return False

    def apply_claimed(self, claimed: Object) -> None:
        """Begin sessions with the one-time keys that the homeserver gave out."""
        for user in claimed:
            for device, keys in get_object(claimed, user).items():
                try:
                    self.handle_response(KeysClaimResponse({user: {device: keys}}, {}))
                except LIBRARY_ERRORS as exc:
                    log.warning("the key of %s %s is no key: %s", user, device, type(exc).__name__)

    def recipients(self, users: Iterable[str]) -> list[OlmDevice]:
        """Return the devices that may read what we send to these users."""
        return [
            device
            for user in users
            for device in self.device_store.active_user_devices(user)
            if (user, device.id) != (self.user_id, self.device_id)
            and not device.blacklisted
            and (device.verified or not self._only_verified)
        ]

    # Room keys that we send

    def begin_room_session(self, room: str, readers: set[DeviceId]) -> None:
        """Begin a new session if there is none, it is used up, or a former reader may not read."""
        current = self.outbound_group_sessions.get(room)
        if current is None or current.expired or current.users_shared_with - readers:
            self.create_outbound_group_session(room)

    def unshared(self, room: str, devices: Iterable[OlmDevice]) -> list[OlmDevice]:
        """Return the devices that do not have the current key of a room."""
        shared = self.outbound_group_sessions[room].users_shared_with
        return [device for device in devices if (device.user_id, device.id) not in shared]

    def encrypt_room_key(self, room: str, devices: Iterable[OlmDevice]) -> Messages:
        """Return the current key of a room for devices that we have a session with."""
        current = self.outbound_group_sessions[room]
        content = {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": current.id,
            "session_key": current.session_key,
        }
        messages: Messages = {}
        for device in devices:
            if session := self.session_store.get(device.curve25519):
                sealed = self._olm_encrypt(session, device, "m.room_key", content)
                messages.setdefault(device.user_id, {})[device.id] = sealed
        return messages

    def mark_shared(self, room: str, messages: Mapping[str, Mapping[str, Json]]) -> None:
        current = self.outbound_group_sessions[room]
        shared = {(user, device) for user, devices in messages.items() for device in devices}
        current.users_shared_with.update(shared)

    def encrypt(self, room: str, kind: str, content: Object) -> Object:
        """Return an encrypted event; what it relates to stays readable for the homeserver."""
        self.outbound_group_sessions[room].mark_as_shared()
        inner = {key: value for key, value in content.items() if key != "m.relates_to"}
        sealed: dict[str, Json] = self.group_encrypt(room, {"type": kind, "content": inner})
        if "m.relates_to" in content:
            sealed["m.relates_to"] = content["m.relates_to"]
        return sealed

    # Room events

    def decrypt_room_event(self, room: str, event: Object) -> Object:
        """Return the event that an encrypted one holds.

        Raises MissingKeyError, UnknownDeviceError or UnreadableError.
        """
        content, sender = get_object(event, "content"), get_str(event, "sender")
        if content.get("algorithm") != MEGOLM:
            raise UnreadableError("it is encrypted in a way that is not known")
        sender_key, session_id = get_str(content, "sender_key"), get_str(content, "session_id")
        session = self._find_session(
            sender, self.inbound_group_store.find(room, sender_key, session_id)
        )
        plaintext, index = _open(session, get_str(content, "ciphertext"))
        payload = _parse(plaintext)
        if payload.get("room_id") != room:
            raise UnreadableError("it was written for another room")
        id_ = get_str(event, "event_id")
        if not self.store.note_index(session.sender_key, session.id, index, id_):
            raise UnreadableError("it repeats an earlier message")
        inner = dict(get_object(payload, "content"))
        if "m.relates_to" not in inner and "m.relates_to" in content:
            inner["m.relates_to"] = content["m.relates_to"]
        kept = {key: value for key, value in event.items() if key != "unsigned"}
        return {**kept, "type": get_str(payload, "type"), "content": inner}

    def _find_session(
        self, sender: str, sessions: Iterable[InboundGroupSession]
    ) -> InboundGroupSession:
        """Return the session that came from a device of the sender."""
        problem: UnreadableError = MissingKeyError("its key has not arrived")
        for session in sessions:
            try:
                self._check_sender(sender, session)
            except UnreadableError as exc:
                problem = exc
            else:
                return session
        raise problem

    def _check_sender(self, sender: str, session: InboundGroupSession) -> None:
        """Check that the key came from a device of the sender: homeservers could name anyone."""
        if sender == self.user_id and session.sender_key == self.curve25519:
            return
        for device in self.device_store[sender].values():
            if (device.curve25519, device.ed25519) == (session.sender_key, session.ed25519):
                if device.blacklisted:
                    raise UnreadableError(f"device {device.id} of {sender} is blocked")
                if self._only_verified and not device.verified:
                    raise UnknownDeviceError(f"device {device.id} of {sender} is not verified")
                return
        raise UnknownDeviceError(f"its key came from no device of {sender}")

    # Requests for keys

    def request_room_key(self, room: str, event: Object) -> None:
        """Queue requests for the key of an event: to its sender's device and to our own devices."""
        content = get_object(event, "content")
        session_id = get_str(content, "session_id")
        if session_id in self.outgoing_key_requests or not session_id:
            return
        if len(self.outgoing_key_requests) >= MAX_KEY_REQUESTS:
            oldest = self.outgoing_key_requests.pop(next(iter(self.outgoing_key_requests)))
            self.store.remove_outgoing_key_request(oldest)
        body = {
            "algorithm": MEGOLM,
            "room_id": room,
            "sender_key": get_str(content, "sender_key"),
            "session_id": session_id,
        }
        asked = {
            "action": "request",
            "body": body,
            "request_id": session_id,
            "requesting_device_id": self.device_id,
        }
        about = (session_id, session_id, room, MEGOLM)
        readers = {(self.user_id, "*")}
        if device := get_str(content, "device_id"):
            readers.add((get_str(event, "sender"), device))
        messages = [
            RoomKeyRequestMessage("m.room_key_request", *reader, asked, *about)
            for reader in sorted(readers)
        ]
        self.outgoing_to_device_messages += messages

    def outgoing(self) -> Iterator[ToDeviceMessage]:
        """Yield the queued messages; each is removed by `mark_sent`."""
        yield from list(self.outgoing_to_device_messages)

    def mark_sent(self, message: ToDeviceMessage) -> None:
        self.handle_response(ToDeviceResponse(message))


def _open(session: InboundGroupSession, ciphertext: str) -> tuple[str, int]:
    try:
        sealed = vodozemac.MegolmMessage.from_base64(ciphertext)
        if sealed.message_index() < session.first_known_index:
            raise MissingKeyError("the key that arrived begins after it")
        return cast("tuple[str, int]", session.decrypt(ciphertext))
    except ValueError as exc:
        raise UnreadableError(f"it is damaged ({exc})") from exc


def _parse(plaintext: str) -> dict[str, Any]:
    try:
        payload = json.loads(plaintext)
    except (ValueError, RecursionError) as exc:
        raise UnreadableError("it holds no JSON") from exc
    if not isinstance(payload, dict) or not isinstance(payload.get("content"), dict):
        raise UnreadableError("it holds no event")
    return payload
