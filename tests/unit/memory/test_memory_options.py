"""What a search can be asked for: how much, how good, how soon, in which order, by whom."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.config.memory import DiversityConfig, HybridConfig, TemporalDecayConfig
from homarus.core.errors import StoreError
from homarus.memory.base import SearchOptions
from homarus.memory.candidates import shares_stem_prefix
from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.note_search import NoteSearch, SearchTimeoutError
from homarus.memory.query import parse_query
from homarus.memory.ranker import LEXICAL, WITH_VECTORS, score_to_probability
from homarus.memory.ranking_settings import HybridFormula, RankingSettings, resolve_ranking
from homarus.memory.related_words import related_by_stem, related_stems
from homarus.memory.results import MAX_CHARS, centre
from homarus.memory.view import MemoryView

PART = st.one_of(
    st.sampled_from(["harbour", "lamp", "Ada:", "- ", "# ", "|", "```", "東京に行く", "ไปกินข้าว"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=12),
    st.sampled_from(["\t", "\u2028", "\u0085", "\x0c", "\r", "x" * 900, "harbour " * 120]),
)
LINE = st.lists(PART, max_size=6).map(" ".join)
NOTE = st.tuples(st.lists(LINE, max_size=10), st.sampled_from(["\n", "\r\n", "\n\n"])).map(
    lambda one: one[1].join(one[0])
)
ASK = st.builds(
    SearchOptions,
    mode=st.sampled_from(["lines", "passages"]),
    max_results=st.integers(1, 30),
    max_snippet_chars=st.sampled_from([None, 1, 40, 700, 9_000]),
    max_injected_chars=st.sampled_from([None, 1, 300, 4_000]),
)


def opened(
    folder: Path, notes: dict[str, str], ranking: RankingSettings | None = None, **extra: object
) -> NoteSearch:
    for name, text in notes.items():
        file = folder / "memory" / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
    embedder = extra.get("embedder")
    assert embedder is None or isinstance(embedder, Animals)
    memory = NoteSearch(folder, folder / "state" / "i.sqlite", embedder, ranking=ranking)
    memory.sync()
    return memory


class Animals:
    """Knows animals from numbers, and can be told to fail."""

    def __init__(self) -> None:
        self.model = EmbeddingModel("test", "animals", 2)
        self.fails = False

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.fails:
            raise StoreError("the service is away")
        return [self._one(text.lower()) for text in texts]

    def _one(self, text: str) -> list[float]:
        found = [float("puppy" in text or "animal" in text), float("seven" in text)]
        return [one / (math.hypot(*found) or 1.0) for one in found]


@given(
    st.lists(NOTE, min_size=1, max_size=3),
    ASK,
    st.sampled_from([None, RankingSettings(spread=0.5), RankingSettings(formula=HybridFormula())]),
)
@settings(max_examples=40, deadline=None)
def test_search_any_options_cite_shown_lines(
    tmp_path_factory: pytest.TempPathFactory,
    notes: list[str],
    ask: SearchOptions,
    ranking: RankingSettings | None,
) -> None:
    folder = tmp_path_factory.mktemp("notes")
    with opened(
        folder, {f"2023-05-0{at}": text for at, text in enumerate(notes, 1)}, ranking
    ) as it:
        for question in ('harbour "lamp"', "When did Ada go to 東京?", "ไปกินข้าว"):
            found = it.search(question, ask)
            assert len(found) <= ask.max_results
            for result in found:
                lines = (folder / result.path).read_bytes().decode().split("\n")
                cited = lines[result.start_line - 1 : result.end_line]
                assert len(cited) == result.end_line - result.start_line + 1
                text = "\n".join(cited)
                assert result.snippet in text or result.snippet in text.replace("\r\n", "\n")
                assert 0 < len(result.snippet) <= min(ask.max_snippet_chars or 1_400, MAX_CHARS)
                assert 0.0 <= result.score <= 1.0
            shown = sum(len(result.snippet) for result in found)
            assert ask.max_injected_chars is None or shown <= ask.max_injected_chars


@given(st.text(max_size=60), st.lists(st.text(max_size=5), max_size=4), st.integers(1, 70))
def test_centre_snippet_is_part_of_text_within_limit(
    text: str, words: list[str], most: int
) -> None:
    shown = centre(text, words, most)
    assert shown in text
    assert len(shown) == min(len(text), most)


def test_centre_snippet_has_words_in_middle(tmp_path: Path) -> None:
    line = "nothing " * 40 + "the blue heron stood there " + "at all " * 40
    with opened(tmp_path, {"a": line}) as memory:
        (result,) = memory.search("heron", SearchOptions(max_snippet_chars=60))
    assert "blue heron stood" in result.snippet
    assert len(result.snippet) == 60


def test_search_quoted_phrase_ranks_first(tmp_path: Path) -> None:
    lines = ["- the heron is blue, blue as a heron", "- blue heron", "- heron heron blue blue"]
    lines += [f"- heron {number} stood beside blue boats" for number in range(1_500)]
    lines.insert(1_000, "- then a Blue  Heron came")
    with opened(tmp_path, {"a": "\n\n".join(lines)}) as memory:
        found = memory.search('what of the "blue heron"?', SearchOptions(max_results=2))
    assert {result.snippet for result in found} == {"- blue heron", "- then a Blue  Heron came"}


def test_search_related_words_match(tmp_path: Path) -> None:
    with opened(tmp_path, {"a": "- bought a kayak\n\n- our beagle puppy Rex\n\n- rain"}) as memory:
        assert memory.search("Which pets are there?")[0].snippet == "- our beagle puppy Rex"


def test_related_stems_are_symmetric_and_irreflexive() -> None:
    for stem, related in related_by_stem().items():
        assert stem not in related
        assert all(stem in related_stems(other) for other in related)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("photo", "photograph", False),
        ("photo", "photos", True),
        ("geburtstag", "geburtstagsfei", True),
        ("cat", "cats", False),
        ("harbour", "harbor", True),
        ("same", "same", False),
    ],
)
def test_shares_stem_prefix_of_related_words(one: str, other: str, alike: bool) -> None:
    assert shares_stem_prefix(one, other) is alike
    assert shares_stem_prefix(other, one) is alike


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("我的护照在哪里？", "- 护照放在蓝色的抽屉里"),
        ("パスポートはどこですか", "- パスポートは青い引き出しにある"),
        ("หนังสือเดินทางอยู่ที่ไหน", "- หนังสือเดินทางอยู่ในลิ้นชักสีฟ้า"),
        ("Wo sind die Schlüssel?", "- Der Schlüssel liegt in der Küche"),
        ("Wann war das Geburtstagsfest?", "- Geburtstagsfeier am Samstag"),
        ("¿Dónde está el jardín?", "- El jardin de Lucía está detrás"),
        ("Où est la clé du garage ?", "- la cle du garage est chez Zoé"),
    ],
)
def test_search_other_languages_match_by_words(tmp_path: Path, question: str, wanted: str) -> None:
    lines = [
        *("- 今天天气很好", "- 猫は窓の外を見ている", "- แมวนอนอยู่บนเตียง", "- Der Zug kam spät an"),
        *("- 护照放在蓝色的抽屉里", "- パスポートは青い引き出しにある", "- El tren llegó tarde"),
        *("- หนังสือเดินทางอยู่ในลิ้นชักสีฟ้า", "- Der Schlüssel liegt in der Küche"),
        *("- Geburtstagsfeier am Samstag", "- El jardin de Lucía está detrás"),
        *("- la cle du garage est chez Zoé", "- le chat dort"),
    ]
    with opened(tmp_path, {"a": "\n\n".join(lines)}) as memory:
        assert memory.search(question)[0].snippet == wanted


def test_score_is_probability_and_falls_with_rank(tmp_path: Path) -> None:
    lines = [f"- lamp {number} at the harbour" for number in range(20)]
    with opened(tmp_path, {"a": "\n\n".join([*lines, "- nothing of it", "- a lamp"])}) as memory:
        scores = [
            result.score for result in memory.search("harbour lamp", SearchOptions(max_results=30))
        ]
        least = scores[3]
        good = memory.search("harbour lamp", SearchOptions(max_results=30, min_score=least))
        none = memory.search("harbour lamp", SearchOptions(min_score=1.0))
    assert scores == sorted(scores, reverse=True)
    assert 0.0 <= scores[-1] < scores[0] <= 1.0
    assert good
    assert all(result.score >= least for result in good)
    assert len(good) < len(scores)
    assert none == []


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_score_to_probability_is_monotonic(one: float, other: float) -> None:
    for weights in (LEXICAL, WITH_VECTORS):
        low, high = (
            score_to_probability(max(one, other), weights),
            score_to_probability(min(one, other), weights),
        )
        assert 0.0 <= low <= high <= 1.0


def test_search_temporal_decay_ranks_old_notes_lower(tmp_path: Path) -> None:
    notes = {
        "2020-01-01": "- the harbour lamp is red",
        "2023-05-01": "- about the harbour: a lamp, they say, hung somewhere near it that year",
    }
    with opened(tmp_path, notes) as memory:
        assert "2020" in memory.search("harbour lamp red")[0].path
    with opened(tmp_path, notes, RankingSettings(half_life_days=30)) as memory:
        assert "2023" in memory.search("harbour lamp red")[0].path


def test_search_latest_question_prefers_recent_notes(tmp_path: Path) -> None:
    notes = {f"2023-0{month}-01": "- Ada has a job at the mill" for month in (1, 3, 5)}
    with opened(tmp_path, notes) as memory:
        assert "2023-01" in memory.search("Ada's job")[0].path
        assert "2023-05" in memory.search("Ada's current job")[0].path


def test_search_diversity_ranks_similar_results_lower(tmp_path: Path) -> None:
    same = ["- the harbour lamp is red tonight"] * 3
    text = "\n\n".join([*same, "- lamp oil for the harbour master, twelve crates, unpaid"])
    plain, apart = SearchOptions(max_results=2), RankingSettings(spread=0.3)
    with opened(tmp_path, {"a": text}) as memory:
        assert not any("oil" in one.snippet for one in memory.search("harbour lamp red", plain))
    with opened(tmp_path, {"a": text}, apart) as memory:
        assert any("oil" in one.snippet for one in memory.search("harbour lamp red", plain))


def test_resolve_ranking_from_settings() -> None:
    assert resolve_ranking(HybridConfig()) == RankingSettings()
    asked = HybridConfig.model_construct(
        enabled=True,
        mmr=DiversityConfig.model_construct(enabled=True),
        temporal_decay=TemporalDecayConfig.model_construct(enabled=True, half_life_days=7),
    )
    assert resolve_ranking(asked) == RankingSettings(7.0, 0.7, HybridFormula(0.7, 0.3, 4))


def test_hybrid_formula_requires_all_words_and_min_score(tmp_path: Path) -> None:
    notes = {"a": "- the harbour lamp\n", "b": "- the harbour\n", "c": "- a puppy\n"}
    ranking, embedder = RankingSettings(formula=HybridFormula()), Animals()
    with opened(tmp_path, notes, ranking, embedder=embedder) as memory:
        assert [one.path for one in memory.search("animal")] == ["memory/c.md"]
        assert memory.search("harbour lamp") == []  # .3 of a match is below .35
        words = memory.search("harbour lamp", SearchOptions(min_score=0.0))
        assert words[0].path == "memory/a.md"
    with opened(tmp_path, notes, ranking) as memory:
        found = memory.search("harbour lamp", SearchOptions(min_score=0.0))
        assert [one.path for one in found] == ["memory/a.md", "memory/b.md"]


def test_search_query_not_embedded_compares_words_and_says_so(tmp_path: Path) -> None:
    embedder = Animals()
    with opened(tmp_path, {"a": "- our puppy\n\n- a lamp"}, embedder=embedder) as memory:
        found = memory.find("an animal?")
        assert found.by_vectors
        assert found.results[0].snippet == "- our puppy"
        embedder.fails = True
        found = memory.find("lamp")
    assert not found.by_vectors
    assert found.why == "the service is away"
    assert found.results[0].snippet == "- a lamp"


def test_search_over_timeout_raises(tmp_path: Path) -> None:
    with opened(tmp_path, {"a": "- a lamp"}) as memory:
        memory._monotonic = _jumps()
        with pytest.raises(SearchTimeoutError, match="longer than 50 ms"):
            memory.search("lamp", SearchOptions(timeout_ms=50))
        assert memory.search("lamp", SearchOptions(timeout_ms=0))


def test_search_slow_embedder_falls_back_to_words(tmp_path: Path) -> None:
    with opened(tmp_path, {"a": "- a lamp\n\n- a puppy"}, embedder=Animals()) as memory:
        times = iter([0.0, 0.0, 1.0, 1.0])
        memory._monotonic = lambda: next(times)
        found = memory.find("lamp", SearchOptions(timeout_ms=50))
    assert not found.by_vectors
    assert "took too long" in found.why
    assert found.results[0].snippet == "- a lamp"


def _jumps() -> "_Jumps":
    return _Jumps(iter(range(1_000)))


class _Jumps:
    """A clock that is a second later each time."""

    def __init__(self, seconds: Iterator[int]) -> None:
        self._seconds = seconds

    def __call__(self) -> float:
        return float(next(self._seconds))


def test_search_hidden_vectors_displace_no_visible_result(tmp_path: Path) -> None:
    secret = "\n\n".join(f"- a puppy number {number}" for number in range(700))
    notes = {"secret": secret, "shared/open": "- lamps\n\n- puppy of the house\n\n- tea"}
    notes["shared/more"] = "\n\n".join(f"- line {number} seven" for number in range(1_200))
    with opened(tmp_path, notes, embedder=Animals()) as memory:
        view = MemoryView(audiences=frozenset({"shared"}))
        memory.index.database.db.execute(
            "UPDATE notes SET audience = iif(path LIKE '%shared%', 'shared', 'private')"
        )
        memory._snapshots.clear()
        found = memory.search("animal", SearchOptions(view=view))
        assert found[0].snippet == "- puppy of the house"
        assert all("shared" in one.path for one in found)
        assert memory.search("animal")[0].path == "memory/secret.md"


def test_parse_query_extracts_phrases() -> None:
    asked = parse_query('Where is "Blue  Heron" and „das Boot“, or "!"?', {}, ())
    assert asked.phrases == ("blue heron", "das boot")
    assert not asked.asks_recent
    assert parse_query("What is the latest news?", {}, ()).asks_recent
    assert parse_query("the fishing boat of Ada", {}, ()).pairs == ("fishing boat",)
