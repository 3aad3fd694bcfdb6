"""Listeners for webhooks whose account has an address of its own (Telegram's `webhookHost`).

Such a listener serves the webhooks of its accounts and nothing else: no page, no WebSocket. It
speaks plain HTTP, for a proxy that ends TLS; the account's secret authenticates each request, as
on the gateway's port. Accounts with the same address share a listener.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from homarus.channels.base import SupportsWebhook
from homarus.core.errors import ChannelError, UserError
from homarus.gateway.http_server import GatewayAsgiApp, HttpServer, open_sockets
from homarus.gateway.listen_address import ListenAddress
from homarus.gateway.origin_policy import RequestBlockedError, RequestInfo
from homarus.gateway.server import Gateway

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_FIX = "set webhookHost to an address of this machine, or webhookPort to a free port"


class WebhookListeners:
    """The open listeners of a gateway, by host and port."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._open: dict[tuple[str, int], tuple[_WebhookSite, HttpServer]] = {}
        self._lock = asyncio.Lock()  # one listener is opened or closed at a time

    @asynccontextmanager
    async def serve(
        self, account: SupportsWebhook, address: tuple[str, int]
    ) -> AsyncIterator[None]:
        """Serve an account's webhook at a host and port while the block lasts.

        Raises ChannelError when it cannot listen there.
        """
        async with self._lock:
            if address not in self._open:
                site = _WebhookSite(self._gateway)
                server = HttpServer(site, await _open_sockets(*address))
                await server.start()
                self._open[address] = site, server
            self._open[address][0].accounts.append(account)
        try:
            yield
        finally:
            async with self._lock:
                site, server = self._open[address]
                site.accounts.remove(account)
                if not site.accounts:
                    del self._open[address]
                    await server.stop()


class _WebhookSite(GatewayAsgiApp):
    """The ASGI application of a listener for webhooks."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway, page=False)
        self.accounts: list[SupportsWebhook] = []

    async def _route(
        self, request: RequestInfo, scope: "Scope", receive: "Receive", send: "Send"
    ) -> None:
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        is_webhook = scope["type"] == "http" and scope["method"] in {"GET", "POST"}
        named = (each for each in self.accounts if each.path == path.decode("latin-1"))
        account = next(named, None) if is_webhook else None
        if account is None:
            raise RequestBlockedError(404, "only webhooks are received here")
        await self._receive_webhook(account, request, scope, receive, send)


async def _open_sockets(host: str, port: int) -> list[socket.socket]:
    """Listen on every address that a host stands for; at least one must be this machine's."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        hosts = list(dict.fromkeys(str(each[4][0]) for each in found))
        return open_sockets(ListenAddress(hosts[0], port, tuple(hosts[1:])))
    except (OSError, UnicodeError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise ChannelError(f"the webhook's host {host} is unknown: {reason}", fix=_FIX) from exc
    except UserError as exc:
        raise ChannelError(f"the webhook has no listener: {exc.message}", fix=_FIX) from exc
