"""The real gateway process, on a free port, and clients on its WebSocket."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from homarus.gateway.client import ClientProfile, GatewayClient, GatewaySecret, connect_gateway
from homarus.gateway.identity import DeviceIdentity
from tests.e2e.program import DEADLINE_S, Home

TOKEN = "e2e-token-0123456789"


class Gateway:
    """`homarus gateway run` as a process."""

    def __init__(self, home: Home, *args: str) -> None:
        self.home = home
        self.log = home.path / "gateway.out"
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "homarus", "gateway", "run", "--port", "0", *args],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=home.env,
                cwd=home.path,
            )
        self.url = ""

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_ready(self, times: int = 1) -> "Gateway":
        def ready() -> bool:
            assert self.process.poll() is None, self.output
            return len(re.findall(r"is ready on wss?://", self.output)) >= times

        wait_for(ready)
        self.url = re.findall(r"ready on (wss?://\S+)", self.output)[-1]
        return self

    @asynccontextmanager
    async def connect(self, **profile: Any) -> AsyncIterator[GatewayClient]:
        identity = DeviceIdentity.load_or_create(self.home.path / "client.json", 1)
        profile_fields: dict[str, Any] = {
            "secret": GatewaySecret(TOKEN),
            "identity": identity,
            **profile,
        }
        async with connect_gateway(self.url, ClientProfile(**profile_fields)) as client:
            yield client

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def wait_for(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def change(home: Home, **sections: object) -> None:
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    home.configure(config | sections)


class EventRecorder:
    """Every event of a connection, and a way to wait for one."""

    def __init__(self, client: GatewayClient) -> None:
        self.all: list[tuple[str, Any]] = []
        self._client = client
        self._news = asyncio.Event()

    async def listen(self) -> None:
        async for event in self._client.events():
            self.all.append(event)
            self._news.set()

    async def wait(self, wanted: Callable[[str, Any], bool]) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for name, payload in self.all:
                    if wanted(name, payload):
                        return payload
                self._news.clear()
                await self._news.wait()

    async def end_of(self, run_id: str) -> Any:
        return await self.wait(
            lambda name, p: name == "chat" and p["runId"] == run_id and p["state"] != "delta"
        )


@asynccontextmanager
async def connect_client(
    gateway: Gateway, **profile: Any
) -> AsyncIterator[tuple[GatewayClient, EventRecorder]]:
    async with gateway.connect(**profile) as client, asyncio.TaskGroup() as group:
        events = EventRecorder(client)
        listening = group.create_task(events.listen())
        yield client, events
        listening.cancel()


async def send(client: GatewayClient, text: str, key: str = "main") -> str:
    run_id = str(uuid4())
    params = {"sessionKey": key, "message": text, "idempotencyKey": run_id}
    assert await client.call("chat.send", params) == {"runId": run_id, "status": "started"}
    return run_id


async def closed_with(socket: ClientConnection) -> int | None:
    """Read until the other end closes; return its code."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                await socket.recv()
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else None


def message_text(chat: Any) -> str:
    return str(chat["message"]["content"][0]["text"])
