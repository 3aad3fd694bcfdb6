"""`homarus mcp serve`: an MCP server on standard input and output, in front of a gateway."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import GatewayOptions, gateway_options, open_gateway
from homarus.core.errors import HomarusError
from homarus.core.message import Json
from homarus.core.tasks import task_group
from homarus.gateway.scopes import APPROVALS, SCOPES, implied
from homarus.policy.approvals import APPROVER_CAPABILITY

if TYPE_CHECKING:
    from homarus.gateway.client import GatewayClient


@click.command("serve")
@examples("homarus mcp serve", "homarus mcp serve --scope operator.read")
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE",
    multiple=True,
    type=click.Choice(SCOPES),
    help=f"Only what this scope allows: {', '.join(SCOPES)}; repeatable.",
)
@gateway_options
def serve(gateway: GatewayOptions, scopes: tuple[str, ...]) -> None:
    """Serve the running gateway to an MCP client, on standard input and output.

    The client starts this command. It lists sessions and chats, reads and sends messages, asks
    agents, searches memory and answers approvals, with your credentials. --scope restricts it.
    """
    from homarus.gateway.mcp_server.library import check_mcp_library

    check_mcp_library()
    asyncio.run(_serve(gateway, implied(scopes or SCOPES)))


async def _serve(gateway: GatewayOptions, scopes: frozenset[str]) -> None:
    async with _open_bridge(gateway, scopes) as bridge:
        from homarus.gateway.mcp_server.sdk_server import serve_stdio

        await serve_stdio(bridge)


class GatewayBridge:
    """The methods of a gateway behind a WebSocket.

    After the gateway closed the connection, the next call opens another. A call that was sent on
    the old one fails and is not sent again.
    """

    def __init__(
        self, gateway: GatewayOptions, allowed: frozenset[str], group: asyncio.TaskGroup
    ) -> None:
        self._gateway, self._allowed = gateway, allowed
        self._group: asyncio.TaskGroup = group
        self._client: GatewayClient | None = None
        self._opening = asyncio.Lock()
        self._holder: asyncio.Task[None] | None = None
        self.scopes: frozenset[str] = frozenset()

    async def call(self, method: str, params: Mapping[str, Json], *, final: bool = True) -> Json:
        client = await self.connect()
        return await client.call(method, params, final=final, timeout_s=None)

    async def connect(self) -> "GatewayClient":
        """Return the connection, a new one if the gateway closed the last."""
        async with self._opening:
            if self._client is None:
                opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._holder = self._group.create_task(self._hold(opened))
                await opened
            assert self._client is not None  # noqa: S101 - it was opened
            return self._client

    def close(self) -> None:
        if self._holder:
            self._holder.cancel()

    async def _hold(self, opened: "asyncio.Future[None]") -> None:
        """Keep a connection open until either side closes it; its events are not used."""
        # Questions about tool calls wait when a person can answer them at the MCP client.
        caps = (APPROVER_CAPABILITY,) if APPROVALS in self._allowed else ()
        try:
            async with open_gateway(self._gateway, caps=caps) as client:
                self._client, self.scopes = client, _granted(client) & self._allowed
                if not opened.done():  # else the call was cancelled
                    opened.set_result(None)
                async for _event in client.events():
                    pass
        except HomarusError as exc:
            if not opened.done():
                opened.set_exception(exc)
        finally:
            self._client = None


def _granted(client: "GatewayClient") -> frozenset[str]:
    """Return the scopes that the gateway's greeting names."""
    auth = client.hello.get("auth")
    named = auth.get("scopes") if isinstance(auth, dict) else None
    return implied([str(one) for one in named] if isinstance(named, list) else [])


@asynccontextmanager
async def _open_bridge(
    gateway: GatewayOptions, allowed: frozenset[str]
) -> AsyncIterator[GatewayBridge]:
    """Connect to the gateway; the connection is closed when the block ends."""
    async with task_group() as group:
        bridge = GatewayBridge(gateway, allowed, group)
        try:
            await bridge.connect()
            yield bridge
        finally:
            bridge.close()
