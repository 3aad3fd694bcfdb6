"""An origin server, an allow-listing proxy in front of it, and a client that sends raw bytes."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from homarus.net.allow_proxy import AllowProxy
from homarus.net.guard import NetworkPolicy
from homarus.net.host_allowlist import HostAllowlist

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
LOCAL = NetworkPolicy(allowed_hosts=frozenset({"one.test"}))


class Origin:
    """A server that keeps what it receives and answers each request with `answer`."""

    def __init__(self) -> None:
        self.port = 0
        self.received = b""
        self.connections = 0
        self.answer = HELLO
        self.sent_bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(OSError, EOFError):
                self.received += await reader.readuntil(b"\r\n\r\n")
                if b"chunked" in self.received:
                    self.received += await reader.readuntil(b"\r\n0\r\n\r\n")
                for start in range(0, len(self.answer), 1 << 20):
                    writer.write(self.answer[start : start + (1 << 20)])
                    await writer.drain()
                    self.sent_bytes += 1 << 20
        finally:
            writer.close()


class Resolver:
    """Resolves names to the answers given, one after the other; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers) or [("127.0.0.1",)]
        self.names: list[str] = []

    async def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.names.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class ProxyHarness:
    """A running proxy; `allowed` entries may have `{port}` for the port of the origin."""

    def __init__(self, proxy: AllowProxy, origin: Origin, port: int, resolver: Resolver) -> None:
        self.proxy, self.origin, self.port, self.resolver = proxy, origin, port, resolver

    async def send(self, data: bytes | str) -> bytes:
        """Return everything that the proxy answers to some bytes."""
        text = data if isinstance(data, str) else data.decode("latin-1")
        reader, writer = await self.connect()
        try:
            writer.write(text.replace("{port}", str(self.origin.port)).encode("latin-1"))
            with suppress(ConnectionError):
                await writer.drain()
            answer = b""
            with suppress(ConnectionError):
                while part := await reader.read(65_536):
                    answer += part
            return answer
        finally:
            writer.close()

    async def get(self, url: str, *headers: str) -> bytes:
        lines = [f"GET {url} HTTP/1.1", *(headers or ("Host: one.test",)), "", ""]
        return await self.send("\r\n".join(lines))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def run_proxy(
    *allowed: str,
    policy: NetworkPolicy = LOCAL,
    resolver: Resolver | None = None,
    context: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[ProxyHarness]:
    """Run an origin and a proxy for it; without `allowed` the origin is allowed as one.test."""
    origin, resolver = Origin(), resolver or Resolver()
    server = await asyncio.start_server(origin.serve, "127.0.0.1", 0, ssl=context)
    origin.port = server.sockets[0].getsockname()[1]
    entries = [each.replace("{port}", str(origin.port)) for each in allowed or ("one.test:{port}",)]
    proxy = AllowProxy(HostAllowlist(entries), policy, resolve=resolver, **options)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with server, asyncio.TaskGroup() as group:
        task = group.create_task(proxy.serve(listener))
        try:
            yield ProxyHarness(proxy, origin, port, resolver)
        finally:
            task.cancel()
