"""`/mcp`: the gateway's methods for MCP clients over HTTP, when the config enables it.

A request is authenticated by the gateway's secret or by a device's token, and has the scopes that
these give. It is answered by itself: there is no MCP session that could be taken over. The library
is imported with the first request, in a thread.
"""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from homarus.config.change_log import set_change_author
from homarus.core.errors import HomarusError, UnavailableError
from homarus.core.message import Json
from homarus.gateway.bearer_client import authenticate_bearer
from homarus.gateway.connection import find_method
from homarus.gateway.method import Caller, MethodCall
from homarus.gateway.origin_policy import RequestBlockedError, RequestInfo
from homarus.gateway.server import Gateway

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

MAX_LIVE: Final = 64  # requests that are being answered


class InProcessCalls:
    """The methods of the gateway in this process, for one authenticated client."""

    def __init__(self, gateway: Gateway, caller: Caller) -> None:
        self._gateway, self._caller = gateway, caller

    @property
    def scopes(self) -> frozenset[str]:
        return self._caller.scopes

    async def call(self, method: str, params: Mapping[str, Json], *, final: bool = True) -> Json:
        found = find_method(self._gateway, method, self._caller)
        answered: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        set_change_author(f"client {self._caller.client_id} {self._caller.device_id[:12]}".strip())

        def settle(payload: Json = None, error: HomarusError | None = None) -> None:
            if answered.done():
                return
            if error is None:
                answered.set_result(payload)
            else:
                answered.set_exception(error)

        call = MethodCall(
            self._gateway.services,
            self._gateway,
            self._caller,
            str(uuid4()),
            accept=(lambda _payload: None) if final else settle,
        )

        async def run() -> None:
            try:
                settle(await found(call, dict(params)))
            except HomarusError as exc:
                settle(error=exc)
            finally:  # a bug: the log has it
                settle(error=UnavailableError(f"{method} failed: a bug, written to the log"))

        self._gateway.counts.requests += 1
        # It outlives a client that disconnects, as a request on a WebSocket does.
        self._gateway.start(f"mcp {method}", run)
        return await answered


class McpEndpoint:
    """The ASGI application of `/mcp`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._live = 0

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        request = RequestInfo.from_scope(scope)
        caller = authenticate_bearer(self._gateway.authenticator, request, str(uuid4()))
        if scope["method"] != "POST":
            # A client may ask for a stream of events by GET: this server has none to send.
            raise RequestBlockedError(405, "MCP requests are sent by POST")
        if self._live >= MAX_LIVE:
            raise RequestBlockedError(503, "too many MCP requests at once", after_s=1)
        self._live += 1
        try:
            await asyncio.to_thread(import_module, "homarus.gateway.mcp_server.sdk_server")
            from homarus.gateway.mcp_server.sdk_server import serve_request

            calls = InProcessCalls(self._gateway, caller)
            await serve_request(calls, scope, receive, send)
        finally:
            self._live -= 1
