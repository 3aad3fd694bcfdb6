"""Share one embedder between the thread that indexes and the thread that searches.

A query has priority, and waits only briefly: when the embedder stays busy, the search goes without
a vector. An idle embedder is closed, which frees its weights and connections.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from homarus.core.errors import HomarusError, StoreError
from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.embed.circuit_breaker import CircuitBreakerEmbedder

T = TypeVar("T")
MODEL_TIMEOUT_S: Final = 1.0
IDLE_S: Final = 300.0


class EmbedderBusyError(StoreError):
    """The embedder is busy or stopped."""


class SharedEmbedder:
    """An embedder that the index and the search may call at the same time."""

    def __init__(
        self,
        embedder: CircuitBreakerEmbedder,
        timeout_s: float = MODEL_TIMEOUT_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._embedder, self._timeout_s, self._idle_s = embedder, timeout_s, idle_s
        self._gate, self._use = threading.Lock(), threading.Lock()
        self._model: EmbeddingModel | None = None
        self._is_stopped = False
        self._used_s = 0.0
        self._idle: threading.Timer | None = None  # set only while resources may be open

    @property
    def model(self) -> EmbeddingModel:
        """Return the model. Raises EmbedderBusyError while another thread requests it."""
        return self.wait_for_model(self._timeout_s)

    def wait_for_model(self, timeout_s: float = -1) -> EmbeddingModel:
        """Return the model; it is requested until it is known, and then cached.

        Waits at most so many seconds for the embedder; -1 waits without limit.
        """
        if self._model is None:
            if not self._use.acquire(timeout=timeout_s):
                raise EmbedderBusyError("the embedder is busy")
            self._model = self._do(lambda: self._embedder.model)
        return self._model

    @property
    def texts_at_once(self) -> int:
        return self._embedder.texts_at_once

    @property
    def failure(self) -> HomarusError | None:
        """Return why the last call failed; None if it succeeded."""
        return self._embedder.failure

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of notes."""
        with self._gate:  # a waiting query goes first
            self._use.acquire()
        return self._do(lambda: self._embedder.embed(texts))

    def embed_question(self, text: str) -> list[float]:
        """Return the vector of a query. Raises EmbedderBusyError when it would have to wait."""
        if not self._gate.acquire(timeout=self._timeout_s):
            raise EmbedderBusyError("the embedder is busy")
        try:
            if not self._use.acquire(timeout=self._timeout_s):
                raise EmbedderBusyError("the embedder is busy with notes that are being indexed")
        finally:
            self._gate.release()
        return self._do(lambda: self._embedder.embed_question(text))

    def _do(self, work: Callable[[], T]) -> T:
        try:
            if self._is_stopped:
                raise EmbedderBusyError("memory was closed")
            return work()
        finally:
            self._used_s = time.monotonic()
            if self._idle is None and not self._is_stopped:
                self._look_in(self._idle_s)
            self._use.release()

    def _look_in(self, seconds: float) -> None:
        self._idle = threading.Timer(seconds, self._let_go)
        self._idle.daemon = True
        self._idle.start()

    def _let_go(self) -> None:
        """Close the idle embedder; it reopens when it is used."""
        with self._use:
            left_s = self._used_s + self._idle_s - time.monotonic()
            self._idle = None
            if self._is_stopped:
                return
            if left_s > 0:
                self._look_in(left_s)
            else:
                self._embedder.close()

    def stop(self) -> None:
        """Start nothing more, and end soon what is running."""
        self._is_stopped = True
        self._embedder.stop()

    def close(self) -> None:
        """Close the embedder for good."""
        self.stop()
        with self._use:
            if self._idle:
                self._idle.cancel()
            self._embedder.close()
