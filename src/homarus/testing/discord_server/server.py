"""The HTTP side of the fake: requests, files, the gateway's handshake and scripted faults."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.testing.discord_server.gateway import FakeGateway
from homarus.testing.discord_server.rest import RestApi, find_route, read_payload
from homarus.testing.discord_server.state import ADA, BOT, DiscordState, FakeDiscordError
from homarus.testing.discord_server.user_actions import PeopleOnDiscord
from homarus.testing.discord_server.websocket import FakeWebSocket
from homarus.testing.model_server.body_stream import ConnectionEnded, read_request, write_whole
from homarus.testing.stream_server import StreamServer
from homarus.testing.telegram_server.forms import Upload, read_params

TOKEN: Final = "OTAwMDAwMDAx.Fake.token_0123456789abcdefghijklm"  # noqa: S105 - nobody's


@dataclass(frozen=True, slots=True)
class RequestFault:
    """A fault of a request: with `taken`, it is done all the same. Status 0 hangs up."""

    status: int = 500
    taken: bool = False
    retry_after: float = 0
    number: int = 0
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request and its answer, by the name of its route."""

    route: str
    path: str
    data: Json
    headers: Mapping[str, str]
    status: int
    answer: Json


@dataclass(slots=True)
class RequestBooks:
    """Every request."""

    requests: list[RecordedRequest] = field(default_factory=list)

    def of(self, route: str) -> list[RecordedRequest]:
        """Return the requests of a route, in order."""
        return [one for one in self.requests if one.route == route]


class DiscordServer(StreamServer):
    """An async context manager; `url` is the `apiRoot`, `gateway_url` the `gatewayUrl`."""

    def __init__(
        self, *, token: str = TOKEN, username: str = "lobster_bot", host: str = "127.0.0.1"
    ) -> None:
        super().__init__(self._talk, host, 0)
        self.token = token
        self.world = DiscordState(username)
        self.gateway = FakeGateway(self.world, token)
        self.rest = RestApi(self.world, self.gateway.notify, lambda: self.url)
        self.acts = PeopleOnDiscord(self.world, self.gateway, self.rest)
        self.say, self.press, self.command = self.acts.say, self.acts.press, self.acts.command
        self.books = RequestBooks()
        self._faults: list[tuple[str, RequestFault]] = []
        self._changed = asyncio.Event()

    @property
    def gateway_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/gateway"

    # For tests

    def dm(self, user: int = ADA) -> str:
        """Return the id of a person's direct channel."""
        return self.world.dm(user).id

    def sent(self, channel: int | str) -> list[dict[str, Any]]:
        """Return the bot's messages in a channel as they are now."""
        known = self.world.channels.get(str(channel))
        rows = known.messages.values() if known else ()
        return [row for row in rows if row["author"]["id"] == str(BOT)]

    def trouble(self, route: str, *, times: int = 1, **what: Any) -> None:
        """Make the next requests of a route, or of any (`*`), fail."""
        self._faults += [(route, RequestFault(**what))] * times

    async def until_asked(
        self, route: str, count: int = 1, wait_s: float = 30.0
    ) -> list[RecordedRequest]:
        """Wait until a route was requested, and answered, this many times."""
        async with asyncio.timeout(wait_s):
            while len(found := self.books.of(route)) < count:
                self._changed.clear()
                await self._changed.wait()
        return found

    # The wire

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ConnectionEnded):
            while (request := await read_request(reader)) is not None:
                method, target, headers, body = request
                parts = urlsplit(target)
                if key := headers.get("sec-websocket-key"):
                    socket = FakeWebSocket(reader, writer)
                    await socket.accept(key)
                    await self.gateway.talk(socket, self.gateway_url)
                    return
                if parts.path.startswith("/attachments/") and method == "GET":
                    await self._give_file(writer, parts.path, parts.query)
                else:
                    await self._serve(writer, (method, target), headers, body)

    async def _serve(
        self,
        writer: asyncio.StreamWriter,
        line: tuple[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> None:
        (method, target), query = line, urlsplit(line[1]).query
        path = urlsplit(target).path
        route, data, status, answer = f"{method} {path}", None, 200, None
        try:
            is_callback = path.endswith("/callback")
            if not headers.get("user-agent", "").startswith("DiscordBot ("):
                raise FakeDiscordError(403, 40333, "internal network error")
            if headers.get("authorization") != f"Bot {self.token}" and not is_callback:
                raise FakeDiscordError(401, 0, "401: Unauthorized")
            request = _read(headers, query, body)
            data = request["data"]
            route = find_route(method, unquote(path))
            if fault := self._next_fault(route):
                await self._go_wrong(writer, fault, (method, path, request), route, headers)
                return
            route, answer = self.rest.do(method, unquote(path), request)
        except FakeDiscordError as exc:
            status, answer = exc.status, exc.body
        body_json = b"" if answer is None else json.dumps(answer).encode()
        self._note(RecordedRequest(route, path, data, headers, status, answer))
        await write_whole(writer, status if body_json else 204, body_json)

    async def _go_wrong(
        self,
        writer: asyncio.StreamWriter,
        fault: RequestFault,
        request: tuple[str, str, Mapping[str, Any]],
        route: str,
        headers: Mapping[str, str],
    ) -> None:
        method, path, given = request
        if fault.taken:
            self.rest.do(method, unquote(path), given)
        if fault.wait_s:
            await asyncio.sleep(fault.wait_s)
        answer: dict[str, Json] = {"message": "trouble", "code": fault.number}
        if fault.status == 429:
            answer |= {"retry_after": fault.retry_after, "global": False}
        self._note(RecordedRequest(route, path, given["data"], headers, fault.status, answer))
        if not fault.status:
            raise ConnectionEnded
        await write_whole(writer, fault.status, json.dumps(answer).encode())

    async def _give_file(self, writer: asyncio.StreamWriter, path: str, query: str) -> None:
        content = self.world.files.get(unquote(path))
        if content is None or dict(parse_qsl(query)).get("hm") != "valid":
            await write_whole(writer, 404, b"This content is no longer available.")
            return
        await write_whole(writer, 200, content, {"Content-Type": "application/octet-stream"})

    def _note(self, request: RecordedRequest) -> None:
        self.books.requests.append(request)
        self._changed.set()

    def _next_fault(self, route: str) -> RequestFault | None:
        for at, (name, fault) in enumerate(self._faults):
            if name in {route, "*"}:
                del self._faults[at]
                return fault
        return None


def _read(headers: Mapping[str, str], query: str, body: bytes) -> dict[str, Any]:
    kind = headers.get("content-type", "").partition(";")[0].strip()
    data: Json = None
    files: tuple[Upload, ...] = ()
    if kind == "multipart/form-data":
        data, files = read_payload(read_params(headers, "", body))
    elif body:
        data = json.loads(body)
    return {"query": dict(parse_qsl(query)), "data": data, "files": files}
