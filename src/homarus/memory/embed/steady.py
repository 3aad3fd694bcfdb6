"""An embedder that may fail, for those who go on without it.

A service that failed is left alone for a while: until then every call fails at once, with the same
words, so that a search does not wait for it again and again.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import (
    AuthFailed,
    BillingFailed,
    HomarusError,
    Overloaded,
    ProviderTimeout,
    RateLimited,
    StreamBroken,
    Unreachable,
)
from homarus.memory.embed.base import (
    Embedder,
    Model,
    Stops,
    close,
    embed_question,
    texts_at_once,
)

REST_S: Final = 60.0
_OUT_OF_ORDER = (
    AuthFailed,
    BillingFailed,
    Overloaded,
    ProviderTimeout,
    RateLimited,
    StreamBroken,
    Unreachable,
)
T = TypeVar("T")


class Steady:
    """Passes everything on; remembers what went wrong last in `failure`."""

    def __init__(self, embedder: Embedder, clock: Clock | None = None) -> None:
        self._embedder, self._clock = embedder, clock or SystemClock()
        self._failure: HomarusError | None = None
        self._rests_until_s = 0.0
        self._model: Model | None = None

    @property
    def failure(self) -> HomarusError | None:
        """Why the last call failed; None when it did not."""
        return self._failure

    @property
    def model(self) -> Model:
        """What the vectors are of: once it is known, for good."""
        if self._model is None:
            self._model = self._do(lambda: self._embedder.model)
        return self._model

    @property
    def texts_at_once(self) -> int:
        return texts_at_once(self._embedder)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of notes."""
        return self._do(lambda: self._embedder.embed(texts))

    def embed_question(self, text: str) -> list[float]:
        """The vector of a question."""
        return self._do(lambda: embed_question(self._embedder, text))

    def stop(self) -> None:
        """Cut short what runs, where that can be done; from another thread."""
        if isinstance(self._embedder, Stops):
            self._embedder.stop()

    def close(self) -> None:
        """Let go of what it holds."""
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
    """How long to leave it alone: not at all, when the trouble is with one text and not with it."""
    if not isinstance(error, _OUT_OF_ORDER):
        return 0.0
    asked_s = error.after_s if isinstance(error, RateLimited) else None
    return max(asked_s or 0.0, REST_S)
