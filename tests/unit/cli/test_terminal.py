import io
from itertools import count

from homarus.cli.terminal import TerminalView
from homarus.core.event import (
    AttemptFailed,
    ErrorNoted,
    Event,
    EventData,
    MessageSaved,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.message import Text, ToolCall, ToolResult, user_message

CALL = ToolCall("c1", "read", {"path": "notes.md", "limit": 5})


def shown(*facts: EventData, colour: bool = False) -> str:
    out = io.StringIO()
    view = TerminalView(out, colour=colour)
    seq = count(1)
    for fact in facts:
        view.show(Event("run", "session", next(seq), 0, fact))
    return out.getvalue()


def result(text: str, *, is_error: bool = False) -> ToolResult:
    return ToolResult("c1", "read", (Text(text),), is_error=is_error)


def test_view_streamed_text_ends_with_newline_at_run_end() -> None:
    assert shown(TextAdded("Hel"), TextAdded("lo"), RunEnded()) == "Hello\n"


def test_view_tool_call_is_printed_as_one_line() -> None:
    out = shown(TextAdded("Let me look."), ToolStarted(CALL), ToolEnded(result("a\nb\nc")))
    assert out == "Let me look.\n⚙ read notes.md → ok\n"


def test_view_failed_tool_call_prints_reason_on_one_line() -> None:
    out = shown(ToolStarted(CALL), ToolEnded(result("no such\nfile", is_error=True)))
    assert out == "⚙ read notes.md → failed: no such file\n"


def test_view_failed_tool_call_without_a_reason_has_no_colon() -> None:
    out = shown(ToolStarted(CALL), ToolEnded(result("", is_error=True)))
    assert out == "⚙ read notes.md → failed\n"


def test_view_control_characters_of_model_are_escaped() -> None:
    out = shown(TextAdded("\x1b[2Jcleared\x07\u202e"), TextAdded("line\nnext\ttab"))
    assert out == "\\u{1b}[2Jcleared\\u{7}\\u{202e}line\nnext\ttab"


def test_view_shows_every_script_unchanged() -> None:
    for text in ("می‌خواهم", "👨‍👩‍👧‍👦 ❤️", "क्‍ष", "日本語", "שלום", "\u00ad\ufeff"):
        assert shown(TextAdded(text)) == text
    call = ToolCall("c1", "read", {"path": "می‌خواهم.md"})
    out = shown(ToolStarted(call), ToolEnded(result("x")))
    assert out == "⚙ read می‌خواهم.md → ok\n"


def test_view_tool_line_has_the_duration() -> None:
    out = io.StringIO()
    view = TerminalView(out, colour=False)
    view.show(Event("run", "session", 1, 1_000, ToolStarted(CALL)))
    view.show(Event("run", "session", 2, 4_200, ToolEnded(result("x"))))
    assert out.getvalue() == "⚙ read notes.md → ok · 3.2 s\n"


def test_view_error_between_texts_is_on_its_own_line() -> None:
    assert shown(TextAdded("one"), ErrorNoted("trouble")) == "one\n! trouble\n"
    assert shown(TextAdded("one"), MessageSaved(user_message("x")), TextAdded("two")) == "one\ntwo"


def test_view_failed_attempts_are_shown_and_kept_until_next_run() -> None:
    out = io.StringIO()
    view = TerminalView(out, colour=False)
    failed = AttemptFailed("p", "m", "provider.overloaded", "p/m: busy", "p/n", 3.0)
    view.show(Event("run", "session", 1, 0, failed))
    assert out.getvalue() == "↻ p/m: busy; next: p/n in 3 s\n" and view.attempts == [failed]
    view.show(Event("next", "session", 1, 0, RunStarted()))
    assert view.attempts == []


def test_view_files_of_answer_are_printed_as_lines() -> None:
    out = shown(TextAdded("Look:", ("./a\x1b[2J.png",)), TextAdded("", ("./b.png",)), RunEnded())
    assert out == "Look:\n📎 ./a\\u{1b}[2J.png\n📎 ./b.png\n"
