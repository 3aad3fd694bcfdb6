"""The exec question shows what runs: no character hides, reorders or imitates another."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.tools.exec.approval import describe_command, escape_deceptive_chars


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("echo שלום", r"echo \u{5e9}\u{5dc}\u{5d5}\u{5dd}"),
        ("rm مرحبا", r"rm \u{645}\u{631}\u{62d}\u{628}\u{627}"),
        ("echo ٣", r"echo \u{663}"),
        ("c\u0430t x", r"c\u{430}t x"),  # a Cyrillic a
        ("\u0441\u043e\u0440\u0443", r"\u{441}\u{43e}\u{440}\u{443}"),  # looks like "copy"
        ("ls \u03bf", r"ls \u{3bf}"),
        ("rm \u2013rf \u201ca; b\u201d", r"rm \u{2013}rf \u{201c}a; b\u{201d}"),
        ("a\u0338b e\u0301", r"a\u{338}b e\u{301}"),
        ("\u0131 \u0251 \u01c3 \u2215", r"\u{131} \u{251} \u{1c3} \u{2215}"),
        ("a \u2502 sh", r"a \u{2502} sh"),
        (r"echo \u{200b} \u", r"echo \u{5c}u{200b} \u"),
        ("👨\u200d👩", r"👨\u{200d}👩"),
        (
            "echo Привет, мир; café 日本語 한국어 हिन्दी 👍",
            "echo Привет, мир; café 日本語 한국어 हिन्दी 👍",
        ),
    ],
)
def test_question_escapes_characters_that_deceive(text: str, seen: str) -> None:
    assert escape_deceptive_chars(text) == seen


def test_question_env_value_with_newlines_stays_on_its_line() -> None:
    forged = "1\ncommand (2 characters):\n    ls\n\n\n\n\nend"
    detail = describe_command(
        "rm -r x\u202e", folder="/ws/a\nb", env={"ARG_X": forged}, timeout_s=5
    )
    folder, time, variable, command, shown = detail.split("\n")
    assert folder == r"folder: /ws/a\u{a}b"
    assert time == "time: at most 5 s"
    assert variable.startswith(r"variable: ARG_X=1\u{a}command (2 characters):\u{a}    ls\u{a}")
    assert command == "command (8 characters):"
    assert shown == r"    rm -r x\u{202e}"


@given(st.text(max_size=40))
def test_question_shows_no_invisible_or_reordering_character(text: str) -> None:
    seen = escape_deceptive_chars(text)
    assert all(ch.isprintable() or ch in "\n\t" for ch in seen)
    left_to_right = {"L", "EN", "ES", "ET", "CS", "NSM", "ON", "WS", "B", "S"}
    assert all(unicodedata.bidirectional(ch) in left_to_right for ch in seen)


@given(st.text(alphabet="\\u{}0123456789abcdef \u200b\u202e\n", max_size=20), st.data())
def test_question_of_two_commands_is_never_the_same(text: str, data: st.DataObject) -> None:
    other = data.draw(st.text(alphabet="\\u{}0123456789abcdef \u200b\u202e\n", max_size=20))
    if text.count("\n") < 3 and other.count("\n") < 3 and text != other:
        assert escape_deceptive_chars(text) != escape_deceptive_chars(other)
