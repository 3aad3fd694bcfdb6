"""A bot of ours on a real homeserver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from homarus.channels.base import ChannelContext
from homarus.channels.matrix import create
from homarus.channels.matrix.adapter import MatrixChannel
from homarus.channels.matrix.settings import MatrixSettings
from homarus.core.clock import SystemClock
from homarus.core.message import Address, Extras, Outbound
from homarus.testing.fakes import RecordingHandler
from tests.peers.synapse import SERVER, WAIT_S, Synapse


@dataclass
class Bot:
    """An account, registered and not yet logged in."""

    server: Synapse
    id: str
    token: str

    def channel(self, state: Path | None = None, **settings: Any) -> MatrixChannel:
        given = {"homeserver": self.server.url, "accessToken": self.token, **settings}
        known = {key: value for key, value in given.items() if value is not None}
        place = ChannelContext("matrix", "default", SystemClock(), state=state)
        return create(place, MatrixSettings.read(known))


def new_bot(server: Synapse, display: str = "Homarus") -> Bot:
    local = f"bot-{uuid4().hex[:8]}"
    token = server.register(local, "bot-secret", display=display)
    return Bot(server, f"@{local}:{SERVER}", token)


@asynccontextmanager
async def running(
    channel: MatrixChannel, desk: RecordingHandler
) -> AsyncIterator[asyncio.Task[None]]:
    """Run the channel, logged in and syncing, while the block lasts."""
    async with asyncio.timeout(2 * WAIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(channel.run(desk))
        await channel._ready.wait()
        yield task
        task.cancel()


async def reading(channel: MatrixChannel, room: str) -> None:
    """Wait until the channel knows that it is in a room."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if room in (await channel._wait_for_login()).rooms:
                return
            await asyncio.sleep(0.02)


def out(
    room: str, text: str, key: str = "", *, thread: str | None = None, **extras: Any
) -> Outbound:
    return Outbound(Address("matrix", room, thread=thread), text, key, Extras(**extras))
