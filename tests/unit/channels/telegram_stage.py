"""A bot of ours on the strict fake of Telegram, for tests."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from homarus.channels.base import Acknowledge, Place, Receipt
from homarus.channels.telegram import Settings, create
from homarus.channels.telegram.adapter import Telegram
from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import StoreError
from homarus.core.message import Address, Extras, Inbound, Json, Outbound
from homarus.testing.telegram_server import ADA, TelegramServer

WAIT_S = 60.0


@dataclass
class Keeper:
    """Takes what a channel hands over, as the intake does: a known id is kept once."""

    kept: list[Inbound] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    at: Mapping[str, Json] | None = None
    failures: int = 0
    leaves: bool = False  # as the intake leaves a stranger's message alone: it is not read
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(
        self,
        inbound: Inbound,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("no room")
        if inbound.id in {one.id for one in self.kept}:
            self.again.append(inbound.id)
        else:
            self.kept.append(inbound)
        self.at = cursor if cursor is not None else self.at
        if acknowledge and not self.leaves:
            await acknowledge()
        self.news.set()

    def connected(self) -> None:
        pass

    async def cursor(self) -> Mapping[str, Json] | None:
        return self.at

    async def read_to(self, cursor: Mapping[str, Json]) -> None:
        self.at = cursor

    async def until(self, count: int) -> list[Inbound]:
        async with asyncio.timeout(WAIT_S):
            while len(self.kept) < count:
                self.news.clear()
                await self.news.wait()
        return self.kept

    async def until_said(self, text: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while text not in [one.text for one in self.kept]:
                self.news.clear()
                await self.news.wait()

    async def until_again(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.again) < count:
                self.news.clear()
                await self.news.wait()


def bot(
    server: TelegramServer,
    *,
    commands: tuple[tuple[str, str], ...] = (),
    account: str = "default",
    clock: Clock | None = None,
    **said: Json,
) -> Telegram:
    """A bot whose section of the config says this."""
    settings = Settings.read({"botToken": server.token, "apiRoot": server.url, **said})
    return create(Place("telegram", account, clock or SystemClock(), commands), settings)


@asynccontextmanager
async def running(channel: Telegram, keeper: Keeper) -> AsyncIterator[asyncio.Task[None]]:
    """The channel at work, until the block ends."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(channel.run(keeper))
        try:
            yield task
        finally:
            task.cancel()


def to(chat: int = ADA, thread: str | None = None) -> Address:
    return Address("telegram", str(chat), "default", thread)


async def send(channel: Telegram, text: str, chat: int = ADA, **more: Any) -> Receipt:
    """Send as the courier does."""
    thread = more.pop("thread", None)
    return await channel.send(Outbound(to(chat, thread), text, "key-1", Extras(**more)))
