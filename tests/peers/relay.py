"""A relay of ours in front of a real server: it can lose the answer to a message that was taken.

The server behind it is the independent one, and decides what is in the chat.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from homarus.testing.stream_server import StreamServer

_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class RelayedProtocol:
    """How to recognise a send and its answer, and what the client gets instead."""

    is_send: Callable[[bytes], bool]
    is_answer: Callable[[bytes], bool]
    failure: bytes = b""


HTTP_ERROR = (
    b"HTTP/1.1 500 Internal Server Error\r\n"
    b"Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
)
MATRIX = RelayedProtocol(
    is_send=lambda chunk: chunk.startswith(b"PUT ") and b"/send/m.room." in chunk.split(b"\r\n")[0],
    is_answer=lambda chunk: chunk.startswith(b"HTTP/1.1 200"),
    failure=HTTP_ERROR,
)
# The adapter sends a message with a PING, whose PONG confirms it.
IRC = RelayedProtocol(
    is_send=lambda chunk: chunk.startswith(b"PRIVMSG "), is_answer=lambda chunk: b"PONG" in chunk
)


class Relay(StreamServer):
    """Pass bytes to a server on a port and back."""

    def __init__(self, port: int, protocol: RelayedProtocol) -> None:
        super().__init__(self._relay, "127.0.0.1", 0)
        self._server_port, self._protocol = port, protocol
        self._is_armed = False

    @property
    def port(self) -> int:
        return self._port

    def fail_next_send(self) -> None:
        """Pass the next send on, and answer with an error once the server has taken it."""
        self._is_armed = True

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(
                "127.0.0.1", self._server_port
            )
        except OSError:
            return  # the server is down
        failing = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_requests(reader, server_writer, failing))
                group.create_task(self._pass_answers(server_reader, writer, failing))
        finally:
            server_writer.transport.abort()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, failing: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if self._is_armed and self._protocol.is_send(chunk):
                    self._is_armed = False
                    failing.set()
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, failing: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if failing.is_set() and self._protocol.is_answer(chunk):
                    writer.write(self._protocol.failure)
                    break
                writer.write(chunk)
                await writer.drain()
        writer.close()
