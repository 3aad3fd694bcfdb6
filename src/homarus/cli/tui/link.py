"""The connection of the full-screen interface: kept open, and opened again when it is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from homarus.cli.gateway_options import GatewayOptions
from homarus.core.errors import HomarusError, UnavailableError
from homarus.core.message import Json
from homarus.core.retry import Backoff

if TYPE_CHECKING:
    from homarus.gateway.client import GatewayClient

_BACKOFF: Final = Backoff(first_s=0.3, max_s=5.0)
_CALL_TIMEOUT_S: Final = 60.0


class LinkClient(Protocol):
    """What is used of a connection; `GatewayClient` is one."""

    @property
    def hello(self) -> Mapping[str, Json]: ...

    @property
    def close_reason(self) -> str: ...

    async def call(
        self, method: str, params: Mapping[str, Json] | None = None, *, timeout_s: float | None
    ) -> Json: ...

    def events(self) -> AsyncIterator[tuple[str, Json]]: ...


OpenClient = Callable[[], AbstractAsyncContextManager[LinkClient]]


class LinkListener(Protocol):
    """What is told about the connection."""

    def connected(self, hello: Mapping[str, Json]) -> None: ...

    def received(self, name: str, payload: Json) -> None: ...

    def disconnected(self, reason: str) -> None: ...


class GatewayLink:
    """One connection at a time; `run` keeps it open until it is cancelled."""

    def __init__(self, open_client: OpenClient) -> None:
        self._open_client = open_client
        self._client: LinkClient | None = None
        self._failures = 0

    @property
    def is_connected(self) -> bool:
        return self._client is not None

    async def run(self, listener: LinkListener) -> None:
        """Connect, again after every loss; raises the error of a first attempt that fails."""
        was_connected = False
        while True:
            try:
                async with self._open_client() as client:
                    self._client, self._failures, was_connected = client, 0, True
                    listener.connected(client.hello)
                    async for name, payload in client.events():
                        listener.received(name, payload)
                    reason = client.close_reason or "the gateway closed the connection"
            except HomarusError as exc:
                if not was_connected:
                    raise
                reason = exc.message
            finally:
                self._client = None
            self._failures += 1
            listener.disconnected(reason)
            await asyncio.sleep(_BACKOFF.delay_s(self._failures))

    async def call(self, method: str, params: Mapping[str, Json]) -> Json:
        """Call a method; raises UnavailableError while there is no connection."""
        if self._client is None:
            raise UnavailableError("the gateway is not connected", fix="it is tried again")
        return await self._client.call(method, params, timeout_s=_CALL_TIMEOUT_S)


@asynccontextmanager
async def open_connection(
    gateway: GatewayOptions, *, is_local: bool, warn: Callable[[str], None]
) -> AsyncIterator["GatewayClient"]:
    """Connect to the gateway, or to one inside of this process."""
    from homarus.policy.approvals import APPROVER_CAPABILITY

    caps = ("tool-events", "tool-results", APPROVER_CAPABILITY)
    if is_local:
        from homarus.cli.tui.local_gateway import open_local_gateway

        async with open_local_gateway(caps, warn) as client:
            yield client
        return
    from homarus.cli.gateway_options import open_gateway
    from homarus.gateway.frames import NEWEST_PROTOCOL

    async with open_gateway(gateway, caps=caps, protocol=NEWEST_PROTOCOL) as client:
        yield client
