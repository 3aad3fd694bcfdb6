"""One connection to a service: HTTP/1.1 by h11, on a transport of asyncio's.

A line carries one exchange after the other. It waits for bytes no longer than `idle_s`, holds
few that nobody has read yet, and says whether it can be used once more.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal, TypeAlias

import h11

MAX_HEAD_BYTES = 64 * 1024
MAX_HELD_BYTES = 256 * 1024
SLICE_BYTES = 256 * 1024  # of a body: its deadline is between bytes, not for the whole

Trouble: TypeAlias = Literal["unreachable", "silent", "cut", "unsendable"]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class ExchangeFailed(Exception):
    """A request was not answered, or not to the end."""

    def __init__(self, trouble: Trouble, words: str) -> None:
        super().__init__(words)
        self.trouble = trouble


class Line(asyncio.Protocol):
    """One connection, for one exchange at a time."""

    def __init__(self, idle_s: float, gone: Callable[["Line"], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle_s, self._gone = idle_s, gone
        self._http = _start()
        self._transport: asyncio.Transport | None = None
        self._news: asyncio.Future[None] | None = None  # done when bytes came, or the end
        self._room: asyncio.Future[None] | None = None  # done when more can be written
        self._held_bytes = 0
        self._is_paused = self._is_over = False
        self._why = ""
        self.free_since_s = 0.0
        self.closed = self._loop.create_future()

    async def ask(self, method: str, target: str, headers: Headers, body: bytes) -> h11.Response:
        """Send a request; the beginning of its answer."""
        if self._is_over:
            raise ExchangeFailed("unreachable", self._why or "it hung up before it was asked")
        try:
            request = h11.Request(method=method, target=target, headers=list(headers))
            head = self._http.send(request) or b""
            for start in range(0, len(body), SLICE_BYTES) or (0,):
                data = self._http.send(h11.Data(data=body[start : start + SLICE_BYTES])) or b""
                await self._write(head + data)
                head = b""
            self._http.send(h11.EndOfMessage())
        except h11.LocalProtocolError as exc:
            raise ExchangeFailed("unsendable", str(exc)) from exc
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event

    async def body(self) -> AsyncGenerator[bytes, None]:
        """The body of the answer as it comes."""
        while True:
            event = await self._event()
            if type(event) is h11.Data:
                yield bytes(event.data)
            else:
                return

    def release(self) -> bool:
        """End an exchange; whether the line can carry another."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self.drop()
            return False
        self._http.start_next_cycle()
        self.free_since_s = self._loop.time()
        if not self.is_usable:
            self.drop()
        return self.is_usable

    @property
    def is_usable(self) -> bool:
        """Nobody hung up, and nothing came that was not asked for."""
        return not self._is_over and self._http.their_state is h11.IDLE and not self._unread

    def drop(self) -> None:
        """Hang up, now."""
        if self._transport is not None:
            self._transport.abort()

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Go on in TLS, behind a proxy that has connected us."""
        self._http = _start()
        assert self._transport is not None  # noqa: S101 - it was asked over it
        secured = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        self._transport = secured

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream's
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._http.our_state is h11.IDLE:
            self.drop()  # nobody asked for that
            return
        self._http.receive_data(data)
        self._held_bytes += len(data)
        if self._held_bytes > MAX_HELD_BYTES and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        _wake(self._news)

    def eof_received(self) -> None:
        self._end("")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc or ""))
        self._gone(self)
        _wake(self.closed)

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        _wake(self._room)
        self._room = None

    # What happens inside

    @property
    def _unread(self) -> bytes:
        return self._http.trailing_data[0]

    def _end(self, why: str) -> None:
        self._why = self._why or why
        if not self._is_over:
            self._is_over = True
            self._http.receive_data(b"")
            _wake(self._news)
            _wake(self._room)

    async def _event(self) -> object:
        """What the other end said next; waits for the bytes of it."""
        while True:
            if self._is_over and self._http.their_state is h11.SEND_RESPONSE and not self._unread:
                raise ExchangeFailed("cut", self._why or "it hung up without an answer")
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as exc:
                raise ExchangeFailed("cut", self._why or str(exc)) from exc
            if event is not h11.NEED_DATA:
                return event
            if self._is_paused and self._transport is not None:
                self._is_paused = False
                self._transport.resume_reading()
            self._held_bytes = 0
            self._news = self._loop.create_future()
            await self._wait(self._news)

    async def _write(self, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101 - a line is made by connecting
        if self._is_over:
            return  # it may have answered before it hung up
        self._transport.write(data)
        if self._room is not None:
            await self._wait(self._room)

    async def _wait(self, for_: "asyncio.Future[None]") -> None:
        alarm = self._loop.call_later(self._idle_s, _give_up, for_)
        try:
            await for_
        except TimeoutError as exc:
            raise ExchangeFailed("silent", "nothing came") from exc
        finally:
            alarm.cancel()


def _start() -> h11.Connection:
    return h11.Connection(h11.CLIENT, MAX_HEAD_BYTES)


def _wake(sleeper: "asyncio.Future[None] | None") -> None:
    if sleeper is not None and not sleeper.done():
        sleeper.set_result(None)


def _give_up(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_exception(TimeoutError())
