"""Nobody finds a line of somebody else's notes: by words, by meaning, as lines or as passages."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.config.memory import HybridConfig
from homarus.memory.base import SearchOptions
from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.note_search import NoteSearch
from homarus.memory.note_writer import write_note
from homarus.memory.ranker import ResultMode
from homarus.memory.ranking_settings import resolve_ranking
from homarus.memory.spec import MemorySpec
from homarus.memory.view import PRIVATE, SHARED, audience_of, audience_of_path, view_for

pytest.importorskip("numpy")

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:7"
ANN, BOB = "agent:main:telegram:direct:ann", "agent:main:telegram:direct:bob"
KEYS = (MAIN, ANN, BOB, GROUP, "agent:main:hook:1", "agent:main:cron:j", "agent:main:subagent:x")
THINGS = ("safe", "boat", "doctor", "password", "Kiel", "birthday", "March 2024")
MODES: tuple[ResultMode, ...] = ("lines", "passages")
QUESTIONS = (
    "What is the password of the safe?", "Ada", "When did Bob sail the boat to Kiel?",
    "Who saw the doctor in March 2024?", "birthday last week", "mark0 mark1 mark2 mark3", "",
)  # fmt: skip


class Alike:
    """An embedder to which everything is nearly the same: every line is a candidate."""

    model = EmbeddingModel("test", "alike", 2)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        angles = [0.01 * (len(text) % 7) for text in texts]
        return [[math.cos(angle), math.sin(angle)] for angle in angles]


def at(workspace: Path) -> MemorySpec:
    state = workspace / "state"
    return MemorySpec("main", workspace, state / "m.sqlite", state, state, state)


def fill(spec: MemorySpec, lines: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Similar notes of each audience; whose each mark is."""
    owners = dict[str, str]()
    audiences = [PRIVATE, SHARED, *(audience_of(key) for key in (ANN, BOB, GROUP, KEYS[4]))]
    for number, (whose, thing) in enumerate(lines):
        audience, mark = audiences[whose % len(audiences)], f"mark{number}"
        text = f"Ada: the {THINGS[thing % len(THINGS)]} of Bob, see {mark}."
        write_note(spec, text, audience=audience)
        owners[mark] = audience
    return owners


def answers(
    spec: MemorySpec, embedder: Alike | None, key: str
) -> Iterator[tuple[str, str, int, int]]:
    with NoteSearch(spec.workspace, spec.database, embedder) as memory:
        memory.sync()
        for question in QUESTIONS:
            for mode in MODES:
                ask = SearchOptions(mode=mode, max_results=100, view=view_for(key))
                for one in memory.search(question, ask):
                    yield one.snippet, one.path, one.start_line, one.end_line


@pytest.mark.parametrize("embedder", [None, Alike()], ids=["words", "vectors"])
@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=25))
def test_search_view_never_shows_other_audiences(
    tmp_path_factory: pytest.TempPathFactory,
    embedder: Alike | None,
    lines: list[tuple[int, int]],
) -> None:
    spec = at(tmp_path_factory.mktemp("ws"))
    owners = fill(spec, lines)
    for key in KEYS:
        view, seen = view_for(key), set[str]()
        for snippet, path, _first, _last in answers(spec, embedder, key):
            assert view.shows(audience_of_path(path)), (key, path)
            marks = {*re.findall(r"mark\d+", snippet)}
            assert all(view.shows(owners[mark]) for mark in marks), (key, snippet)
            seen |= marks
        assert seen == {mark for mark, owner in owners.items() if view.shows(owner)}


def test_search_by_formula_never_shows_other_audiences(tmp_path: Path) -> None:
    spec = at(tmp_path)
    owners = fill(spec, [(whose % 6, whose % 5) for whose in range(30)])
    wish = {"enabled": True, "mmr": {"enabled": True}, "temporalDecay": {"enabled": True}}
    ranking = resolve_ranking(HybridConfig.model_validate(wish))
    with NoteSearch(spec.workspace, spec.database, Alike(), ranking=ranking) as memory:
        memory.sync()
        for key in KEYS:
            view, count = view_for(key), 0
            for question in QUESTIONS[:-1]:
                for one in memory.search(question, SearchOptions(max_results=100, view=view)):
                    count += 1
                    marks = re.findall(r"mark\d+", one.snippet)
                    assert marks and all(view.shows(owners[mark]) for mark in marks)
            assert count


def test_search_views_in_turn_on_one_search_stay_separate(tmp_path: Path) -> None:
    spec = at(tmp_path)
    owners = fill(spec, [(whose, 0) for whose in range(6)])
    with NoteSearch(spec.workspace, spec.database, Alike()) as memory:
        memory.sync()
        for key in (*KEYS, *reversed(KEYS)):
            view = view_for(key)
            found = memory.search("safe", SearchOptions(max_results=100, view=view))
            marks = {*re.findall(r"mark\d+", " ".join(one.snippet for one in found))}
            assert marks == {mark for mark, owner in owners.items() if view.shows(owner)}


def test_sync_note_moved_to_chat_folder_changes_audience(
    tmp_path: Path,
) -> None:
    spec = at(tmp_path)
    done = write_note(spec, "the safe is mark1", "memory/shared/a.md")
    with NoteSearch(spec.workspace, spec.database) as memory:
        memory.sync()
        ask = SearchOptions(view=view_for(GROUP))
        assert memory.search("safe", ask)
        target = spec.workspace / "memory/chats/other-1/a.md"
        target.parent.mkdir(parents=True)
        (spec.workspace / done.path).rename(target)
        memory.sync()
        assert memory.search("safe", ask) == [] and memory.search("safe")
