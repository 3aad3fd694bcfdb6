"""What every Embedder promises (homarus/memory/embed/base.py), over every one that runs here.

A row of ROWS is a name and how it is opened: with real weights, or against the server that plays
the vendor. To add an embedder, add its row.
"""

import json
import math
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest

from homarus.memory.embed import minilm
from homarus.memory.embed.access import config_key
from homarus.memory.embed.base import Embedder, close, embed_question
from homarus.memory.embed.circuit_breaker import CircuitBreakerEmbedder
from homarus.memory.embed.client import ServiceAccess
from homarus.memory.embed.fastembed import FastEmbedEmbedder
from homarus.memory.embed.gemini import GeminiEmbeddingApi
from homarus.memory.embed.ollama import OllamaEmbeddingApi
from homarus.memory.embed.openai import OpenAIEmbeddingApi
from homarus.memory.embed.remote import (
    EmbeddingApi,
    EmbedRequestLimits,
    HostedModel,
    RemoteEmbedder,
)
from homarus.memory.embed.voyage import VoyageEmbeddingApi
from homarus.memory.embed.wordllama import WordLlamaEmbedder
from homarus.testing.clock import FakeClock
from tests.unit.memory.embed_server import DIMS, EmbedServer

pytestmark = pytest.mark.slow  # real weights are loaded

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
NOTES = [
    "Ada moved to Kiel in March",
    "tea",
    "the violin lesson is at nine, and the teacher wants us to be there five minutes before",
    "Ben is allergic to walnuts",
    "ünïcödé 日本語",
]
ODD = {
    "empty": "",
    "blank": " \n\t ",
    "long": "the harbour of Kiel " * 5_000,
    "one long word": "x" * 100_000,
    "another script": "日本語のメモ שלום",
    "joined": "\U0001f469\u200d\U0001f469\u200d\U0001f467 e\u0301 \u202eabc",
    "nothing to see": "\u200b\ufeff",
    "controls": "a\0b\x1b[31m\x7f",
    "half a character": "a\ud800b",
    "the last character": "\U0010ffff",
    "a model's own words": "[PAD] [CLS] <s> </s> <unk>",
    "JSON": '"},{"input": ["',
}


@dataclass(frozen=True)
class Row:
    name: str
    open: Callable[[pytest.FixtureRequest], AbstractContextManager[Embedder]]
    is_local: bool = True


@contextmanager
def _wordllama(_request: pytest.FixtureRequest) -> Iterator[Embedder]:
    pytest.importorskip("wordllama")
    yield WordLlamaEmbedder()


@contextmanager
def _minilm(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    pytest.importorskip("onnxruntime")
    yield minilm.open_minilm(request.getfixturevalue("minilm_folder"))


@contextmanager
def _fastembed(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    pytest.importorskip("fastembed")
    folder = request.getfixturevalue("tmp_path_factory").mktemp("fastembed") / "weights"
    shutil.copytree(request.getfixturevalue("minilm_folder"), folder)
    told = {"model_max_length": 256, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    (folder / "config.json").write_text('{"pad_token_id": 0}')
    yield FastEmbedEmbedder(MINILM, folder.parent / "cache", folder)


def _served(provider: str, base: str, wire: EmbeddingApi) -> Row:
    @contextmanager
    def opened(_request: pytest.FixtureRequest) -> Iterator[Embedder]:
        with EmbedServer() as server:
            access = ServiceAccess(
                server.url + base, {}, config_key("K", "sk-test-0123456789abcdef")
            )
            hosted = HostedModel(
                provider, "m", access, DIMS, limits=EmbedRequestLimits(max_texts=2)
            )
            yield RemoteEmbedder(hosted, wire, clock=FakeClock(patient=False))

    return Row(provider, opened, is_local=False)


ROWS = [
    Row("wordllama", _wordllama),
    Row("minilm", _minilm),
    Row("fastembed", _fastembed),
    _served("openai", "/v1", OpenAIEmbeddingApi("m")),
    _served("voyage", "/v1", VoyageEmbeddingApi("m")),
    _served("gemini", "/v1beta", GeminiEmbeddingApi("m")),
    _served("ollama", "", OllamaEmbeddingApi("m")),
]


def _params() -> Iterator[object]:
    for row in ROWS:
        marks = [pytest.mark.model] if row.name in {"minilm", "fastembed"} else []
        yield pytest.param(row, id=row.name, marks=marks)


@pytest.fixture(scope="module", params=_params())
def row(request: pytest.FixtureRequest) -> Row:
    found = request.param
    assert isinstance(found, Row)
    return found


@pytest.fixture(scope="module")
def opened(row: Row, request: pytest.FixtureRequest) -> Iterator[Embedder]:
    with row.open(request) as made:
        try:
            yield made
        finally:
            close(made)


@pytest.fixture
def embedder(opened: Embedder, row: Row, monkeypatch: pytest.MonkeyPatch) -> Embedder:
    """One that nobody can have asked the network for, unless that is what it does."""
    if row.is_local:

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("the network was used")

        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        monkeypatch.setattr(socket.socket, "connect", refuse)
        close(opened)  # so that opening it is seen, too
    return opened


def like(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_embedder_texts_return_vectors_in_order(embedder: Embedder) -> None:
    alone = [embedder.embed([text])[0] for text in NOTES]
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [1, 1, 2, 1, 0, 1]):
        made = embedder.embed([NOTES[at] for at in order])
        assert len(made) == len(order)
        for at, vector in zip(order, made, strict=True):
            scores = [like(vector, other) for other in alone]
            assert scores[at] == max(scores) == pytest.approx(1, abs=0.02)


def test_embedder_no_texts_return_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]) == []


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_embedder_any_text_returns_unit_or_zero_vector(embedder: Embedder, text: str) -> None:
    made = [*embedder.embed(["tea", text, "tea"]), embed_question(embedder, text)]
    assert [len(vector) for vector in made] == [embedder.model.dims] * 4
    lengths = [math.hypot(*vector) for vector in made]
    assert lengths[0] == lengths[2] == pytest.approx(1, abs=1e-5)
    for length in (lengths[1], lengths[3]):
        assert length == pytest.approx(1, abs=1e-5) or (length == 0 and not text.strip())


def test_embedder_same_texts_return_same_vectors(embedder: Embedder) -> None:
    first, question = embedder.embed(NOTES), embed_question(embedder, "Where is Ada?")
    assert embedder.embed(NOTES) == first
    assert embed_question(embedder, "Where is Ada?") == question
    assert first[0] != first[1]


def test_embedder_model_states_dims(embedder: Embedder) -> None:
    model = embedder.model
    assert model.provider and model.name
    assert 0 < model.weight <= 1
    assert {len(vector) for vector in embedder.embed(NOTES)} == {model.dims}
    assert embedder.model == model


def test_embedder_closed_can_be_used_again(embedder: Embedder) -> None:
    before, model = embedder.embed(NOTES), embedder.model
    for _ in range(2):
        close(embedder)
    assert embedder.embed(NOTES) == before
    assert embedder.model == model
    close(embedder)
    assert embed_question(embedder, "tea")


def test_circuit_breaker_passes_everything_through(embedder: Embedder) -> None:
    steady = CircuitBreakerEmbedder(embedder, FakeClock(patient=False))
    assert steady.model == embedder.model
    assert steady.embed(NOTES) == embedder.embed(NOTES)
    assert steady.embed_question("tea") == embed_question(embedder, "tea")
    assert steady.failure is None
    steady.close()
    assert steady.embed([]) == []
