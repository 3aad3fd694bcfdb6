from hypothesis import given
from hypothesis import strategies as st

from homarus.memory.hybrid_scoring import (
    Hit,
    HybridWeights,
    cosine_similarity,
    day_of,
    diversify_hits,
    extract_keywords,
    is_memory_path,
    merge,
    normalize_path,
    rank_to_score,
)


def hit(name: str, snippet: str = "", score: float = 0.0, vector: float = 0.0) -> Hit:
    return Hit(name, f"memory/{name}.md", 1, 1, snippet or name, score=score, vector_score=vector)


def test_diversify_similar_hits_are_spread() -> None:
    hits = [hit("a", "red lamp", 1.0), hit("b", "red lamp", 0.9), hit("c", "green tea", 0.5)]
    assert [one.id for one in diversify_hits(hits, 0.5)] == ["a", "c", "b"]
    assert diversify_hits(hits, 1.0) == hits


@given(st.lists(st.floats(0, 1), max_size=6))
def test_diversify_keeps_every_hit(scores: list[float]) -> None:
    hits = [hit(str(number), f"word{number % 2}", score) for number, score in enumerate(scores)]
    assert sorted(one.id for one in diversify_hits(hits)) == sorted(one.id for one in hits)


def test_temporal_decay_applies_to_daily_notes_only() -> None:
    assert day_of("memory/2023-05-08.md") is not None
    for path in ("MEMORY.md", "memory/projects.md", "memory/2023-13-08.md", "x2023-05-08.md"):
        assert day_of(path) is None
    weights = HybridWeights(1.0, 0.0, half_life_days=30)
    (found,) = merge([hit("projects", vector=0.5)], [], weights, now_ms=10**13)
    assert found.score == 0.5


def test_keywords_drop_stop_words() -> None:
    assert extract_keywords("What is the colour of the LAMP, the lamp?") == ["colour", "lamp"]
    assert extract_keywords("東京 is it?") == ["東京"]


def test_memory_path_outside_memory_is_rejected() -> None:
    assert not is_memory_path("notes/MEMORY.md.txt")
    assert is_memory_path("memory/deep/a.md")


def test_cosine_similarity_compares_the_common_dimensions() -> None:
    assert cosine_similarity([1, 2], [1]) == cosine_similarity([1], [1, 2, 3]) == 1
    assert cosine_similarity([], [1]) == 0


def test_rank_to_score_without_a_rank_is_low() -> None:
    assert rank_to_score(None) == 0.001


def test_normalize_path_removes_outer_white_space() -> None:
    assert normalize_path(" ./a\\b ") == "a/b"
