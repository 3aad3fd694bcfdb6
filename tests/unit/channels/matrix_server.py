"""A scriptable fake homeserver, for what a real one seldom does.

Normal behaviour is tested against Synapse (tests/peers/test_matrix*.py).
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from homarus.channels.base import ChannelContext
from homarus.channels.matrix import create
from homarus.channels.matrix.adapter import MatrixChannel
from homarus.channels.matrix.settings import MatrixSettings
from homarus.core.clock import SystemClock
from homarus.testing.fakes import RecordingHandler

GUARD_S = 30.0
ME = "@bot:test"
TOKEN = "syt_secret"


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


# A status and a body: JSON, or raw bytes. None disconnects.
Said: TypeAlias = tuple[int, Any] | None
Answer: TypeAlias = Said | Callable[[Asked], Said]

USUAL: tuple[tuple[str, Answer], ...] = (
    ("GET /account/whoami", (200, {"user_id": ME, "device_id": "D"})),
    ("GET /profile/.*", (200, {"displayname": "Homarus"})),
    ("GET /_matrix/client/v1/media/config", (200, {"m.upload.size": 1000})),
    ("PUT /rooms/.*/send/.*", (200, {"event_id": "$sent"})),
    ("POST /rooms/.*/receipt/.*", (200, {})),
    ("GET /rooms/.*/state/m.room.encryption", (404, {"errcode": "M_NOT_FOUND"})),
    ("GET /rooms/.*/joined_members", (200, {"joined": {ME: {}, "@alice:test": {}}})),
)


class Server:
    """A fake; the newest matching one of `answers` is used, `syncs` are served in order."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, Answer]] = list(USUAL)
        self.syncs: list[Said] = [(200, {"next_batch": "s0"})]
        self.asked: list[Asked] = []
        self.port = 0
        self._held: list[tuple[str, Callable[[], bool]]] = []
        self._lines: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._more, self._is_closing, self._run = asyncio.Event(), False, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on(self, what: str, answer: Answer) -> None:
        self.answers.append((what, answer))

    def hold(self, what: str, until: Callable[[], bool]) -> None:
        """Answer such requests only when `until` is true; the answer is made before."""
        self._held.append((what, until))

    def feed(self, *responses: Said) -> None:
        """Serve further responses, also to a request that waits for one."""
        self.syncs += responses
        self._more.set()

    def restart(self, *responses: Said) -> None:
        """Serve these to a new process of ours; a request of the old one gets no response."""
        self._run += 1
        self.syncs = list(responses)
        self._more.set()

    def seen(self, what: str) -> list[Asked]:
        return [one for one in self.asked if re.fullmatch(what, f"{one.method} {one.path}")]

    async def until(self, what: str, count: int = 1) -> list[Asked]:
        async with asyncio.timeout(GUARD_S):
            while True:
                found = self.seen(what)
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines[task] = writer
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    asked = await _read(reader)
                    self.asked.append(asked)
                    said = await self._answer(asked)
                    if said is None:
                        return
                    await self._wait_if_held(asked)
                    writer.write(_written(*said))
                    await writer.drain()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            del self._lines[task]

    async def _wait_if_held(self, asked: Asked) -> None:
        while True:
            if all(
                until()
                for what, until in self._held
                if re.fullmatch(what, f"{asked.method} {asked.path}")
            ):
                return
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Disconnect all clients."""
        self._is_closing = True
        self._more.set()
        for writer in self._lines.values():
            writer.transport.abort()
        if self._lines:
            await asyncio.wait(list(self._lines))

    async def _answer(self, asked: Asked) -> Said:
        if asked.path == "/sync":
            run = self._run
            while not self.syncs:
                self._more.clear()
                await self._more.wait()
                if self._is_closing or run != self._run:
                    return None
            return self.syncs.pop(0)
        for what, answer in reversed(self.answers):
            if re.fullmatch(what, f"{asked.method} {asked.path}"):
                return answer(asked) if callable(answer) else answer
        return 404, {"errcode": "M_UNRECOGNIZED", "error": "unheard of"}


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    path = unquote(parts.path).removeprefix("/_matrix/client/v3")
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    return Asked(method, path, query, headers, body)


def _written(status: int, what: Any) -> bytes:
    headers: Mapping[str, str] = {}
    if isinstance(what, tuple):
        what, headers = what
    body = what if isinstance(what, bytes) else json.dumps(what).encode()
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    async with asyncio.timeout(2 * GUARD_S):
        listener = await asyncio.start_server(server._serve, "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]
        try:
            yield server
        finally:
            listener.close()
            await server.close()
            await listener.wait_closed()


def channel(server: Server, **settings: Any) -> MatrixChannel:
    given = {"homeserver": server.url, "accessToken": TOKEN, **settings}
    known = {key: value for key, value in given.items() if value is not None}
    return create(ChannelContext("matrix", "default", SystemClock()), MatrixSettings.read(known))


@asynccontextmanager
async def running(
    matrix: MatrixChannel, desk: RecordingHandler
) -> AsyncIterator[asyncio.Task[None]]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(matrix.run(desk))
        await matrix._ready.wait()
        yield task
        task.cancel()


def event(text: str, id_: str = "$1", **more: Any) -> dict[str, Any]:
    content = {"msgtype": "m.text", "body": text}
    return {
        "type": "m.room.message",
        "event_id": id_,
        "sender": "@alice:test",
        "origin_server_ts": 1_000,
        "content": content,
        **more,
    }


def sync(since: str, *events: Mapping[str, Any], room: str = "!r", **timeline: Any) -> Said:
    """Return a sync response with events of one room."""
    told = {"timeline": {"events": events, "limited": False, **timeline}}
    return 200, {"next_batch": since, "rooms": {"join": {room: told}} if events else {}}
