"""HTTP requests to model services, shared by all adapters.

One `ProviderEndpoint` per provider opens connections at first use and reuses them. It handles
addresses, keys, timeouts and limits, and converts every failure into a ProviderError. Nothing is
retried, no redirect is followed (it would forward the key), and neither key nor body is logged.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit, urlunsplit

from homarus.core.clock import Clock
from homarus.core.errors import AnswerTooLongError, AuthError, BadRequestError, ProviderError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.faults import fault_point
from homarus.core.message import Json
from homarus.providers.provider_errors import (
    ErrorContext,
    error_from_response,
    stream_error,
    timeout_error,
    unreachable_error,
)
from homarus.providers.sse import MAX_EVENT_BYTES, EventReader, EventTooLongError

if TYPE_CHECKING:
    from homarus.net.connection import ExchangeError
    from homarus.net.http_client import HttpClient, HttpResponse

MAX_ERROR_BYTES = 64 * 1024
# The limits of one streamed answer: up to 400 bytes per token, 128k tokens; and the sum of what its
# events have beyond the size of an event for one token, as those with pictures or arguments have.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_LONG_EVENTS_BYTES = 24 * 1024 * 1024
_SHORT_EVENT_BYTES = 512
# How long to wait for the end of a finished answer, so that its connection can be reused.
DRAIN_S = 0.1
# How long an answer that says it is finished may still send its usage or its last event.
END_S = 1.0
NO_ADDRESS = "that is not an address (http://… or https://…)"


@dataclass(frozen=True, slots=True)
class ProviderConnection:
    """The connection settings of one provider.

    `base_url` is the address without the method's path. `auth_header` says whether the key is sent
    as `Authorization: Bearer`: True yes, False no key, None as the API does it. `compat` is the
    config's map of flags. `idle_s` is the longest silence between two bytes; the caller limits the
    total time. `model_id` is the model the provider is made for, and `env` the environment in which
    a cloud's account is looked up first.
    """

    name: str
    base_url: str
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth_header: bool | None = None
    compat: Mapping[str, Json] = field(default_factory=dict)
    connect_s: float = 10.0
    idle_s: float = 120.0
    model_id: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    def at(self, base_url: str) -> "ProviderConnection":
        """Return the same connection at another address."""
        return replace(self, base_url=base_url)


class ProviderEndpoint:
    """One HTTP service. `key_header` is the header of the API's key."""

    def __init__(
        self, settings: ProviderConnection, clock: Clock, *, key_header: str = "Authorization"
    ) -> None:
        self._settings, self._clock = settings, clock
        self._key_header = "Authorization" if settings.auth_header else key_header
        self._peer: HttpClient | None = None
        self._secrets = (settings.api_key.strip(), *settings.headers.values())
        self._shown_url = _without_secrets(settings.base_url)

    def subject(self, model: str) -> ErrorContext:
        return ErrorContext(self._settings.name, model, self._shown_url, self._secrets)

    def post(
        self, path: str, body: bytes, subject: ErrorContext, headers: Mapping[str, str]
    ) -> "AbstractAsyncContextManager[StreamingResponse]":
        """Post JSON and yield a successful response; leaving the block disconnects."""
        return self.request("POST", path, body, subject, headers)

    @asynccontextmanager
    async def request(
        self, method: str, path: str, body: bytes, subject: ErrorContext, headers: Mapping[str, str]
    ) -> "AsyncIterator[StreamingResponse]":
        """Send a request and yield a successful response; leaving the block disconnects."""
        target = _request_target(self._settings.base_url, path)
        if not target:
            raise unreachable_error(subject, NO_ADDRESS)
        # Imported at the first request: creating a provider must be cheap.
        from homarus.net.connection import ExchangeError

        all_headers = self._headers(subject, headers, len(body))
        peer = self._reached(subject)
        answer: StreamingResponse | None = None
        try:
            async with peer.request(method, target, all_headers, body) as reply:
                if not 200 <= reply.status < 300:
                    error_body = await _beginning(reply)
                    now_ms = self._clock.now_ms()
                    raise error_from_response(
                        subject, reply.status, error_body, reply.headers, now_ms
                    )
                fault_point("provider.asked")
                answer = StreamingResponse(reply, subject)
                yield answer
        except ExchangeError as exc:
            raise self._failure(exc, subject, answered=answer is not None) from exc

    async def close(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.close()

    def _reached(self, subject: ErrorContext) -> "HttpClient":
        if self._peer is None:
            from homarus.net.http_client import HttpClient, proxy_for

            settings, address = self._settings, _split(self._settings.base_url)
            proxy = proxy_for(address)
            try:
                self._peer = HttpClient(
                    address, connect_s=settings.connect_s, idle_s=settings.idle_s, proxy=proxy
                )
            except UnicodeError as exc:
                raise unreachable_error(subject, NO_ADDRESS) from exc
        return self._peer

    def _headers(
        self, subject: ErrorContext, extra: Mapping[str, str], body_bytes: int
    ) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(body_bytes),
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "homarus",
        }
        key = self._settings.api_key.strip()
        if key and self._settings.auth_header is not False:
            if not _fits_a_header(key):
                raise AuthError(
                    subject.describe("its key holds characters that no key has"),
                    fix=f"paste the API key of provider {subject.provider!r} again",
                )
            bearer = self._key_header == "Authorization"
            headers[self._key_header] = f"Bearer {key}" if bearer else key
        for name, value in (*self._settings.headers.items(), *extra.items()):
            if not _fits_a_header(value) or not _fits_a_header(name) or not name:
                raise BadRequestError(
                    subject.describe(f"header {name!r} cannot be sent"),
                    fix=f"check the headers of provider {subject.provider!r}",
                )
            headers = {k: v for k, v in headers.items() if k.lower() != name.lower()}
            headers[name] = value
        return headers

    def _failure(
        self, exc: "ExchangeError", subject: ErrorContext, *, answered: bool
    ) -> ProviderError:
        """Return the error for a request without a complete response."""
        if exc.kind == "silent":
            return timeout_error(subject, self._settings.idle_s)
        if exc.kind == "unsendable":
            return BadRequestError(
                subject.describe(f"the request cannot be sent: {exc}"),
                fix=f"check the headers of provider {subject.provider!r}",
            )
        if answered:
            return stream_error(subject, f"the connection was cut: {exc}")
        return unreachable_error(subject, str(exc))


class StreamingResponse:
    """A successful response whose body is still arriving."""

    def __init__(self, reply: "HttpResponse", subject: ErrorContext) -> None:
        self._subject, self._reply = subject, reply
        self._type = reply.headers.get("content-type", "").lower()
        self._pieces = reply.iter_body()

    async def events(self) -> AsyncGenerator[str, None]:
        """Yield the data of each event; a plain JSON body is one event."""
        self._refuse_page()
        reader, long_bytes = EventReader(), 0
        try:
            if "json" in self._type:
                async for data in self._whole(reader):
                    yield data
                return
            async with aclosing(self.iter_bytes()) as pieces:
                async for piece in pieces:
                    for data in reader.feed(piece):
                        if len(data) > _SHORT_EVENT_BYTES:
                            long_bytes += len(data) - _SHORT_EVENT_BYTES
                            if long_bytes > MAX_LONG_EVENTS_BYTES:
                                raise self._too_long()
                        yield data
            for data in reader.end():
                yield data
        except EventTooLongError as exc:
            raise stream_error(self._subject, str(exc)) from exc

    async def iter_bytes(self) -> AsyncGenerator[bytes, None]:
        """Yield the body's bytes, for a binary API."""
        self._refuse_page()
        received = 0
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                received += len(piece)
                if received > MAX_ANSWER_BYTES:
                    raise self._too_long()
                yield piece

    async def is_over(self, *, done: bool) -> bool:
        """Return whether a finished answer is complete, which one whose last event came is.

        The rest of that is read, if it ends at once. Another may take `END_S` to send more; then
        it counts as silent.
        """
        if not done:
            self._reply.end_within(END_S)
            return False
        try:
            async with asyncio.timeout(DRAIN_S):
                async for _ in self._pieces:
                    pass
        except TimeoutError:
            pass  # leaving the block disconnects
        return True

    async def _whole(self, reader: EventReader) -> AsyncIterator[str]:
        body = bytearray()
        async for piece in self._pieces:
            body += piece
            if len(body) > MAX_EVENT_BYTES:
                raise self._too_long()
            if _is_complete_json(body):
                break  # the server may never close the connection
        # Events with a wrong content type.
        if body.lstrip().startswith((b"data:", b":", b"event:")):
            for data in (*reader.feed(bytes(body)), *reader.end()):
                yield data
        else:
            yield body.decode("utf-8", "replace")

    def _refuse_page(self) -> None:
        if "html" in self._type:
            raise BadRequestError(
                self._subject.describe(f"{self._subject.url} answered with a web page"),
                fix="check baseUrl: it often ends in /v1",
            )

    def _too_long(self) -> AnswerTooLongError:
        return AnswerTooLongError(
            self._subject.describe("its answer is too long to be one"),
            fix="try again, or use another model",
        )


def _is_complete_json(body: bytearray) -> bool:
    if not body.rstrip().endswith((b"}", b"]")):
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


async def _beginning(reply: "HttpResponse") -> bytes:
    """Return the first part of an error body, as far as it can be read."""
    from homarus.net.connection import ExchangeError

    error_body = bytearray()
    try:
        async with aclosing(reply.iter_body()) as pieces:
            async for piece in pieces:
                error_body += piece
                if len(error_body) >= MAX_ERROR_BYTES:
                    break
    except ExchangeError:
        pass
    return bytes(error_body[:MAX_ERROR_BYTES])


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        return parts if parts.port is None or parts.port else urlsplit("")
    except ValueError:  # also raised for an invalid port
        return urlsplit("")


@lru_cache(64)
def _request_target(base_url: str, path: str) -> str:
    """Return the path and query of a request; empty for an invalid base URL."""
    from homarus.net.http_client import request_target

    url = _joined(base_url, path)
    return request_target(urlsplit(url)) if url else ""


def _joined(base_url: str, path: str) -> str:
    """Join the base URL and the path with both queries; empty for an invalid base URL."""
    parts = _split(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    path, _, query = path.partition("?")
    query = "&".join(filter(None, (query, parts.query)))
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, query=query, fragment=""))


def _without_secrets(url: str) -> str:
    parts = _split(url)
    if not parts.netloc:
        return url
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, "", ""))


def _fits_a_header(text: str) -> bool:
    return text.isascii() and text.isprintable()
