"""A Provider that tries several targets in order.

A target is one model with one credential. The class of an error decides the next step: a refused or
empty account is recorded and the next target tried; an overloaded service is retried after a
backoff, then left; an invalid request fails everywhere and is raised. A service that asked for a
wait of more than a minute is not waited for. A cancelled run ends at once and is never treated as a
failure; `pending_error` says what it was waiting for.

When an attempt fails after its first delta, `AttemptRetried` tells consumers that earlier deltas
are void.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import field
from datetime import UTC, datetime

from homarus.core.clock import Clock
from homarus.core.errors import (
    AllAttemptsFailedError,
    AuthError,
    BadRequestError,
    BillingError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    ThinkingUnsupportedError,
    UnreachableError,
)
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Message
from homarus.core.retry import Backoff
from homarus.providers.answer_filter import AnswerFilter
from homarus.providers.base import (
    AttemptRetried,
    Delta,
    ModelRequest,
    Provider,
    ThinkLevel,
)
from homarus.providers.catalog import ModelInfo
from homarus.providers.concurrency_limiter import (
    MAX_WAIT_S,
    ConcurrencyLimiter,
    LimiterClosedError,
)

LEVELS: tuple[ThinkLevel, ...] = ("off", "minimal", "low", "medium", "high", "xhigh")
PASSING = (OverloadedError, ProviderTimeoutError, UnreachableError, StreamError)


@dataclass(frozen=True, slots=True)
class FallbackTarget:
    """One model with one credential. `open` may read secrets and fail.

    `mark` is called with the result of an attempt: None is a success.
    """

    model: ModelInfo
    credential: str
    open: Callable[[], Awaitable[Provider]]
    mark: Callable[[ProviderError | None], None]
    limiter: ConcurrencyLimiter


@dataclass(frozen=True, slots=True)
class ProviderRetryPolicy:
    """Delays and attempt counts. `attempt_s` is the deadline of one attempt."""

    tries: int = 3
    attempt_s: float = 300.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.5, max_s=8.0))


class FallbackProvider:
    """Tries its targets in order until one answers. `name` and `api` are those of the first."""

    def __init__(
        self,
        ways: Sequence[FallbackTarget],
        clock: Clock,
        patience: ProviderRetryPolicy | None = None,
        *,
        name: str = "",
        api: str = "",
        skipped: Sequence[AttemptRetried] = (),
    ) -> None:
        self.name, self.api = name, api
        self._ways, self._clock, self._skipped = ways, clock, skipped
        self._patience = patience or ProviderRetryPolicy()
        self._waits_for: FallbackTarget | None = None  # while the target has sent nothing
        self._waits_since_s = 0.0
        self._last_error: ProviderError | None = None  # of the call under way

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        """Try one target after another; the first call also reports the models that are skipped."""
        tried: list[ProviderError] = []
        self._last_error = None
        skipped, self._skipped = self._skipped, ()
        for each in skipped:
            yield each
        for index, way in enumerate(self._ways):
            last = index + 1 == len(self._ways)
            try:
                async with aclosing(self._one(way, request, last=last)) as pieces:
                    async for piece in pieces:
                        yield piece
                        if isinstance(piece, Message):
                            return
            except ProviderError as exc:
                if not _goes_on(exc):
                    raise
                tried.append(exc)
                if not last:
                    yield _retried(way, exc, self._ways[index + 1].model.ref)
        raise tried[0] if len(tried) == 1 else AllAttemptsFailedError(tuple(tried))

    def pending_error(self) -> ProviderError | None:
        """Return why the call under way has no answer yet; None when one is being received."""
        way = self._waits_for
        if way is None:
            return None
        if self._last_error:
            return self._last_error
        if closed_s := way.limiter.closed_s:
            return self._rate_limited(way, closed_s)
        waited_s = self._clock.monotonic() - self._waits_since_s
        return ProviderTimeoutError(
            f"{way.model.ref} has sent nothing for {waited_s:.0f} s",
            fix="try again, or use another model",
        )

    async def close(self) -> None:
        """Do nothing: whoever opened the targets' providers closes them."""

    async def _one(
        self, way: FallbackTarget, request: ModelRequest, *, last: bool
    ) -> AsyncGenerator[Delta | Message, None]:
        """Try one target as often as its errors allow."""
        request = _for_model(request, way.model)
        attempt = 1
        self._waits_for, self._waits_since_s = way, self._clock.monotonic()
        while True:
            try:
                async with aclosing(self._attempt(way, request)) as pieces:
                    async for piece in pieces:
                        self._waits_for = None
                        yield piece
            except LimiterClosedError as exc:
                raise self._rate_limited(way, exc.left_s) from exc
            except ThinkingUnsupportedError as exc:
                if request.thinking == "off":
                    raise
                request = replace(request, thinking=_lower(request.thinking))
                yield _retried(way, exc, f"{way.model.ref} thinking {request.thinking}")
            except ProviderError as exc:
                self._waits_for, self._last_error = way, exc
                way.mark(exc)
                wait_s = self._pause_s(exc, attempt, last=last)
                if wait_s is None:
                    raise
                yield _retried(way, exc, way.model.ref, wait_s)
                attempt += 1
                await self._clock.sleep(wait_s)
            else:
                return

    async def _attempt(
        self, way: FallbackTarget, request: ModelRequest
    ) -> AsyncGenerator[Delta | Message, None]:
        async with way.limiter.enter():
            try:
                provider = await way.open()
                async with aclosing(_timed(provider, request, self._patience.attempt_s)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Message):
                            way.mark(None)
                            way.limiter.on_success()
                        yield piece
            except RateLimitError as exc:
                way.limiter.on_rate_limited(exc.after_s)
                raise

    def _pause_s(self, exc: ProviderError, attempt: int, *, last: bool) -> float | None:
        """Return the delay before the same target is retried, or None to leave it."""
        if attempt >= self._patience.tries:
            return None
        if isinstance(exc, RateLimitError):
            wait_s = exc.after_s if exc.after_s is not None else self._delay_s(attempt)
            return wait_s if last and wait_s <= MAX_WAIT_S else None
        return self._delay_s(attempt) if isinstance(exc, PASSING) else None

    def _rate_limited(self, way: FallbackTarget, left_s: float) -> RateLimitError:
        """Return the error for a service that asked to be left alone for a while."""
        at_s = self._clock.now_ms() / 1000 + left_s
        until = datetime.fromtimestamp(at_s, UTC).astimezone()
        return RateLimitError(
            f"{way.model.ref} is rate limited until {until:%Y-%m-%d %H:%M:%S %Z}",
            after_s=left_s,
            fix="wait until then, or use another model",
        )

    def _delay_s(self, attempt: int) -> float:
        return self._patience.backoff.delay_s(attempt)


async def _timed(
    provider: Provider, request: ModelRequest, attempt_s: float
) -> AsyncGenerator[Delta | Message, None]:
    """Yield the provider's stream within one attempt's deadline, checked by an AnswerFilter."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + attempt_s
    stream = provider.stream(request)
    answer_filter = AnswerFilter(f"{provider.name}/{request.model}")
    try:
        try:
            # A timer covers the silence before the first piece; later the clock is checked.
            async with asyncio.timeout_at(deadline):
                piece = await anext(stream)
        except TimeoutError as exc:
            raise _late(provider, request, attempt_s) from exc
        checked = answer_filter.check(piece)
        if checked is not None:
            yield checked
        async for piece in stream:
            if loop.time() > deadline:
                raise _late(provider, request, attempt_s)
            checked = answer_filter.check(piece)
            if checked is not None:
                yield checked
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def _late(provider: Provider, request: ModelRequest, attempt_s: float) -> ProviderTimeoutError:
    return ProviderTimeoutError(
        f"{provider.name}/{request.model}: no answer within {attempt_s:g} s",
        fix="try again, or use another model",
    )


def _goes_on(exc: ProviderError) -> bool:
    """Return whether another model or credential may succeed after this error."""
    if isinstance(exc, BadRequestError):
        return exc.status == 404  # this service does not have the model; another may
    return isinstance(exc, (AuthError, BillingError, RateLimitError, *PASSING))


def _for_model(request: ModelRequest, model: ModelInfo) -> ModelRequest:
    return replace(
        request,
        model=model.id,
        tools=request.tools if model.calls_tools else (),
        thinking=request.thinking if model.reasoning else "off",
    )


def _lower(level: ThinkLevel) -> ThinkLevel:
    return LEVELS[max(0, LEVELS.index(level) - 1)]


def _retried(
    way: FallbackTarget, exc: ProviderError, then: str, wait_s: float = 0.0
) -> AttemptRetried:
    return AttemptRetried(way.model.provider, way.model.id, exc.code, exc.message, then, wait_s)
