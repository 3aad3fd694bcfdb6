"""HTTP/1.1 over a pair of streams, with every fault a body can have."""

import asyncio
import socket
import struct
from collections.abc import Mapping
from http import HTTPStatus

from homarus.testing.model_server.script import BodyFraming

MAX_BODY_BYTES = 256 * 1024 * 1024


class ConnectionEnded(Exception):
    """The script ended the connection."""


async def read_request(
    reader: asyncio.StreamReader,
) -> tuple[str, str, dict[str, str], bytes] | None:
    """Return method, path, headers (lower case) and body, or None when the client is done."""
    line = await reader.readline()
    words = line.decode("latin-1").split()
    if len(words) != 3:
        return None
    headers: dict[str, str] = {}
    while (line := await reader.readline()) not in {b"\r\n", b"\n", b""}:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = await _read_chunks(reader)
    else:
        size = headers.get("content-length", "0")
        body = await reader.readexactly(int(size) if size.isdigit() else 0)
    return words[0], words[1], headers, body


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size = int((await reader.readline()).split(b";")[0] or b"0", 16)
        if not size:
            await reader.readline()
            return bytes(body)
        body += await reader.readexactly(size)
        await reader.readline()
        if len(body) > MAX_BODY_BYTES:
            raise ConnectionResetError("the body is too large")


async def write_whole(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Write a complete response."""
    sent = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    writer.write(_head(status, {**sent, **(headers or {})}) + body)
    await writer.drain()


class BodyStream:
    """The body of a streamed answer, framed as the script says."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        shape: BodyFraming,
        content_type: str,
    ) -> None:
        self._reader, self._writer, self._shape = reader, writer, shape
        asked = shape.content_type != BodyFraming().content_type
        self._type = shape.content_type if asked else content_type
        self._sent_bytes = 0
        self._chunked = shape.framing == "chunked"
        self._plain = shape == BodyFraming()

    async def open(self) -> None:
        headers = {"Content-Type": self._type, "Cache-Control": "no-cache"}
        headers |= {"Transfer-Encoding": "chunked"} if self._chunked else {"Connection": "close"}
        self._writer.write(_head(200, headers))
        if self._shape.bom:
            await self.send(b"\xef\xbb\xbf")

    async def send(self, data: bytes) -> None:
        """Write bytes of the body."""
        if self._plain:
            self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            return
        if self._shape.newline != b"\n":
            data = data.replace(b"\n", self._shape.newline)
        cut_at = self._shape.cut_at_byte
        cuts = cut_at is not None and self._sent_bytes + len(data) >= cut_at
        if cut_at is not None and cuts:
            data = data[: cut_at - self._sent_bytes]
        self._sent_bytes += len(data)
        size = self._shape.piece_bytes or len(data) or 1
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)
            if self._shape.piece_bytes:
                await self.flush()
        if cuts:
            await self.cut("close")

    async def flush(self) -> None:
        """Drain the buffer, and notice a client that disconnected."""
        await self._writer.drain()
        await asyncio.sleep(0)
        if self._reader.at_eof():
            raise ConnectionResetError("the client left")

    async def end(self) -> None:
        """End the body properly."""
        if self._chunked:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        if not self._chunked:
            self._writer.close()

    async def cut(self, how: str) -> None:
        """End the connection without ending the body."""
        await self._writer.drain()
        if how == "half-close":
            self._writer.write_eof()
            await self._reader.read(1)
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        raise ConnectionEnded


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
