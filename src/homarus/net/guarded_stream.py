"""Open a stream to a target that the network guard has checked.

The connection is made to the addresses of the check, never to the name again. A proxy that the
environment names is told to connect to the first of them.
"""

import asyncio
from contextlib import suppress
from typing import Final, TypeAlias
from urllib.parse import SplitResult

from homarus.net.guard import PORTS, CheckedTarget
from homarus.net.http_client import (
    PROXY_CREDENTIALS,
    basic_credentials,
    proxy_for,
    split_proxy,
    tls_context,
)

Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

BUFFER_BYTES: Final = 64 * 1024


async def open_guarded_stream(target: CheckedTarget, connect_s: float) -> Stream:
    """Return a stream to a checked target. Raises OSError, also TimeoutError."""
    async with asyncio.timeout(connect_s):
        if proxy := proxy_for(target.url):
            return await _open_through(split_proxy(proxy), target.addresses[0], target.port)
        *firsts, last = target.addresses
        for address in firsts:
            with suppress(OSError):
                async with asyncio.timeout(connect_s / 3):
                    return await _open(address, target.port)
        return await _open(last, target.port)


async def _open(host: str, port: int) -> Stream:
    return await asyncio.open_connection(host, port, limit=BUFFER_BYTES)


async def _open_through(proxy: SplitResult, address: str, port: int) -> Stream:
    if not proxy.hostname or proxy.scheme not in PORTS:
        raise OSError("the proxy that the environment of the gateway names cannot be used")
    context = await asyncio.to_thread(tls_context) if proxy.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        proxy.hostname, proxy.port or PORTS[proxy.scheme], ssl=context, limit=BUFFER_BYTES
    )
    try:
        place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        lines += [f"{name}: {text}" for name, text in basic_credentials(proxy, PROXY_CREDENTIALS)]
        writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
        head = await reader.readuntil(b"\r\n\r\n")
        words = head.split(b"\r\n", 1)[0].split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].startswith(b"2"):
            raise OSError("the proxy of the gateway's network refused the connection")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as exc:
        writer.transport.abort()
        raise OSError("the proxy of the gateway's network did not answer") from exc
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer
