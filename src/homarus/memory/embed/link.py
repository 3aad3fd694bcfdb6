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
    AuthFailed,
    BadRequest,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamBroken,
    Unreachable,
)
from homarus.core.retry import Backoff, retry
from homarus.core.value import dataclass
from homarus.providers.failures import Subject, timed_out
from homarus.providers.http import Endpoint, Settings

JSON_TYPE: Final = "application/json"
_RETRIED = (RateLimited, Overloaded, ProviderTimeout, Unreachable, StreamBroken)
_SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie")


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a service: where a person finds it, and how to fetch it when it is needed."""

    where: str
    fetch: Callable[[], Awaitable[str]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a service; an empty `base_url` is the vendor's own."""

    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: Key | None = None


Accesses: TypeAlias = Callable[[str], Access]


def no_access(_provider: str) -> Access:
    """Return no access data, for any provider."""
    return Access()


@dataclass(frozen=True, slots=True)
class Patience:
    """The number of attempts, the timeout of each and of all, and the longest wait between two."""

    attempts: int = 5
    each_s: float = 60.0
    whole_s: float = 300.0
    longest_wait_s: float = 60.0  # a service that asks for more is not retried


class Link:
    """A client of one service; connections stay open until `close`."""

    def __init__(
        self,
        provider: str,
        model: str,
        access: Access,
        clock: Clock,
        *,
        key_header: str = "Authorization",
        unknown_fix: str = "",
    ) -> None:
        self._provider, self._model, self._access = provider, model, access
        self._clock, self._key_header, self._unknown_fix = clock, key_header, unknown_fix
        self._endpoint: Endpoint | None = None

    @property
    def clock(self) -> Clock:
        return self._clock

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        patience: Patience,
        max_bytes: int,
        content_type: str = JSON_TYPE,
    ) -> bytes:
        """Return the complete body of a successful response."""
        request = _Request(method, path, body, content_type)

        async def once() -> bytes:
            try:
                return await self._once(request, patience, max_bytes)
            except RateLimited as exc:
                if (exc.after_s or 0.0) > patience.longest_wait_s:
                    raise _WaitTooLong(exc) from exc
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
        except _WaitTooLong as exc:
            raise exc.error from None
        except TimeoutError:
            raise self._late(patience.whole_s) from None

    async def close(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()

    def unusable(self, why: str) -> BadRequest:
        """Return the error for a response that cannot be used."""
        fix = f"check the model's name and that {self._subject().url} embeds"
        return BadRequest(self._subject().tell(f"its answer cannot be used: {why}"), fix=fix)

    def _subject(self) -> Subject:
        if self._endpoint is not None:
            return self._endpoint.subject(self._model)
        return Subject(self._provider, self._model, self._access.base_url)

    def _late(self, seconds: float) -> ProviderTimeout:
        return timed_out(self._subject(), seconds)

    async def _once(self, request: "_Request", patience: Patience, max_bytes: int) -> bytes:
        endpoint = await self._opened(patience)
        subject = endpoint.subject(self._model)
        headers = {"Content-Type": request.content_type, "Accept": JSON_TYPE}
        method, path, body = request.method, request.path, request.body
        # A connection that the server closed while idle is noticed now, not during a request.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(patience.each_s):
                async with endpoint.ask(method, path, body, subject, headers) as answer:
                    whole = bytearray()
                    async with aclosing(answer.pieces()) as pieces:
                        async for piece in pieces:
                            whole += piece
                            if len(whole) > max_bytes:
                                raise BadRequest(
                                    subject.tell("the answer is too long to be one"),
                                    fix=f"check that {subject.url} embeds",
                                )
                    return bytes(whole)
        except TimeoutError:
            raise self._late(patience.each_s) from None
        except AuthFailed as exc:
            await self.close()  # the key is fetched again the next time
            raise AuthFailed(exc.message, fix=self._key_fix(), status=exc.status) from None
        except BadRequest as exc:
            if exc.status == 404 and self._unknown_fix:
                raise BadRequest(exc.message, fix=self._unknown_fix, status=404) from None
            raise

    def _key_fix(self) -> str:
        key = self._access.key
        if key is None:
            return f"give it a key: memorySearch.remote.apiKey, for {self._provider}"
        return f"check the key in {key.where}"

    async def _opened(self, patience: Patience) -> Endpoint:
        if self._endpoint is None:
            access = self._access
            settings = Settings(
                self._provider,
                access.base_url,
                await access.key.fetch() if access.key else "",
                headers=access.headers,
                idle_s=patience.each_s,
            )
            self._endpoint = Endpoint(settings, self._clock, key_header=self._key_header)
        return self._endpoint


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    body: bytes = field(repr=False)
    content_type: str


class _WaitTooLong(Exception):
    """The service asks to wait longer than the policy allows."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__()
        self.error = error


def identity(access: Access) -> str:
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
