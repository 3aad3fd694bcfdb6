"""The channel adapter of the ledger (ledger.py), a service with long polling.

    channel = make_channel(url)    # the service describes itself

It does what an adapter should: it translates, raises the error class for what failed, and
leaves the rest to the core.
"""

import asyncio
import json
import logging
import ssl
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from homarus.channels.base import Capabilities, InboundHandler, Receipt
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Address, Inbound, Json, Outbound

if TYPE_CHECKING:
    import httpx2

POLL_S = 20.0
CONNECT_S = 5.0
READY_S = 5.0
ANSWER_S = 10.0  # in addition to the requested polling time
PLAIN = Capabilities()


class ScriptedChannel:
    """One account on a ledger."""

    def __init__(
        self,
        url: str,
        capabilities: Capabilities = PLAIN,
        *,
        name: str = "scripted",
        account: str = "default",
    ) -> None:
        self.name, self.account, self.capabilities = name, account, capabilities
        self._url = url
        self._client: httpx2.AsyncClient | None = None
        self._ready = asyncio.Event()

    async def run(self, receive: InboundHandler) -> None:
        """Poll from the stored cursor; each message is acknowledged once it is stored."""
        stored = await receive.load_cursor()
        offset: int = stored["offset"] if stored else 0
        async with self._connected():
            receive.mark_connected()
            while True:
                told = await self._get("/updates", offset=offset, waitS=POLL_S)
                for update in told["updates"]:
                    offset = update["id"] + 1
                    await receive(
                        self._inbound(update),
                        {"offset": offset},
                        partial(self._get, "/updates", offset=offset, limit=0),
                    )

    async def send(self, message: Outbound) -> Receipt:
        body = {"key": message.key, "chat": message.address.chat, "text": message.text}
        told = await self._ask("POST", "/send", json=body)
        return Receipt(told["messageId"])

    def _inbound(self, update: Mapping[str, Json]) -> Inbound:
        address = Address(self.name, update["chat"], self.account)
        return Inbound(update["messageId"], address, update["sender"], update["text"])

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        import httpx2

        # At INFO it logs each request.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        limits = httpx2.Limits(max_connections=None)
        timeout = httpx2.Timeout(POLL_S + ANSWER_S, connect=CONNECT_S)
        # There is no TLS: without certificates the client is ready 30 ms earlier.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        async with httpx2.AsyncClient(
            base_url=self._url, limits=limits, timeout=timeout, verify=verify, trust_env=False
        ) as client:
            self._client = client
            self._ready.set()
            try:
                yield
            finally:
                self._ready.clear()
                self._client = None

    async def _client_soon(self) -> "httpx2.AsyncClient":
        """Return the client; at a start, pending messages may be sent before it is connected."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                await self._ready.wait()
        if self._client is None:
            raise SendError(f"{self.name} is not connected", retryable=True)
        return self._client

    async def _get(self, path: str, **asked: float | str) -> Json:
        return await self._ask("GET", path, params=asked)

    async def _ask(self, method: str, path: str, **request: Json) -> Json:
        """Return the service's answer; the class of an error says what is known of the request."""
        import httpx2

        client = await self._client_soon()
        try:
            response = await client.request(method, path, **request)
            told = response.json()
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            raise SendError(f"{self.name} cannot be reached: {exc}", retryable=True) from exc
        except (httpx2.HTTPError, ValueError) as exc:
            raise ChannelError(f"{self.name} did not answer: {type(exc).__name__} {exc}") from exc
        status, why = response.status_code, f"{self.name} said {response.status_code}"
        if status == 401:
            raise ChannelAuthError(why, fix="give the account another token")
        if status == 429:
            raise SendError(why, retryable=True, after_s=float(told.get("afterS", 0)) or None)
        if status >= 500:
            raise ChannelError(why)  # the request may have been carried out
        if status >= 400:
            raise SendError(why, retryable=False)
        return told


class LookupChannel(ScriptedChannel):
    """One account on a ledger that supports lookup."""

    async def look_up(self, message: Outbound) -> Receipt | None:
        told = await self._get("/look", key=message.key)
        return Receipt(told["messageId"]) if told["messageId"] else None


def make_channel(url: str) -> ScriptedChannel:
    """Return the channel for the ledger at a URL, as the ledger describes itself."""
    with urllib.request.urlopen(f"{url}/about", timeout=CONNECT_S) as answer:
        about = json.load(answer)
    flavour = about["flavour"]
    capabilities = Capabilities(about["textLimit"], idempotent=flavour == "idempotent")
    kind = LookupChannel if flavour == "lookup" else ScriptedChannel
    return kind(url, capabilities)
