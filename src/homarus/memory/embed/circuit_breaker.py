"""A circuit breaker for an embedder, for callers that can continue without it.

After a service failed, every call fails at once with the same error until a cooldown is over, so
that searches do not wait for it again and again.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import (
    AuthError,
    BillingError,
    HomarusError,
    OverloadedError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    UnreachableError,
)
from homarus.memory.embed.base import (
    Embedder,
    EmbeddingModel,
    SupportsStop,
    batch_size,
    close,
    embed_question,
)

REST_S: Final = 60.0
_OUT_OF_ORDER = (
    AuthError,
    BillingError,
    OverloadedError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    UnreachableError,
)
T = TypeVar("T")


class CircuitBreakerEmbedder:
    """Passes all calls to an embedder; `failure` is the error of the last one."""

    def __init__(self, embedder: Embedder, clock: Clock | None = None) -> None:
        self._embedder, self._clock = embedder, clock or SystemClock()
        self._failure: HomarusError | None = None
        self._rests_until_s = 0.0
        self._model: EmbeddingModel | None = None

    @property
    def failure(self) -> HomarusError | None:
        """Return why the last call failed; None if it succeeded."""
        return self._failure

    @property
    def model(self) -> EmbeddingModel:
        """Return the model; it is cached once it is known."""
        if self._model is None:
            self._model = self._do(lambda: self._embedder.model)
        return self._model

    @property
    def texts_at_once(self) -> int:
        return batch_size(self._embedder)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return self._do(lambda: self._embedder.embed(texts))

    def embed_question(self, text: str) -> list[float]:
        return self._do(lambda: embed_question(self._embedder, text))

    def stop(self) -> None:
        """Stop the running call, from another thread, if the embedder supports that."""
        if isinstance(self._embedder, SupportsStop):
            self._embedder.stop()

    def close(self) -> None:
        close(self._embedder)

    def _do(self, work: Callable[[], T]) -> T:
        if self._failure is not None and self._clock.monotonic() < self._rests_until_s:
            raise self._failure
        try:
            done = work()
        except HomarusError as exc:
            self._failure = exc
            self._rests_until_s = self._clock.monotonic() + _rest_s(exc)
            raise
        self._failure = None
        return done


def _rest_s(error: HomarusError) -> float:
    """Return the cooldown after an error; 0 if it concerns one text and not the service."""
    if not isinstance(error, _OUT_OF_ORDER):
        return 0.0
    asked_s = error.after_s if isinstance(error, RateLimitError) else None
    return max(asked_s or 0.0, REST_S)
