"""Text: cutting, measuring, showing what hides, guessing names."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.text import (
    clip_middle,
    closest_names,
    escape_invisible,
    escape_markup,
    one_line,
    unescape_markup,
    utf16_len,
)


@given(st.text(max_size=300), st.integers(-5, 300))
def test_clip_middle_keeps_head_and_tail_and_counts_the_rest(text: str, most: int) -> None:
    clipped = clip_middle(text, most)
    if len(text) <= most:
        assert clipped == text
        return
    kept = max(most, 0)
    head = kept * 2 // 3
    tail = text[len(text) - (kept - head) :]
    assert clipped.startswith(text[:head] + "\n\n[… ")
    assert clipped.endswith(" …]\n\n" + tail)
    assert f"[… {len(text) - kept} characters left out …]" in clipped


@given(st.text(alphabet=st.characters(), max_size=100))
def test_utf16_len_equals_javascript_length(text: str) -> None:
    assert utf16_len(text) == len(text.encode("utf-16-le", "surrogatepass")) // 2


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("git\u200b status", r"git\u{200b} status"),
        ("\u202egnp.exe", r"\u{202e}gnp.exe"),
        ("a\u2066b\u2069", r"a\u{2066}b\u{2069}"),
        ("rm\u00a0-rf", r"rm\u{a0}-rf"),
        ("a\rb", r"a\u{d}b"),
        ("\x1b[2Jgone", r"\u{1b}[2Jgone"),
        ("\x9b2Jgone", r"\u{9b}2Jgone"),
        ("x\u3164y", r"x\u{3164}y"),
        ("x\u115fy", r"x\u{115f}y"),
        ("tag\U000e0041", r"tag\u{e0041}"),
        ("a\ufe0f", r"a\u{fe0f}"),
        ("a\U000e0100", r"a\u{e0100}"),
        ("\ufeffls", r"\u{feff}ls"),
        ("a\u2028b", r"a\u{2028}b"),
        ("a\x00b", r"a\u{0}b"),
        ("\ud800", r"\u{d800}"),
    ],
)
def test_escape_invisible_shows_the_code_point(hidden: str, shown: str) -> None:
    assert escape_invisible(hidden) == shown


def test_escape_invisible_keeps_ordinary_text_of_any_language() -> None:
    for text in ("ls -la\n\tdone", "Grüße, žlutý", "日本語とカタカナ", "שלום", "नमस्ते", "😀 × ½"):
        assert escape_invisible(text) == text


@given(st.text(alphabet=st.characters(), max_size=100))
def test_escape_invisible_result_has_no_control_characters(text: str) -> None:
    shown = escape_invisible(text)
    assert not {unicodedata.category(ch) for ch in shown if ch not in "\n\t"} & {"Cc", "Cf", "Cs"}
    assert escape_invisible(shown) == shown


@given(st.text(max_size=200), st.integers(1, 100))
def test_one_line_is_single_line_within_limit(text: str, most: int) -> None:
    line = one_line(text, most)
    assert len(line) <= most
    assert "\n" not in line
    assert "\t" not in line


def test_one_line_cut_text_ends_with_ellipsis() -> None:
    assert one_line("a  b\nc") == "a b c"
    assert one_line("abcdef", 4) == "abc…"


def test_closest_names_are_ordered_best_first() -> None:
    names = ["models", "model", "config", "doctor"]
    assert closest_names("modles", names)[0] == "models"
    assert closest_names("zzz", names) == ()
    assert len(closest_names("model", [f"model{n}" for n in range(9)])) == 3


@given(st.text())
def test_escaped_markup_has_no_markup_and_is_read_back(text: str) -> None:
    escaped = escape_markup(text)
    assert not {"<", ">"} & set(escaped)
    assert unescape_markup(escaped) == text
    assert escape_markup('<a b="c">&amp;') == '&lt;a b="c"&gt;&amp;amp;'
