"""Patterns of strangers: what they find, and that none takes long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import UserError
from homarus.core.regex import MAX_PATTERN_CHARS, MAX_TEXT_CHARS, compile_search


@pytest.mark.parametrize(
    ("pattern", "text", "is_in"),
    [
        (r"\b@?molty\b", "hey Molty, are you there?", True),
        (r"\b@?molty\b", "moltys", False),
        ("^hi$", "hi", True),
        ("^hi$", "hi there", False),
        ("(?:bot|クラブ)", "おい、クラブ", True),
        (r"\.", "no dot", False),
        ("é+", "CAFÉÉ", True),
    ],
)
def test_compile_search_ignores_case(pattern: str, text: str, is_in: bool) -> None:
    assert compile_search(pattern)(text) is is_in


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a+)+$", "a" * 1_900 + "!"),
        ("^(a|aa)+$", "a" * 1_900 + "!"),
        (r"^(\w+\s?)*$", "aaaa " * 380 + "!"),
        ("(x+x+)+y", "x" * 2_000),
        (r"(?:\s*,\s*)*;", " " * 2_000),
        (r"([^@]+)@([^@]+\.)+com", "a@" + "a." * 1_000),
        (r"(?i)@?openclaw+\b.*?\b(please)+", "openclaw" + "w" * 2_000),
        ("a?" * 100 + "a" * 100, "a" * 99 + "b"),
    ],
)
def test_compile_search_any_pattern_is_fast(pattern: str, text: str) -> None:
    assert not compile_search(pattern)(text)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[a", "*a", "a**", "a{3,1}", r"(a)\1", "(?=ab)", "(?>a)", "\\", "\ud800",
     "(a{900}){900}", "x" * (MAX_PATTERN_CHARS + 1), "(?<=", "[z-a]"],
)  # fmt: skip
def test_compile_search_unsupported_pattern_raises_user_error(pattern: str) -> None:
    with pytest.raises(UserError, match="pattern"):
        compile_search(pattern)


def test_compile_search_reads_only_the_start_of_long_text() -> None:
    assert compile_search("z")("a" * (MAX_TEXT_CHARS - 1) + "z")
    assert not compile_search("z")("a" * MAX_TEXT_CHARS + "z")


@given(st.text())
def test_compile_search_accepts_any_text(text: str) -> None:
    assert compile_search("")(text)
