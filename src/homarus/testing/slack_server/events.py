"""Events for the app: envelopes that are sent to a socket until they are acknowledged."""

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode
from uuid import uuid4

from homarus.core.message import Json
from homarus.testing.slack_server.state import APP, BOT_USER, TEAM, Object
from homarus.testing.slack_server.websocket import WebSocket

TOKEN: Final = "verification"  # noqa: S105 - deprecated by Slack, and read by no one


@dataclass(slots=True)
class Envelope:
    """One delivery of an event. `attempts` counts the connections that it was sent to."""

    id: str
    type: str
    payload: Object
    attempts: int = 0
    acked: bool = False

    def frame(self) -> Object:
        frame: Object = {
            "envelope_id": self.id,
            "type": self.type,
            "payload": self.payload,
            "accepts_response_payload": self.type != "events_api",
        }
        if self.type == "events_api":
            frame |= {"retry_attempt": self.attempts - 1, "retry_reason": ""}
        return frame


class EnvelopeFeed:
    """Sends envelopes to the connected socket, and those without an acknowledgement again."""

    def __init__(self) -> None:
        self.sockets: list[WebSocket] = []
        self.envelopes: list[Envelope] = []
        self.lost: list[Envelope] = []

    async def add(self, kind: str, payload: Object) -> Envelope:
        """Send an envelope; without a connection, it is lost."""
        envelope = Envelope(str(uuid4()), kind, payload)
        if not self.sockets:
            self.lost.append(envelope)
            return envelope
        self.envelopes.append(envelope)
        await self._send(self.sockets[-1], envelope)
        return envelope

    async def connect(self, socket: WebSocket) -> None:
        """Send what was not acknowledged to a new connection."""
        self.sockets.append(socket)
        for envelope in [one for one in self.envelopes if not one.acked]:
            await self._send(socket, envelope)

    def acknowledge(self, envelope_id: Json) -> None:
        for envelope in self.envelopes:
            if envelope.id == envelope_id:
                envelope.acked = True

    async def _send(self, socket: WebSocket, envelope: Envelope) -> None:
        envelope.attempts += 1
        await socket.send(envelope.frame())


def make_callback(event: Mapping[str, Json]) -> Object:
    """Return an event as the Events API sends it."""
    return {
        "token": TOKEN,
        "team_id": TEAM,
        "api_app_id": APP,
        "event": dict(event),
        "type": "event_callback",
        "event_id": f"Ev{uuid4().hex[:10].upper()}",
        "event_time": int(time.time()),
        "authorizations": [{"team_id": TEAM, "user_id": BOT_USER, "is_bot": True}],
        "is_ext_shared_channel": False,
    }


def sign_request(body: bytes, secret: str, now_s: float) -> dict[str, str]:
    """Return the headers of a signed request."""
    at = str(int(now_s))
    signed = f"v0:{at}:".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": at, "x-slack-signature": f"v0={digest}"}


def encode_form(fields: Mapping[str, str]) -> bytes:
    """Return the body of a slash command or an interaction."""
    return urlencode(fields).encode()
