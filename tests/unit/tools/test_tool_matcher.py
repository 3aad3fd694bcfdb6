"""Matching lines: the same answers either way, and an end to every search."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.errors import ToolError
from homarus.tools.matcher import Matcher, make_matcher

EVIL = ["(a+)+$", "^(a|aa)+$", "(x+x+)+y", r"^(\w+\s?)*$"]


def matcher(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> Matcher:
    stop = threading.Event()
    return make_matcher(pattern, literal=literal, ignore_case=ignore_case, stop=stop)


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


def test_matcher_ignores_case_on_request() -> None:
    for pattern in ("straSSE", "straSSE.?"):
        found = matcher(pattern, ignore_case=True)
        assert found.find_lines("x\nStrasse\n", 10) == [2]


def test_matcher_literal_pattern_is_plain_text() -> None:
    assert matcher("(a+)+$", literal=True).find_lines("x\n(a+)+$", 5) == [2]


@settings(max_examples=30)
@given(st.lists(st.text(st.sampled_from("ab\u2028\x85"), max_size=4), max_size=6))
def test_matcher_plain_and_regex_agree(lines: list[str]) -> None:
    text = "\n".join(lines)
    plain, regular = matcher("ab"), matcher("(ab)")
    assert plain.find_lines(text, 100) == regular.find_lines(text, 100)


@pytest.mark.parametrize("pattern", EVIL)
def test_matcher_exponential_pattern_is_searched_at_once(pattern: str) -> None:
    began_s = time.thread_time()
    matcher(pattern).find_lines(("a" * 50 + "x" * 50 + "!\n") * 20, 10)
    assert time.thread_time() - began_s < 1


@pytest.mark.parametrize("pattern", ["hit", "hi+t"])
def test_matcher_stopped_search_ends(pattern: str) -> None:
    stop = threading.Event()
    stop.set()
    found = make_matcher(pattern, literal=False, ignore_case=False, stop=stop)
    assert len(found.find_lines("hit\n" * 5000, 9999)) < 1000


def test_matcher_regex_breaking_parser_raises() -> None:
    for pattern in ("(" * 900, "a{1000}{1000}", "(?P<x", "*"):
        with pytest.raises(ToolError, match="not a regular expression"):
            matcher(pattern)


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)b", "(?<!a)b"])
def test_matcher_pattern_without_linear_search_is_refused(pattern: str) -> None:
    with pytest.raises(ToolError, match="look-arounds and backreferences are not supported"):
        matcher(pattern)
