"""A bot of ours on a real homeserver, and a desk that writes down what it hands over."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from homarus.channels.base import Acknowledge, Place
from homarus.channels.matrix import Settings, create
from homarus.channels.matrix.adapter import Matrix
from homarus.core.clock import SystemClock
from homarus.core.message import Address, Extras, Inbound, Outbound
from tests.peers.synapse import SERVER, WAIT_S, Synapse


@dataclass
class Desk:
    """A Receive that keeps everything, or fails as told."""

    kept: Mapping[str, Any] | None = None
    failures: list[Exception] = field(default_factory=list)
    got: list[Inbound] = field(default_factory=list)
    cursors: list[Mapping[str, Any] | None] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(
        self,
        inbound: Inbound,
        cursor: Mapping[str, Any] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.got.append(inbound)
        self.cursors.append(cursor)
        self._news.set()
        self.kept = cursor or self.kept
        if acknowledge:
            await acknowledge()

    def connected(self) -> None:
        pass

    async def cursor(self) -> Mapping[str, Any] | None:
        return self.kept

    async def read_to(self, cursor: Mapping[str, Any]) -> None:
        self.kept = cursor

    async def received(self, count: int) -> list[Inbound]:
        async with asyncio.timeout(WAIT_S):
            while len(self.got) < count:
                self._news.clear()
                await self._news.wait()
        return self.got

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.got]


@dataclass
class Bot:
    """An account, registered and not yet signed in."""

    server: Synapse
    id: str
    token: str

    def channel(self, state: Path | None = None, **settings: Any) -> Matrix:
        given = {"homeserver": self.server.url, "accessToken": self.token, **settings}
        known = {key: value for key, value in given.items() if value is not None}
        place = Place("matrix", "default", SystemClock(), state=state)
        return create(place, Settings.read(known))


def new_bot(server: Synapse, display: str = "Homarus") -> Bot:
    local = f"bot-{uuid4().hex[:8]}"
    token = server.register(local, "bot-secret", display=display)
    return Bot(server, f"@{local}:{SERVER}", token)


@asynccontextmanager
async def running(channel: Matrix, desk: Desk) -> AsyncIterator[asyncio.Task[None]]:
    """The channel, signed in and reading for as long as the block lasts."""
    async with asyncio.timeout(2 * WAIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(channel.run(desk))
        await channel._signed_in()
        yield task
        task.cancel()


async def reading(channel: Matrix, room: str) -> None:
    """Wait until the channel knows that it is in a room."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if room in (await channel._signed_in()).rooms:
                return
            await asyncio.sleep(0.02)


def out(
    room: str, text: str, key: str = "", *, thread: str | None = None, **extras: Any
) -> Outbound:
    return Outbound(Address("matrix", room, thread=thread), text, key, Extras(**extras))
