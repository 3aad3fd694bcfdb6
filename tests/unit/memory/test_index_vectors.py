"""Vectors in the index: made once, kept by what they are of, and no reason to lose the words."""

import os
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from homarus.core.errors import HomarusError, RateLimitError
from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.index import Index, open_index
from homarus.memory.note_files import find_notes


class Letters:
    """An embedder that counts letters, and what it was asked; `fails_after` so many texts."""

    def __init__(self, dims: int = 8, fails_after: int = 10**9, name: str = "letters") -> None:
        self.model = EmbeddingModel("test", name, dims)
        self.asked: list[str] = []
        self.fails_after = fails_after
        self.gives: list[list[float]] | None = None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if len(self.asked) + len(texts) > self.fails_after:
            raise RateLimitError("the service has had enough", fix="wait")
        self.asked += texts
        if self.gives is not None:
            return self.gives
        return [[text.count(letter) + 0.5 for letter in "aehlmprt"] for text in texts]


def write(folder: Path, name: str, text: str) -> None:
    path = folder / "memory" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (1_700_000_000, 1_700_000_000))


def opened(folder: Path, embedder: Letters | None, max_cached: int | None = None) -> Index:
    return open_index(folder / "state" / "main.sqlite", embedder, max_cached=max_cached)


def count_kept(folder: Path) -> int:
    db = apsw.Connection(str(folder / "state" / "main.sqlite-vectors"))
    try:
        ((held,),) = db.execute("SELECT COUNT(*) FROM embedding_cache").fetchall()
        return int(str(held))
    finally:
        db.close()


def test_sync_text_is_embedded_once_per_model(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "# A heading\n- the lamp\n* the lamp\n- the tea")
    letters = Letters()
    with opened(tmp_path, letters) as index:
        report = index.sync(lambda: find_notes(tmp_path))
        assert (report.embedded, report.unembedded) == (2, 0)
        assert letters.asked == ["the lamp", "the tea"]
        assert index.count().vectors == 3
        write(tmp_path, "b.md", "- the tea")
        (tmp_path / "memory" / "a.md").unlink()
        index.sync(lambda: find_notes(tmp_path))
        write(tmp_path, "a.md", "- the lamp")
        assert index.sync(lambda: find_notes(tmp_path), force=True).embedded == 0
    other = Letters(name="others")
    with opened(tmp_path, other) as index:
        assert index.sync(lambda: find_notes(tmp_path)).embedded == 2
    with opened(tmp_path, letters) as index:
        report = index.sync(lambda: find_notes(tmp_path))
        assert (report.indexed, report.unchanged, report.embedded) == ((), 2, 0)
        assert index.count().vectors == 2
    assert letters.asked == ["the lamp", "the tea"]
    db = apsw.Connection(str(tmp_path / "state" / "main.sqlite-vectors"))
    rows = db.execute("SELECT provider, model, dims, COUNT(*) FROM embedding_cache GROUP BY 2")
    assert rows.fetchall() == [("test", "letters", 8, 2), ("test", "others", 8, 2)]
    db.close()


def test_sync_failing_embedder_keeps_words_and_is_retried(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"{number}.md", "\n".join(f"- lamp {number} {row}" for row in range(40)))
    letters = Letters(fails_after=70)
    with opened(tmp_path, letters) as index:
        report = index.sync(lambda: find_notes(tmp_path))
        assert len(report.indexed) == 5
        assert (report.embedded, report.unembedded) == (64, 136)
        assert "had enough" in report.problem
        assert (index.count().lines, index.count().vectors) == (200, 64)
        again = index.sync(lambda: find_notes(tmp_path))
        assert (again.unchanged, again.embedded, again.unembedded) == (5, 0, 136)
        assert again.problem
        assert again.generation == report.generation
        letters.fails_after = 10**9
        healed = index.sync(lambda: find_notes(tmp_path))
        assert (healed.embedded, healed.unembedded, healed.problem) == (136, 0, "")
        assert healed.indexed == ()
        assert healed.generation == report.generation + 1
        assert index.count().vectors == 200
        asked = len(letters.asked)
        assert index.sync(lambda: find_notes(tmp_path)).generation == healed.generation
        assert len(letters.asked) == asked == 200


@pytest.mark.parametrize(
    "gives", [[], [[1.0] * 7], [[float("nan")] * 8], [[float("inf")] * 8], [[1.0] * 8] * 2]
)
def test_sync_invalid_vectors_are_reported_and_not_stored(
    tmp_path: Path, gives: list[list[float]]
) -> None:
    write(tmp_path, "a.md", "- the lamp")
    letters = Letters()
    letters.gives = gives
    with opened(tmp_path, letters) as index:
        report = index.sync(lambda: find_notes(tmp_path))
        assert (report.indexed, report.unembedded) == (("memory/a.md",), 1)
        assert "vector" in report.problem


def test_sync_lines_without_words_need_no_embedder(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- \n---\n> \n* lamp")
    letters = Letters()
    with opened(tmp_path, letters) as index:
        report = index.sync(lambda: find_notes(tmp_path))
        assert report.unembedded == 0
    assert letters.asked == ["lamp"]


def test_vector_cache_over_limit_drops_oldest(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "\n".join(f"- lamp {row}" for row in range(30)))
    letters = Letters()
    with opened(tmp_path, letters, max_cached=10) as index:
        assert index.sync(lambda: find_notes(tmp_path)).unembedded == 0
        assert index.count().vectors == 30
        assert count_kept(tmp_path) == 10
        assert index.sync(lambda: find_notes(tmp_path), force=True).embedded == 20


def test_sync_progress_reaches_total(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"{number}.md", "- lamp")
    told: list[tuple[int, int, str]] = []
    with opened(tmp_path, None) as index:
        index.sync(lambda: find_notes(tmp_path), progress=lambda *step: told.append(step))
    assert told == [*((at, 5, f"memory/{at}.md") for at in range(5)), (5, 5, "")]
    told.clear()
    with opened(tmp_path, Letters()) as index:
        index.sync(
            lambda: find_notes(tmp_path), force=True, progress=lambda *step: told.append(step)
        )
    assert [done for done, _, _ in told] == list(range(11))
    assert {every for _, every, _ in told} == {10}
    told.clear()
    with opened(tmp_path, Letters(name="others")) as index:
        index.sync(lambda: find_notes(tmp_path), progress=lambda *step: told.append(step))
    assert told == [(0, 1, "vectors"), (1, 1, "")]


def test_sync_programming_error_of_embedder_is_raised(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- the lamp")

    class Broken(Letters):
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            raise RuntimeError("a bug")

    with opened(tmp_path, Broken()) as index:
        with pytest.raises(RuntimeError, match="a bug"):
            index.sync(lambda: find_notes(tmp_path))
        index.embedder = None
        assert index.sync(lambda: find_notes(tmp_path)).indexed == ("memory/a.md",)


def test_sync_embedder_error_is_reported_as_problem(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- the lamp")

    class Offline(Letters):
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            raise HomarusError("nobody answers", fix="see that it runs")

    with opened(tmp_path, Offline()) as index:
        report = index.sync(lambda: find_notes(tmp_path))
    assert report.problem == "nobody answers (see that it runs)"


def test_index_damaged_rebuild_reuses_cached_vectors(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- the lamp\n- the tea")
    letters = Letters()
    with opened(tmp_path, letters) as index:
        index.sync(lambda: find_notes(tmp_path))
    for damage in (b"", b"not a database", b"\0" * 9000):
        (tmp_path / "state" / "main.sqlite").write_bytes(damage)
        with opened(tmp_path, letters) as index:
            report = index.sync(lambda: find_notes(tmp_path))
            assert "damaged" in report.rebuilt
            assert (report.embedded, report.unembedded, index.count().vectors) == (0, 0, 2)
    assert letters.asked == ["the lamp", "the tea"]
    assert (tmp_path / "state" / "main.sqlite-vectors").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"\7" * 9000])
def test_vector_cache_damaged_is_rebuilt_and_keeps_words(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, "a.md", "- the lamp\n- the tea")
    letters = Letters()
    with opened(tmp_path, letters) as index:
        index.sync(lambda: find_notes(tmp_path))
        (tmp_path / "state" / "main.sqlite-vectors").write_bytes(damage)
        report = index.sync(lambda: find_notes(tmp_path), force=True)
        assert (report.embedded, report.unembedded, report.problem) == (2, 0, "")
        assert index.count().vectors == 2


def test_index_vectors_of_two_models_coexist(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- the lamp\n- the tea")
    one, other = Letters(), Letters(name="others")
    with opened(tmp_path, one) as mine, opened(tmp_path, other) as theirs:
        with opened(tmp_path, None) as plain:
            assert plain.sync(lambda: find_notes(tmp_path)).indexed == ("memory/a.md",)
            for index in (mine, theirs, mine, theirs, plain):
                report = index.sync(lambda: find_notes(tmp_path))
                assert (report.indexed, report.rebuilt, report.unembedded) == ((), "", 0)
            write(tmp_path, "b.md", "- the harbour")
            assert plain.sync(lambda: find_notes(tmp_path)).indexed == ("memory/b.md",)
            assert plain.count().vectors == 2
        for index, embedder in ((mine, one), (theirs, other)):
            assert index.has_vectors(embedder.model)
            report = index.sync(lambda: find_notes(tmp_path))
            assert (report.indexed, report.embedded, report.unembedded) == ((), 1, 0)
            assert index.count().vectors == 3


def test_index_vectors_of_long_unused_model_are_dropped(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- the lamp")
    models = [Letters(name=f"letters {number}") for number in range(5)]
    for embedder in models:
        with opened(tmp_path, embedder) as index:
            assert index.sync(lambda: find_notes(tmp_path)).embedded == 1
    with opened(tmp_path, None) as index:
        held = [index.has_vectors(embedder.model) for embedder in models]
    assert held == [False, False, True, True, True]
