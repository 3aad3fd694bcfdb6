import random
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.memory.base import SearchOptions
from homarus.memory.note_search import NoteSearch
from homarus.memory.results import SearchResult
from homarus.memory.view import MemoryView

LINE = st.lists(
    st.sampled_from(
        [
            *("harbour", "lamp", "Ada:", "Ben:", "tea.", "東京に行く", "red?"),
            *("#", "-", "2023", "\t", "é😀", "went", "yesterday"),
        ]
    ),
    max_size=14,
).map(" ".join)
NOTE = st.lists(LINE, max_size=12).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n", "\n\n", " \n"]).map(lambda end: end.join(lines))
)


def opened(workspace: Path, **notes: str) -> NoteSearch:
    folder = workspace / "memory"
    folder.mkdir(exist_ok=True)
    for name, text in notes.items():
        (folder / f"{name.replace('_', '-')}.md").write_text(text, encoding="utf-8", newline="")
    memory = NoteSearch(workspace, workspace / "state" / "main.sqlite")
    memory.sync()
    return memory


def assert_exact(folder: Path, result: SearchResult, most: int) -> None:
    lines = (folder / result.path).read_bytes().decode().split("\n")
    cited = "\n".join(line.rstrip("\r") for line in lines[result.start_line - 1 : result.end_line])
    assert result.snippet.replace("\r\n", "\n") in cited or result.snippet in "\n".join(
        lines[result.start_line - 1 : result.end_line]
    )
    assert 1 <= result.start_line <= result.end_line <= len(lines)
    assert 0 < len(result.snippet) <= most


@given(st.lists(NOTE, min_size=1, max_size=4), st.sampled_from(["lines", "passages"]))
@settings(max_examples=60, deadline=None)
def test_search_citation_range_contains_snippet(
    tmp_path_factory: pytest.TempPathFactory, notes: list[str], mode: str
) -> None:
    folder = tmp_path_factory.mktemp("notes")
    named = {f"2023_05_{day:02}": text for day, text in enumerate(notes, 1)}
    with opened(folder, **named) as memory:
        for question in ("harbour lamp", "When did Ada go to 東京?", "tea in May 2023"):
            ask = SearchOptions("lines" if mode == "lines" else "passages", max_results=20)
            for result in memory.search(question, ask):
                assert_exact(folder, result, 1500)


def test_search_line_with_one_query_word_matches(tmp_path: Path) -> None:
    with opened(tmp_path, a="- the lamp is red\n- tea at four") as memory:
        (found, *_) = memory.search("which colour has the lamp in the old harbour?")
    assert found.snippet.startswith("- the lamp is red")
    assert found.citation.startswith("memory/a.md#L1")


def test_search_other_word_forms_match(tmp_path: Path) -> None:
    with opened(
        tmp_path, a="- filler words\n\n- she researched agencies\n\n- more filler"
    ) as memory:
        assert "researched" in memory.search("researching an agency")[0].snippet


def test_search_answer_after_matching_line_is_found(tmp_path: Path) -> None:
    talk = "\n".join(f"- Ben: nothing much {number}" for number in range(30))
    asked = "- Ben: Which instrument do you play?\n- Ada: The clarinet!\n"
    with opened(tmp_path, a=f"{talk}\n{asked}{talk}") as memory:
        found = memory.search("What instrument does Ada play?", SearchOptions(max_results=2))
    assert "clarinet" in found[0].snippet


def test_search_about_person_prefers_lines_they_speak(tmp_path: Path) -> None:
    talk = "- Ada: I love painting.\n\n- Ben: I love painting.\n\n" * 4
    with opened(tmp_path, a=talk) as memory:
        assert memory.search("What does Ben love?")[0].snippet.startswith("- Ben")
        assert memory.search("What does Ada love?")[0].snippet.startswith("- Ada")


def test_search_query_key_with_colon_is_plain_word(tmp_path: Path) -> None:
    with opened(tmp_path, a="Wifi: hunter2\n\nother: things\n\nnothing") as memory:
        assert "hunter2" in memory.search("wifi password")[0].snippet


def test_search_date_in_query_ranks_that_day_first(tmp_path: Path) -> None:
    notes = {f"2023_{month:02}_05": "- went hiking with friends" for month in range(1, 9)}
    with opened(tmp_path, **notes) as memory:
        assert memory.search("hiking in June 2023?")[0].path == "memory/2023-06-05.md"
        recent = memory.search("hiking this week", SearchOptions(now=date(2023, 3, 7)))
        assert recent[0].path == "memory/2023-03-05.md"


def test_search_heading_words_count_for_lines_below(tmp_path: Path) -> None:
    text = (
        "# House\n\n## Heating\n\n- serviced every spring\n\n## Roof\n\n- serviced every autumn\n"
    )
    with opened(tmp_path, a=text) as memory:
        assert "spring" in memory.search("heating serviced")[0].snippet
        assert "autumn" in memory.search("roof serviced")[0].snippet


def test_search_scripts_without_spaces_match(tmp_path: Path) -> None:
    with opened(tmp_path, a="- 明日は東京に行く\n\n- 今日は家にいる\n\n- ไปกรุงเทพ") as memory:
        assert "東京" in memory.search("東京")[0].snippet
        assert "กรุงเทพ" in memory.search("กรุงเทพ")[0].snippet


def test_search_group_view_hides_private_notes(tmp_path: Path) -> None:
    from homarus.memory.index import open_index
    from homarus.memory.note_files import NoteFile

    for name in ("mine", "ours"):
        (tmp_path / f"{name}.md").write_text(f"- the {name} secret", encoding="utf-8")
    with open_index(tmp_path / "i.sqlite") as index:
        index.sync(
            lambda: [
                NoteFile("mine.md", tmp_path / "mine.md", owner="ada", audience="private"),
                NoteFile("ours.md", tmp_path / "ours.md", owner="ada", audience="group"),
            ]
        )
    with NoteSearch(tmp_path, tmp_path / "i.sqlite") as memory:
        seen = memory.search(
            "secret", SearchOptions(view=MemoryView(audiences=frozenset({"group"})))
        )
        assert {result.path for result in seen} == {"ours.md"}
        assert (
            memory.search("secret", SearchOptions(view=MemoryView(owners=frozenset({"ben"})))) == []
        )
        assert len({result.path for result in memory.search("secret")}) == 2
        passages = SearchOptions("passages", view=MemoryView(audiences=frozenset({"group"})))
        assert {result.path for result in memory.search("secret", passages)} == {"ours.md"}


def test_search_results_stop_at_char_budget(tmp_path: Path) -> None:
    chance = random.Random(3)
    lines = [f"- lamp {chance.random()} " + "x" * 60 for _ in range(200)]
    with opened(tmp_path, a="\n\n".join(lines)) as memory:
        found = memory.search("lamp", SearchOptions(max_results=50, max_injected_chars=600))
        assert 500 < sum(len(result.snippet) for result in found) < 750


@pytest.mark.parametrize(
    "question", ["", "   ", "?", '"', "AND OR NOT", "a*b:c^d", "the", "\0", "x" * 5000]
)
def test_search_any_query_text_raises_nothing(tmp_path: Path, question: str) -> None:
    with opened(tmp_path, a="- the lamp AND the harbour", b="") as memory:
        for mode in (SearchOptions("lines"), SearchOptions("passages")):
            memory.search(question, mode)


def test_search_empty_workspace_returns_nothing(tmp_path: Path) -> None:
    with NoteSearch(tmp_path, tmp_path / "i.sqlite") as memory:
        assert memory.sync().lines == 0
        assert memory.search("anything") == []


TINY = {
    "2026_11_15": "# 2026-11-15\n\n- The zebra of Kiel is called Otto\n- The router hums at night",
    "facts": "# Facts\n\n- Kiel zebra\n- Prefers tea over coffee",
}


@pytest.mark.parametrize("mode", ["lines", "passages"])
@pytest.mark.parametrize("question", ["hello there", "quantum chromodynamics", "who is it?", "?!"])
def test_search_line_without_evidence_is_not_returned(
    tmp_path: Path, question: str, mode: str
) -> None:
    with opened(tmp_path, **TINY) as memory:
        assert (
            memory.search(question, SearchOptions("lines" if mode == "lines" else "passages")) == []
        )


def test_search_heading_matches_by_own_words_only(tmp_path: Path) -> None:
    with opened(tmp_path, **TINY) as memory:
        assert not [one for one in memory.search("router") if one.snippet.startswith("#")]
        assert [one for one in memory.search("facts") if one.snippet == "# Facts"]


def test_search_query_words_without_lines_lower_score(tmp_path: Path) -> None:
    with opened(tmp_path, **TINY) as memory:
        whole = memory.search("zebra Kiel")[0].score
        half = memory.search("zebra chromodynamics lectures")[0].score
    assert half < whole - 0.05
