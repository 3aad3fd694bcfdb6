"""The text of a run as it is written, for one reader that may be slower than the model.

It is collected from the run's events and taken in one piece: what a reader has not taken is as long
as the text itself, never a queue of events. An attempt that failed is followed by another, whose
text must begin with what readers have: what they have cannot be taken back.
"""

from collections.abc import Callable
from typing import Final

from homarus.core.event import (
    AttemptFailed,
    Event,
    MessageSaved,
    RunSuspended,
    TextAdded,
)

MAX_WAITING_CHARS: Final = 4_000_000
_GAP: Final = "\n\n"  # between the messages of one run


class RunText:
    """The text of a run that its reader has not taken; `on_change` is called when there is more.

    A reader that does not stream gets no text: the outcome of the run has it.
    """

    def __init__(self, on_change: Callable[[], None], *, streams: bool) -> None:
        self._on_change, self._streams = on_change, streams
        self._waiting: list[str] = []
        self._waiting_chars = 0
        self._message = ""  # the text of the current message, as readers have it
        self._expected = ""  # of it, what the next attempt has to repeat
        self._repeated = ""
        self._has_text = False
        self.is_broken = False  # another attempt wrote something else
        self.is_too_long = False  # for a reader that takes nothing
        self.is_suspended = False
        self.approvals: tuple[str, ...] = ()  # that a suspended run waits for

    def feed(self, event: Event) -> None:
        """Process an event of the run."""
        match event.data:
            case RunSuspended(approvals):
                self.is_suspended, self.approvals = True, approvals
            case _ if not self._streams:
                return
            case TextAdded(delta):
                self._add(delta)
            case MessageSaved(message) if message.role == "assistant":
                self.is_broken = self.is_broken or bool(self._expected)
                self._message = self._expected = self._repeated = ""
                return
            case AttemptFailed():
                self._expected, self._message, self._repeated = self._message, "", ""
                return
            case _:
                return
        self._on_change()

    @property
    def is_stopped(self) -> bool:
        """Whether no more text follows for this reader, although the run has no outcome."""
        return self.is_suspended or self.is_broken or self.is_too_long

    @property
    def was_streamed(self) -> bool:
        """Whether there was any text."""
        return self._has_text

    def take(self) -> str:
        """Return the text since the last call."""
        text = "".join(self._waiting)
        self._waiting.clear()
        self._waiting_chars = 0
        return text

    def _add(self, delta: str) -> None:
        if self._expected:
            delta = self._repeat(delta)
        if not delta:
            return
        gap = _GAP if self._has_text and not self._message else ""
        self._message += delta
        self._has_text = True
        self._waiting += (gap, delta) if gap else (delta,)
        self._waiting_chars += len(delta)
        if self._waiting_chars > MAX_WAITING_CHARS:
            self.is_too_long = True
            self._waiting.clear()

    def _repeat(self, delta: str) -> str:
        """Return what a new attempt adds to the text that readers have."""
        expected, self._repeated = self._expected, self._repeated + delta
        if expected.startswith(self._repeated):
            if expected == self._repeated:
                self._message, self._expected, self._repeated = expected, "", ""
            return ""
        if self._repeated.startswith(expected):
            added = self._repeated[len(expected) :]
            self._message, self._expected, self._repeated = expected, "", ""
            return added
        self.is_broken = True
        return ""
