"""An index that several processes use, and that is killed in the middle of its work."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from homarus.memory.note_files import NoteFile, SkippedFile, find_notes
from homarus.memory.note_search import NoteSearch

GUARD_S = 60

# Syncs a workspace and dies at the n-th step, or when a commit was made and is not sealed.
KILLED = """
import os, signal, sys
from pathlib import Path
from homarus.memory.database import Database
from homarus.memory.note_search import NoteSearch

workspace, point = Path(sys.argv[1]), sys.argv[2]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def progress(done, _all, _what):
    if done == int(point):
        die()

if point == "committed":
    Database.seal = die
elif point == "committing":
    Database._break_seal = die
memory = NoteSearch(workspace, workspace / "state" / "main.sqlite")
memory.sync(force=True, progress=progress if point.isdigit() else lambda *_: None)
"""

# Rewrites a note of its own, syncs and searches, again and again.
WORKS = """
import sys
from pathlib import Path
from homarus.memory.note_search import NoteSearch

workspace, name = Path(sys.argv[1]), sys.argv[2]
with NoteSearch(workspace, workspace / "state" / "main.sqlite") as memory:
    for turn in range(12):
        (workspace / "memory" / f"{name}.md").write_text(f"- harbour of {name}, turn {turn}")
        memory.sync(force=turn % 5 == 4)
        found = {one.path: one.snippet for one in memory.search(f"harbour {name}")}
        assert found[f"memory/{name}.md"] == f"- harbour of {name}, turn {turn}", found
        assert memory.search("lamp 7"), "an old note is gone"
"""


def run(code: str, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE)


def end(child: "subprocess.Popen[bytes]") -> tuple[int, str]:
    _, told = child.communicate(timeout=GUARD_S)
    return child.returncode, told.decode()


def write_notes(folder: Path, word: str) -> None:
    (folder / "memory").mkdir(exist_ok=True)
    for number in range(60):
        path = folder / "memory" / f"{number}.md"
        path.write_text(f"- {word} {number}\n- more of it {number}\n", encoding="utf-8")
        os.utime(path, (1_700_000_000, 1_700_000_000))


def memory_of(folder: Path) -> NoteSearch:
    return NoteSearch(folder, folder / "state" / "main.sqlite")


def says(memory: NoteSearch, word: str) -> bool:
    """Whether a search for a word finds it."""
    return any(word in one.snippet for one in memory.search(word))


def check_whole(folder: Path) -> None:
    db = apsw.Connection(str(folder / "state" / "main.sqlite"))
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    lines = "(SELECT COUNT(*) FROM lines), (SELECT SUM(last - first + 1) FROM notes)"
    ((held, said),) = db.execute(f"SELECT {lines}").fetchall()
    assert held == said
    db.close()


@pytest.mark.parametrize("point", ["0", "1", "30", "59", "60", "committing"])
def test_sync_killed_before_commit_keeps_previous_generation(tmp_path: Path, point: str) -> None:
    write_notes(tmp_path, "lamp")
    with memory_of(tmp_path) as memory:
        before = memory.sync().generation
    write_notes(tmp_path, "harbour")
    assert end(run(KILLED, str(tmp_path), point))[0] == -signal.SIGKILL
    with memory_of(tmp_path) as memory:
        assert "lamp" in memory.search("lamp 7")[0].snippet
        assert not says(memory, "harbour")
        report = memory.sync()
        assert (report.generation, len(report.indexed)) == (before + 1, 60)
        assert report.rebuilt == ""
        assert "harbour" in memory.search("harbour 7")[0].snippet
    check_whole(tmp_path)


def test_sync_killed_after_commit_has_new_generation(tmp_path: Path) -> None:
    write_notes(tmp_path, "lamp")
    with memory_of(tmp_path) as memory:
        before = memory.sync().generation
    write_notes(tmp_path, "harbour")
    assert end(run(KILLED, str(tmp_path), "committed"))[0] == -signal.SIGKILL
    with memory_of(tmp_path) as memory:
        assert "harbour" in memory.search("harbour 7")[0].snippet
        assert not says(memory, "lamp")
        report = memory.sync()
        assert (report.generation, report.indexed, report.rebuilt) == (before + 1, (), "")
    check_whole(tmp_path)


def test_sync_first_killed_is_made_by_next_search(tmp_path: Path) -> None:
    write_notes(tmp_path, "lamp")
    assert end(run(KILLED, str(tmp_path), "30"))[0] == -signal.SIGKILL
    with memory_of(tmp_path) as memory:
        assert "lamp 7" in memory.search("lamp 7")[0].snippet


def test_search_during_sync_sees_previous_generation(tmp_path: Path) -> None:
    write_notes(tmp_path, "lamp")
    with memory_of(tmp_path) as memory, memory_of(tmp_path) as other:
        memory.sync()
        write_notes(tmp_path, "harbour")
        seen: list[str] = []

        def look(_done: int, _all: int, _what: str) -> None:
            assert not says(other, "harbour")
            seen.append(other.search("lamp 7")[0].snippet)

        memory.sync(progress=look)
        assert len(seen) == 61
        assert all("lamp" in one for one in seen)
        assert "harbour" in other.search("harbour 7")[0].snippet
        assert not says(other, "lamp")


@pytest.mark.parametrize("force", [False, True])
def test_sync_keeps_note_added_after_its_notes_were_listed(tmp_path: Path, force: bool) -> None:
    write_notes(tmp_path, "lamp")
    with memory_of(tmp_path) as memory, memory_of(tmp_path) as other:
        memory.sync()
        lists: list[int] = []

        def find() -> list[NoteFile | SkippedFile]:
            found = find_notes(tmp_path)
            lists.append(len(found))
            if len(lists) == 1:
                (tmp_path / "memory" / "ben.md").write_text("- harbour of ben")
                other.sync()
            return found

        write_notes(tmp_path, "bridge")
        memory.index.sync(find, force=force)
        assert lists == [60, 61]
        assert memory.search("harbour ben")[0].path == "memory/ben.md"
    check_whole(tmp_path)


def test_index_many_processes_sync_and_search_concurrently(tmp_path: Path) -> None:
    write_notes(tmp_path, "lamp")
    children = [run(WORKS, str(tmp_path), name) for name in ("ada", "ben", "cleo", "dan")]
    assert [end(child) for child in children] == [(0, "")] * 4
    with memory_of(tmp_path) as memory:
        memory.sync()
        found = [one.path for one in memory.search("harbour") if "harbour" in one.snippet]
        assert sorted(found) == [f"memory/{name}.md" for name in ("ada", "ben", "cleo", "dan")]
        assert memory.index.count().files == 64
    check_whole(tmp_path)


# Syncs for every input line; prints how many notes were read and how many lines have a vector.
TURNS = """
import sys
from pathlib import Path
from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.note_search import NoteSearch

class Letters:
    def __init__(self, name):
        self.model = EmbeddingModel("test", name, 4)
    def embed(self, texts):
        return [[text.count(letter) + 0.5 for letter in "aeht"] for text in texts]

workspace, name = Path(sys.argv[1]), sys.argv[2]
embedder = Letters(name) if name else None
with NoteSearch(workspace, workspace / "state" / "main.sqlite", embedder) as memory:
    for _ in sys.stdin:
        report = memory.sync()
        found = memory.find("lamp 7")
        assert found.results[0].snippet.startswith("- lamp 7"), found
        assert found.by_vectors is bool(name), found
        print(len(report.indexed), report.rebuilt or "-", memory.index.count().vectors, flush=True)
"""


def test_index_processes_with_different_models_share_it(tmp_path: Path) -> None:
    write_notes(tmp_path, "lamp")
    command = [sys.executable, "-c", TURNS, str(tmp_path)]
    names = ("one", "", "other")
    children = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    told: list[str] = []
    try:
        for child in children * 3:
            assert child.stdin and child.stdout
            child.stdin.write("\n")
            child.stdin.flush()
            told.append(child.stdout.readline().strip())
    finally:
        for child in children:
            child.communicate(timeout=GUARD_S)
    assert told == ["60 - 120", *["0 - 120"] * 8]
    assert [child.returncode for child in children] == [0, 0, 0]
    check_whole(tmp_path)
