"""Clients that open a connection and do not come to the point, on raw sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from homarus.gateway.connection_slots import ConnectionSlots
from homarus.gateway.http_server import GatewayAsgiApp, HttpProtocol, HttpServer, open_sockets
from homarus.gateway.listen_address import ListenAddress
from tests.unit.gateway.harness import PORT, Harness, play

WAIT_S = 30.0
GET = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n".encode()


class Client:
    """A socket and no manners."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.address: tuple[str, int] = writer.get_extra_info("peername")

    def close(self) -> None:
        self._writer.close()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def read(self, until: bytes) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self._reader.readuntil(until)

    async def rest(self) -> bytes:
        """What comes until the other end closes; it must."""
        told = bytearray()
        async with asyncio.timeout(WAIT_S):
            with suppress(ConnectionError):  # a reset takes along what was not read yet
                while piece := await self._reader.read(4096):
                    told += piece
        return bytes(told)

    async def drip(self, piece: bytes) -> bytes:
        """Send a piece again and again until the other end closes; what it said."""
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(self.rest())
            while not ended.done():
                try:
                    await self.send(piece)
                except ConnectionError:
                    break
                await asyncio.wait([ended], timeout=0.01)
            return await ended


async def knock(address: tuple[str, int]) -> Client:
    return Client(*await asyncio.open_connection(*address))


@asynccontextmanager
async def visit(stage: Harness) -> AsyncIterator[Client]:
    sockets = open_sockets(ListenAddress("127.0.0.1", 0))
    listener = HttpServer(GatewayAsgiApp(stage.gateway), sockets)
    await listener.start()
    try:
        reader, writer = await asyncio.open_connection(*sockets[0].getsockname())
        try:
            yield Client(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
    finally:
        await listener.stop()


@asynccontextmanager
async def scene(
    folder: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 0.3
) -> AsyncIterator[Client]:
    monkeypatch.setattr(HttpProtocol, "timeout_s", timeout_s)
    async with play(folder) as stage, visit(stage) as client:
        yield client


async def test_silent_connection_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene(tmp_path, monkeypatch) as client:
        assert await client.rest() == b""


@pytest.mark.parametrize("begin", [b"", GET, b"GET / HTTP/1.1\r\n"])
async def test_dripped_header_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    async with scene(tmp_path, monkeypatch) as client:
        await client.send(begin)
        assert b"200 OK" not in await client.drip(b"x")


async def test_endless_header_is_refused_before_memory_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path, monkeypatch, timeout_s=WAIT_S * 2) as client:
        sent = 0
        with suppress(ConnectionError):
            await client.send(GET)
            while sent < 100_000_000:
                await client.send(b"X-More: " + b"y" * 8_000 + b"\r\n")
                sent += 8_000
        assert sent < 20_000_000, "nobody stopped it"


async def test_dripped_unwanted_body_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path, monkeypatch) as client:
        await client.send(GET + b"Transfer-Encoding: chunked\r\n\r\n")
        assert b"200 OK" in await client.drip(b"1\r\nx\r\n")


async def test_second_request_of_a_connection_has_the_same_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path, monkeypatch) as client:
        await client.send(GET + b"\r\n")
        assert b"200 OK" in await client.read(b"}")
        await client.send(b"GET / HT")
        assert await client.drip(b"x") == b""


async def test_websocket_opened_in_time_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade = (
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
    async with scene(tmp_path, monkeypatch) as client:
        await client.send(GET.replace(b"/health", b"/") + upgrade)
        assert b"101" in await client.read(b"\r\n\r\n")
        assert b"connect.challenge" in await client.read(b"}")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):  # more than the time for a request
                await client._reader.readexactly(1_000)


async def test_slow_client_within_the_timeout_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path, monkeypatch, timeout_s=WAIT_S) as client:
        for byte in GET + b"\r\n":
            await client.send(bytes([byte]))
        assert b"200 OK" in await client.read(b"}")


async def test_incomplete_request_beyond_the_bound_ends_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpProtocol, "timeout_s", WAIT_S)
    monkeypatch.setattr(ConnectionSlots, "max_per_address", 3)
    async with play(tmp_path) as stage, visit(stage) as first, AsyncExitStack() as others:
        address = first.address
        second, _third = [others.enter_context(closing(await knock(address))) for _ in range(2)]
        with closing(await knock(address)) as fourth:
            assert await first.rest() == b""  # at once
            await fourth.send(GET + b"\r\n")
            assert b"200 OK" in await fourth.read(b"}")
            await second.send(GET + b"\r\n")
            assert b"200 OK" in await second.read(b"}")
