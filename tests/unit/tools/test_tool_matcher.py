"""Matching lines: the same answers either way, and an end to every search."""

import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.errors import ToolError, ToolTimeoutError
from homarus.tools.matcher import LiteralMatcher, Matcher, RegexMatcher, make_matcher

EVIL = ["(a+)+$", "^(a|aa)+$", "(x+x+)+y", r"^(\w+\s?)*$"]


def matcher(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> Matcher:
    stop = threading.Event()
    return make_matcher(pattern, literal=literal, ignore_case=ignore_case, stop=stop)


def children() -> set[str]:
    own = Path("/proc/self/task")
    return {c for task in own.iterdir() for c in (task / "children").read_text().split()}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("b", [2, 4]), ("^b$", [2]), ("B", []), ("b+", [2, 4]), ("[", None), (r"é", [3])],
)
def test_matcher_finds_lines(pattern: str, expected: list[int] | None) -> None:
    text = "a\nb\r\né\nabb\n"
    if expected is None:
        with pytest.raises(ToolError, match="not a regular expression"):
            matcher(pattern)
        return
    found = matcher(pattern)
    assert found.find_lines(text, 10) == expected
    assert found.find_lines(text, 1) == expected[:1]
    found.close()


def test_matcher_ignores_case_on_request() -> None:
    for pattern in ("straSSE", "straSSE.?"):
        found = matcher(pattern, ignore_case=True)
        assert found.find_lines("x\nStrasse\n", 10) == [2]
        found.close()


def test_matcher_plain_text_starts_no_child() -> None:
    assert isinstance(matcher("plain text"), LiteralMatcher)
    assert isinstance(matcher("(a+)+$", literal=True), LiteralMatcher)
    assert matcher("(a+)+$", literal=True).find_lines("x\n(a+)+$", 5) == [2]


@settings(max_examples=30)
@given(st.lists(st.text(st.sampled_from("ab\u2028\x85"), max_size=4), max_size=6))
def test_matcher_plain_and_regex_agree(lines: list[str]) -> None:
    text = "\n".join(lines)
    plain, regular = matcher("ab"), matcher("(ab)")
    try:
        assert plain.find_lines(text, 100) == regular.find_lines(text, 100)
    finally:
        regular.close()


@pytest.mark.parametrize("pattern", EVIL)
def test_matcher_exponential_pattern_times_out(pattern: str) -> None:
    stop = threading.Event()
    found = RegexMatcher(pattern, ignore_case=False, stop=stop, per_text_s=0.2)
    began = time.monotonic()
    with pytest.raises(ToolTimeoutError):
        found.find_lines("a" * 50 + "x" * 50 + "!", 10)
    assert time.monotonic() - began < 5
    with pytest.raises(ToolTimeoutError):
        found.find_lines("a", 10)
    found.close()


def test_matcher_stopped_search_ends() -> None:
    stop = threading.Event()
    found = RegexMatcher("(a+)+$", ignore_case=False, stop=stop, per_text_s=60)
    threading.Timer(0.1, stop.set).start()
    began = time.monotonic()
    with pytest.raises(ToolTimeoutError):
        found.find_lines("a" * 50 + "!", 10)
    assert time.monotonic() - began < 10
    found.close()


def test_matcher_regex_breaking_parser_raises() -> None:
    for pattern in ("(" * 900, "a{99999999999999999999}", "(?P<x", "*"):
        with pytest.raises(ToolError, match="not a regular expression"):
            matcher(pattern)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_matcher_close_leaves_no_process() -> None:
    before = children()
    found = matcher("a+")
    assert children() - before
    found.close()
    found.close()
    assert children() == before
