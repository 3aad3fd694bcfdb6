"""The HTTP client of an embedding service: address, key, timeouts, retries.

Every failure is a ProviderError that names what to check, and never contains the key.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import field
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from homarus.core.clock import Clock
from homarus.core.errors import (
    AuthError,
    BadRequestError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    UnreachableError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.retry import Backoff, retry
from homarus.providers.endpoint import ProviderConnection, ProviderEndpoint
from homarus.providers.provider_errors import ErrorContext, timeout_error

JSON_TYPE: Final = "application/json"
_RETRIED = (RateLimitError, OverloadedError, ProviderTimeoutError, UnreachableError, StreamError)
_SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie")


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """The key of a service: where a person finds it, and how to fetch it when it is needed."""

    where: str
    fetch: Callable[[], Awaitable[str]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """How to reach a service; an empty `base_url` is the vendor's own."""

    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: ServiceKey | None = None


FindAccess: TypeAlias = Callable[[str], ServiceAccess]


def no_access(_provider: str) -> ServiceAccess:
    """Return no access data, for any provider."""
    return ServiceAccess()


@dataclass(frozen=True, slots=True)
class EmbedRetryPolicy:
    """The number of attempts, the timeout of each and of all, and the longest wait between two."""

    attempts: int = 5
    each_s: float = 60.0
    whole_s: float = 300.0
    longest_wait_s: float = 60.0  # a service that asks for more is not retried


class EmbeddingClient:
    """A client of one service; connections stay open until `close`."""

    def __init__(
        self,
        provider: str,
        model: str,
        access: ServiceAccess,
        clock: Clock,
        *,
        key_header: str = "Authorization",
        unknown_fix: str = "",
    ) -> None:
        self._provider, self._model, self._access = provider, model, access
        self._clock, self._key_header, self._unknown_fix = clock, key_header, unknown_fix
        self._endpoint: ProviderEndpoint | None = None

    @property
    def clock(self) -> Clock:
        return self._clock

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        patience: EmbedRetryPolicy,
        max_bytes: int,
        content_type: str = JSON_TYPE,
    ) -> bytes:
        """Return the complete body of a successful response."""
        request = _EmbedRequest(method, path, body, content_type)

        async def once() -> bytes:
            try:
                return await self._once(request, patience, max_bytes)
            except RateLimitError as exc:
                if (exc.after_s or 0.0) > patience.longest_wait_s:
                    raise _RetryAfterTooLongError(exc) from exc
                raise

        try:
            async with asyncio.timeout(patience.whole_s):
                return await retry(
                    once,
                    on=_RETRIED,
                    attempts=patience.attempts,
                    backoff=Backoff(),
                    clock=self._clock,
                )
        except _RetryAfterTooLongError as exc:
            raise exc.error from None
        except TimeoutError:
            raise self._late(patience.whole_s) from None

    async def close(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()

    def bad_response_error(self, why: str) -> BadRequestError:
        """Return the error for a response that cannot be used."""
        fix = f"check the model's name and that {self._subject().url} embeds"
        return BadRequestError(
            self._subject().describe(f"its answer cannot be used: {why}"), fix=fix
        )

    def _subject(self) -> ErrorContext:
        if self._endpoint is not None:
            return self._endpoint.subject(self._model)
        return ErrorContext(self._provider, self._model, self._access.base_url)

    def _late(self, seconds: float) -> ProviderTimeoutError:
        return timeout_error(self._subject(), seconds)

    async def _once(
        self, request: "_EmbedRequest", patience: EmbedRetryPolicy, max_bytes: int
    ) -> bytes:
        endpoint = await self._opened(patience)
        subject = endpoint.subject(self._model)
        headers = {"Content-Type": request.content_type, "Accept": JSON_TYPE}
        method, path, body = request.method, request.path, request.body
        # A connection that the server closed while idle is noticed now, not during a request.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(patience.each_s):
                async with endpoint.request(method, path, body, subject, headers) as answer:
                    whole = bytearray()
                    async with aclosing(answer.iter_bytes()) as pieces:
                        async for piece in pieces:
                            whole += piece
                            if len(whole) > max_bytes:
                                raise BadRequestError(
                                    subject.describe("the answer is too long to be one"),
                                    fix=f"check that {subject.url} embeds",
                                )
                    return bytes(whole)
        except TimeoutError:
            raise self._late(patience.each_s) from None
        except AuthError as exc:
            await self.close()  # the key is fetched again the next time
            raise AuthError(exc.message, fix=self._key_fix(), status=exc.status) from None
        except BadRequestError as exc:
            if exc.status == 404 and self._unknown_fix:
                raise BadRequestError(exc.message, fix=self._unknown_fix, status=404) from None
            raise

    def _key_fix(self) -> str:
        key = self._access.key
        if key is None:
            return f"give it a key: memorySearch.remote.apiKey, for {self._provider}"
        return f"check the key in {key.where}"

    async def _opened(self, patience: EmbedRetryPolicy) -> ProviderEndpoint:
        if self._endpoint is None:
            access = self._access
            settings = ProviderConnection(
                self._provider,
                access.base_url,
                await access.key.fetch() if access.key else "",
                headers=access.headers,
                idle_s=patience.each_s,
            )
            self._endpoint = ProviderEndpoint(settings, self._clock, key_header=self._key_header)
        return self._endpoint


@dataclass(frozen=True, slots=True)
class _EmbedRequest:
    method: str
    path: str
    body: bytes = field(repr=False)
    content_type: str


class _RetryAfterTooLongError(Exception):
    """The service asks to wait longer than the policy allows."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__()
        self.error = error


def identity(access: ServiceAccess) -> str:
    """Return a short id of the service that makes vectors; a new key is the same service."""
    try:
        parts = urlsplit(access.base_url)
    except ValueError:  # no request to it can succeed, either
        parts = urlsplit("")
    headers = sorted(
        (name.lower(), value)
        for name, value in access.headers.items()
        if not any(word in name.lower() for word in _SECRET_HEADERS)
    )
    said = [parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), headers]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12]
