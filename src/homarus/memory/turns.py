"""One embedder for two threads: notes are embedded as they are indexed, questions come between.

A question goes first, and does not wait for long: when its turn does not come, it is answered
without a vector.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from homarus.core.errors import HomarusError, StoreError
from homarus.memory.embed.base import Model
from homarus.memory.embed.steady import Steady

T = TypeVar("T")
PATIENCE_S: Final = 1.0


class NoTurn(StoreError):
    """The embedder is busy, or gone."""


class Turns:
    """An embedder as the index and the search share it; both may ask at the same time."""

    def __init__(self, embedder: Steady, patience_s: float = PATIENCE_S) -> None:
        self._embedder, self._patience_s = embedder, patience_s
        self._gate, self._use = threading.Lock(), threading.Lock()
        self._model: Model | None = None
        self._is_stopped = False

    @property
    def model(self) -> Model:
        """What the vectors are of: asked for until it is known, then the same for good."""
        if self._model is None:
            self._model = self._embedder.model
        return self._model

    @property
    def texts_at_once(self) -> int:
        return self._embedder.texts_at_once

    @property
    def failure(self) -> HomarusError | None:
        """Why the last call failed; None when it did not."""
        return self._embedder.failure

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of notes."""
        with self._gate:  # a question that waits is before us
            self._use.acquire()
        return self._do(lambda: self._embedder.embed(texts))

    def embed_question(self, text: str) -> list[float]:
        """The vector of a question; NoTurn when it would have to wait."""
        if not self._gate.acquire(timeout=self._patience_s):
            raise NoTurn("the embedder is busy")
        try:
            if not self._use.acquire(timeout=self._patience_s):
                raise NoTurn("the embedder is busy with notes that are being indexed")
        finally:
            self._gate.release()
        return self._do(lambda: self._embedder.embed_question(text))

    def _do(self, work: Callable[[], T]) -> T:
        try:
            if self._is_stopped:
                raise NoTurn("memory was closed")
            return work()
        finally:
            self._use.release()

    def stop(self) -> None:
        """Begin nothing more."""
        self._is_stopped = True

    def close(self) -> None:
        """Let go of what it holds."""
        self._embedder.close()
