"""Vectors in the index: made once, kept by what they are of, and no reason to lose the words."""

import os
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from homarus.core.errors import HomarusError, RateLimited
from homarus.memory.embed.base import Model
from homarus.memory.index import Index, open_index
from homarus.memory.source import find_notes


class Letters:
    """An embedder that counts letters, and what it was asked; `fails_after` so many texts."""

    def __init__(self, dims: int = 8, fails_after: int = 10**9, name: str = "letters") -> None:
        self.model = Model("test", name, dims)
        self.asked: list[str] = []
        self.fails_after = fails_after
        self.gives: list[list[float]] | None = None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if len(self.asked) + len(texts) > self.fails_after:
            raise RateLimited("the service has had enough", fix="wait")
        self.asked += texts
        if self.gives is not None:
            return self.gives
        return [[text.count(letter) + 0.5 for letter in "aehlmprt"] for text in texts]


def write(place: Path, name: str, text: str) -> None:
    path = place / "memory" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (1_700_000_000, 1_700_000_000))


def opened(place: Path, embedder: Letters | None, max_cached: int | None = None) -> Index:
    return open_index(place / "state" / "main.sqlite", embedder, max_cached=max_cached)


def test_a_text_is_embedded_once_for_each_model(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "# A heading\n- the lamp\n* the lamp\n- the tea")
    letters = Letters()
    with opened(tmp_path, letters) as index:
        report = index.sync(find_notes(tmp_path))
        assert (report.embedded, report.unembedded) == (2, 0)
        assert letters.asked == ["the lamp", "the tea"]
        assert index.count().vectors == 3
        write(tmp_path, "b.md", "- the tea")
        (tmp_path / "memory" / "a.md").unlink()
        index.sync(find_notes(tmp_path))
        write(tmp_path, "a.md", "- the lamp")
        assert index.sync(find_notes(tmp_path), force=True).embedded == 0
    other = Letters(name="others")
    with opened(tmp_path, other) as index:
        assert index.sync(find_notes(tmp_path)).embedded == 2
    with opened(tmp_path, letters) as index:
        report = index.sync(find_notes(tmp_path))
        assert (len(report.indexed), report.embedded) == (2, 0)
    assert letters.asked == ["the lamp", "the tea"]
    db = apsw.Connection(str(tmp_path / "state" / "main.sqlite"))
    rows = db.execute("SELECT provider, model, dims, COUNT(*) FROM embedding_cache GROUP BY 2")
    assert rows.fetchall() == [("test", "letters", 8, 2), ("test", "others", 8, 2)]
    db.close()


def test_an_embedder_that_fails_costs_no_word_and_is_asked_again(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"{number}.md", "\n".join(f"- lamp {number} {row}" for row in range(40)))
    letters = Letters(fails_after=70)
    with opened(tmp_path, letters) as index:
        report = index.sync(find_notes(tmp_path))
        assert len(report.indexed) == 5
        assert (report.embedded, report.unembedded) == (64, 136)
        assert "had enough" in report.problem
        assert (index.count().lines, index.count().vectors) == (200, 64)
        again = index.sync(find_notes(tmp_path))
        assert (again.unchanged, again.embedded, again.unembedded) == (5, 0, 136)
        assert again.problem
        assert again.generation == report.generation
        letters.fails_after = 10**9
        healed = index.sync(find_notes(tmp_path))
        assert (healed.embedded, healed.unembedded, healed.problem) == (136, 0, "")
        assert healed.indexed == ()
        assert healed.generation == report.generation + 1
        assert index.count().vectors == 200
        asked = len(letters.asked)
        assert index.sync(find_notes(tmp_path)).generation == healed.generation
        assert len(letters.asked) == asked == 200


@pytest.mark.parametrize(
    "gives", [[], [[1.0] * 7], [[float("nan")] * 8], [[float("inf")] * 8], [[1.0] * 8] * 2]
)
def test_vectors_that_are_none_are_a_problem_and_not_kept(
    tmp_path: Path, gives: list[list[float]]
) -> None:
    write(tmp_path, "a.md", "- the lamp")
    letters = Letters()
    letters.gives = gives
    with opened(tmp_path, letters) as index:
        report = index.sync(find_notes(tmp_path))
        assert (report.indexed, report.unembedded) == (("memory/a.md",), 1)
        assert "vector" in report.problem


def test_a_line_without_a_word_needs_no_embedder(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- \n---\n> \n* lamp")
    letters = Letters()
    with opened(tmp_path, letters) as index:
        report = index.sync(find_notes(tmp_path))
        assert report.unembedded == 0
    assert letters.asked == ["lamp"]


def test_the_oldest_vectors_go_when_there_are_too_many(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "\n".join(f"- lamp {row}" for row in range(30)))
    letters = Letters()
    with opened(tmp_path, letters, max_cached=10) as index:
        assert index.sync(find_notes(tmp_path)).unembedded == 0
        assert index.count().vectors == 30
        ((held,),) = index.db.execute("SELECT COUNT(*) FROM embedding_cache").fetchall()
        assert held == 10
        assert index.sync(find_notes(tmp_path), force=True).embedded == 20


def test_progress_is_told_and_ends(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"{number}.md", "- lamp")
    told: list[tuple[int, int, str]] = []
    with opened(tmp_path, None) as index:
        index.sync(find_notes(tmp_path), progress=lambda *step: told.append(step))
    assert told == [*((at, 5, f"memory/{at}.md") for at in range(5)), (5, 5, "")]
    told.clear()
    with opened(tmp_path, Letters()) as index:
        index.sync(find_notes(tmp_path), progress=lambda *step: told.append(step))
    assert [done for done, _, _ in told] == list(range(11))
    assert {every for _, every, _ in told} == {10}


def test_an_error_that_is_a_bug_is_not_taken_for_an_embedder_that_failed(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- the lamp")

    class Broken(Letters):
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            raise RuntimeError("a bug")

    with opened(tmp_path, Broken()) as index:
        with pytest.raises(RuntimeError, match="a bug"):
            index.sync(find_notes(tmp_path))
        index.embedder = None
        assert index.sync(find_notes(tmp_path)).indexed == ("memory/a.md",)


def test_what_an_embedder_says_is_shown(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- the lamp")

    class Offline(Letters):
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            raise HomarusError("nobody answers", fix="see that it runs")

    with opened(tmp_path, Offline()) as index:
        report = index.sync(find_notes(tmp_path))
    assert report.problem == "nobody answers (see that it runs)"
