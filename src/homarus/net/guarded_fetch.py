"""Fetch a URL that a model or a message names: the one way out for such requests.

    response = await guarded_fetch("https://example.com/", limits=FetchLimits(total_s=10.0))

Each URL of a chain of redirects is checked by `net.guard`, and the connection made to the addresses
that were checked; TLS and the Host header have the name. A proxy of the environment is told to
connect to such an address. No cookies are kept, and headers of the caller are not sent to another
origin than the first. Redirects, time and decompressed size are bounded.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Final, Protocol, TypeAlias
from urllib.parse import urljoin

from homarus.core.errors import BlockedUrlError, FetchError
from homarus.core.fast_dataclass import dataclass
from homarus.net.connection import ExchangeError
from homarus.net.guard import (
    PUBLIC_ONLY,
    CheckedTarget,
    NetworkPolicy,
    Resolve,
    check_target,
    resolve_host,
)
from homarus.net.http_client import HttpClient, HttpResponse, proxy_for, request_target

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ENCODINGS: Final = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
# Headers that say nothing about the caller, and are sent to every origin.
_COMMON_HEADERS: Final = frozenset({"accept", "accept-language", "user-agent"})


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of one fetch; `max_bytes` counts the body after decompression.

    A longer body is an error, or with `truncates` cut there.
    """

    max_bytes: int = 10_000_000
    max_redirects: int = 3
    connect_s: float = 10.0
    idle_s: float = 15.0
    total_s: float = 30.0
    truncates: bool = False


DEFAULT_LIMITS: Final = FetchLimits()


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """The response of the last server; `url` is where it was after all redirects."""

    url: str
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    is_truncated: bool = False


class FetchClient(Protocol):
    """The part of an HttpClient that a fetch uses."""

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AbstractAsyncContextManager[HttpResponse]: ...

    async def close(self) -> None: ...


MakeClient: TypeAlias = Callable[[CheckedTarget, FetchLimits], FetchClient]


def make_client(target: CheckedTarget, limits: FetchLimits) -> FetchClient:
    """Return a client that connects to the checked addresses of a target."""
    return HttpClient(
        target.url,
        connect_s=limits.connect_s,
        idle_s=limits.idle_s,
        proxy=proxy_for(target.url),
        addresses=target.addresses,
    )


async def guarded_fetch(
    url: str,
    *,
    limits: FetchLimits = DEFAULT_LIMITS,
    policy: NetworkPolicy = PUBLIC_ONLY,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    resolve: Resolve = resolve_host,
    open_client: MakeClient = make_client,
    is_port_allowed: bool = False,
) -> FetchedResponse:
    """Return the response to a request, after at most `limits.max_redirects` redirects.

    With `is_port_allowed` the owner named the URL: its port may be any, but not that of a redirect.
    A response of any status is returned. Raises BlockedUrlError where the guard refuses, and
    FetchError when a server fails or exceeds a limit.
    """
    fetch = _Fetch(limits, policy, resolve, open_client, is_port_allowed)
    try:
        async with asyncio.timeout(limits.total_s):
            return await fetch.run(url, method, dict(headers or {}), body)
    except TimeoutError as exc:
        raise FetchError(f"the response took longer than {limits.total_s:g} s") from exc


@dataclass(frozen=True, slots=True)
class _Fetch:
    """One fetch with its redirects."""

    limits: FetchLimits
    policy: NetworkPolicy
    resolve: Resolve
    open_client: MakeClient
    is_port_allowed: bool = False

    async def run(
        self, url: str, method: str, headers: dict[str, str], body: bytes
    ) -> FetchedResponse:
        origin: tuple[str, str, int] | None = None
        for _ in range(self.limits.max_redirects + 1):
            is_own = self.is_port_allowed and origin is None
            target = await check_target(url, self.policy, self.resolve, is_port_allowed=is_own)
            if origin is not None and target.origin != origin:
                headers = {key: headers[key] for key in headers if key.lower() in _COMMON_HEADERS}
                if body:
                    raise BlockedUrlError(f"{target.host}: a redirect would send data to it")
            origin = target.origin
            response = await self._exchange(target, method, headers, body)
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not location:
                return response
            if response.status == 303 or (response.status < 303 and method == "POST"):
                method, body = "GET", b""
                headers = {key: headers[key] for key in headers if key.lower() != "content-type"}
            url = _join(response.url, location)
        raise BlockedUrlError(f"more than {self.limits.max_redirects} redirects")

    async def _exchange(
        self, target: CheckedTarget, method: str, headers: Mapping[str, str], body: bytes
    ) -> FetchedResponse:
        client = self.open_client(target, self.limits)
        sent = {"User-Agent": "homarus", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
        sent |= headers
        if body or method not in ("GET", "HEAD"):
            sent["Content-Length"] = str(len(body))
        try:
            path = request_target(target.url)
            async with client.request(method, path, sent, body) as response:
                return await self._read(target, response)
        except ExchangeError as exc:
            raise FetchError(f"{target.host} could not be fetched: {exc}") from exc
        finally:
            await client.close()

    async def _read(self, target: CheckedTarget, response: HttpResponse) -> FetchedResponse:
        url, status, headers = target.url.geturl(), response.status, response.headers
        if status in _REDIRECTS and headers.get("location"):
            return FetchedResponse(url, status, headers, b"")  # its body is not used
        if headers.get("content-encoding", "").strip().lower() not in _ENCODINGS:
            raise FetchError(f"{target.host} compressed its response in a way that is not accepted")
        max_bytes = self.limits.max_bytes
        announced = headers.get("content-length", "")
        too_large = f"the response of {target.host} is larger than {max_bytes} bytes"
        if not self.limits.truncates and announced.isdigit() and int(announced) > max_bytes:
            raise FetchError(too_large)
        pieces, size = list[bytes](), 0
        async with aclosing(response.iter_body()) as body:
            async for piece in body:
                pieces.append(piece[: max_bytes - size])
                size += len(piece)
                if size > max_bytes:
                    break
        if size > max_bytes and not self.limits.truncates:
            raise FetchError(too_large)
        return FetchedResponse(url, status, headers, b"".join(pieces), size > max_bytes)


def _join(base: str, location: str) -> str:
    """Return where a redirect leads; the guard checks it like any URL."""
    with suppress(UnicodeError):
        location = location.encode("latin-1").decode("utf-8")  # some servers send it unquoted
    try:
        return urljoin(base, location)
    except ValueError as exc:
        raise BlockedUrlError("a redirect leads to an address that is none") from exc
