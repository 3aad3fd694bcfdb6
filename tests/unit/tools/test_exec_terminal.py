"""Keys, pasted text and the output of a terminal."""

import pytest

from homarus.core.errors import ToolError
from homarus.tools.exec.terminal import (
    TerminalFilter,
    encode_hex,
    encode_keys,
    encode_paste,
    strip_sequences,
)


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("Enter", b"\r"),
        ("Tab", b"\t"),
        ("Escape", b"\x1b"),
        ("Space", b" "),
        ("BSpace", b"\x7f"),
        ("Up", b"\x1b[A"),
        ("left", b"\x1b[D"),
        ("PageUp", b"\x1b[5~"),
        ("F1", b"\x1bOP"),
        ("F12", b"\x1b[24~"),
        ("C-c", b"\x03"),
        ("C-d", b"\x04"),
        ("^C", b"\x03"),
        ("C-Space", b"\x00"),
        ("C-[", b"\x1b"),
        ("M-x", b"\x1bx"),
        ("M-Enter", b"\x1b\r"),
        ("C-M-a", b"\x1b\x01"),
        ("S-Tab", b"\x1b[Z"),
        ("S-a", b"A"),
        ("C-Left", b"\x1b[1;5D"),
        ("S-Up", b"\x1b[1;2A"),
        ("q", b"q"),
        ("ä", "ä".encode()),
    ],
)
def test_key_names_are_sent_as_a_terminal_sends_them(key: str, sent: bytes) -> None:
    assert encode_keys([key]) == sent


@pytest.mark.parametrize("key", ["", "Entr", "C-", "C-é", "F13", "C-abc", "M-abc"])
def test_key_that_does_not_exist_is_refused(key: str) -> None:
    with pytest.raises(ToolError, match="name of a key"):
        encode_keys([key])


def test_hex_bytes_are_sent_and_others_refused() -> None:
    assert encode_hex(["1b", "0x5b", "A"]) == b"\x1b\x5b\x0a"
    for wrong in ("", "1bb", "zz", "-1"):
        with pytest.raises(ToolError):
            encode_hex([wrong])


def test_bracketed_paste_cannot_be_ended_by_its_text() -> None:
    sent = encode_paste("a\x1b[201~rm\r", bracketed=True)
    assert sent == b"\x1b[200~arm\r\x1b[201~"
    assert encode_paste("a\nb", bracketed=False) == b"a\nb"


def test_control_sequences_are_removed_from_output() -> None:
    text = (
        "\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b(B\r\n\x08\x00end\x1b7"
    )
    assert strip_sequences(text) == "red link\nend"


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_control_sequences_in_any_parts_are_removed(size: int) -> None:
    text = "a\x1b[1;31mred\x1b[0m\x1b]0;long title\x1b\\b\r\nc\rd\x1bMe"
    terminal, plain = TerminalFilter(), ""
    for place in range(0, len(text), size):
        plain += terminal.feed(text[place : place + size])[0]
    plain += terminal.feed("", final=True)[0]
    assert plain == "aredb\nc\rde"


def test_terminal_answers_the_query_for_the_cursor() -> None:
    terminal = TerminalFilter()
    assert terminal.feed("x\x1b[6") == ("x", "")
    assert terminal.feed("ny") == ("y", "\x1b[1;1R")


def test_sequence_without_end_uses_bounded_memory() -> None:
    terminal = TerminalFilter()
    shown = sum(len(terminal.feed("\x1b]0;" + "x" * 9_000)[0]) for _ in range(3))
    assert shown > 20_000, "text that is no sequence is shown after all"
