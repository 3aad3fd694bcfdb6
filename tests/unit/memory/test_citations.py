"""Every cited range contains what it cites: in both modes, whatever the notes look like."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.memory.base import SearchOptions
from homarus.memory.note_search import NoteSearch
from homarus.memory.results import SearchResult

WORDS = ("lamp", "harbour", "Ada", "tea", "violin", "2026", "東京", "garden", "naïve", "I", "was")

word = st.sampled_from(WORDS)
sentence = st.lists(word, min_size=1, max_size=12).map(" ".join)
odd = st.sampled_from(
    [
        "",
        "   ",
        "\t",
        "\r",
        "# lamp",
        "## Ada and the harbour\r",
        "---",
        "```",
        "lamp\u2028harbour",
        "lamp\x0bharbour\x0c",
        "東京タワーに行きました。" * 90,
        "lamp tea. " * 250,
        "harbour" * 700,
        "violin " * 120 + "garden",
        "Ada: " + "tea, " * 500 + "lamp",
    ]
)
line = st.one_of(
    sentence,
    sentence.map("- {}".format),
    sentence.map("- Ada: {}".format),
    sentence.map("> **Ben**: {}?\r".format),
    odd,
)
note = st.lists(line, max_size=30).map("\n".join)
question = st.lists(word, min_size=1, max_size=6).map(" ".join)
ask = st.builds(
    SearchOptions,
    mode=st.sampled_from(["lines", "passages"]),
    max_results=st.integers(1, 40),
    max_snippet_chars=st.one_of(st.none(), st.integers(40, 3000)),
    max_injected_chars=st.one_of(st.none(), st.integers(40, 6000)),
)


def check(one: SearchResult, text: str) -> None:
    lines = text.split("\n")
    assert 1 <= one.start_line <= one.end_line <= len(lines)
    cited = lines[one.start_line - 1 : one.end_line]
    assert one.snippet.strip()
    assert len(one.snippet) <= 1500
    parts = one.snippet.split("\n")
    assert len(parts) <= len(cited)
    assert parts[0] in cited[0]
    assert parts[-1] in cited[-1]
    if len(parts) == len(cited):
        for said, whole in zip(parts, cited, strict=True):
            assert said in whole
        assert all(
            said == whole.rstrip("\r") or said == whole for said, whole in inner(parts, cited)
        )


def inner(parts: list[str], cited: list[str]) -> list[tuple[str, str]]:
    return list(zip(parts, cited, strict=True))[1:-1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(note, min_size=1, max_size=4),
    st.lists(st.tuples(question, ask), min_size=3, max_size=8),
)
def test_citation_range_contains_snippet(
    notes: list[str], asked: list[tuple[str, SearchOptions]]
) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "memory").mkdir()
        texts = {f"memory/2026-01-0{at + 1}.md": said for at, said in enumerate(notes)}
        for name, said in texts.items():
            (folder / name).write_bytes(said.encode())
        with NoteSearch(folder, folder / "index.sqlite") as memory:
            memory.sync()
            for words, how in asked:
                found = memory.search(words, how)
                assert len(found) <= how.max_results
                for one in found:
                    check(one, texts[one.path])
    finally:
        shutil.rmtree(folder)
