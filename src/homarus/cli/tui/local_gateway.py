"""The program in this process, where no gateway runs, as `homarus chat` has it."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from homarus.gateway.client import GatewayClient
from homarus.gateway.in_process import open_in_process_gateway
from homarus.process import open_app


@asynccontextmanager
async def open_local_gateway(
    caps: Sequence[str], warn: Callable[[str], None]
) -> AsyncIterator[GatewayClient]:
    """Open the program and yield a connection to it; its runs are stopped at the end."""
    async with (
        open_app(os.environ, warn=warn) as app,
        open_in_process_gateway(app.gateway_services(), caps) as client,
    ):
        yield client
