"""One connection to an IRC server, with a rate limit for sent lines.

A silent server is pinged; if it stays silent, the connection is closed.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from homarus.channels.irc.message import (
    MAX_BYTES,
    TAGS_BYTES,
    IrcMessage,
    format_message,
    parse_message,
)
from homarus.core.clock import Clock
from homarus.core.errors import ChannelError
from homarus.core.fast_dataclass import dataclass

CONNECT_TIMEOUT_S: Final = 30.0
_HAPPY_EYEBALLS_S: Final = 0.25  # before the next of a host's addresses is tried too
_CLOSE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class IrcTimings:
    """Rate limit and timeouts of a connection.

    After `burst` lines, one is sent every `every_s`: servers disconnect clients that send more.
    After `idle_s` without a line the connection is dead. `ready_s` is how long a message waits for
    the connection, `answer_s` how long for its confirmation. `again_s` is the interval of retries
    to join a channel or to regain our nick.
    """

    burst: int = 4
    every_s: float = 1.0
    idle_s: float = 240.0
    ready_s: float = 20.0
    answer_s: float = 45.0
    again_s: float = 60.0


class TokenBucket:
    """Admit `burst` at once, then one each `every_s`, in order."""

    def __init__(self, timings: IrcTimings, clock: Clock) -> None:
        self._timings, self._clock = timings, clock
        self._next_s = clock.monotonic() - timings.burst * timings.every_s

    async def acquire(self) -> None:
        """Wait for the next slot."""
        timings, now_s = self._timings, self._clock.monotonic()
        self._next_s = max(self._next_s, now_s - timings.burst * timings.every_s) + timings.every_s
        if self._next_s > now_s:
            await self._clock.sleep(self._next_s - now_s)


class IrcConnection:
    """An open connection. Made by `connect`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timings: IrcTimings,
        clock: Clock,
    ) -> None:
        self._reader, self._writer, self._timings = reader, writer, timings
        self._bucket = TokenBucket(timings, clock)

    async def read(self) -> IrcMessage:
        """Return the next line. Raises ChannelError when the server disconnects or is silent."""
        while True:
            try:
                raw = await self._read()
            except (EOFError, OSError) as exc:
                raise ChannelError(f"the IRC server hung up: {_words(exc)}") from exc
            except asyncio.LimitOverrunError as exc:
                raise ChannelError("the IRC server sent a line that has no end") from exc
            if line := parse_message(raw):
                return line

    @property
    def is_open(self) -> bool:
        return not self._writer.transport.is_closing()

    def send_lines(self, *lines: bytes) -> None:
        """Send at once, outside the rate limit: responses, and lines that have their slot."""
        if not self.is_open:
            raise ChannelError("the connection to the IRC server is lost")
        self._writer.write(b"".join(lines))

    async def acquire_slot(self) -> None:
        """Wait for the next slot of the rate limit."""
        await self._bucket.acquire()

    async def _read(self) -> bytes:
        """Return the next line; after half of `idle_s`, ping the server."""
        for ask in (True, False):
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timings.idle_s / 2):
                    return await self._reader.readuntil(b"\n")
            if ask:
                self.send_lines(format_message("PING", "still-there"))
        raise EOFError(f"nothing came for {self._timings.idle_s:.0f} s")

    async def close(self) -> None:
        """Send QUIT and close, with a short timeout."""
        with suppress(OSError, TimeoutError, ssl.SSLError):
            if self.is_open:
                self._writer.write(format_message("QUIT", "bye"))
            self._writer.close()
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        self._writer.transport.abort()


@asynccontextmanager
async def connect(
    host: str, port: int, *, tls: bool, timings: IrcTimings, clock: Clock
) -> AsyncIterator[IrcConnection]:
    """Open a connection while the block lasts. Raises ChannelError when none can be opened."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                host,
                port,
                ssl=await _trust() if tls else None,
                limit=TAGS_BYTES + MAX_BYTES,
                happy_eyeballs_delay=_HAPPY_EYEBALLS_S,
            )
    except ssl.SSLCertVerificationError as exc:
        raise ChannelError(
            f"{host} shows a certificate that is not trusted: {exc.verify_message}",
            fix="name its certificate in SSL_CERT_FILE, or correct channels.irc.host",
        ) from exc
    except ssl.SSLError as exc:
        raise ChannelError(
            f"{host}:{port} does not speak TLS: {exc.reason}",
            fix="set channels.irc.port to its TLS port, or channels.irc.tls to false",
        ) from exc
    except TimeoutError as exc:
        problem = f"{host}:{port} did not answer within {CONNECT_TIMEOUT_S:.0f} s"
        raise ChannelError(problem) from exc
    except (OSError, UnicodeError) as exc:
        raise ChannelError(f"{host}:{port} cannot be reached: {_words(exc)}") from exc
    wire = IrcConnection(reader, writer, timings, clock)
    try:
        yield wire
    finally:
        await wire.close()


async def _trust() -> ssl.SSLContext:
    from homarus.net.http_client import tls_context

    return await asyncio.to_thread(tls_context)  # it reads files


def _words(exc: Exception) -> str:
    if isinstance(exc, asyncio.IncompleteReadError):
        return "the connection was closed"
    return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
