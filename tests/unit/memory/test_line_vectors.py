import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from homarus.memory.base import SearchOptions
from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.note_search import NoteSearch
from homarus.memory.vectors import EXACT_UP_TO, VectorTable, embedded_text, pack, text_key

pytest.importorskip("numpy")


class Topics:
    """An embedder that knows three topics by some words each."""

    words = (("dog", "pet", "puppy"), ("violin", "instrument", "clarinet"), ("tea", "drink"))

    def __init__(self, name: str = "topics") -> None:
        self.model = EmbeddingModel("test", name, 3)
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        return [self._one(text.lower()) for text in texts]

    def _one(self, text: str) -> list[float]:
        counts = [float(sum(word in text for word in topic)) for topic in self.words]
        length = math.hypot(*counts) or 1.0
        return [count / length for count in counts]


def write_notes(tmp_path: Path) -> Path:
    (tmp_path / "memory").mkdir()
    lines = ["- the puppy barked", "- clarinet lesson", "- green tea at four"]
    (tmp_path / "memory" / "a.md").write_text("\n\n".join(lines), encoding="utf-8")
    return tmp_path


def test_search_without_common_word_finds_by_meaning(tmp_path: Path) -> None:
    workspace = write_notes(tmp_path)
    with NoteSearch(workspace, workspace / "i.sqlite", Topics()) as memory:
        assert memory.sync().embedded == 3
        assert "clarinet" in memory.search("Which instrument?")[0].snippet
        assert "puppy" in memory.search("any pet?", SearchOptions("passages"))[0].snippet


def test_sync_same_text_is_embedded_once_for_a_model(tmp_path: Path) -> None:
    workspace = write_notes(tmp_path)
    for name, embedded in (("one", 3), ("one", 0), ("two", 3), ("one", 0)):
        embedder = Topics(name)
        with NoteSearch(workspace, workspace / "i.sqlite", embedder) as memory:
            report = memory.sync()
            assert report.embedded == embedded == len(embedder.asked)


def test_sync_other_model_adds_vectors_and_none_keeps_them(tmp_path: Path) -> None:
    workspace = write_notes(tmp_path)
    generations = []
    for embedder in (Topics("one"), Topics("two"), None):
        with NoteSearch(workspace, workspace / "i.sqlite", embedder) as memory:
            generations.append(memory.sync().generation)
            assert memory.search("tea")[0].snippet.endswith("four")
    assert generations == [1, 2, 2]


def test_embedded_text_drops_list_marker() -> None:
    assert embedded_text("  - Ada: hello ") == "Ada: hello"
    assert text_key("- Ada: hello") == text_key("* Ada: hello")


def test_vector_table_many_vectors_returns_nearest() -> None:
    chance = random.Random(4)
    many = [[chance.gauss(0, 1) for _ in range(64)] for _ in range(EXACT_UP_TO + 500)]
    vectors = VectorTable(((number, pack(one)) for number, one in enumerate(many)), 64)
    asked = [number + chance.gauss(0, 0.3) for number in many[4321]]
    assert 4321 in vectors.nearest(asked, 50)
    cosines = vectors.cosines(asked, [4321, 7, 10_000_000])
    assert set(cosines) == {4321, 7}
    assert cosines[4321] > 0.9 > abs(cosines[7])


def test_vector_table_zero_or_wrong_size_is_ignored() -> None:
    vectors = VectorTable([(1, pack([0.0, 0.0])), (2, pack([1.0, 0.0])), (3, b"\1")], 2)
    assert vectors.cosines([1.0, 0.0], [1, 2, 3]) == pytest.approx({1: 0.0, 2: 1.0})
