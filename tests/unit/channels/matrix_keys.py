"""The keys of a fake homeserver, and people who encrypt with matrix-nio's machine."""

import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from nio.crypto import Olm
from nio.events import MegolmEvent, ToDeviceEvent
from nio.responses import KeysClaimResponse, KeysQueryResponse, KeysUploadResponse
from nio.store import SqliteMemoryStore

from homarus.channels.base import ChannelContext
from homarus.channels.matrix import create
from homarus.channels.matrix.adapter import MatrixChannel
from homarus.channels.matrix.settings import MatrixSettings
from homarus.core.clock import Clock, SystemClock
from tests.unit.channels.matrix_server import ME, TOKEN, Asked, Said, Server, serving

ROOM = "!r"
DEVICE = "D"  # ours
ENCRYPTION = {
    "type": "m.room.encryption",
    "state_key": "",
    "sender": "@alice:test",
    "event_id": "$encryption",
    "content": {"algorithm": "m.megolm.v1.aes-sha2"},
}


class Keys:
    """What the homeserver has of devices, and what it has not delivered to them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.devices: dict[str, dict[str, Any]] = {}
        self.one_time: dict[tuple[str, str], dict[str, Any]] = {}
        self.inbox: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.members = [ME, "@alice:test"]
        server.on("POST /keys/upload", lambda asked: (200, self.upload(ME, DEVICE, asked.data)))
        server.on("POST /keys/query", lambda asked: (200, self.query(asked.data)))
        server.on("POST /keys/claim", lambda asked: (200, self.claim(asked.data)))
        server.on("PUT /sendToDevice/.*", self._send)
        server.on("GET /rooms/!r/state/m.room.encryption", (200, ENCRYPTION["content"]))
        server.on("GET /rooms/.*/members", lambda _asked: (200, {"chunk": self._members()}))

    def upload(self, user: str, device: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if "device_keys" in body:
            self.devices.setdefault(user, {})[device] = body["device_keys"]
        kept = self.one_time.setdefault((user, device), {})
        kept |= body.get("one_time_keys", {})
        return {"one_time_key_counts": {"signed_curve25519": len(kept)}}

    def query(self, body: Mapping[str, Any]) -> dict[str, Any]:
        users = body["device_keys"]
        return deepcopy({"device_keys": {user: self.devices.get(user, {}) for user in users}})

    def claim(self, body: Mapping[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for user, devices in body["one_time_keys"].items():
            for device in devices:
                if kept := self.one_time.get((user, device)):
                    id_ = next(iter(kept))
                    given.setdefault(user, {})[device] = {id_: kept.pop(id_)}
        return {"one_time_keys": given}

    def deliver(self, sender: str, kind: str, messages: Mapping[str, Mapping[str, Any]]) -> None:
        for user, devices in messages.items():
            for device, content in devices.items():
                event = {"sender": sender, "type": kind, "content": content}
                self.inbox.setdefault((user, device), []).append(event)

    def sync(self, since: str, *events: Mapping[str, Any], state: Any = (), **more: Any) -> Said:
        """Return a response with events of the room, and what waits for our device."""
        waiting = self.inbox.pop((ME, DEVICE), [])
        room = {"timeline": {"events": events, "limited": False}, "state": {"events": state}}
        return 200, {
            "next_batch": since,
            "to_device": {"events": waiting},
            "device_one_time_keys_count": {"signed_curve25519": 50},
            "rooms": {"join": {ROOM: room}} if events or state else {},
            **more,
        }

    def _send(self, asked: Asked) -> Said:
        kind = asked.path.split("/")[2]
        self.deliver(ME, kind, asked.data["messages"])
        return 200, {}

    def _members(self) -> list[dict[str, Any]]:
        return [
            {"type": "m.room.member", "state_key": user, "content": {"membership": "join"}}
            for user in self.members
        ]


class Person:
    """A device of a user, on matrix-nio."""

    def __init__(self, keys: Keys, user: str = "@alice:test", device: str = "PHONE") -> None:
        self.keys, self.user, self.device = keys, user, device
        store = SqliteMemoryStore(user, device)
        # Python 3.13 warns of a connection that is not closed, and a test has many devices.
        weakref.finalize(self, store.database.close)
        self.olm = Olm(user, device, store)
        answer = keys.upload(user, device, self.olm.share_keys())["one_time_key_counts"]
        self.olm.handle_response(KeysUploadResponse(0, answer["signed_curve25519"]))
        self._count = 0

    def meet(self, *users: str) -> None:
        """Learn the devices of users, and begin sessions with them."""
        found = self.keys.query({"device_keys": {user: [] for user in users}})
        self.olm.handle_response(KeysQueryResponse(found["device_keys"], {}))
        missing = self.olm.get_missing_sessions(list(users))
        asked = {user: dict.fromkeys(names, "signed_curve25519") for user, names in missing.items()}
        claimed = self.keys.claim({"one_time_keys": asked})
        self.olm.handle_response(KeysClaimResponse(claimed["one_time_keys"], {}))

    def share(self, *users: str) -> None:
        """Send the room's key to the devices of users."""
        self.meet(*users)
        shared, content = self.olm.share_group_session(
            ROOM, list(users), ignore_missing_sessions=True, ignore_unverified_devices=True
        )
        self.keys.deliver(self.user, "m.room.encrypted", content["messages"])
        session = self.olm.outbound_group_sessions[ROOM]
        session.users_shared_with.update(shared)
        session.shared = True

    def write(self, text: str, id_: str = "", **content: Any) -> dict[str, Any]:
        """Return an encrypted message; the room's key was shared before."""
        self._count += 1
        inner = {"msgtype": "m.text", "body": text, **content}
        sealed = self.olm.group_encrypt(ROOM, {"type": "m.room.message", "content": inner})
        return {
            "type": "m.room.encrypted",
            "event_id": id_ or f"${self.device}{self._count}",
            "sender": self.user,
            "origin_server_ts": 1_000,
            "content": sealed,
        }

    def read(self, content: Mapping[str, Any], sender: str = ME) -> dict[str, Any]:
        """Return the content of an encrypted event, after what came to the device."""
        for event in self.keys.inbox.pop((self.user, self.device), []):
            if event["type"] == "m.room.encrypted":
                self.olm.handle_to_device_event(ToDeviceEvent.parse_event(event))
        event = {
            "type": "m.room.encrypted",
            "event_id": "$x",
            "sender": sender,
            "origin_server_ts": 1,
            "content": dict(content),
            "room_id": ROOM,
        }
        parsed = MegolmEvent.from_dict(event)
        opened = self.olm.decrypt_megolm_event(parsed, ROOM)
        found: dict[str, Any] = opened.source["content"]
        return found

    def close(self) -> None:
        self.olm.store.database.close()


@asynccontextmanager
async def play() -> AsyncIterator[tuple[Server, Keys]]:
    """Run a fake homeserver with one encrypted room."""
    async with serving() as server:
        keys = Keys(server)
        room = {"state": {"events": [ENCRYPTION]}, "timeline": {"events": []}}
        first = {"next_batch": "s0", "rooms": {"join": {ROOM: room}}}
        server.syncs = [(200, first)]
        yield server, keys


def bot(server: Server, state: Path, clock: Clock | None = None, **settings: Any) -> MatrixChannel:
    """Return our account; the same folder is the same device."""
    given = {"homeserver": server.url, "accessToken": TOKEN, "encryption": True, **settings}
    known = {key: value for key, value in given.items() if value is not None}
    context = ChannelContext("matrix", "default", clock or SystemClock(), state=state)
    return create(context, MatrixSettings.read(known))
