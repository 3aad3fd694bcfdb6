"""A WebSocket over a pair of streams: enough for the gateway of the fake."""

import asyncio
import base64
import hashlib
import json
import struct
from typing import Final

from homarus.core.message import Json

_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10


class FakeWebSocket:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def accept(self, key: str) -> None:
        """Answer the handshake."""
        digest = hashlib.sha1((key + _GUID).encode(), usedforsecurity=False).digest()
        head = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n\r\n"
        )
        self._writer.write(head.encode())
        await self._writer.drain()

    def send(self, data: Json) -> None:
        """Send a value as JSON."""
        self._write(_TEXT, json.dumps(data).encode())

    def close(self, code: int) -> None:
        """Send the close frame."""
        self._write(_CLOSE, struct.pack(">H", code))

    async def receive(self) -> Json:
        """Return the next value; None when the client closes."""
        while True:
            head, length = await self._reader.readexactly(2)
            size = length & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", await self._reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await self._reader.readexactly(8))
            mask = await self._reader.readexactly(4)
            masked = await self._reader.readexactly(size)
            body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked))
            match head & 0x0F:
                case 1:
                    return json.loads(body)
                case 8:
                    return None
                case 9:
                    self._write(_PONG, body)

    def _write(self, kind: int, body: bytes) -> None:
        size = len(body)
        if size < 126:
            head = struct.pack(">BB", 0x80 | kind, size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", 0x80 | kind, 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | kind, 127, size)
        self._writer.write(head + body)
