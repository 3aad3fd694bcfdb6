"""One replacement: exact, unique, nothing else touched, and the diff is true."""

import re
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from homarus.core.errors import ToolError
from homarus.tools.text_edit import replace_once


def change(text: str, old: str, new: str) -> str:
    return replace_once(text, old, new, name="f").text


def apply(text: str, diff: str) -> str:
    """A small `patch` for one hunk."""
    head, *body = diff.split("\n")[2:-1]
    start, size = (int(part) for part in re.findall(r"-(\d+),(\d+)", head)[0])
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    at = start - 1 if size else start
    new: list[str] = []
    old: list[str] = []
    last: list[list[str]] = []
    for line in body:
        if line.startswith("\\"):
            for each in last:
                each[-1] = each[-1][:-1]
            continue
        last = {" ": [old, new], "-": [old], "+": [new]}[line[0]]
        for each in last:
            each.append(line[1:] + "\n")
    assert lines[at : at + size] == old
    return "".join(lines[:at] + new + lines[at + size :])


def test_replace_once_single_occurrence_is_replaced() -> None:
    done = replace_once("one\ntwo\nthree\n", "two", "2", name="f")
    assert (done.text, done.line) == ("one\n2\nthree\n", 2)
    assert done.diff == "--- f\n+++ f\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "result"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
        ("a\r\nb\r\n", "\nb", "\nx", "a\r\nx\r\n"),
        ("a\r\nb\r\nc\nd\n", "c\nd", "x\ny", "a\r\nb\r\nx\ny\n"),
        ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),
        ("\ufeffa\nb\n", "a", "x", "\ufeffx\nb\n"),
        ("a\x0cb\u2028c\n", "b", "x", "a\x0cx\u2028c\n"),
        ("a", "a", "", ""),
    ],
)
def test_replace_once_keeps_line_endings_bom_and_separators(
    text: str, old: str, new: str, result: str
) -> None:
    assert change(text, old, new) == result


def test_replace_once_without_match_shows_nearest_lines() -> None:
    with pytest.raises(ToolError) as wrong:
        change("def first():\n    return  1\n\ndef second():\n", "return 1", "return 2")
    assert "oldText is not in the file" in str(wrong.value)
    assert "2:  return 1" in str(wrong.value) or "2: return 1" in str(wrong.value)


def test_replace_once_many_matches_gives_line_numbers() -> None:
    with pytest.raises(ToolError, match=r"2 times \(lines 1, 3\)"):
        change("x\ny\nx\n", "x", "z")
    with pytest.raises(ToolError, match="2 times"):
        change("aaa", "aa", "b")
    with pytest.raises(ToolError, match=r"1000 times \(lines 1, 1, 1, 1, 1, …\)"):
        change("a" * 100_000, "a", "b")


def test_replace_once_empty_or_equal_text_is_refused() -> None:
    with pytest.raises(ToolError, match="use write"):
        change("a", "", "b")
    with pytest.raises(ToolError, match="the same"):
        change("a\r\nb", "a\nb", "a\r\nb")


def test_replace_once_hopeless_search_is_fast() -> None:
    text = "\n".join(f"{i * 7919 % 100003:x}" * 40 for i in range(20_000))
    began = time.process_time()
    with pytest.raises(ToolError):
        change(text, "zzzz 0123456789abcdef" * 20, "x")
    assert time.process_time() - began < 2


words = st.text(st.sampled_from("ab \n\r\u2028"), max_size=12)


@given(before=words, old=words, after=words, new=words)
def test_replace_once_changes_only_match_and_diff_shows_it(
    before: str, old: str, after: str, new: str
) -> None:
    assume(not (before.endswith("\r") and old.startswith("\n")))  # half of a line ending
    text = before + old + after
    try:
        done = replace_once(text, old, new, name="f")
    except ToolError:
        assume(False)
    assert done.text.startswith(before)
    assert done.text.endswith(after)
    assert apply(text, done.diff) == done.text
    assert text.split("\n")[: done.line - 1] == done.text.split("\n")[: done.line - 1]
