"""The HTTP side of the fake: calls, uploads, files, the socket, and scripted faults."""

import argparse
import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from homarus.core.fast_dataclass import dataclass
from homarus.testing.model_server.body_stream import ConnectionEnded, read_request, write_whole
from homarus.testing.slack_server.events import Envelope, EnvelopeFeed, make_callback
from homarus.testing.slack_server.methods import perform
from homarus.testing.slack_server.state import BOT_USER, Object, SlackCallError, SlackWorkspace
from homarus.testing.slack_server.user_actions import Event, SlackUserActions
from homarus.testing.slack_server.websocket import WebSocket
from homarus.testing.stream_server import StreamServer, serve

BOT_TOKEN: Final = "xoxb-1-fake"  # noqa: S105 - of no one
APP_TOKEN: Final = "xapp-1-fake"  # noqa: S105 - of no one
USER_TOKEN: Final = "xoxp-1-fake"  # noqa: S105 - of no one
SCOPES: Final = "chat:write,channels:history,im:history,files:write"


@dataclass(frozen=True, slots=True)
class SlackFault:
    """A fault of a call: an HTTP status, or an error of Slack's; `taken`: it has its effect."""

    status: int = 500
    error: str = ""
    taken: bool = False
    retry_after: int = 0
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SlackCall:
    """A call and its response; status 0: none."""

    method: str
    params: dict[str, str]
    status: int
    response: Object


@dataclass(slots=True)
class SlackLog:
    """Every call, once it is answered."""

    calls: list[SlackCall] = field(default_factory=list)
    frames: list[Object] = field(default_factory=list)  # sent to sockets

    def of(self, *methods: str) -> list[SlackCall]:
        """Return the calls of these methods, in order."""
        return [call for call in self.calls if call.method in methods]


class SlackServer(StreamServer):
    """An async context manager; `slack.api` is the `apiRoot`."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(self._talk, host, port)
        self.bot_token, self.app_token, self.user_token = BOT_TOKEN, APP_TOKEN, USER_TOKEN
        self.world, self.books, self.feed = SlackWorkspace(), SlackLog(), EnvelopeFeed()
        self.acts = SlackUserActions(self.world)
        self.events: list[Event] = []  # every one that was made
        self._faults: list[tuple[str, SlackFault]] = []
        self._changed = asyncio.Event()
        self._tickets = 0

    @property
    def api(self) -> str:
        return f"{self.url}/api"

    async def listen(self) -> None:
        await super().listen()
        self.world.url = self.url

    async def disconnect_all(self) -> None:
        self.feed.sockets.clear()
        await super().disconnect_all()

    # For tests

    def trouble(self, method: str, *, times: int = 1, **what: Any) -> None:
        """Make the next calls of a method, or of any (`*`), fail."""
        self._faults += [(method, SlackFault(**what))] * times

    def sent(self, chat: str = "") -> list[Object]:
        """Return the bot's messages as they are now, in one conversation or all."""
        chats = self.world.conversations
        places = [chats[chat]] if chat else list(chats.values())
        found = [message for place in places for message in place.messages.values()]
        return [one for one in found if one.get("user") == BOT_USER]

    async def say(self, text: str = "", chat: str = "", **more: Any) -> Object:
        """A person writes; see SlackUserActions.say."""
        message, events = self.acts.say(text, chat, **more)
        await self.publish(*events)
        return message

    async def publish(self, *events: Event) -> list[Envelope]:
        """Send events to the app."""
        self.events += events
        made = list[Envelope]()
        for kind, event in events:
            payload = make_callback(event) if kind == "events_api" else event
            made.append(await self.feed.add(kind, payload))
            self.books.frames.append(made[-1].frame())
        self._changed.set()
        return made

    async def until(self, condition: Any, wait_s: float = 30.0) -> None:
        """Wait until a condition of what this server knows holds."""
        async with asyncio.timeout(wait_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_connected(self) -> None:
        """Wait until the app has a socket, and has read what it missed."""
        await self.until(lambda: bool(self.feed.sockets))

    async def until_acknowledged(self) -> None:
        """Wait until every envelope was acknowledged."""
        await self.until(lambda: all(one.acked for one in self.feed.envelopes))

    async def until_called(self, method: str, count: int = 1) -> list[SlackCall]:
        """Wait until a method was called, and answered, so many times."""
        await self.until(lambda: len(self.books.of(method)) >= count)
        return self.books.of(method)

    async def end_socket(self, reason: str = "refresh_requested") -> None:
        """Ask the client to connect again, as Slack does every hour."""
        for socket in self.feed.sockets:
            frame = {"type": "disconnect", "reason": reason, "debug_info": {}}
            self.books.frames.append(frame)
            await socket.send(frame)

    def break_sockets(self) -> None:
        """Break the sockets without announcing it, as a network that fails does."""
        for socket in self.feed.sockets:
            socket.abort()
        self.feed.sockets.clear()

    # The wire

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ConnectionEnded):
            while (request := await read_request(reader)) is not None:
                method, target, headers, body = request
                path, query = urlsplit(target).path, urlsplit(target).query
                if path == "/link":
                    await self._serve_socket(WebSocket(reader, writer), headers)
                    break
                if path.startswith("/upload/v1/"):
                    await self._take_upload(writer, path, body)
                elif path.startswith("/files/"):
                    await self._give_file(writer, path, headers)
                elif method in {"GET", "POST"} and path.startswith("/api/"):
                    params = _read_params(headers, query, body)
                    await self._serve(writer, path.removeprefix("/api/"), headers, params)
                else:
                    await write_whole(writer, 404, b"{}")
            writer.close()
            await writer.wait_closed()

    async def _serve_socket(self, socket: WebSocket, headers: Mapping[str, str]) -> None:
        await socket.accept(headers)
        hello: Object = {
            "type": "hello",
            "num_connections": len(self.feed.sockets) + 1,
            "connection_info": {"app_id": "A0APP"},
            "debug_info": {"host": "applink-1", "approximate_connection_time": 18_060},
        }
        self.books.frames.append(hello)
        await socket.send(hello)
        try:
            await self.feed.connect(socket)
            self._changed.set()
            async for told in socket.messages():
                self.feed.acknowledge(told.get("envelope_id"))
                self._changed.set()
        finally:
            if socket in self.feed.sockets:
                self.feed.sockets.remove(socket)
            self._changed.set()

    async def _serve(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        headers: Mapping[str, str],
        params: dict[str, str],
    ) -> None:
        fault = self._next_fault(method)
        if fault is None:
            response = self._perform(method, headers, params)
            await self._answer(writer, SlackCall(method, params, 200, response))
            return
        if fault.taken:
            self._perform(method, headers, params)
        if fault.wait_s:
            await asyncio.sleep(fault.wait_s)
        if fault.error or fault.status == 429:
            status, error = (429, "ratelimited") if fault.status == 429 else (200, fault.error)
            more = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
            response = {"ok": False, "error": error}
            await self._answer(writer, SlackCall(method, params, status, response), more)
            return
        self._note(SlackCall(method, params, fault.status, {}))
        if not fault.status:
            raise ConnectionEnded
        await write_whole(writer, fault.status, b"<html>Bad Gateway</html>")

    def _perform(
        self, method: str, headers: Mapping[str, str], params: Mapping[str, str]
    ) -> Object:
        try:
            self._check_token(method, headers)
            if method == "apps.connections.open":
                self._tickets += 1
                host = self.url.removeprefix("http://")
                return {"ok": True, "url": f"ws://{host}/link?ticket={self._tickets}"}
            return {"ok": True, **perform(self.world, method, params)}
        except SlackCallError as exc:
            return {"ok": False, "error": exc.error, **exc.more}

    def _check_token(self, method: str, headers: Mapping[str, str]) -> None:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        wanted = {"apps.connections.open": self.app_token, "search.messages": self.user_token}
        if not token:
            raise SlackCallError("not_authed")
        if token not in {self.bot_token, self.app_token, self.user_token}:
            raise SlackCallError("invalid_auth")
        if token != wanted.get(method, self.bot_token):
            raise SlackCallError("not_allowed_token_type")

    async def _answer(
        self,
        writer: asyncio.StreamWriter,
        call: SlackCall,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._note(call)
        body = json.dumps(call.response).encode()
        await write_whole(writer, call.status, body, {"X-OAuth-Scopes": SCOPES, **(headers or {})})

    async def _take_upload(self, writer: asyncio.StreamWriter, path: str, body: bytes) -> None:
        file = self.world.files.get(path.rpartition("/")[2])
        is_right = file is not None and len(body) == file.size
        if file and is_right:
            file.content = body
        reply = f"OK - {len(body)}" if is_right else "no such upload"
        await write_whole(
            writer, 200 if is_right else 400, reply.encode(), {"Content-Type": "text/plain"}
        )

    async def _give_file(
        self, writer: asyncio.StreamWriter, path: str, headers: Mapping[str, str]
    ) -> None:
        """Give a file to the bot; anyone else gets the login page."""
        file = self.world.files.get(path.split("/")[2])
        if headers.get("authorization") != f"Bearer {self.bot_token}" or file is None:
            await write_whole(writer, 200, b"<html>login</html>", {"Content-Type": "text/html"})
            return
        kind = {"Content-Type": "application/octet-stream"}
        await write_whole(writer, 200, file.content, kind)

    def _note(self, call: SlackCall) -> None:
        self.books.calls.append(call)
        self._changed.set()

    def _next_fault(self, method: str) -> SlackFault | None:
        for at, (name, fault) in enumerate(self._faults):
            if name in {method, "*"}:
                del self._faults[at]
                return fault
        return None


def _read_params(headers: Mapping[str, str], query: str, body: bytes) -> dict[str, str]:
    """Return the arguments of the address, of a form or of JSON, as a form has them."""
    params = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=100))
    if headers.get("content-type", "").startswith("application/json"):
        told = json.loads(body).items()
        own = {name: text if isinstance(text, str) else json.dumps(text) for name, text in told}
        return params | own
    return params | dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m homarus.testing.slack_server")
    parser.add_argument("--port", type=int, default=0)
    serve(SlackServer(port=parser.parse_args().port))
