"""Webhooks with an address of their own, over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homarus.core.errors import ChannelError
from homarus.gateway.webhook_listeners import WebhookListeners
from tests.unit.gateway.builders import PATH, SECRET, Ear
from tests.unit.gateway.harness import play

GUARD_S = 60.0
KNOWN = f"X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\nContent-Type: application/json\r\n"


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


@asynccontextmanager
async def listeners(folder: Path) -> AsyncIterator[WebhookListeners]:
    async with play(folder) as stage, asyncio.timeout(GUARD_S):
        yield WebhookListeners(stage.gateway)


async def request(host: str, port: int, text: str) -> int:
    """Send a request and return the status of the response."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(text.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ")[1])
    finally:
        writer.close()


def post(path: str = PATH, headers: str = KNOWN) -> str:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: 2\r\n\r\n{{}}"


async def test_webhook_listener_serves_its_accounts_and_nothing_else(tmp_path: Path) -> None:
    at, ear, other = ("127.0.0.1", free_port()), Ear(), Ear("/hook/other")
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    upgrade += "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
    async with (
        listeners(tmp_path) as ours,
        ours.serve(ear, at),
        ours.serve(other, at),
    ):
        assert await request(*at, post()) == 200
        assert await request(*at, post("/hook/other")) == 200
        assert await request(*at, post(headers="Content-Type: application/json\r\n")) == 401
        assert await request(*at, post("/unknown")) == 404
        for path, status in (("/", 404), ("/health", 404), (PATH, 401)):
            assert await request(*at, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n") == status
        assert await request(*at, f"GET / HTTP/1.1\r\nHost: x\r\n{upgrade}\r\n") == 404
    assert (len(ear.heard), len(other.heard)) == (1, 1)


async def test_webhook_listener_is_bound_to_its_host_alone(tmp_path: Path) -> None:
    port = free_port("127.0.0.2")
    async with listeners(tmp_path) as ours:
        async with ours.serve(Ear(), ("127.0.0.2", port)):
            assert await request("127.0.0.2", port, post()) == 200
            with pytest.raises(ConnectionRefusedError):
                await request("127.0.0.1", port, post())
        with pytest.raises(ConnectionRefusedError):  # closed with its last account
            await request("127.0.0.2", port, post())


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("host.invalid", "the webhook's host host.invalid is unknown"),
        ("192.0.2.1", "cannot listen on 192.0.2.1"),
    ],
)
async def test_webhook_listener_without_a_usable_host_is_a_named_error(
    host: str, message: str, tmp_path: Path
) -> None:
    async with listeners(tmp_path) as ours:
        with pytest.raises(ChannelError, match=message) as caught:
            async with ours.serve(Ear(), (host, free_port())):
                pass
    assert "webhookHost" in caught.value.fix


async def test_webhook_listener_on_a_used_port_is_a_named_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        async with listeners(tmp_path) as ours:
            with pytest.raises(ChannelError, match="cannot listen"):
                async with ours.serve(Ear(), ("127.0.0.1", used.getsockname()[1])):
                    pass
