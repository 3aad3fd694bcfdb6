"""HTTP: one port for the WebSocket, for chat services that call us, and for plain requests.

Every request passes the door first, `webhooks` answers services and `pages` the rest. A request
that does not come whole within the time for a handshake is not waited for.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakSet

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from homarus.core.errors import Unavailable, UserError
from homarus.gateway.client import Connection
from homarus.gateway.door import Barred, Door
from homarus.gateway.frames import HANDSHAKE_S, MAX_FRAME_BYTES, MAX_HELLO_BYTES
from homarus.gateway.listen import Listen
from homarus.gateway.server import Gateway

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send
    from websockets.http11 import Request as Upgrade

    from homarus.channels.base import Listens
    from homarus.gateway.pages import Pages
    from homarus.gateway.webhooks import Webhooks

_WIRE = "homarus.wire"
MAX_STRANGERS = 2_000
MAX_SPILT_BYTES = 8 << 20  # of a body whose request was answered without it
_LINGER_S = 2.0  # for a client that was hung up on to take the reason


class Plain(H11Protocol):
    """uvicorn's HTTP, which would wait for ever for the rest of a request."""

    patience_s: ClassVar[float] = HANDSHAKE_S
    max_waiting: ClassVar[int] = MAX_STRANGERS  # for the rest of a request; each is an open file
    _waiting: ClassVar[WeakSet["Plain"]] = WeakSet()
    _alarm: asyncio.TimerHandle | None = None
    _spilt = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        super().connection_made(transport)
        if len(self._waiting) >= self.max_waiting:
            transport.abort()
        else:
            self._set_alarm()

    def data_received(self, data: bytes) -> None:
        if self._is_spilling():
            self._spilt += len(data)
            if self._spilt > MAX_SPILT_BYTES:
                self.transport.abort()
                return
        super().data_received(data)
        whole = self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}
        if whole or self.transport.get_protocol() is not self:  # else it became a WebSocket
            self._stop_alarm()
        elif self._alarm is None:
            self._set_alarm()

    def _is_spilling(self) -> bool:
        """Whether a request was answered before its body came, and the body goes on."""
        cycle: RequestResponseCycle | None = self.cycle  # there is none before the first request
        return bool(cycle and cycle.response_complete) and self.conn.their_state is h11.SEND_BODY

    def eof_received(self) -> None:
        """The client says no more; half a request is none."""
        if self.conn.their_state is h11.SEND_BODY:
            self.send_400_response("The request ended before its body did.")

    def send_400_response(self, msg: str) -> None:
        """Tell it once: nonsense after an answer only ends the connection."""
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.close()
            return
        super().send_400_response(msg)
        if self.cycle is not None:  # what answers the request must not answer too
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_alarm()
        super().connection_lost(exc)

    def _set_alarm(self) -> None:
        self._waiting.add(self)
        self._alarm = self.loop.call_later(self.patience_s, self.transport.abort)

    def _stop_alarm(self) -> None:
        self._waiting.discard(self)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class Wire(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket; its size limit can be raised, and a slow reader can be hung up on."""

    def handle_connect(self, event: "Upgrade") -> None:
        self.allow(MAX_HELLO_BYTES)
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope["extensions"] = {**(self.scope["extensions"] or {}), _WIRE: {"wire": self}}

    def allow(self, max_bytes: int) -> None:
        self.conn.max_message_size = max_bytes

    async def write(self, texts: Sequence[str]) -> None:
        """Send frames in one go, once the client has taken most of what was sent before."""
        await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        for text in texts:
            self.conn.send_text(text.encode())
        self.transport.write(b"".join(self.conn.data_to_send()))

    def hang_up(self, code: int, reason: str) -> None:
        """Close now. `send` would wait for a reader who may never read."""
        if self.transport.is_closing():
            return
        if not self.close_sent:
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
        self.transport.close()
        self.loop.call_later(_LINGER_S, self.transport.abort)


class Site:
    """The ASGI application."""

    def __init__(self, gateway: Gateway, *, page: bool = True, metrics: bool = False) -> None:
        self._gateway, self._page, self._metrics = gateway, page, metrics

    @cached_property
    def _pages(self) -> "Pages":
        # Most gateways never see a plain request; who has none need not load what answers it.
        from homarus.gateway.pages import Pages

        return Pages(self._gateway, page=self._page, metrics=self._metrics)

    @cached_property
    def _webhooks(self) -> "Webhooks":
        from homarus.gateway.webhooks import Webhooks

        return Webhooks(self._gateway.clock)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            door = Door.from_scope(scope)
            if listener := self._listener(scope):
                self._gateway.gate.entrance.check_shape(door)
                await self._webhooks.answer(listener, door, scope, receive, send)
                return
            self._gateway.gate.admit(door)
            if scope["type"] == "websocket":
                if self._gateway.strangers >= MAX_STRANGERS:
                    raise Barred(503, "too many connections that say nothing", after_s=5)
                wire = scope["extensions"][_WIRE]["wire"]
                await Connection(self._gateway, wire, receive, send, scope).serve()
            else:
                await self._pages(scope, receive, send)
        except Barred as barred:
            self._gateway.counts.refused += 1
            await self._pages.refuse(barred, scope, receive, send)
            if scope["type"] == "websocket":
                # uvicorn takes a refusal for an unfinished handshake: it would log an error.
                scope["extensions"][_WIRE]["wire"].handshake_complete = True

    def _listener(self, scope: "Scope") -> "Listens | None":
        """The account that this request is for; it may be known by any name."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        try:
            switchboard = self._gateway.host.channels
        except Unavailable as exc:
            raise Barred(503, exc.message, after_s=2) from None
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        return switchboard.listener(path.decode("latin-1"))


def open_sockets(listen: Listen) -> list[socket.socket]:
    """Take the port; a UserError says who cannot have it."""
    first = _listening(listen.host, listen.port)
    sockets = [first]
    port = first.getsockname()[1]
    for other in listen.others:
        with suppress(OSError, UserError):  # no IPv6 on this machine
            sockets.append(_listening(other, port))
    return sockets


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio knows it: else small frames wait for the client's receipts.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        raise UserError(
            f"cannot listen on {host} port {port}: {os.strerror(exc.errno or 0)}",
            fix="another gateway may run there: homarus gateway status; or choose --port",
        ) from exc
    return sock


class Listener:
    """uvicorn on sockets of ours; signals and the main loop are not its business."""

    def __init__(self, site: Site, sockets: list[socket.socket]) -> None:
        config = Config(
            site,
            http=Plain,
            ws=Wire,
            ws_max_size=MAX_FRAME_BYTES,
            ws_per_message_deflate=False,
            ws_ping_interval=25.0,
            ws_ping_timeout=25.0,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # the door alone decides whose word about an address counts
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        config.load()
        self._server, self._sockets = Server(config), sockets
        self._stopped = False
        self._server.lifespan = config.lifespan_class(config)
        logger = logging.getLogger("uvicorn.error")
        logger.handlers, logger.propagate = logging.getLogger("homarus").handlers, False

    async def start(self) -> None:
        await self._server.startup(self._sockets)

    def refuse_more(self) -> None:
        """No new connections from now on."""
        for server in self._server.servers:
            server.close()

    async def stop(self) -> None:
        """Close what is left of the connections; once is enough."""
        if not self._stopped:
            self._stopped = True
            await self._server.shutdown(self._sockets)
