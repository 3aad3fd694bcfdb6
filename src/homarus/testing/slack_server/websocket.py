"""The server's side of one WebSocket: frames of text, pings, and the end."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

from homarus.core.message import Json

_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10


class WebSocket:
    """An upgraded connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def accept(self, headers: Mapping[str, str]) -> None:
        """Answer the upgrade."""
        key = headers["sec-websocket-key"] + _GUID
        accept = base64.b64encode(hashlib.sha1(key.encode(), usedforsecurity=False).digest())
        self._writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        await self._writer.drain()

    async def send(self, value: Json) -> None:
        """Send a value as a text frame; a connection that is gone is noticed by its reader."""
        if not self._writer.is_closing():
            await self._frame(_TEXT, json.dumps(value).encode())

    async def close(self, code: int = 1000) -> None:
        await self._frame(_CLOSE, code.to_bytes(2, "big"))

    def abort(self) -> None:
        """Break the connection without a word."""
        self._writer.transport.abort()

    async def messages(self) -> AsyncIterator[Json]:
        """Yield what the client sends, until it ends the connection."""
        while True:
            kind, data = await self._read()
            if kind == _TEXT:
                yield json.loads(data)
            elif kind == _PING:
                await self._frame(_PONG, data)
            elif kind == _CLOSE:
                await self._frame(_CLOSE, data[:2])
                return

    async def _frame(self, kind: int, data: bytes) -> None:
        size = len(data)
        head = bytes([0x80 | kind, size if size < 126 else 126 if size < 65_536 else 127])
        if size >= 126:
            head += size.to_bytes(2 if size < 65_536 else 8, "big")
        self._writer.write(head + data)
        await self._writer.drain()

    async def _read(self) -> tuple[int, bytes]:
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8), "big")
        mask = await self._reader.readexactly(4) if second & 0x80 else b"\0\0\0\0"
        data = await self._reader.readexactly(size)
        return first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
