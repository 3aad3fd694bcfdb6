"""The text of a run for one reader: what is collected, and what another attempt may change."""

from homarus.core.event import (
    AttemptFailed,
    Event,
    EventData,
    MessageSaved,
    RunSuspended,
    TextAdded,
)
from homarus.gateway.http_api import run_text
from homarus.gateway.http_api.run_text import RunText
from homarus.testing.fakes import assistant_message

FAILED = AttemptFailed("p", "m", "provider.overloaded", "busy", "p/m")


class Reader:
    """A reader that counts how often it is woken."""

    def __init__(self, *, streams: bool = True) -> None:
        self.woken = 0
        self.text = RunText(self._wake, streams=streams)

    def _wake(self) -> None:
        self.woken += 1

    def feed(self, *events: EventData) -> "Reader":
        for data in events:
            self.text.feed(Event("r1", "agent:main:main", 1, 1, data))
        return self


def test_text_is_taken_in_one_piece() -> None:
    reader = Reader().feed(TextAdded("a"), TextAdded("b"))
    assert (reader.text.take(), reader.text.take(), reader.woken) == ("ab", "", 2)


def test_messages_of_a_run_are_paragraphs() -> None:
    saved = MessageSaved(assistant_message("Let me look."))
    reader = Reader().feed(TextAdded("Let me look."), saved, TextAdded("Sun."))
    assert reader.text.take() == "Let me look.\n\nSun."


def test_attempt_that_repeats_the_text_goes_on_behind_it() -> None:
    reader = Reader().feed(TextAdded("The ans"))
    assert reader.text.take() == "The ans"
    reader.feed(FAILED, TextAdded("The "), TextAdded("answer"), TextAdded("."))
    assert reader.text.take() == "wer."
    assert not reader.text.is_stopped


def test_attempt_that_repeats_a_second_message_goes_on() -> None:
    saved = MessageSaved(assistant_message("One."))
    reader = Reader().feed(TextAdded("One."), saved, TextAdded("Tw"), FAILED, TextAdded("Two."))
    assert reader.text.take() == "One.\n\nTwo."


def test_attempt_that_writes_something_else_breaks_the_stream() -> None:
    reader = Reader().feed(TextAdded("The answer"), FAILED, TextAdded("Another"))
    assert reader.text.is_broken and reader.text.is_stopped


def test_attempt_that_writes_less_breaks_the_stream() -> None:
    saved = MessageSaved(assistant_message("The"))
    assert Reader().feed(TextAdded("The answer"), FAILED, TextAdded("The"), saved).text.is_broken


def test_failed_attempt_without_text_changes_nothing() -> None:
    reader = Reader().feed(FAILED, TextAdded("fine"))
    assert (reader.text.take(), reader.text.is_broken) == ("fine", False)


def test_reader_that_takes_nothing_is_given_up() -> None:
    reader = Reader()
    piece = "x" * 100_000
    for _ in range(run_text.MAX_WAITING_CHARS // len(piece) + 1):
        reader.feed(TextAdded(piece))
    assert reader.text.is_too_long and reader.text.take() == ""


def test_reader_without_stream_is_told_of_approvals_alone() -> None:
    reader = Reader(streams=False).feed(TextAdded("a"), FAILED, TextAdded("b"))
    assert (reader.text.take(), reader.text.is_broken, reader.woken) == ("", False, 0)
    reader.feed(RunSuspended(("a1",)))
    assert reader.text.is_stopped and reader.text.approvals == ("a1",) and reader.woken == 1
