"""The memory index follows no hard link: what `memory_get` refuses, a search does not show."""

from pathlib import Path

import pytest

from homarus.core.errors import ToolError
from homarus.memory.note_files import HARD_LINK
from homarus.memory.note_search import NoteSearch
from homarus.memory.notes import read_excerpt
from tests.unit.memory.builders import make_spec
from tests.unit.memory.test_index import memory_of


def search(memory: NoteSearch, text: str) -> list[str]:
    return [found.path for found in memory.search(text)]


@pytest.mark.parametrize("name", ["memory/notes.md", "MEMORY.md", "bank/x.md"])
def test_hard_link_of_outside_file_is_not_indexed(tmp_path: Path, name: str) -> None:
    spec = make_spec(tmp_path)
    (spec.workspace / "bank").mkdir()
    secret = tmp_path / "secret.md"
    secret.write_text("The lamp is in the harbour.")
    (spec.workspace / name).hardlink_to(secret)
    with memory_of(spec.workspace) as memory:
        report = memory.sync()
        assert [(one.path, one.why) for one in report.skipped] == [(name, HARD_LINK)]
        assert search(memory, "lamp") == []
    with pytest.raises(ToolError, match="hard link"):
        read_excerpt(spec, name)


def test_hard_link_made_later_removes_note_from_index(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note = spec.workspace / "memory" / "notes.md"
    note.write_text("The lamp is in the harbour.")
    with memory_of(spec.workspace) as memory:
        memory.sync()
        assert search(memory, "lamp") == ["memory/notes.md"]
        (tmp_path / "second.md").hardlink_to(note)
        assert memory.sync().removed == ("memory/notes.md",)
        assert search(memory, "lamp") == []
        (tmp_path / "second.md").unlink()
        memory.sync()
        assert search(memory, "lamp") == ["memory/notes.md"]
