"""A bot of ours on the strict fake of Slack."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from homarus.channels.base import ChannelContext, ListSkillCommands, Receipt, no_skill_commands
from homarus.channels.slack import create
from homarus.channels.slack.adapter import SlackChannel
from homarus.channels.slack.settings import SlackSettings
from homarus.core.clock import Clock, SystemClock
from homarus.core.message import Address, Extras, Json, Outbound
from homarus.core.native_command import NativeCommand
from homarus.testing.fakes import RecordingHandler
from homarus.testing.slack_server import ADA, SlackServer
from homarus.testing.slack_server.events import make_callback

WAIT_S = 60.0
DM = f"D{ADA[1:]}"  # the direct chat with Ada
SECRET = "signing-secret-0123456789"
COMMANDS = (NativeCommand("status", "Show the state."), NativeCommand("help", "Help."))


def bot(
    server: SlackServer,
    *,
    account: str = "default",
    clock: Clock | None = None,
    native_commands: tuple[NativeCommand, ...] = COMMANDS,
    skill_commands: ListSkillCommands = no_skill_commands,
    **said: Json,
) -> SlackChannel:
    """Return a bot with this config section."""
    section = {
        "botToken": server.bot_token,
        "appToken": server.app_token,
        "apiRoot": server.api,
        **said,
    }
    context = ChannelContext(
        "slack", account, clock or SystemClock(), native_commands, skill_commands
    )
    return create(context, SlackSettings.read(section))


@asynccontextmanager
async def running(
    channel: SlackChannel, handler: RecordingHandler, server: SlackServer | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """Run the channel while the block lasts, from when it has read what it missed on a server."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(channel.run(handler))
        try:
            if server:
                await server.until_connected()
                await server.feed.add("events_api", make_callback({"type": "of_no_use"}))
                await server.until_acknowledged()
            yield task
        finally:
            task.cancel()


def to(chat: str = DM, thread: str | None = None) -> Address:
    return Address("slack", chat, "default", thread)


async def send(channel: SlackChannel, text: str, chat: str = DM, **more: Any) -> Receipt:
    """Send as the outbox worker does."""
    thread, key = more.pop("thread", None), more.pop("key", "key-1")
    return await channel.send(Outbound(to(chat, thread), text, key, Extras(**more)))
