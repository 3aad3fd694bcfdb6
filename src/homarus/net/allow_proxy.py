"""An HTTP proxy that connects to the hosts of a list only, each through the network guard.

It serves a listening socket that others opened, such as the one of a sandbox. A host is looked up
only when the list has it, so a request for another one sends nothing anywhere; its addresses are
checked, and the connection is made to them. TLS is not intercepted: `https` is a tunnel.

A connection of a client carries one request and is closed after it. Requests for an origin are
written again from what was parsed. What a client does cannot end the proxy, only its connection.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeAlias

import h11

from homarus.core.errors import BlockedUrlError, FetchError
from homarus.core.fast_dataclass import dataclass
from homarus.core.tasks import run_contained
from homarus.core.text import one_line
from homarus.net.guard import PUBLIC_ONLY, CheckedTarget, NetworkPolicy, Resolve, check_target
from homarus.net.guarded_stream import BUFFER_BYTES, Stream, open_guarded_stream
from homarus.net.host_allowlist import HostAllowlist
from homarus.net.proxy_request import (
    ProxyRefusalError,
    ProxyTarget,
    check_framing,
    make_client_response,
    make_origin_request,
    parse_proxy_target,
)

ALLOW_KEY: Final = "sandbox.network.allow"
MAX_ACCESSES: Final = 50
_CHUNK_BYTES: Final = 64 * 1024
_ACCEPT_RETRY_S: Final = 0.5
_LINGER_S, _LINGER_BYTES = 1.0, 1 << 20
_RESOLVER_THREADS: Final = 2
_YIELD_EVENTS: Final = 32  # after so many parts of a message other tasks run

OpenStream: TypeAlias = Callable[[CheckedTarget, float], Awaitable[Stream]]


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """The limits of a proxy: connections at once, and how long one may take.

    `idle_s` is how long a connection may carry nothing in both directions.
    """

    connections: int = 32
    head_bytes: int = 32 * 1024
    head_s: float = 15.0
    connect_s: float = 15.0
    idle_s: float = 300.0
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class ProxyAccess:
    """A host and port that a client requested; `refusal` says why it was refused, "" if not."""

    place: str
    refusal: str = ""


class AllowProxy:
    """The proxy of one sandbox.

    `name` and `allow_key` are how its refusals call it and the key of the config that decides.
    `on_access` is called with each host and port once, and once more if it is refused as well as
    allowed; `accesses` has the same. Beyond a number of them no more are recorded.
    """

    name: str = "sandbox"
    allow_key: str = ALLOW_KEY

    def __init__(
        self,
        allowed: HostAllowlist,
        policy: NetworkPolicy = PUBLIC_ONLY,
        *,
        on_access: Callable[[ProxyAccess], None] = lambda _access: None,
        limits: ProxyLimits | None = None,
        resolve: Resolve | None = None,
        open_stream: OpenStream = open_guarded_stream,
    ) -> None:
        self._allowed, self._policy, self._on_access = allowed, policy, on_access
        self.limits = limits or ProxyLimits()
        self._resolver: ThreadPoolExecutor | None = None
        self._resolve = resolve or self._resolve_host
        self._open_stream = open_stream
        self._accesses: dict[tuple[str, bool], ProxyAccess] = {}

    @property
    def accesses(self) -> tuple[ProxyAccess, ...]:
        return tuple(self._accesses.values())

    async def serve(self, listener: socket.socket) -> None:
        """Serve the connections of a listening socket until cancelled; then close all of them."""
        loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(self.limits.connections)
        listener.setblocking(False)  # noqa: FBT003 - the library's parameter
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await slots.acquire()  # further clients wait in the backlog of the socket
                    try:
                        client, _ = await loop.sock_accept(listener)
                    except OSError as exc:
                        if exc.errno in (errno.EINVAL, errno.EBADF):
                            return  # it does not listen any more
                        slots.release()
                        await asyncio.sleep(_ACCEPT_RETRY_S)
                        continue
                    task = group.create_task(self._serve_client(client), name=f"{self.name} proxy")
                    task.add_done_callback(lambda _task: slots.release())
        finally:
            listener.close()
            if self._resolver is not None:
                self._resolver.shutdown(wait=False, cancel_futures=True)

    async def open_target(self, target: ProxyTarget) -> Stream:
        """Return a stream to an allowed target. Raises ProxyRefusalError."""
        host, port = target.host, target.port
        if (entry := self._allowed.find(host, port)) is None:
            is_listed = self._allowed.has_host(host)
            reason = f"is not in {ALLOW_KEY}" + (f" with port {port}" if is_listed else "")
            raise self._refuse(target, reason)
        try:
            is_port_allowed = entry.port == port
            checked = await check_target(
                target.url, self._policy, self._resolve, is_port_allowed=is_port_allowed
            )
        except BlockedUrlError as exc:
            raise self._refuse(target, f"is in {ALLOW_KEY}, but: {exc}") from exc
        except FetchError as exc:
            raise ProxyRefusalError(502, exc.message, target.place) from exc
        return await self._connect(target, checked)

    async def _connect(self, target: ProxyTarget, checked: CheckedTarget) -> Stream:
        """Return a stream to the addresses of a check. Raises ProxyRefusalError."""
        self._record(ProxyAccess(target.place))
        try:
            return await self._open_stream(checked, self.limits.connect_s)
        except TimeoutError as exc:
            raise ProxyRefusalError(504, "there was no answer in time", target.place) from exc
        except OSError as exc:
            reason = f"the connection failed: {exc.strerror or exc}"
            raise ProxyRefusalError(502, reason, target.place) from exc

    def _refuse(self, target: ProxyTarget, reason: str) -> ProxyRefusalError:
        self._record(ProxyAccess(target.place, reason))
        return ProxyRefusalError(403, reason, target.place)

    def _record(self, access: ProxyAccess) -> None:
        key = (access.place, not access.refusal)
        if key not in self._accesses and len(self._accesses) < MAX_ACCESSES:
            self._accesses[key] = access
            self._on_access(access)

    async def _resolve_host(self, host: str, port: int) -> Sequence[str]:
        """Resolve a name in threads of its own: slow names must not occupy those of the gateway."""
        if self._resolver is None:
            self._resolver = ThreadPoolExecutor(_RESOLVER_THREADS, f"{self.name}-resolver")
        found = await asyncio.get_running_loop().run_in_executor(
            self._resolver, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))

    async def _serve_client(self, client: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=client, limit=BUFFER_BYTES)
        except BaseException:
            client.close()
            raise
        exchange = _Exchange(self, reader, writer)
        try:
            await run_contained("a connection of a proxy", exchange.run, lambda _exc: None)
        finally:
            exchange.abort()


class _Exchange:
    """One connection of a client, with the connection to the origin."""

    def __init__(
        self, proxy: AllowProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy, self._limits = proxy, proxy.limits
        self._reader, self._writer = reader, writer
        _flush_in_drain(writer)
        self._http = h11.Connection(h11.SERVER, self._limits.head_bytes)
        self._origin: Stream | None = None
        self._loop = asyncio.get_running_loop()
        self._active_at_s = self._loop.time()
        self._alarm: asyncio.TimerHandle | None = None
        self._events = 0

    async def run(self) -> None:
        """Answer the request of the connection, however the peers end it."""
        self._check_idle()
        with suppress(OSError, h11.ProtocolError):  # also TimeoutError
            async with asyncio.timeout(self._limits.total_s):
                await self._serve()

    async def _serve(self) -> None:
        method = b""
        try:
            request = await self._receive_request()
            if request is None:
                return
            method = request.method
            check_framing(request)
            target = parse_proxy_target(request)
            reader, writer = self._origin = await self._proxy.open_target(target)
            _flush_in_drain(writer)
            if method == b"CONNECT":
                await self._tunnel(reader, writer)
            else:
                await self._forward(make_origin_request(request, target), reader, writer)
        except ProxyRefusalError as exc:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE, h11.ERROR):
                refusal = _format_refusal(self._proxy, exc, has_body=method != b"HEAD")
                self._writer.write(refusal)
        await self._linger()

    def abort(self) -> None:
        """Close both connections at once."""
        if self._alarm:
            self._alarm.cancel()
        for writer in (self._writer, *(self._origin or ())[1:]):
            writer.transport.abort()

    def _check_idle(self) -> None:
        left_s = self._active_at_s + self._limits.idle_s - self._loop.time()
        if left_s <= 0:
            self.abort()
        else:
            self._alarm = self._loop.call_later(left_s, self._check_idle)

    async def _receive_request(self) -> h11.Request | None:
        """Return the head of the request, None if the client has left."""
        try:
            async with asyncio.timeout(self._limits.head_s):
                while (event := self._http.next_event()) is h11.NEED_DATA:
                    self._http.receive_data(await self._reader.read(_CHUNK_BYTES))
        except h11.RemoteProtocolError as exc:
            raise ProxyRefusalError(
                exc.error_status_hint, f"the request is not valid: {exc}"
            ) from exc
        except TimeoutError as exc:
            raise ProxyRefusalError(408, "the request was not complete in time") from exc
        return event if isinstance(event, h11.Request) else None

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        writer.write(self._http.trailing_data[0])
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(self._reader, writer))
                group.create_task(self._pump(reader, self._writer))
        except* OSError:
            self.abort()  # one side was cut, so the other one is

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            self._active_at_s = self._loop.time()
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def _forward(
        self, request: h11.Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        origin = h11.Connection(h11.CLIENT, self._limits.head_bytes)
        try:
            writer.write(origin.send(request) or b"")
        except h11.LocalProtocolError as exc:
            raise ProxyRefusalError(400, f"the request is not valid: {exc}") from exc
        failure: Exception | None = None
        async with asyncio.TaskGroup() as group:
            upload = group.create_task(self._upload(origin, writer))
            try:
                await self._download(origin, reader)
            except (h11.ProtocolError, OSError) as exc:
                failure = exc
            upload.cancel()
        if failure and self._http.our_state is h11.SEND_RESPONSE:
            raise ProxyRefusalError(502, "the answer of the server is not valid") from failure
        if failure:
            raise failure  # the response has begun: only a cut shows that it is not complete

    async def _upload(self, origin: h11.Connection, writer: asyncio.StreamWriter) -> None:
        """Send the body of the request to the origin; if the client cuts it, close the origin."""
        try:
            while not isinstance(event := await self._next_part(), h11.EndOfMessage):
                writer.write(origin.send(event) or b"")
                await writer.drain()
            writer.write(origin.send(h11.EndOfMessage()) or b"")
        except (h11.ProtocolError, OSError):
            writer.transport.abort()

    async def _next_part(self) -> h11.Data | h11.EndOfMessage:
        while True:
            await self._count_event()
            event = self._http.next_event()
            if isinstance(event, h11.Data | h11.EndOfMessage):
                return event
            if event is not h11.NEED_DATA:
                raise h11.RemoteProtocolError("the request was cut")
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._http.send(go_on) or b"")
            data = await self._reader.read(_CHUNK_BYTES)
            self._active_at_s = self._loop.time()
            self._http.receive_data(data)

    async def _count_event(self) -> None:
        """Let other tasks run now and then: a message of tiny chunks has thousands of parts."""
        self._events += 1
        if self._events % _YIELD_EVENTS == 0:
            await asyncio.sleep(0)

    async def _download(self, origin: h11.Connection, reader: asyncio.StreamReader) -> None:
        """Send the response of the origin to the client."""
        while True:
            await self._count_event()
            event = origin.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(_CHUNK_BYTES)
                self._active_at_s = self._loop.time()
                origin.receive_data(data)
            elif isinstance(event, h11.Response):
                self._writer.write(self._http.send(make_client_response(event)) or b"")
            elif isinstance(event, h11.Data | h11.EndOfMessage):
                is_end = isinstance(event, h11.EndOfMessage)
                part = h11.EndOfMessage() if is_end else event
                self._writer.write(self._http.send(part) or b"")
                await self._writer.drain()
                if is_end:
                    return
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the server closed the connection")

    async def _linger(self) -> None:
        """Send what is written, and read what the client still sends: a reset would lose both."""
        with suppress(OSError):
            await self._writer.drain()
            if not self._writer.is_closing():
                self._writer.write_eof()
            async with asyncio.timeout(_LINGER_S):
                left = _LINGER_BYTES
                while left > 0 and (data := await self._reader.read(_CHUNK_BYTES)):
                    left -= len(data)


def _flush_in_drain(writer: asyncio.StreamWriter) -> None:
    """Have `drain` wait until everything is sent, so that no end of a stream is lost by a close."""
    writer.transport.set_write_buffer_limits(high=0)


def _format_refusal(proxy: AllowProxy, refusal: ProxyRefusalError, *, has_body: bool) -> bytes:
    """Return a response that says what was refused, why, and which setting decides."""
    separator = " " if refusal.place and refusal.status == 403 else ": "
    text = f"{refusal.place or 'the request'}{separator}{refusal.reason}"
    key = f"The key of the config is {proxy.allow_key}."
    body = f"The {proxy.name}'s proxy refused it. {text}\n{key}\n"
    data = body.encode() if has_body else b""
    reason = one_line(text, 200).encode("ascii", "replace").decode("ascii")
    head = (
        f"HTTP/1.1 {refusal.status} {reason}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body.encode())}",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode("ascii") + data
