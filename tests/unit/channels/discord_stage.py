"""A bot of ours on the strict fake of Discord."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from homarus.channels.base import ChannelContext, Receipt
from homarus.channels.discord import create
from homarus.channels.discord.adapter import DiscordChannel
from homarus.channels.discord.settings import DiscordSettings
from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import HomarusError
from homarus.core.message import Address, Extras, Json, Outbound
from homarus.core.native_command import NativeCommand
from homarus.testing.discord_server import ADA, GUILD, DiscordServer
from homarus.testing.fakes import RecordingHandler
from tests.waiting import until

WAIT_S = 60.0


def bot(
    server: DiscordServer,
    *,
    listed: tuple[NativeCommand, ...] = (),
    account: str = "default",
    clock: Clock | None = None,
    **said: Json,
) -> DiscordChannel:
    """Return a bot with this config section."""
    section = {
        "token": server.token,
        "apiRoot": server.url,
        "gatewayUrl": server.gateway_url,
        "guilds": {str(GUILD): {}},
        **said,
    }
    settings = DiscordSettings.read(section)
    return create(ChannelContext("discord", account, clock or SystemClock(), listed), settings)


@asynccontextmanager
async def running(
    server: DiscordServer,
    channel: DiscordChannel,
    desk: RecordingHandler,
    errors: list[HomarusError] | None = None,
) -> AsyncIterator[asyncio.Task[None]]:
    """Run the channel while the block lasts, and wait until it is ready.

    With `errors`, an error that ends it is added there.
    """

    async def run() -> None:
        try:
            await channel.run(desk)
        except HomarusError as exc:
            if errors is None:
                raise
            errors.append(exc)

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        saved = desk.kept
        task = group.create_task(run())
        await until(lambda: task.done() or (server.gateway.connected and desk.kept is not saved))
        try:
            yield task
        finally:
            task.cancel()


def to(chat: str = f"user:{ADA}", thread: str | None = None) -> Address:
    return Address("discord", chat, "default", thread)


async def send(
    channel: DiscordChannel, text: str, chat: str = f"user:{ADA}", **more: Any
) -> Receipt:
    """Send as the outbox worker does."""
    key, thread = more.pop("key", "key-1"), more.pop("thread", None)
    return await channel.send(Outbound(to(chat, thread), text, key, Extras(**more)))
