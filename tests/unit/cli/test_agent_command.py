"""Where `homarus agent` takes its message from, and how it reports a fallback."""

import io
import os
import sys

import click
import pytest

from homarus.cli import agent
from homarus.cli.agent import _read_message, fallback_lines


class Stdin(io.TextIOWrapper):
    """Standard input with this content; a terminal's has none."""

    def __init__(self, content: bytes | None) -> None:
        super().__init__(io.BytesIO(content or b""))
        self._is_terminal = content is None

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("words", "option", "content", "expected"),
    [
        (("hello",), None, None, "hello"),
        (("hello",), None, b"", "hello"),
        (("explain",), None, b"data\n", "explain\n\ndata\n"),
        (("explain", "-"), None, b"data", "explain\n\ndata"),
        ((), None, b"hi\n", "hi\n"),
        (("-",), None, b"hi", "hi"),
        ((), "-", b"hi", "hi"),
        ((), "hello", b"lines of a script", "hello"),
        (("",), None, b"hi", "hi"),
        ((), None, b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_message_comes_from_argument_option_or_pipe(
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    option: str | None,
    content: bytes | None,
    expected: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(content))
    assert _read_message(words, option) == expected


@pytest.mark.parametrize(
    ("words", "option", "content", "problem"),
    [
        (("a",), "b", None, "given twice"),
        (("-",), "b", b"c", "given twice"),
        (("two", "words"), None, None, "in quotes"),
        ((), None, None, "no message"),
        ((), None, b" \n", "empty"),
        ((" ",), None, None, "empty"),
        ((), "", b"c", "empty"),
        ((), "-", b"", "empty"),
    ],
)
def test_message_that_is_missing_or_ambiguous_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    option: str | None,
    content: bytes | None,
    problem: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(content))
    with pytest.raises(click.UsageError, match=problem):
        _read_message(words, option)


def test_message_with_pipe_left_open_is_sent_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent, "INPUT_S", 0.01)
    reader, writer = os.pipe()
    with os.fdopen(writer, "w"), os.fdopen(reader) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert _read_message(("hello",), None) == "hello"
    assert "only MESSAGE is sent" in capsys.readouterr().err


def attempt(then: str) -> dict[str, object]:
    return {"provider": "a", "model": "m", "error": "a/m: refused", "next": then}


def test_fallback_lines_name_both_models_and_no_repetition() -> None:
    attempts = [attempt("a/m"), attempt("a/m thinking low"), attempt("b/m")]
    lines = fallback_lines({"result": {"meta": {"attempts": attempts}}})
    assert lines == ["homarus: a/m: refused; b/m was tried in its place"]
    assert fallback_lines({}) == fallback_lines({"result": {}}) == []
