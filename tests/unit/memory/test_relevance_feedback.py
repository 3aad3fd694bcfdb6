"""The second look: names in the first hits lead to lines that the question itself does not."""

from pathlib import Path

import pytest

from homarus.memory import relevance_feedback
from homarus.memory.base import SearchOptions
from homarus.memory.note_search import NoteSearch
from homarus.memory.query import parse_query
from homarus.memory.relevance_feedback import expects_many_answers
from homarus.memory.view import SHARED, MemoryView

FILLER = [f"- Ada: number {number} was a quiet day with nothing to tell." for number in range(40)]
ASKED = "Which places did Ada visit on the journey?"
LED_TO = "- Ada: Bergen had fog, and the fish market of Tromsø too."


def opened(folder: Path, *lines: str, name: str = "memory/2026-03-01.md") -> NoteSearch:
    note = folder / name
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("\n".join(lines) + "\n", encoding="utf-8")
    memory = NoteSearch(folder, folder / "index.sqlite")
    memory.sync()
    return memory


@pytest.mark.parametrize(
    ("text", "is_many"),
    [
        ("What books has Ada read?", True),
        ("Which old cities did Ben like?", True),
        ("What did Ada and Ben both order?", True),
        ("How many times was she in Kiel?", True),
        ("Welche Filme mag Ada?", True),
        ("When did Ada move to Kiel?", False),
        ("What is her address?", False),
        ("What does Ada eat?", False),
        ("", False),
    ],
)
def test_expects_many_answers_by_question_words(text: str, is_many: bool) -> None:
    assert expects_many_answers(parse_query(text, {}, ())) == is_many


def test_expects_many_answers_for_two_people() -> None:
    known = {name: frozenset({name}) for name in ("ada", "ben")}
    assert expects_many_answers(parse_query("Where did Ada meet Ben?", known, ()))
    assert not expects_many_answers(parse_query("Where did Ada go?", known, ()))


def test_feedback_name_in_first_hits_finds_related_line(tmp_path: Path) -> None:
    said = ["- Ada: The journey began well, we saw Bergen.", *FILLER, LED_TO, *FILLER]
    with opened(tmp_path, *said) as memory:
        found = memory.search(ASKED, SearchOptions(max_results=60))
        rank = next(at for at, one in enumerate(found) if LED_TO in one.snippet)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(relevance_feedback, "WEIGHT", 0.0)
            before = memory.search(ASKED, SearchOptions(max_results=60))
        late = [at for at, one in enumerate(before) if LED_TO in one.snippet]
    assert not late or rank < late[0]


def test_feedback_keeps_first_results_first(tmp_path: Path) -> None:
    said = ["- Ada: The journey began well, we saw Bergen.", *FILLER, LED_TO, *FILLER]
    with opened(tmp_path, *said) as memory:
        ask = SearchOptions(max_results=3, max_snippet_chars=60)  # a line each
        found = memory.search(ASKED, ask)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(relevance_feedback, "WEIGHT", 50.0)
            assert memory.search(ASKED, ask) == found
    assert "Bergen" in found[0].snippet


def test_feedback_names_never_reach_hidden_notes(tmp_path: Path) -> None:
    shared = tmp_path / "memory" / "shared" / "trip.md"
    shared.parent.mkdir(parents=True)
    shared.write_text("- Ada: The journey began well, we saw Bergen.\n", encoding="utf-8")
    with opened(tmp_path, LED_TO, *FILLER) as memory:
        view = MemoryView(audiences=frozenset({SHARED}))
        found = memory.search(ASKED, SearchOptions(max_results=60, view=view))
    assert {one.path for one in found} == {"memory/shared/trip.md"}
