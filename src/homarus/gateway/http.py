"""HTTP: one port for the WebSocket, a page, `/health` and, when asked for, `/metrics`.

Every request passes the door first. The page's files are a fixed list, and what a browser may do
with them is said in the strictest words it knows.
"""

import logging
import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from homarus.core.errors import UserError
from homarus.gateway.client import Connection
from homarus.gateway.door import Barred, Door
from homarus.gateway.frames import MAX_FRAME_BYTES, MAX_HELLO_BYTES
from homarus.gateway.listen import Listen
from homarus.gateway.server import Gateway, memory_bytes

if TYPE_CHECKING:
    from websockets.http11 import Request as Upgrade

_WIRE = "homarus.wire"
MAX_STRANGERS = 2_000
_LINGER_S = 2.0  # for a client that was hung up on to take the reason
_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


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

    def __init__(
        self,
        gateway: Gateway,
        *,
        page: bool = True,
        metrics: bool = False,
    ) -> None:
        self._gateway = gateway
        routes = [Route("/health", self._health), Route("/healthz", self._health)]
        if metrics:
            routes.append(Route("/metrics", self._metrics))
        if page:
            names = page_files()
            routes += [Route(f"/{name}", self._page) for name in names]
            routes.append(Route("/", self._page))
        self._router = Router(routes, default=self._elsewhere, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._gateway.gate.admit(Door.from_scope(scope))
            if scope["type"] == "websocket":
                if self._gateway.strangers >= MAX_STRANGERS:
                    raise Barred(503, "too many connections that say nothing", after_s=5)
                wire = scope["extensions"][_WIRE]["wire"]
                await Connection(self._gateway, wire, receive, send, scope).serve()
            else:
                await self._router(scope, receive, send)
        except Barred as barred:
            self._gateway.counts.refused += 1
            await _refuse(barred, scope, receive, send)

    async def _health(self, _request: Request) -> Response:
        ready = self._gateway.ready.is_set()
        state = {"ok": ready, "status": "live" if ready else "starting"}
        return JSONResponse(state, 200 if ready else 503, _HEADERS)

    async def _metrics(self, request: Request) -> Response:
        self._gateway.gate.check_bearer(Door.from_scope(request.scope))
        kind = "text/plain; version=0.0.4"
        return PlainTextResponse(metrics_text(self._gateway), headers=_HEADERS, media_type=kind)

    async def _page(self, request: Request) -> Response:
        name = request.url.path.lstrip("/") or "index.html"
        data = files("homarus.gateway").joinpath("static", name).read_bytes()
        return Response(data, headers=_HEADERS, media_type=_TYPES[name.rpartition(".")[2]])

    async def _elsewhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Any other address: protected, whatever it is spelled like, and then not there."""
        self._gateway.gate.check_bearer(Door.from_scope(scope))
        await PlainTextResponse("Not Found", 404, _HEADERS)(scope, receive, send)


def page_files() -> list[str]:
    """The files of the page that may be asked for."""
    folder = files("homarus.gateway").joinpath("static")
    if not folder.is_dir():
        return []
    return sorted(f.name for f in folder.iterdir() if f.name.rpartition(".")[2] in _TYPES)


async def _refuse(barred: Barred, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {**_HEADERS, **({"Retry-After": str(barred.after_s)} if barred.after_s else {})}
    kind = "unauthorized" if barred.status == 401 else "forbidden"
    body = {"error": {"message": str(barred), "type": kind}}
    response = JSONResponse(body, barred.status, headers)
    if scope["type"] == "http":
        await response(scope, receive, send)
        return
    await receive()
    start = {"status": barred.status, "headers": response.raw_headers}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": response.body})
    # uvicorn takes a refusal for an unfinished handshake, and would log it as an error.
    scope["extensions"][_WIRE]["wire"].handshake_complete = True


def metrics_text(gateway: Gateway) -> str:
    """The gateway's figures as Prometheus reads them."""
    counts = gateway.counts
    figures: Iterable[tuple[str, str, str, float]] = (
        ("connections", "gauge", "Clients connected now.", len(gateway.connections)),
        ("runs", "gauge", "Runs under way.", len(gateway.events.live())),
        ("uptime_seconds", "gauge", "Since the start.", gateway.uptime_ms / 1000),
        ("memory_bytes", "gauge", "Resident memory.", memory_bytes()),
        ("connections_total", "counter", "Clients that came in.", counts.connections),
        ("refused_total", "counter", "Requests turned away at the door.", counts.refused),
        ("requests_total", "counter", "Requests answered.", counts.requests),
        ("events_total", "counter", "Events sent.", counts.events),
        ("events_dropped_total", "counter", "Events a client was too slow for.", counts.dropped),
    )
    return "".join(
        f"# HELP homarus_{name} {told}\n# TYPE homarus_{name} {kind}\nhomarus_{name} {value:g}\n"
        for name, kind, told, value in figures
    )


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
            http="h11",
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
