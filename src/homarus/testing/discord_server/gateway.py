"""The gateway of the fake: sessions, their events, heartbeats, and resuming."""

import asyncio
from contextlib import suppress
from dataclasses import field
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.testing.discord_server.state import BOT, GUILD, DiscordState
from homarus.testing.discord_server.websocket import FakeWebSocket

HEARTBEAT_MS: Final = 30_000
_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME, _RECONNECT, _INVALID, _HELLO, _ACK = (
    0, 1, 2, 6, 7, 9, 10, 11,
)  # fmt: skip
_BAD_TOKEN, _BAD_INTENTS = 4004, 4014
# The intent that an event needs: in the server, in a direct chat.
_INTENTS: Final = {
    "MESSAGE_CREATE": (9, 12),
    "MESSAGE_UPDATE": (9, 12),
    "MESSAGE_DELETE": (9, 12),
    "MESSAGE_DELETE_BULK": (9, 12),
    "MESSAGE_REACTION_ADD": (10, 13),
    "MESSAGE_REACTION_REMOVE": (10, 13),
    "GUILD_MEMBER_ADD": (1, 1),
    "THREAD_CREATE": (0, 0),
}
_CONTENT: Final = 15


@dataclass(slots=True)
class GatewayLogin:
    """One session: its events, and the connection that has it now."""

    id: str
    intents: int
    presence: Json = None
    events: list[dict[str, Any]] = field(default_factory=list)
    socket: FakeWebSocket | None = None


class FakeGateway:
    """All connections of the bot."""

    def __init__(self, state: DiscordState, token: str) -> None:
        self._state, self._token = state, token
        self.logins: list[GatewayLogin] = []
        self.resumed = 0
        self.allowed_intents = -1  # all; those that are not make an IDENTIFY fail
        self.frozen = False
        self.holds_guild = False  # the server is not available at the login

    @property
    def connected(self) -> list[GatewayLogin]:
        """The sessions with a connection."""
        return [login for login in self.logins if login.socket]

    def notify(self, kind: str, data: dict[str, Any]) -> None:
        """Send an event to every session that may have it; one without a connection later."""
        for login in self.logins:
            if (shown := _visible(login.intents, kind, data)) is not None:
                self._dispatch(login, kind, shown)

    def forget_sessions(self) -> None:
        """Refuse to resume: what was not delivered is lost to the gateway."""
        self.logins = [login for login in self.logins if login.socket]
        for login in self.logins:
            login.id = ""

    def give_guild(self) -> None:
        """Make the server available to every session."""
        self.holds_guild = False
        self.notify("GUILD_CREATE", self._state.guild_json())

    def lose_guild(self) -> None:
        """Make the server unavailable to every session, as in an outage."""
        self.notify("GUILD_DELETE", {"id": str(GUILD), "unavailable": True})

    def send_raw(self, frame: Json) -> None:
        """Send a frame to every connection."""
        for login in self.logins:
            if login.socket:
                login.socket.send(frame)

    async def talk(self, socket: FakeWebSocket, url: str) -> None:
        """Talk to one client until it leaves."""
        socket.send({"op": _HELLO, "d": {"heartbeat_interval": HEARTBEAT_MS}, "s": None, "t": None})
        login: GatewayLogin | None = None
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while (frame := await socket.receive()) is not None:
                    match frame["op"]:
                        case 1:
                            socket.send({"op": _ACK, "d": None, "s": None, "t": None})
                        case 2:
                            login = self._identify(socket, frame["d"], url)
                        case 6:
                            login = self._resume(socket, frame["d"])
        finally:
            if login:
                login.socket = None

    def _identify(
        self, socket: FakeWebSocket, data: dict[str, Any], url: str
    ) -> GatewayLogin | None:
        if data["token"] != self._token:
            socket.close(_BAD_TOKEN)
            return None
        if data["intents"] & ~self.allowed_intents:
            socket.close(_BAD_INTENTS)
            return None
        login = GatewayLogin(f"session-{len(self.logins)}", data["intents"], data.get("presence"))
        login.socket = socket
        self.logins.append(login)
        ready = {
            "v": 10,
            "user": self._state.me,
            "guilds": [{"id": str(GUILD), "unavailable": True}],
            "session_id": login.id,
            "resume_gateway_url": url,
            "application": {"id": str(BOT), "flags": 0},
            "private_channels": [],
            "shard": [0, 1],
        }
        self._dispatch(login, "READY", ready)
        if not self.holds_guild:
            self._dispatch(login, "GUILD_CREATE", self._state.guild_json())
        return login

    def _resume(self, socket: FakeWebSocket, data: dict[str, Any]) -> GatewayLogin | None:
        found = [login for login in self.logins if login.id and login.id == data["session_id"]]
        if data["token"] != self._token or not found:
            socket.send({"op": _INVALID, "d": False, "s": None, "t": None})
            return None
        login, self.resumed = found[0], self.resumed + 1
        login.socket = socket
        for event in login.events:
            if event["s"] > data["seq"]:
                socket.send(event)
        self._dispatch(login, "RESUMED", {})
        return login

    def _dispatch(self, login: GatewayLogin, kind: str, data: dict[str, Any]) -> None:
        event = {"op": _DISPATCH, "t": kind, "s": len(login.events) + 1, "d": data}
        login.events.append(event)
        if login.socket:
            login.socket.send(event)


def _visible(intents: int, kind: str, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return an event as these intents show it; None when they do not."""
    bits = _INTENTS.get(kind)
    if bits and not intents >> bits["guild_id" not in data] & 1:
        return None
    is_hidden = kind in {"MESSAGE_CREATE", "MESSAGE_UPDATE"} and "guild_id" in data
    is_ours = any(user["id"] == str(BOT) for user in data.get("mentions", ()))
    if is_hidden and not intents >> _CONTENT & 1 and not is_ours:
        return {**data, "content": "", "attachments": [], "components": []}
    return data
