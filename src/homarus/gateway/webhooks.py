"""Webhooks: requests of chat services, on the gateway's own port.

A path belongs to one account (channels/base.SupportsWebhook), and that account's own secret
authenticates a request: the gateway's token is not needed, and the Host may be the name of a proxy.
The secret is checked before a byte of the body is read; a body has a maximum size and a
deadline, and counts only when it is complete. What cannot be stored is answered with 503, so that
the service sends it again.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import parse_qsl

from homarus.channels.base import SupportsWebhook, WebhookRequest, WebhookResponse
from homarus.core.clock import Clock
from homarus.core.errors import StoreError
from homarus.core.tasks import run_contained
from homarus.gateway.origin_policy import RequestBlockedError, RequestInfo
from homarus.gateway.request_body import check_body_headers, joined_headers, read_body

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

MAX_BYTES: Final = 1_000_000
BODY_TIMEOUT_S: Final = 8.0  # for the body; the connection closes soon after
HANDLE_TIMEOUT_S: Final = 30.0  # for the account to store the message
MAX_LIVE: Final = 64  # requests whose body is being read or handled
MAX_LIVE_EACH: Final = 32  # of one account
_FIELDS: Final = 100  # parameters of a query
_LOG_INTERVAL_S: Final = 60.0  # between two log lines about the same path
_KINDS: Final = frozenset({"application/json", "application/x-www-form-urlencoded"})


class WebhookEndpoint:
    """The webhook requests under way."""

    def __init__(
        self,
        clock: Clock,
        *,
        body_timeout_s: float = BODY_TIMEOUT_S,
        handle_timeout_s: float = HANDLE_TIMEOUT_S,
    ) -> None:
        self._clock, self._body_timeout_s, self._handle_timeout_s = (
            clock,
            body_timeout_s,
            handle_timeout_s,
        )
        self._live: Counter[str] = Counter()
        self._logged_s: dict[str, float] = {}  # by path, of accounts that listen

    @property
    def active_count(self) -> int:
        """Return how many requests are being read or handled."""
        return self._live.total()

    async def handle(
        self,
        listener: SupportsWebhook,
        request: RequestInfo,
        scope: "Scope",
        receive: "Receive",
        send: "Send",
    ) -> None:
        """Pass one request to the account; raises RequestBlockedError when it is refused."""
        path = listener.path
        webhook = _parse_request(scope, path)
        self._admit(listener, request, webhook)
        if webhook.method == "POST":
            check_body_headers(webhook.headers, _KINDS, MAX_BYTES)
        if self.active_count >= MAX_LIVE or self._live[path] >= MAX_LIVE_EACH:
            raise RequestBlockedError(503, "too many requests at once", after_s=1)
        self._live[path] += 1
        try:
            body = await read_body(receive, MAX_BYTES, self._body_timeout_s)
            response = None
            if body is not None:
                response = await self._handle(listener, replace(webhook, body=body))
        finally:
            self._live[path] -= 1
            if not self._live[path]:
                del self._live[path]
        if response:  # otherwise the connection is gone
            await _send_response(send, response)

    def _admit(
        self, listener: SupportsWebhook, request: RequestInfo, webhook: WebhookRequest
    ) -> None:
        if request.is_browser:
            raise RequestBlockedError(403, "a page may not call this")
        if listener.verify_request(webhook):
            return
        now_s = self._clock.monotonic()
        if now_s - self._logged_s.get(listener.path, -_LOG_INTERVAL_S) >= _LOG_INTERVAL_S:
            self._logged_s[listener.path] = now_s
            log.warning("a request to %s without the right secret was refused", listener.path)
        raise RequestBlockedError(401, "unauthorized")

    async def _handle(self, listener: SupportsWebhook, webhook: WebhookRequest) -> WebhookResponse:
        response = WebhookResponse(
            500
        )  # unless the account says otherwise: the exception is in the log

        async def handle_request() -> None:
            nonlocal response
            try:
                async with asyncio.timeout(self._handle_timeout_s):
                    response = await listener.handle_webhook(webhook)
            except (StoreError, TimeoutError) as exc:
                response = WebhookResponse(503)
                reason = str(exc) or f"it took more than {self._handle_timeout_s:.0f} s"
                log.warning("what came to %s was not kept: %s", listener.path, reason)

        await run_contained(f"webhook {listener.path}", handle_request, lambda _exc: None)
        return response if 200 <= response.status <= 599 else WebhookResponse(500)


def _parse_request(scope: "Scope", path: str) -> WebhookRequest:
    """Return a request without its body; of a repeated parameter the first value counts.

    Raises RequestBlockedError for a query with more parameters than any service sends.
    """
    query: dict[str, str] = {}
    try:
        fields = parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=_FIELDS)
    except ValueError as exc:
        raise RequestBlockedError(400, "too many parameters") from exc
    for name, value in fields:
        query.setdefault(name, value)
    method: Literal["GET", "POST"] = "GET" if scope["method"] == "GET" else "POST"
    return WebhookRequest(method, path, query, joined_headers(scope))


async def _send_response(send: "Send", response: WebhookResponse) -> None:
    headers = [(b"content-length", str(len(response.body)).encode())]
    if response.content_type:
        headers.append((b"content-type", response.content_type.encode("latin-1")))
    if response.status == 503:
        headers.append((b"retry-after", b"5"))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
