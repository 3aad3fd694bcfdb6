"""The WebSocket of socket mode, by slack-sdk. Imported when an account connects.

The library connects, pings and parses. It never connects again by itself: what was missed
in between must be read first, so the adapter opens the next connection.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from homarus.core.errors import ChannelError
from homarus.net.http_client import proxy_for

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 20.0
PING_INTERVAL_S: Final = 3.0
STOP_TIMEOUT_S: Final = 2.0
# The library would log messages and the address, which has a secret.
_SILENT: Final = logging.Logger("slack-sdk", logging.CRITICAL + 1)


class _ReportingClient(SocketModeClient):
    """The library's client: it puts requests in a queue, and None when the connection is lost."""

    def __init__(self, app_token: str, requests: "asyncio.Queue[SocketModeRequest | None]") -> None:
        web = AsyncWebClient(logger=_SILENT, retry_handlers=[])
        super().__init__(app_token, _SILENT, web, ping_interval=PING_INTERVAL_S)
        self.requests, self.has_hello, self.reason = requests, asyncio.Event(), ""
        self.socket_mode_request_listeners.append(self._enqueue_request)
        self.on_message_listeners.append(self._on_text)
        self.on_error_listeners.append(self._on_error)

    async def connect_to_new_endpoint(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 - its own
        """Report the lost connection instead of opening another."""
        self.requests.put_nowait(None)

    async def _enqueue_request(self, _client: Any, request: SocketModeRequest) -> None:
        self.requests.put_nowait(request)

    async def _on_text(self, message: aiohttp.WSMessage) -> None:
        """Note the greeting, and why Slack is about to disconnect."""
        try:
            told = json.loads(message.data)
        except (ValueError, RecursionError):
            return
        kind = told.get("type") if isinstance(told, dict) else None
        if kind == "hello":
            self.has_hello.set()
        if kind == "disconnect":
            self.reason = str(told.get("reason") or "")[:100]

    async def _on_error(self, _message: aiohttp.WSMessage) -> None:
        self.requests.put_nowait(None)

    async def stop(self) -> None:
        """Close the connection, and wait until the library's tasks have ended.

        A server that does not answer is not waited for long.
        """
        tasks = (self.message_processor, self.current_session_monitor, self.message_receiver)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.close()  # type: ignore[no-untyped-call]  # the library has no types there
        except TimeoutError:
            for task in tasks:
                if task is not None:
                    task.cancel()
            await self.aiohttp_client_session.close()
        if pending := [task for task in tasks if task is not None]:
            await asyncio.wait(pending)


class SocketConnection:
    """One connection. `reason` is why Slack ended it, if it said so."""

    def __init__(self, client: _ReportingClient) -> None:
        self._client = client

    @property
    def reason(self) -> str:
        return self._client.reason

    async def requests(self) -> AsyncIterator[SocketModeRequest]:
        """Yield what Slack sends, in order, until the connection is lost."""
        while (request := await self._client.requests.get()) is not None:
            yield request

    async def acknowledge(self, request: SocketModeRequest) -> None:
        """Confirm an envelope; one that cannot be confirmed comes again, and is a duplicate."""
        try:
            response = SocketModeResponse(envelope_id=request.envelope_id)
            await self._client.send_socket_mode_response(response)
        except (aiohttp.ClientError, OSError, RuntimeError) as exc:
            log.info("an envelope of Slack could not be acknowledged: %s", type(exc).__name__)


@asynccontextmanager
async def open_socket(url: str, app_token: str) -> AsyncIterator[SocketConnection]:
    """Connect to an address of `apps.connections.open`. Raises ChannelError when it fails."""
    client = _ReportingClient(app_token, asyncio.Queue())
    proxy = proxy_for(urlsplit(url.replace("ws", "http", 1)))
    client.wss_uri, client.proxy = url, proxy or None
    try:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await client.connect()  # type: ignore[no-untyped-call]  # the library has no types there
                await client.has_hello.wait()
        except TimeoutError as exc:
            raise ChannelError("Slack's socket mode did not greet us in time") from exc
        except (aiohttp.ClientError, OSError, SlackClientError) as exc:
            raise ChannelError(f"socket mode cannot be reached: {type(exc).__name__}") from exc
        yield SocketConnection(client)
    finally:
        await client.stop()
