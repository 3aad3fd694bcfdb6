"""A program with a chat, a checklist, and a script for the model: what heartbeats need."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homarus.core.message import Address, Inbound, InboundMetadata, Json
from homarus.testing.fakes import ListChannel
from tests.unit.gateway.app_harness import Harness, world

KEY = "agent:main:main"
EVERY_S = 30 * 60
MODEL = {"primary": "mock/mock-1"}
TASKS = "# Tasks\n- check the mail\n"


def person(text: str, id_: str = "m1") -> Inbound:
    """Return a message of a person in the chat 7."""
    return Inbound(
        id_, Address("list", "7"), "42", text, metadata=InboundMetadata(name="Ann"), at_ms=1
    )


class HeartbeatHarness:
    """The program, and the chat that its heartbeats reach."""

    def __init__(self, it: Harness, channel: ListChannel) -> None:
        self.it, self.app, self.channel = it, it.app, channel

    @property
    def events(self) -> list[Json]:
        """The payloads of the `heartbeat` events."""
        return [payload for name, payload in self.it.gateway.broadcasts if name == "heartbeat"]

    @property
    def texts(self) -> list[str]:
        """What the chat got."""
        return [sent.text for sent in self.channel.sent]

    async def write(self, text: str, id_: str) -> None:
        """Have a person's message answered."""
        inbound = person(text, id_)
        now_ms = self.app.clock.now_ms()
        await self.app.control.ask(
            KEY, Inbound(id_, inbound.address, "42", text, metadata=inbound.metadata, at_ms=now_ms)
        )

    async def until(self, count: int) -> Json:
        """Wait for so many events; return the last."""
        async with asyncio.timeout(20):
            while len(self.events) < count:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.001)
        return self.events[-1]

    async def beat(self, seconds: float = EVERY_S) -> Json:
        """Let the interval pass, and return what came of the heartbeat."""
        count = len(self.events) + 1
        await self.it.clock.advance(seconds)
        return await self.until(count)

    async def sent(self, count: int) -> list[str]:
        """Wait until the chat got so many messages."""
        async with asyncio.timeout(20):
            while len(self.channel.sent) < count:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.001)
        return self.texts

    async def entry(self) -> dict[str, Any]:
        return dict((await self.app.control.load(KEY)).record.data)


def checklist(folder: Path, text: str = TASKS) -> None:
    """Write HEARTBEAT.md."""
    workspace = folder / "state/workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "HEARTBEAT.md").write_text(text, encoding="utf-8")


@asynccontextmanager
async def heartbeat_world(
    folder: Path,
    script: Sequence[Any],
    heartbeat: dict[str, Any] | None = None,
    *,
    tasks: str = TASKS,
    config: dict[str, Any] | None = None,
) -> AsyncIterator[HeartbeatHarness]:
    """Open a program whose agent has a heartbeat."""
    checklist(folder, tasks)
    channel = ListChannel()
    agents = {"defaults": {"model": MODEL, "heartbeat": heartbeat or {}}}
    async with world(folder, script, {"agents": agents, **(config or {})}, [channel]) as it:
        await it.clock.advance(0)
        try:
            yield HeartbeatHarness(it, channel)
        finally:
            await it.app.control.stop(KEY)
