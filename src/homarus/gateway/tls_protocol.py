"""One port for TLS and, to say so, for plain HTTP: the first byte of a connection decides.

A connection counts against the bounds of its address before its TLS handshake, which must end in
time like a request. Imported only when the gateway has TLS.
"""

import asyncio
from asyncio.sslproto import SSLProtocol
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from homarus.gateway.http_server import HttpProtocol, gateway_app

if TYPE_CHECKING:
    import ssl

    from uvicorn import Config
    from uvicorn.server import ServerState

_HANDSHAKE: Final = 0x16  # the first byte of every TLS connection
_SHUTDOWN_S: Final = 2


class TlsPortProtocol(asyncio.Protocol):
    """Waits for the first byte of a connection; uvicorn makes one for each."""

    _transport: asyncio.Transport
    _timeout: asyncio.TimerHandle | None = None

    def __init__(self, config: "Config", server_state: "ServerState", **options: Any) -> None:
        self._options = {"config": config, "server_state": server_state, **options}
        self._app = gateway_app(config.loaded_app)
        self._connections: set[Any] = server_state.connections
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a TCP socket
        self._transport = transport
        if not self._app.slots.add(transport):
            transport.abort()
            return
        self._connections.add(self)  # uvicorn closes these at the end
        self._timeout = self._loop.call_later(HttpProtocol.timeout_s, transport.abort)

    def data_received(self, data: bytes) -> None:
        tls = self._app.tls
        if data[0] == _HANDSHAKE and tls is not None:
            self._cancel_timeout()
            peer = self._transport.get_extra_info("peername")
            self._start_tls(tls.context_for(str(peer[0]) if peer else ""), data)
            return
        self.finish()
        plain = HttpProtocol(**self._options)
        self._transport.set_protocol(plain)
        plain.connection_made(self._transport)
        if not self._transport.is_closing():
            plain.data_received(data)

    def _start_tls(self, context: "ssl.SSLContext", data: bytes) -> None:
        http = _TlsHttpProtocol(**self._options)
        http.port = self
        layer = _TlsLayer(self, http, context)
        self._transport.set_protocol(layer)
        layer.connection_made(self._transport)
        for start in range(0, len(data), layer.max_size):
            piece = data[start : start + layer.max_size]
            layer.get_buffer(len(piece))[: len(piece)] = piece
            layer.buffer_updated(len(piece))

    def connection_lost(self, exc: Exception | None) -> None:
        self.finish()

    def shutdown(self) -> None:
        """End a connection that has no request yet, as uvicorn asks for."""
        self._transport.abort()

    def finish(self) -> None:
        """Stop counting a connection that is lost, or that its HTTP protocol counts from now on."""
        self._cancel_timeout()
        self._app.slots.release(self._transport)
        self._connections.discard(self)

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


class _TlsLayer(SSLProtocol):
    """asyncio's TLS over a connection whose first bytes were read already."""

    def __init__(
        self, port: TlsPortProtocol, http: HttpProtocol, context: "ssl.SSLContext"
    ) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        done.add_done_callback(lambda it: it.cancelled() or it.exception())  # the connection ends
        super().__init__(
            loop,
            http,
            context,
            done,
            server_side=True,
            ssl_handshake_timeout=ceil(HttpProtocol.timeout_s),
            ssl_shutdown_timeout=_SHUTDOWN_S,
        )
        self._port = port

    def connection_lost(self, exc: BaseException | None) -> None:
        self._port.finish()  # after a handshake that failed
        super().connection_lost(exc)


class _TlsHttpProtocol(HttpProtocol):
    """HTTP inside TLS: the connection is counted as before, under its encrypted transport."""

    port: TlsPortProtocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        self.port.finish()
        super().connection_made(transport)
