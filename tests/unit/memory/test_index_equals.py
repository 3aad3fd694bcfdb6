"""An index that followed every edit is the one that is made of the notes as they are."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import apsw
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.memory.base import SearchOptions
from homarus.memory.chunking import cut_chunks, cut_lines
from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.note_search import NoteSearch

NAMES = ("MEMORY.md", "memory/2026-01-02.md", "memory/a.md", "memory/deep/b.md", "bank/c.md")
LINES = (
    "- Ada: the lamp is in the harbour",
    "- Ben: which lamp?",
    "# A heading",
    "## A smaller one",
    "",
    "   ",
    "word " * 300,
    "東京タワーに行きました。",
    "plain text with the harbour",
    "- Ada: the lamp is in the harbour",
)
QUESTIONS = ("lamp", "harbour Ada", "東京", "word", "which one?")

text = st.lists(st.sampled_from(LINES), max_size=12).map("\n".join)
edit = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), text),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just("")),
    st.tuples(st.just("touch"), st.sampled_from(NAMES), st.just("")),
    st.tuples(st.just("junk"), st.sampled_from(NAMES), st.just("")),
)
Edit: TypeAlias = tuple[str, str, str]


class Counting:
    """An embedder of numbers that a text has and another has not."""

    model = EmbeddingModel("counting", "letters", 8)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[float(text.count(letter) + 1) for letter in "aehlmprt"] for text in texts]


def apply(folder: Path, step: Edit) -> None:
    kind, name, said = step
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "write":
        path.write_text(said, encoding="utf-8")
    elif kind == "junk":
        path.write_bytes(b"\0\1\2")
    elif kind == "delete":
        path.unlink(missing_ok=True)
    elif path.exists():
        os.utime(path, (1_700_000_000, 1_700_000_000))


def tables(database: Path) -> dict[str, list[tuple[object, ...]]]:
    """What is in an index, without the numbers that tell only when a row came."""
    db = apsw.Connection(str(database))
    asked = {
        "files": "SELECT path, source, hash, size FROM files ORDER BY path",
        "notes": (
            "SELECT path, day, owner, audience, speakers, last - first FROM notes ORDER BY path"
        ),
        "lines": (
            "SELECT path, line, start, speaker, flags, CASE section WHEN 0 THEN 0 ELSE"
            " section - first + 1 END, text FROM lines JOIN notes USING (note) ORDER BY path, id"
        ),
        "vectors": (
            "SELECT path, line, start, vector FROM line_vectors JOIN lines USING (id)"
            " JOIN notes USING (note) ORDER BY path, id"
        ),
        "chunks": "SELECT id, path, start_line, end_line, text FROM chunks ORDER BY path, rowid",
        "words": (
            "SELECT term, path, line, start FROM stems JOIN lines ON lines.id = stems.doc"
            " JOIN notes USING (note) ORDER BY 1, 2, 3, 4"
        ),
        "chunk words": (
            "SELECT term, id, offset FROM chunk_words JOIN chunks ON chunks.rowid = doc"
            " ORDER BY 1, 2, 3"
        ),
        "all words": "SELECT COUNT(*) FROM stems UNION ALL SELECT COUNT(*) FROM chunk_words",
    }
    try:
        for name, table in (("stems", "postings"), ("chunk_words", "chunks_fts")):
            db.execute(f"CREATE VIRTUAL TABLE temp.{name} USING fts5vocab(main, {table}, instance)")
        return {name: db.execute(sql).fetchall() for name, sql in asked.items()}
    finally:
        db.close()


def ask(memory: NoteSearch) -> list[set[tuple[str, int]]]:
    """Every line that is found: of two that are worth the same, either may be first."""
    every = SearchOptions(max_results=1000)
    return [
        {
            (one.path, line)
            for one in memory.search(question, every)
            for line in range(one.start_line, one.end_line + 1)
        }
        for question in QUESTIONS
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(edit, min_size=1, max_size=3), min_size=1, max_size=6))
def test_sync_incremental_equals_full_rebuild(rounds: list[list[Edit]]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        followed, anew = folder / "followed.sqlite", folder / "anew.sqlite"
        with NoteSearch(folder, followed, Counting()) as memory:
            for steps in rounds:
                for step in steps:
                    apply(folder, step)
                memory.sync()
            with NoteSearch(folder, anew, Counting()) as other:
                other.sync()
                answers = ask(other)
            assert ask(memory) == answers
            before = tables(followed)
            assert before == tables(anew)
            memory.sync(force=True)
            assert tables(followed) == before
            assert ask(memory) == answers
    finally:
        shutil.rmtree(folder)


anything = st.text(st.sampled_from("ab .!?\t\r\n\u2028。東é#->*:"), max_size=400)


@given(anything, st.integers(4, 60))
def test_cut_lines_pieces_are_verbatim_lines(said: str, most: int) -> None:
    lines = said.split("\n")
    ends: dict[int, int] = {}
    for piece in cut_lines(said, most):
        line = lines[piece.line - 1]
        assert line[piece.start : piece.start + len(piece.text)] == piece.text
        assert 0 < len(piece.text) <= max(most, 1)
        assert piece.text.strip()
        assert not line[ends.get(piece.line, 0) : piece.start].strip()  # only blanks between
        ends[piece.line] = piece.start + len(piece.text)
    for number, line in enumerate(lines, 1):
        assert not line[ends.get(number, 0) :].strip()


@given(anything, st.integers(8, 40), st.integers(0, 8))
def test_cut_chunks_cover_every_line_with_its_number(said: str, tokens: int, overlap: int) -> None:
    lines = said.split("\n")
    covered: set[int] = set()
    for chunk in cut_chunks(said, tokens, overlap):
        covered.update(range(chunk.start_line, chunk.end_line + 1))
        parts = chunk.text.split("\n")
        assert parts[0] in lines[chunk.start_line - 1]
        assert parts[-1] in lines[chunk.end_line - 1]
        whole = "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
        if chunk.end_line - chunk.start_line + 1 == len(parts):
            assert chunk.text in whole
    assert covered == set(range(1, len(lines) + 1))
