"""A scriptable IRC server: enough to register on, with faults on demand."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from homarus.channels.base import Acknowledge, ChannelContext
from homarus.channels.irc.adapter import IrcChannel
from homarus.channels.irc.connection import IrcTimings
from homarus.channels.irc.settings import IrcSettings
from homarus.core.channel_event import InboundEvent
from homarus.core.clock import Clock, SystemClock
from homarus.core.message import Json
from homarus.testing import fakes

GUARD_S = 30.0
HOST = "irc.test"
QUICK = IrcTimings(burst=1_000, every_s=0.001, ready_s=30.0, again_s=0.05)

Answer: TypeAlias = Callable[[list[str]], list[str]]


class Server:
    """One server; `said` is what clients sent, `caps` what it offers."""

    def __init__(
        self, *, caps: str = "", support: str = "CASEMAPPING=rfc1459 CHANTYPES=#&"
    ) -> None:
        self.caps, self.support = caps, support
        self.said: list[str] = []
        self.nick = "*"
        self.answers: dict[str, Answer] = {
            "CAP": self._cap,
            "NICK": self._name,
            "USER": lambda _: [] if self.caps else self.welcome(),
            "PING": lambda words: [f":{HOST} PONG {HOST} {words[1]}"],
            "JOIN": lambda words: [
                f":{self.nick}!~bot@host.test JOIN {room}"
                for room in words[1].lstrip(":").split(",")
            ],
        }
        self._writer: asyncio.StreamWriter | None = None
        self._news = asyncio.Event()
        self.port = 0

    def welcome(self) -> list[str]:
        return [
            f":{HOST} 001 {self.nick} :Welcome",
            f":{HOST} 005 {self.nick} {self.support} :are supported by this server",
            f":{HOST} 422 {self.nick} :There is no message of the day",
        ]

    def tell(self, *lines: str | bytes) -> None:
        """Send lines to the client that connected last."""
        assert self._writer is not None
        raw = [line.encode() if isinstance(line, str) else line for line in lines]
        self._writer.write(b"".join(line + b"\r\n" for line in raw))

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    async def heard(self, start: str, times: int = 1) -> str:
        """Wait for a line with this start."""
        while len(found := [line for line in self.said if line.startswith(start)]) < times:
            self._news.clear()
            await self._news.wait()
        return found[times - 1]

    def _cap(self, words: list[str]) -> list[str]:
        match [word.lstrip(":") for word in words[1:]]:
            case ["LS", *_] if self.caps:
                return [f":{HOST} CAP * LS :{self.caps}"]
            case ["REQ", *asked]:
                return [f":{HOST} CAP * ACK :{' '.join(asked)}"]
            case ["END"]:
                return self.welcome()
        return []

    def _name(self, words: list[str]) -> list[str]:
        old, self.nick = self.nick, words[1].lstrip(":")
        return [] if old == "*" else [f":{old}!~bot@host.test NICK {self.nick}"]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer, self.nick = writer, "*"
        with suppress(ConnectionError):
            while raw := await reader.readline():
                line = raw.decode(errors="replace").rstrip("\r\n")
                self.said.append(line)
                self._news.set()
                words = line.split(" ")
                if answer := self.answers.get(words[0]):
                    self.tell(*answer(words))
                elif not words[0].isalpha():
                    self.tell(f":{HOST} 421 * :What?")
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None, **options: str) -> AsyncIterator[Server]:
    """Run the server on a free port."""
    server = Server(**options)
    listener = await asyncio.start_server(server.talk, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server
        if server._writer:
            server.hang_up()


class Desk(fakes.RecordingHandler):
    """A handler without cursor: IRC has none to resume at."""

    async def __call__(
        self,
        event: InboundEvent,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        assert cursor is None and acknowledge is None
        await super().__call__(event)

    async def save_cursor(self, cursor: Mapping[str, Json]) -> None:
        raise AssertionError("IRC has no cursor")


def channel(
    server: Server, *, pace: IrcTimings = QUICK, clock: Clock | None = None, **more: Json
) -> IrcChannel:
    """Return an account on the server."""
    given = {"host": "127.0.0.1", "port": server.port, "tls": False, "nick": "bot", **more}
    place = ChannelContext("irc", "default", clock or SystemClock())
    return IrcChannel(place, IrcSettings.read(given), pace)


@asynccontextmanager
async def running(account: IrcChannel, desk: Desk) -> AsyncIterator[asyncio.Task[None]]:
    """Run the account while the block lasts."""
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        task = group.create_task(account.run(desk))
        yield task
        task.cancel()
