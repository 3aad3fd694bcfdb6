"""Words that are looked for after an index was made."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from homarus.memory.note_files import NoteFile, SkippedFile, find_notes
from homarus.memory.note_search import NoteSearch
from homarus.memory.selftest import find_missing_note, newest_notes, pick_words
from homarus.memory.stems import content_stems


def test_pick_words_prefers_long_content_words() -> None:
    picked = list(pick_words("The and which walrus refrigerator " + "x" * 39))
    assert picked[:2] == ["refrigerator", "walrus"]
    assert list(pick_words("the of a 1 ... ")) == []


@given(st.text(max_size=400))
def test_pick_words_returns_few_content_words(text: str) -> None:
    picked = list(pick_words(text))
    assert len(picked) <= 3
    assert all(content_stems(word) for word in picked)


def test_newest_returns_latest_notes_first(tmp_path: Path) -> None:
    notes = []
    for number in range(9):
        file = tmp_path / f"{number}.md"
        file.write_text("words")
        os.utime(file, ns=(number, number))
        notes.append(NoteFile(file.name, file))
    found: list[NoteFile | SkippedFile] = [
        SkippedFile("x.md", "is a link"),
        *notes,
        NoteFile("gone.md", tmp_path / "gone.md"),
    ]
    assert [one.path for one in newest_notes(found)] == ["8.md", "7.md", "6.md", "5.md", "4.md"]
    assert [one.path for one in newest_notes(found, ["2.md", "3.md"])] == ["3.md", "2.md"]


def test_check_note_missing_from_index_is_named(tmp_path: Path) -> None:
    memory_file = tmp_path / "MEMORY.md"
    memory_file.write_text("- The walrus is called Otto.\n")
    with NoteSearch(tmp_path, tmp_path / "x.sqlite") as memory:
        memory.sync()
        assert find_missing_note(memory, newest_notes(find_notes(tmp_path))) == ""
        other = tmp_path / "other.md"
        other.write_text("zeppelin quagmire\n")
        assert find_missing_note(memory, [NoteFile("other.md", other)]) == "other.md"
        assert find_missing_note(memory, [NoteFile("gone.md", tmp_path / "gone.md")]) is None
        assert find_missing_note(memory, []) is None
