"""One embedder for two threads."""

import threading
from collections.abc import Sequence

import pytest

from homarus.core.errors import ProviderError
from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.embed.circuit_breaker import CircuitBreakerEmbedder
from homarus.memory.shared_embedder import EmbedderBusyError, SharedEmbedder

GUARD_S = 60.0


class Gated:
    """Says in which order it was asked; notes wait until they are let go, question do not."""

    model = EmbeddingModel("fake", "gated", 1)

    def __init__(self) -> None:
        self.order: list[str] = []
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.closed = 0

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.order += texts
        self.entered.set()
        assert self.let_go.wait(GUARD_S)
        return [[1.0] for _ in texts]

    def embed_question(self, text: str) -> list[float]:
        self.order.append(text)
        return [1.0]

    def close(self) -> None:
        self.closed += 1


def test_shared_embedder_query_precedes_next_notes() -> None:
    inner = Gated()
    turns = SharedEmbedder(CircuitBreakerEmbedder(inner), timeout_s=GUARD_S)
    asking = threading.Event()

    def index() -> None:
        turns.embed(["first"])
        turns.embed(["second"])

    def ask() -> None:
        asking.set()
        turns.embed_question("question")

    indexer, asker = threading.Thread(target=index), threading.Thread(target=ask)
    indexer.start()
    assert inner.entered.wait(GUARD_S)
    asker.start()
    assert asking.wait(GUARD_S)
    while not turns._gate.locked():
        pass
    inner.let_go.set()
    indexer.join(GUARD_S)
    asker.join(GUARD_S)
    assert inner.order == ["first", "question", "second"]


def test_shared_embedder_query_waits_only_briefly() -> None:
    inner = Gated()
    turns = SharedEmbedder(CircuitBreakerEmbedder(inner), timeout_s=0.05)
    indexer = threading.Thread(target=turns.embed, args=(["first"],))
    indexer.start()
    assert inner.entered.wait(GUARD_S)
    with pytest.raises(EmbedderBusyError, match="being indexed"):
        turns.embed_question("question")
    inner.let_go.set()
    indexer.join(GUARD_S)
    assert turns.embed_question("again") == [1.0]
    assert turns.failure is None


def test_shared_embedder_sync_waits_for_model_and_search_does_not() -> None:
    class Pondering:
        """A service has to be asked which model it is."""

        entered, told = threading.Event(), threading.Event()

        @property
        def model(self) -> EmbeddingModel:
            self.entered.set()
            assert self.told.wait(GUARD_S)
            return EmbeddingModel("fake", "gated", 1)

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[1.0] for _ in texts]

    turns = SharedEmbedder(CircuitBreakerEmbedder(Pondering()), timeout_s=0.05)
    found: list[EmbeddingModel] = []
    first = threading.Thread(target=lambda: found.append(turns.wait_for_model()))
    first.start()
    assert Pondering.entered.wait(GUARD_S)
    second = threading.Thread(target=lambda: found.append(turns.wait_for_model()))
    second.start()
    with pytest.raises(EmbedderBusyError):
        _ = turns.model
    Pondering.told.set()
    for thread in (first, second):
        thread.join(GUARD_S)
    assert [one.name for one in found] == ["gated", "gated"] and turns.model is found[0]
    turns.close()


def test_shared_embedder_after_stop_embeds_nothing() -> None:
    inner = Gated()
    turns = SharedEmbedder(CircuitBreakerEmbedder(inner))
    turns.stop()
    for work in (lambda: turns.embed(["x"]), lambda: turns.embed_question("x")):
        with pytest.raises(EmbedderBusyError, match="closed"):
            work()
    turns.close()
    assert (inner.order, inner.closed) == ([], 1)


def test_shared_embedder_idle_is_closed_and_reopens() -> None:
    class Closing(Gated):
        def close(self) -> None:
            super().close()
            self.let_go.set()

    inner = Closing()
    turns = SharedEmbedder(CircuitBreakerEmbedder(inner), idle_s=0.05)
    for times in (1, 2):
        turns.embed_question("x")
        assert inner.let_go.wait(GUARD_S)
        inner.let_go.clear()
        assert inner.closed == times
    turns.close()
    assert turns._idle is None
    assert inner.closed == 3


def test_shared_embedder_in_use_is_not_closed() -> None:
    inner = Gated()
    turns = SharedEmbedder(CircuitBreakerEmbedder(inner), idle_s=GUARD_S)
    indexer = threading.Thread(target=turns.embed, args=(["first"],))
    indexer.start()
    assert inner.entered.wait(GUARD_S)
    looking = threading.Thread(target=turns._let_go)  # the time was over while it worked
    looking.start()
    inner.let_go.set()
    indexer.join(GUARD_S)
    looking.join(GUARD_S)
    assert inner.closed == 0
    assert turns._idle is not None and turns._idle.is_alive()
    turns.close()
    turns._idle.join(GUARD_S)
    assert (inner.closed, turns._idle.is_alive()) == (1, False)


def test_shared_embedder_concurrent_model_requests_are_serialised() -> None:
    class Asked:
        """The service has to be asked for its model."""

        def __init__(self) -> None:
            self.service, self.asked = Gated(), 0

        @property
        def model(self) -> EmbeddingModel:
            self.asked += 1
            self.service.embed([])
            return EmbeddingModel("fake", "asked", 1)

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return self.service.embed(texts)

    inner = Asked()
    turns = SharedEmbedder(CircuitBreakerEmbedder(inner), timeout_s=0.05)
    indexer = threading.Thread(target=lambda: turns.model)
    indexer.start()
    assert inner.service.entered.wait(GUARD_S)
    with pytest.raises(EmbedderBusyError):
        _ = turns.model
    inner.service.let_go.set()
    indexer.join(GUARD_S)
    assert turns.model.name == "asked"
    assert inner.asked == 1
    turns.close()


def test_shared_embedder_model_is_cached() -> None:
    class Moody(Gated):
        def embed_question(self, text: str) -> list[float]:
            raise ProviderError("not now")

    turns = SharedEmbedder(CircuitBreakerEmbedder(Moody()))
    assert turns.model.name == "gated"
    with pytest.raises(ProviderError):
        turns.embed_question("x")
    assert turns.model.name == "gated"
    assert str(turns.failure) == "not now"
