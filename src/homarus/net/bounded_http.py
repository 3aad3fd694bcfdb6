"""An HTTP client of a vendor's library for one configured server, with bounded responses.

It is for libraries that need such a client (`mcp`). The address is the owner's, so private ones
are allowed; redirects are left to the library, which stays within the origin. A body that is longer
than the limit ends in an error instead of filling the memory; a stream of events has no limit here,
because the library bounds each event.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import httpx2

CONNECT_S = 30.0
READ_S = 300.0  # a server may keep a response open while a tool works


def make_bounded_client(
    headers: Mapping[str, str],
    *,
    max_body_bytes: int,
    on_response: Callable[[int, str], None],
    tls: "ssl.SSLContext | bool" = True,
) -> "httpx2.AsyncClient":
    """Return a client whose responses are bounded.

    `on_response` is called with the status of each response, and 0 and the reason without one.
    """
    import httpx2  # only for servers that are used

    class BoundedStream(httpx2.AsyncByteStream):
        """A body that raises when it is too long."""

        def __init__(self, inner: httpx2.AsyncByteStream) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = max_body_bytes
            async for part in self._inner:
                left -= len(part)
                if left < 0:
                    raise httpx2.StreamError(f"the response is longer than {max_body_bytes} bytes")
                yield part

        async def aclose(self) -> None:
            await self._inner.aclose()

    class BoundedTransport(httpx2.AsyncHTTPTransport):
        """A transport whose responses are bounded."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            # A compressed body could be a thousand times as long as what arrives.
            request.headers["accept-encoding"] = "identity"
            try:
                response = await super().handle_async_request(request)
            except httpx2.HTTPError as exc:
                on_response(0, str(exc) or type(exc).__name__)
                raise
            on_response(response.status_code, "")
            kind = response.headers.get("content-type", "").lower()
            if not kind.startswith("text/event-stream"):
                response.stream = BoundedStream(cast("httpx2.AsyncByteStream", response.stream))
            return response

    timeout = httpx2.Timeout(CONNECT_S, read=READ_S)
    return httpx2.AsyncClient(
        headers=dict(headers), timeout=timeout, transport=BoundedTransport(verify=tls)
    )


def make_tls_context(*, is_verified: bool, cert: str = "", key: str = "") -> ssl.SSLContext | bool:
    """Return what a client trusts, and the certificate it shows. Raises OSError."""
    if is_verified and not cert:
        return True
    context = ssl.create_default_context()
    if not is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key or None)
    return context
