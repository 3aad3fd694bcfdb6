"""The layout of text in a terminal: widths, word wrap, what is escaped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.cli.text_layout import QUESTION_MARK, clip, clusters, printable, width, wrap

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"


def wrapped(text: str, columns: int) -> list[str]:
    return ["".join(part for part, _ in line) for line in wrap([(text, "")], columns)]


def test_wrap_divides_at_blanks_and_between_wide_characters() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("日本語のテキスト。", 6) == ["日本語", "のテキ", "スト。"]
    assert wrapped("日本語。次", 6) == ["日本", "語。次"], "no line starts with a closing mark"
    assert wrapped("a\n\nb", 9) == ["a", "", "b"]
    assert wrapped("x" * 10, 4) == ["xxxx", "xxxx", "xx"]


def test_wrap_keeps_joined_characters_together() -> None:
    text = f"{FAMILY * 12} می‌خواهم 🇩🇪🇫🇷 e\u0301e\u0301 👍🏽"
    for columns in (8, 11, 40):
        lines = wrapped(text, columns)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert "می‌خواهم" in "\n".join(lines)
        assert all(line.count(FAMILY) * 8 <= columns for line in lines)
        assert not any(line.startswith(("\u200d", "\u0301", "🏽")) for line in lines)
    assert [each for each, _ in clusters("🇩🇪🇫🇷e\u0301")] == ["🇩🇪", "🇫🇷", "e\u0301"]


def test_wrap_keeps_words_of_several_styles_together() -> None:
    lines = wrap([("aaa b", ""), ("old", "1"), ("er c", "")], 8)
    assert lines == [[("aaa", "")], [("b", ""), ("old", "1"), ("er c", "")]]


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=80), st.integers(4, 30))
def test_wrap_fits_and_loses_only_blanks(text: str, columns: int) -> None:
    shown = printable(text.replace("\t", " "))
    lines = wrapped(shown, columns)
    assert "".join(lines).replace(" ", "") == shown.replace(" ", "").replace("\n", "")
    for line in lines:
        assert sum(own for _, own in clusters(line)) <= columns or len(list(clusters(line))) == 1


@given(st.text(alphabet=st.characters(), max_size=80))
def test_printable_text_cannot_control_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not any(ch < " " and ch not in "\n\t" for ch in shown)
    assert not any("\x7f" <= ch <= "\x9f" or ch in "\u202e\u2066\u200f\u061c" for ch in shown)
    assert QUESTION_MARK not in shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"), [("abcdef", "abcdef"), ("abcdefg", "abcde…"), ("日本語日", "日本…")]
)
def test_clip_cuts_with_an_ellipsis(text: str, shown: str) -> None:
    assert clip(text, 6) == shown and width(shown) <= 6
