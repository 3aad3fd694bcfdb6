"""One embedder for two threads."""

import threading
from collections.abc import Sequence

import pytest

from homarus.core.errors import ProviderError
from homarus.memory.embed.base import Model
from homarus.memory.embed.steady import Steady
from homarus.memory.turns import NoTurn, Turns

GUARD_S = 60.0


class Gated:
    """Says in which order it was asked; notes wait until they are let go, question do not."""

    model = Model("fake", "gated", 1)

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


def test_a_question_comes_before_the_next_notes() -> None:
    inner = Gated()
    turns = Turns(Steady(inner), patience_s=GUARD_S)
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


def test_a_question_does_not_wait_for_long() -> None:
    inner = Gated()
    turns = Turns(Steady(inner), patience_s=0.05)
    indexer = threading.Thread(target=turns.embed, args=(["first"],))
    indexer.start()
    assert inner.entered.wait(GUARD_S)
    with pytest.raises(NoTurn, match="being indexed"):
        turns.embed_question("question")
    inner.let_go.set()
    indexer.join(GUARD_S)
    assert turns.embed_question("again") == [1.0]
    assert turns.failure is None


def test_after_a_stop_nothing_is_embedded() -> None:
    inner = Gated()
    turns = Turns(Steady(inner))
    turns.stop()
    for work in (lambda: turns.embed(["x"]), lambda: turns.embed_question("x")):
        with pytest.raises(NoTurn, match="closed"):
            work()
    turns.close()
    assert (inner.order, inner.closed) == ([], 1)


def test_the_model_is_known_for_good_once_it_was_told() -> None:
    class Moody(Gated):
        def embed_question(self, text: str) -> list[float]:
            raise ProviderError("not now")

    turns = Turns(Steady(Moody()))
    assert turns.model.name == "gated"
    with pytest.raises(ProviderError):
        turns.embed_question("x")
    assert turns.model.name == "gated"
    assert str(turns.failure) == "not now"
