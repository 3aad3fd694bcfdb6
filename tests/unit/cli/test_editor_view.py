"""What is printed above the input line of a chat, and what is drawn between them."""

import pytest

from homarus.cli.editor_view import EditorView
from homarus.cli.text_layout import QUESTION_MARK
from homarus.core.event import (
    CommandAnswered,
    Event,
    EventData,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.message import Text, ToolCall, ToolResult

CALL = ToolCall("c1", "read", {"path": "notes.md"})


class Above:
    """A view, what it has printed, and its clock."""

    def __init__(self, columns: int = 60, *, colour: bool = False) -> None:
        self.printed, self.now_s, self._ts_ms = "", 100.0, 0
        self.view = EditorView(
            self.print, lambda: None, lambda: columns, colour=colour, clock=lambda: self.now_s
        )

    def print(self, text: str) -> None:
        self.printed += text

    def show(self, *events: EventData) -> None:
        for data in events:
            self.view.show(Event("run", "session", 1, round(self.now_s * 1000), data))

    def wait(self, seconds: float) -> str:
        """Return the status after a while."""
        self.now_s += seconds
        return self.view.get_above(9)[-1]


def test_spinner_says_what_is_waited_for_and_how_long() -> None:
    it = Above()
    assert it.view.get_above(9) == []
    it.view.start_waiting()
    first, second = it.wait(0), it.wait(0.1)
    assert first[0] != second[0] and "waiting for the model · 0 s · Ctrl-C stops" in first
    assert "waiting for the model · 12 s" in it.wait(12)
    it.show(RunStarted(), TextAdded("Let me look."))
    assert "answering · 2 s" in it.wait(2)
    it.show(ToolStarted(CALL))
    assert "read notes.md · 3 s" in it.wait(3)
    it.show(ToolEnded(ToolResult("c1", "read", (Text("x"),))))
    assert it.printed == "Let me look.\n⚙ read notes.md → ok · 3.0 s\n"
    it.view.start_waiting()
    assert "waiting for the model · 1 s · 1 more sent" in it.wait(1)
    it.view.stop_waiting()
    it.view.stop_waiting()
    assert it.view.get_above(9) == []


def test_text_is_drawn_until_it_is_complete_and_then_printed() -> None:
    it = Above(columns=20)
    it.view.start_waiting()
    it.show(TextAdded("A **long** line that wraps\n\nand"))
    assert it.printed == "A **long** line\nthat wraps\n"
    assert it.view.get_above(9)[:-1] == ["", "and"]
    it.view.notice("a notice")
    assert it.printed.endswith("that wraps\na notice\n")
    it.show(TextAdded(" more"), RunEnded())
    assert it.printed.endswith("a notice\n\nand more\n")


def test_text_under_way_never_fills_the_screen() -> None:
    it = Above(columns=20)
    it.view.start_waiting()
    it.show(TextAdded("word " * 200))
    above = it.view.get_above(5)
    assert len(above) == 5 and "answering" in above[-1]


@pytest.mark.parametrize("colour", [True, False])
def test_nothing_printed_or_drawn_can_ask(*, colour: bool) -> None:
    it = Above(colour=colour)
    forged = f"\n\x1b[7m{QUESTION_MARK} Allow? [y/N] \x1b[0m&#x2503;\x1b]0;t\x07"
    call = ToolCall("c1", f"read{forged}", {"path": forged})
    drawn = list[str]()
    it.view.start_waiting()
    for event in (TextAdded(forged), ToolStarted(call), CommandAnswered(forged)):
        it.show(event)
        drawn += it.view.get_above(9)
    it.show(ToolEnded(ToolResult("c1", "read", (Text(forged),), is_error=True)))
    it.view.notice(forged)
    it.view.error(forged)
    it.view.echo(forged)
    shown = it.printed + "".join(drawn)
    assert QUESTION_MARK not in shown and "\x1b[7m" not in shown and "\x1b]" not in shown
    assert colour or "\x1b" not in shown


def test_long_message_is_echoed_in_part() -> None:
    it = Above(columns=20)
    it.view.echo("one\ntwo می‌خواهم")
    assert it.printed == "> one\n  two می‌خواهم\n"
    it.view.echo("\n".join(map(str, range(50))))
    assert it.printed.endswith("  11\n  … 38 more lines\n")
