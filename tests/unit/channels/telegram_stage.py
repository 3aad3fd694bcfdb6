"""A bot of ours on the strict fake of Telegram."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from homarus.channels.base import ChannelContext, Receipt
from homarus.channels.telegram import create
from homarus.channels.telegram.adapter import TelegramChannel
from homarus.channels.telegram.settings import TelegramSettings
from homarus.core.clock import Clock, SystemClock
from homarus.core.message import Address, Extras, Json, Outbound
from homarus.core.native_command import NativeCommand
from homarus.testing.fakes import RecordingHandler
from homarus.testing.telegram_server import ADA, TelegramServer

WAIT_S = 60.0


def bot(
    server: TelegramServer,
    *,
    commands: tuple[NativeCommand, ...] = (),
    account: str = "default",
    clock: Clock | None = None,
    **said: Json,
) -> TelegramChannel:
    """Return a bot with this config section."""
    settings = TelegramSettings.read({"botToken": server.token, "apiRoot": server.url, **said})
    return create(ChannelContext("telegram", account, clock or SystemClock(), commands), settings)


@asynccontextmanager
async def running(
    channel: TelegramChannel, desk: RecordingHandler
) -> AsyncIterator[asyncio.Task[None]]:
    """Run the channel while the block lasts."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(channel.run(desk))
        try:
            yield task
        finally:
            task.cancel()


def to(chat: int = ADA, thread: str | None = None) -> Address:
    return Address("telegram", str(chat), "default", thread)


async def send(channel: TelegramChannel, text: str, chat: int = ADA, **more: Any) -> Receipt:
    """Send as the outbox worker does."""
    thread = more.pop("thread", None)
    return await channel.send(Outbound(to(chat, thread), text, "key-1", Extras(**more)))
