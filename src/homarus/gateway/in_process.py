"""A gateway without a socket, for a program that is its only client.

The client and the gateway's connection are those of the network; between them are two queues. So a
program shows the same with a gateway and without one. Nothing listens: no port, no file, and the
secret of the handshake is never written down.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from secrets import token_urlsafe
from typing import Any, Final

from homarus.core.errors import UnavailableError
from homarus.core.tasks import task_group
from homarus.gateway.auth import SharedSecretAuth
from homarus.gateway.client import ClientProfile, GatewayClient, GatewaySecret, use_connection
from homarus.gateway.connection import Connection
from homarus.gateway.frames import NEWEST_PROTOCOL
from homarus.gateway.handshake import ConnectionAuthenticator
from homarus.gateway.methods import METHODS, UNIMPLEMENTED
from homarus.gateway.server import Gateway
from homarus.gateway.services import GatewayServices

_NAME: Final = "in this process"
_PORT: Final = 1  # no connection has it; the checks of the handshake compare it
_SCOPE: Final = {
    "type": "websocket",
    "client": ("127.0.0.1", 0),
    "headers": [(b"host", f"localhost:{_PORT}".encode())],
}


class InProcessSocket:
    """Both ends of a connection inside of one process.

    The client's end is `send` and iteration; the gateway's is `receive`, `send_message` and the
    functions of a SocketTransport.
    """

    def __init__(self) -> None:
        self.close_reason: str | None = None
        self._to_gateway: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._to_client: asyncio.Queue[str | None] = asyncio.Queue()
        self._to_gateway.put_nowait({"type": "websocket.connect"})

    # The client's end

    async def send(self, message: str) -> None:
        """Send a frame to the gateway."""
        if self.close_reason is not None:
            from websockets.exceptions import ConnectionClosedError

            raise ConnectionClosedError(None, None)
        self._to_gateway.put_nowait({"type": "websocket.receive", "text": message})

    async def receive_frame(self) -> str | None:
        """Return the next frame of the gateway; None when it closed the connection."""
        return await self._to_client.get()

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        while (text := await self.receive_frame()) is not None:
            yield text

    def disconnect(self) -> None:
        """End the connection from the client's side."""
        self._to_gateway.put_nowait({"type": "websocket.disconnect", "code": 1000})

    # The gateway's end

    async def receive(self) -> dict[str, Any]:
        return await self._to_gateway.get()

    async def send_message(self, message: Any) -> None:
        if message["type"] == "websocket.close":
            self.close_now(message["code"], message["reason"])

    async def write(self, texts: Sequence[str]) -> None:
        """Give frames to the client. It runs in the same loop, which gets its turn."""
        for text in texts:
            self._to_client.put_nowait(text)
        await asyncio.sleep(0)

    def allow(self, max_bytes: int) -> None:
        """Do nothing: the client is this program, which holds what it sends anyway."""

    def close_now(self, code: int, reason: str) -> None:
        if self.close_reason is None:
            self.close_reason = reason or f"code {code}"
            self._to_client.put_nowait(None)
            self.disconnect()


@asynccontextmanager
async def open_in_process_gateway(
    services: GatewayServices, caps: Sequence[str] = ("tool-events",)
) -> AsyncIterator[GatewayClient]:
    """Serve this program alone, with nothing that runs by itself; yield the connection to it.

    What the client started is stopped at the end.
    """
    secret, clock = token_urlsafe(32), services.clock
    authenticator = ConnectionAuthenticator.from_config(
        services.loaded.config.gateway,
        SharedSecretAuth("token", secret),
        _PORT,
        services.paths.state,
        clock,
    )
    gateway = Gateway(
        authenticator=authenticator, methods=METHODS, unimplemented=UNIMPLEMENTED, clock=clock
    )
    profile = ClientProfile(GatewaySecret(token=secret), caps=caps, protocol=NEWEST_PROTOCOL)
    socket = InProcessSocket()
    connection = Connection(gateway, socket, socket.receive, socket.send_message, _SCOPE)
    async with task_group() as group:
        running = group.create_task(gateway.run(services, is_background=False))
        serving = group.create_task(connection.serve())
        try:
            challenge = json.loads(await socket.receive_frame() or "{}")["payload"]
            nonce, at_ms = str(challenge["nonce"]), int(challenge["ts"])
            async with use_connection(socket, _NAME, profile, nonce, at_ms) as client:
                yield client
        finally:
            for key in gateway.runs.sessions:
                with suppress(UnavailableError):  # it is stopped with the process
                    await services.control.stop_and_wait(key)
                    await services.control.stop_children(key)
            socket.disconnect()
            serving.cancel()
            running.cancel()
