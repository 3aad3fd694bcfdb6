"""One HTTP/1.1 connection to a service: h11 on an asyncio transport.

A connection carries one exchange at a time. It waits for bytes at most `idle_s`, buffers a
bounded number of unread bytes, and says whether it can be reused.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal, TypeAlias, cast

import h11

MAX_HEAD_BYTES = 64 * 1024
MAX_BUFFERED_BYTES = 256 * 1024
SLICE_BYTES = 256 * 1024  # of a sent body: `idle_s` holds for each slice, not for the body

FailureKind: TypeAlias = Literal["unreachable", "silent", "cut", "unsendable"]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class ExchangeError(Exception):
    """A request failed before its response was complete."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class HttpConnection(asyncio.Protocol):
    """One connection, for one exchange at a time."""

    def __init__(self, idle_s: float, on_closed: Callable[["HttpConnection"], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle_s, self._on_closed = idle_s, on_closed
        self._http = _new_h11()
        self._transport: asyncio.Transport | None = None
        self._readable: asyncio.Future[None] | None = None  # done at the next bytes or the end
        self._writable: asyncio.Future[None] | None = None  # done when more can be written
        self._buffered_bytes = 0
        self._is_paused = self._is_over = False
        self._ends_at_s: float | None = None  # when the exchange is silent at the latest
        self._end_reason = ""
        self.free_since_s = 0.0
        self.closed = self._loop.create_future()

    async def send_request(
        self, method: str, target: str, headers: Headers, body: bytes
    ) -> h11.Response:
        """Send a request and return the head of its response. Raises ExchangeError."""
        if self._is_over:
            reason = self._end_reason or "it hung up before it was asked"
            raise ExchangeError("unreachable", reason)
        try:
            request = h11.Request(method=method, target=target, headers=list(headers))
            head = self._http.send(request) or b""
            if len(body) > SLICE_BYTES:  # without a copy: a long conversation has a megabyte
                await self._write(head)
                view = cast("bytes", memoryview(body))
                for start in range(0, len(body), SLICE_BYTES):
                    part = h11.Data(data=view[start : start + SLICE_BYTES])
                    for data in self._http.send_with_data_passthrough(part) or ():
                        await self._write(data)
            else:
                await self._write(head + (self._http.send(h11.Data(data=body)) or b""))
            self._http.send(h11.EndOfMessage())
        except h11.LocalProtocolError as exc:
            raise ExchangeError("unsendable", str(exc)) from exc
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Response):
                return event

    async def body(self) -> AsyncGenerator[bytes, None]:
        """Yield the body of the response as it arrives. Raises ExchangeError."""
        while True:
            event = await self._next_event()
            if type(event) is h11.Data:
                yield bytes(event.data)
            else:
                return

    def end_within(self, seconds: float) -> None:
        """Wait for the rest of the exchange for at most this long from now."""
        self._ends_at_s = self._loop.time() + seconds

    def release(self) -> bool:
        """End an exchange; return whether the connection can be reused."""
        self._ends_at_s = None
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self.abort()
            return False
        self._http.start_next_cycle()
        self.free_since_s = self._loop.time()
        if not self.is_usable:
            self.abort()
        return self.is_usable

    @property
    def is_usable(self) -> bool:
        """Return whether the connection is open, idle and without unexpected data."""
        return not self._is_over and self._http.their_state is h11.IDLE and not self._unread

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._transport is not None:
            self._transport.abort()

    async def start_tunnel(self, context: ssl.SSLContext | None, host: str) -> None:
        """Use a proxy's connection to the host after CONNECT, with TLS if there is a context."""
        self._http = _new_h11()
        if context is None:
            return
        assert self._transport is not None  # noqa: S101 - CONNECT was sent over it
        transport = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        self._transport = transport

    # Methods of asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream's
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._http.our_state is h11.IDLE:
            self.abort()  # data without a request
            return
        self._http.receive_data(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes > MAX_BUFFERED_BYTES and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        _wake(self._readable)

    def eof_received(self) -> None:
        self._end("")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc or ""))
        self._on_closed(self)
        _wake(self.closed)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        _wake(self._writable)
        self._writable = None

    @property
    def _unread(self) -> bytes:
        return self._http.trailing_data[0]

    def _end(self, reason: str) -> None:
        self._end_reason = self._end_reason or reason
        if not self._is_over:
            self._is_over = True
            self._http.receive_data(b"")
            _wake(self._readable)
            _wake(self._writable)

    async def _next_event(self) -> object:
        """Return the next h11 event, waiting for the bytes it needs."""
        while True:
            if self._is_over and self._http.their_state is h11.SEND_RESPONSE and not self._unread:
                raise ExchangeError("cut", self._end_reason or "it hung up without an answer")
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as exc:
                raise ExchangeError("cut", self._end_reason or str(exc)) from exc
            if event is not h11.NEED_DATA:
                return event
            if self._is_paused and self._transport is not None:
                self._is_paused = False
                self._transport.resume_reading()
            self._buffered_bytes = 0
            self._readable = self._loop.create_future()
            await self._wait(self._readable)

    async def _write(self, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101 - set by connection_made
        if self._is_over:
            return  # it may have responded before it closed the connection
        self._transport.write(data)
        if self._writable is not None:
            await self._wait(self._writable)

    async def _wait(self, future: "asyncio.Future[None]") -> None:
        wait_s = self._idle_s
        if self._ends_at_s is not None:
            wait_s = min(wait_s, max(0.0, self._ends_at_s - self._loop.time()))
        alarm = self._loop.call_later(wait_s, _time_out, future)
        try:
            await future
        except TimeoutError as exc:
            raise ExchangeError("silent", "nothing came") from exc
        finally:
            alarm.cancel()


def _new_h11() -> h11.Connection:
    return h11.Connection(h11.CLIENT, MAX_HEAD_BYTES)


def _wake(future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _time_out(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_exception(TimeoutError())
