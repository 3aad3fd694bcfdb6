import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.errors import StoreError
from homarus.memory.qmd.collections import QmdDocument
from homarus.memory.qmd.output import (
    QmdResultBuilder,
    QmdRow,
    query_needles,
    query_words,
    read_rows,
)
from homarus.memory.results import SearchResult

ROW = {"docid": "#1", "file": "qmd://memory-dir/a.md", "score": 0.5, "snippet": "x", "title": "t"}


def test_read_rows_list_is_parsed() -> None:
    (row,) = read_rows(json.dumps([ROW]))
    assert (row.file, row.score, row.snippet) == ("qmd://memory-dir/a.md", 0.5, "x")
    assert read_rows("[]") == read_rows(" \n[]\n") == read_rows("No results found.\n") == []


@pytest.mark.parametrize("warning", ["Warning: slow", "[node-llama-cpp] no GPU", "{note}"])
def test_read_rows_warnings_before_json_are_skipped(warning: str) -> None:
    text = f"{warning}\n{warning}\n{json.dumps([ROW], indent=2)}\n"
    assert read_rows(text)[0].score == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Segmentation fault",
        "Warning [] here",
        json.dumps([ROW])[:-3],
        f"{json.dumps([ROW])}\nSegmentation fault",
        "[" * 100_000,
        "[\n" * 100_000,
        '[{"file": "a", "score": NaN}]',
        '[{"file": "a", "score": 1' + "0" * 5000 + "}]",
    ],
)
def test_read_rows_incomplete_json_error_shows_first_line(text: str) -> None:
    with pytest.raises(StoreError, match="qmd did not print JSON") as caught:
        read_rows(text)
    assert ("printed nothing" if not text else text[:20].partition("\n")[0]) in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    "value",
    [{}, "x", 3, [1], [{}], [{**ROW, "file": None}], [{**ROW, "score": "high"}], [ROW, {"a": 1}]],
)
def test_read_rows_other_shape_is_an_error(value: object) -> None:
    with pytest.raises(StoreError, match="another shape"):
        read_rows(json.dumps(value))


def test_query_words_drop_stop_words() -> None:
    assert query_words("Where does Ada live, and does Ada sail?") == ["Ada", "live", "sail"]
    assert query_needles("Where did Ada's berries go?") == ["ada", "berri", "go"]


def looked_for(
    tmp: Path, text: str, snippet: str, question: str = "", most: int = 700
) -> SearchResult | None:
    file = tmp / "a.md"
    file.write_bytes(text.encode())
    document = QmdDocument("qmd/memory-dir/a.md", tmp, "a.md", "private", "memory")
    row = QmdRow(file="qmd://memory-dir/a.md", score=1.0, snippet=snippet)
    return QmdResultBuilder(query_needles(question), most).result(row, document, 4_000)


def shown(tmp: Path, text: str, snippet: str, question: str = "") -> SearchResult:
    found = looked_for(tmp, text, snippet, question)
    assert found
    return found


def test_result_builder_header_becomes_line_range(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(1, 9))
    found = shown(tmp_path, text, "@@ -3,3 @@ (2 before, 3 after)\nline 3\nline 4\nline 5")
    assert (found.start_line, found.end_line, found.snippet) == (3, 5, "line 3\nline 4\nline 5")


def test_result_builder_moved_lines_are_cited_at_new_place(tmp_path: Path) -> None:
    found = shown(tmp_path, "new\nnew\none\ntwo\n", "@@ -1,3 @@ (0 before, 0 after)\none\ntwo\n")
    assert found.citation == "qmd/memory-dir/a.md#L3-L4"


def test_result_builder_cut_snippet_is_completed(tmp_path: Path) -> None:
    found = shown(tmp_path, "first\n" + "long " * 200, "@@ -1,2 @@ (0, 0)\nfirst\nlong long lo...")
    assert (found.start_line, found.end_line) == (1, 1)  # the second has no room beside it
    assert found.snippet == "first"


def test_result_builder_stale_snippet_is_recut_or_dropped(tmp_path: Path) -> None:
    text = "a\nb\nthe boat is sold\nc\nd\n"
    found = shown(tmp_path, text, "@@ -3,1 @@ (2, 2)\nthe boat is red", "boat")
    assert (found.start_line, found.end_line) == (2, 5)
    assert found.snippet == "b\nthe boat is sold\nc\nd"
    assert looked_for(tmp_path, "nothing\n", "@@ -3,1 @@ (2, 2)\nthe boat is red", "boat") is None


def test_result_builder_snippet_without_query_word_is_replaced(
    tmp_path: Path,
) -> None:
    text = "".join(f"line {n}\n" for n in range(1, 9)) + "a mast\n"
    found = shown(tmp_path, text, "@@ -1,2 @@ (0, 7)\nline 1\nline 2", "masts")
    assert "a mast" in found.snippet and found.start_line == 8


def test_result_builder_long_line_is_cut_around_word(tmp_path: Path) -> None:
    text = "x" * 3000 + " mast " + "y" * 3000
    found = shown(tmp_path, text, f"@@ -1,1 @@ (0, 0)\n{'x' * 497}...", "mast")
    assert len(found.snippet) == 700 and " mast " in found.snippet


def test_result_builder_crlf_is_not_part_of_lines(tmp_path: Path) -> None:
    found = shown(tmp_path, "one\r\ntwo\r\n", "@@ -2,1 @@ (1, 1)\ntwo\r\n")
    assert (found.citation, found.snippet) == ("qmd/memory-dir/a.md#L2", "two")


LINE = st.text(st.sampled_from("ab \t\réß.@-\u2028"), max_size=12)
HEADER = st.builds(
    "@@ -{},{} @@ (1 before, 2 after)\n".format, st.integers(0, 12), st.integers(0, 9)
)


@settings(max_examples=300)
@given(
    st.lists(LINE, max_size=10),
    st.one_of(HEADER, st.just("")),
    st.lists(LINE, max_size=4),
    st.data(),
    st.integers(1, 40),
)
def test_result_builder_citation_range_contains_snippet(
    lines: list[str], header: str, other: list[str], data: st.DataObject, most: int
) -> None:
    start = data.draw(st.integers(0, len(lines)))
    piece = data.draw(st.sampled_from([lines[start : start + 3], other]))
    question = data.draw(st.sampled_from(["", "ab", "éß b", "zzz"]))
    with tempfile.TemporaryDirectory() as folder:
        found = looked_for(
            Path(folder), "\n".join(lines), header + "\n".join(piece), question, most
        )
    if found is None:
        return
    assert 1 <= found.start_line <= found.end_line <= max(1, len(lines))
    there = "\n".join(line.removesuffix("\r") for line in "\n".join(lines).split("\n"))
    cited = "\n".join(there.split("\n")[found.start_line - 1 : found.end_line])
    assert found.snippet in cited and len(found.snippet) <= most
    if found.end_line > found.start_line:
        assert found.snippet == cited
