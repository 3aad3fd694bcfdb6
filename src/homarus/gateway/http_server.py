"""HTTP: one port for the WebSocket, for webhooks, and for plain requests.

The origin policy checks every request first; `webhooks` answers chat services, `hooks` other
programs that wake the agent, and `http_routes` the rest. A request that is not complete within the
handshake timeout is dropped.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from homarus.core.errors import UnavailableError, UserError
from homarus.gateway.connection import POLICY, Connection
from homarus.gateway.connection_slots import ConnectionSlots
from homarus.gateway.frames import HANDSHAKE_S, MAX_FRAME_BYTES, MAX_HELLO_BYTES
from homarus.gateway.listen_address import ListenAddress
from homarus.gateway.listening_socket import ListeningSocket
from homarus.gateway.origin_policy import RequestBlockedError, RequestInfo
from homarus.gateway.server import Gateway

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send
    from websockets.frames import Frame
    from websockets.http11 import Request as Upgrade

    from homarus.channels.base import SupportsWebhook
    from homarus.gateway.hooks.endpoint import HookEndpoint
    from homarus.gateway.http_routes import HttpRoutes
    from homarus.gateway.tls import GatewayTls
    from homarus.gateway.webhooks import WebhookEndpoint

_WIRE = "homarus.wire"
MAX_CONTROL_FRAMES, CONTROL_WINDOW_S = 200, 10.0  # pings and pongs of one connection
MAX_FRAGMENTS = 10_000  # of one message
_PIECE_BYTES = 16 * 1024
_TOO_BIG = 1009
MAX_DISCARDED_BYTES = 8 << 20  # of a body whose request was answered before it came
_LINGER_S = 2.0  # for an aborted client to receive the close reason


class HttpProtocol(H11Protocol):
    """uvicorn's HTTP protocol with a timeout for incomplete requests."""

    timeout_s: ClassVar[float] = HANDSHAKE_S
    _timeout: asyncio.TimerHandle | None = None
    _discarded_bytes = 0
    _accepted: "Scope | None" = None  # the request whose client is authenticated

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        super().connection_made(transport)
        if _slots(self.app).add(transport):
            self._start_timeout()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._has_unread_body():
            self._discarded_bytes += len(data)
            if self._discarded_bytes > MAX_DISCARDED_BYTES:
                self.transport.abort()
                return
        super().data_received(data)
        is_complete = self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}
        if (
            is_complete or self.transport.get_protocol() is not self
        ):  # otherwise it became a WebSocket
            self._cancel_timeout()
        elif self._timeout is None and not self._reads_accepted_body:
            self._start_timeout()

    def handle_events(self) -> None:
        before = self.scope
        super().handle_events()
        if self.scope is not before:  # its application starts later
            self.scope.setdefault("extensions", {})[_WIRE] = {"wire": self}

    def accept_client(self, scope: "Scope") -> None:
        """Let the application limit a body itself, and the connection count no more.

        Called for a request whose client is authenticated: it may send many, and large ones.
        """
        _slots(self.app).release(self.transport)
        self._accepted = scope
        if self._reads_accepted_body:
            self._cancel_timeout()

    @property
    def _reads_accepted_body(self) -> bool:
        is_open = self.conn.their_state is h11.SEND_BODY
        return is_open and self._accepted is not None and self._accepted is self.scope

    @property
    def is_busy(self) -> bool:
        """Whether a complete request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        is_open = cycle is not None and not cycle.response_complete
        return is_open and self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}

    def _has_unread_body(self) -> bool:
        """Return whether a request was answered while its body is still arriving."""
        cycle: RequestResponseCycle | None = self.cycle  # there is none before the first request
        return bool(cycle and cycle.response_complete) and self.conn.their_state is h11.SEND_BODY

    def eof_received(self) -> None:
        """Handle the client's end of input; half a request is dropped."""
        if self.conn.their_state is h11.SEND_BODY:
            self.send_400_response("The request ended before its body did.")

    def send_400_response(self, msg: str) -> None:
        """Answer once: invalid bytes after a response only close the connection."""
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.close()
            return
        super().send_400_response(msg)
        if self.cycle is not None:  # the application must not answer it too
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        _slots(self.app).release(self.transport)
        self._cancel_timeout()
        super().connection_lost(exc)

    def _start_timeout(self) -> None:
        self._timeout = self.loop.call_later(self.timeout_s, self.transport.abort)

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, with an adjustable size limit and an abort for slow readers.

    Control frames and fragments cost no bytes of a message, so their number is limited too.
    """

    _control_frames = 0
    _window_end_s = 0.0

    def handle_connect(self, event: "Upgrade") -> None:
        self.conn.max_message_size = MAX_HELLO_BYTES
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope["extensions"] = {**(self.scope["extensions"] or {}), _WIRE: {"wire": self}}

    def allow(self, max_bytes: int) -> None:
        self.conn.max_message_size = max_bytes
        _slots(self.app).release(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        _slots(self.app).release(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # In pieces: thousands of small frames in one become objects all at once.
        for start in range(0, len(data), _PIECE_BYTES):
            super().data_received(data[start : start + _PIECE_BYTES])
            if self.close_sent or self.transport.is_closing():
                return

    def handle_ping(self) -> None:
        if self._counts_control_frame():
            super().handle_ping()

    def handle_pong(self, event: "Frame") -> None:
        if self._counts_control_frame():
            super().handle_pong(event)

    def handle_cont(self, event: "Frame") -> None:
        if len(self.frames) >= MAX_FRAGMENTS:
            self.close_now(_TOO_BIG, "too many fragments")
        else:
            super().handle_cont(event)

    def _counts_control_frame(self) -> bool:
        """Count a ping or pong; False when the connection is closed because of their number."""
        if self.close_sent:
            return False
        now_s = self.loop.time()
        if now_s >= self._window_end_s:
            self._control_frames, self._window_end_s = 0, now_s + CONTROL_WINDOW_S
        self._control_frames += 1
        if self._control_frames > MAX_CONTROL_FRAMES:
            self.close_now(POLICY, "too many pings")
        return not self.close_sent

    async def write(self, texts: Sequence[str]) -> None:
        """Send frames in one write, once the client has read most of the previous ones."""
        await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        try:
            for text in texts:
                self.conn.send_text(text.encode())
        except InvalidState:  # the client has said that it closes
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))

    def close_now(self, code: int, reason: str) -> None:
        """Close now. `send` would wait for a client that may never read."""
        if self.transport.is_closing():
            return
        if not self.close_sent:
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
        self.transport.close()
        self.loop.call_later(_LINGER_S, self.transport.abort)


class GatewayAsgiApp:
    """The ASGI application, and the connections that have no authenticated client."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        page: bool = True,
        metrics: bool = False,
        mcp: bool = False,
        tls: "GatewayTls | None" = None,
    ) -> None:
        self._gateway, self._page, self._metrics, self._mcp = gateway, page, metrics, mcp
        self.tls = tls
        is_proxy = gateway.authenticator.origin_policy.is_trusted_proxy
        self.slots = ConnectionSlots(_is_busy, is_exempt=is_proxy)

    @cached_property
    def _pages(self) -> "HttpRoutes":
        # Imported with the first plain request, which most gateways never see.
        from homarus.gateway.http_routes import HttpRoutes

        return HttpRoutes(self._gateway, page=self._page, metrics=self._metrics, mcp=self._mcp)

    @cached_property
    def _webhooks(self) -> "WebhookEndpoint":
        from homarus.gateway.webhooks import WebhookEndpoint

        return WebhookEndpoint(self._gateway.clock)

    @cached_property
    def _hooks(self) -> "HookEndpoint":
        # Imported with the first request to a webhook that the config turns on.
        from homarus.gateway.hooks.connect import make_hook_endpoint

        return make_hook_endpoint(self._gateway)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            await self._route(RequestInfo.from_scope(scope), scope, receive, send)
        except RequestBlockedError as barred:
            self._gateway.counts.refused += 1
            await self._pages.send_error(barred, scope, receive, send)
            if scope["type"] == "websocket":
                # uvicorn would log a refused upgrade as an unfinished handshake.
                scope["extensions"][_WIRE]["wire"].handshake_complete = True

    async def _route(
        self, request: RequestInfo, scope: "Scope", receive: "Receive", send: "Send"
    ) -> None:
        """Serve one request; raises RequestBlockedError when it is refused."""
        if self.tls is not None and scope["scheme"] in {"http", "ws"}:
            await self._pages.redirect_to_https(request, scope, receive, send)
            return
        if listener := self._listener(scope):
            await self._receive_webhook(listener, request, scope, receive, send)
            return
        if self._is_hook(scope):
            async with self._gateway.track_webhook("hooks") as errors:
                errors.extend(await self._hooks.handle(request, scope, receive, send))
            return
        self._gateway.authenticator.check_request(request)
        if scope["type"] == "websocket":
            wire = scope["extensions"][_WIRE]["wire"]
            await Connection(self._gateway, wire, receive, send, scope).serve()
        else:
            await self._pages(scope, receive, send)

    async def _receive_webhook(
        self,
        listener: "SupportsWebhook",
        request: RequestInfo,
        scope: "Scope",
        receive: "Receive",
        send: "Send",
    ) -> None:
        self._gateway.authenticator.origin_policy.check_shape(request)
        async with self._gateway.track_webhook(str(getattr(listener, "name", "channel"))):
            await self._webhooks.handle(listener, request, scope, receive, send)

    def _is_hook(self, scope: "Scope") -> bool:
        """Return whether a request is for `hooks.path`; its Host may be any name."""
        if scope["type"] != "http" or not self._gateway.ready.is_set():
            return False
        hooks = self._gateway.services.loaded.config.hooks
        if not hooks.enabled:
            return False
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path, base = raw.decode("latin-1"), hooks.path
        return path == base or path.startswith(f"{base}/")

    def _listener(self, scope: "Scope") -> "SupportsWebhook | None":
        """Return the account that a webhook is for; its Host may be any name."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "POST"}:
            return None
        try:
            channels = self._gateway.services.channels
        except UnavailableError as exc:
            if scope["method"] == "GET":  # a page, or whether the gateway is ready
                return None
            raise RequestBlockedError(503, exc.message, after_s=2) from None
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        return channels.find_webhook(path.decode("latin-1"))


def gateway_app(app: object) -> GatewayAsgiApp:
    """Return the application of a protocol of uvicorn."""
    assert isinstance(app, GatewayAsgiApp)  # noqa: S101 - uvicorn has no type for it
    return app


def _slots(app: object) -> ConnectionSlots:
    return gateway_app(app).slots


def _is_busy(transport: asyncio.Transport) -> bool:
    protocol = transport.get_protocol()
    return isinstance(protocol, HttpProtocol) and protocol.is_busy


def open_sockets(listen: ListenAddress) -> list[socket.socket]:
    """Bind the port; raises UserError when it cannot be bound."""
    first = _listening(listen.host, listen.port)
    sockets = [first]
    port = first.getsockname()[1]
    for other in listen.others:
        with suppress(OSError, UserError):  # this machine has no IPv6
            sockets.append(_listening(other, port))
    return sockets


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With an explicit TCP protocol asyncio sets TCP_NODELAY; else small frames wait for ACKs.
    sock = ListeningSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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


class HttpServer:
    """uvicorn on our own sockets, without its signal handling and main loop."""

    def __init__(self, site: GatewayAsgiApp, sockets: list[socket.socket]) -> None:
        protocol: type[asyncio.Protocol] = HttpProtocol
        if site.tls is not None:
            from homarus.gateway.tls_protocol import TlsPortProtocol

            protocol = TlsPortProtocol
        config = Config(
            site,
            http=protocol,
            ws=WebSocketProtocol,
            ws_max_size=MAX_FRAME_BYTES,
            ws_per_message_deflate=False,
            ws_ping_interval=25.0,
            ws_ping_timeout=25.0,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # the origin policy alone decides which forwarded address counts
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        config.load()
        self._server, self._sockets = Server(config), sockets
        self._stopped = False
        self._server.lifespan = config.lifespan_class(config)
        # Its records go to our handlers, also to those of a config that is loaded later.
        logging.getLogger("uvicorn.error").parent = logging.getLogger("homarus")

    async def start(self) -> None:
        await self._server.startup(self._sockets)

    def stop_accepting(self) -> None:
        """Stop accepting connections."""
        for server in self._server.servers:
            server.close()

    async def stop(self) -> None:
        """Close the remaining connections; calling it again does nothing."""
        if not self._stopped:
            self._stopped = True
            await self._server.shutdown(self._sockets)
