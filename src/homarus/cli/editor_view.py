"""Print a run above the input line of a chat, and draw what is under way between the two."""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Final

from homarus.cli.markdown_text import MarkdownRenderer, MarkdownStream
from homarus.cli.terminal import BOLD, DIM, PLAIN, TerminalView
from homarus.cli.text_layout import clip, encode, printable, width, wrap
from homarus.core.event import Event, RunEnded, RunStarted, TextAdded, ToolEnded, ToolStarted
from homarus.tools.describe import describe_call

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_S: Final = 10
_HINT: Final = " · Ctrl-C stops"
_MAX_ECHOED_LINES: Final = 12
_MAX_PENDING_LINES: Final = 10  # of a block that is not complete: each frame draws them again


class EditorView(TerminalView):
    """Prints Markdown as it becomes complete; `get_above` returns the rest and the spinner.

    `print_above` prints complete lines above the input line; `refresh` has it drawn again.
    """

    def __init__(
        self,
        print_above: Callable[[str], None],
        refresh: Callable[[], None],
        get_columns: Callable[[], int],
        *,
        colour: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(sys.stdout, colour=colour)
        self._print_above, self._refresh, self._now_s = print_above, refresh, clock
        self._get_terminal_columns = get_columns
        self._stream = MarkdownStream(MarkdownRenderer(self._get_columns, colour=colour))
        self._waiting: list[float] = []  # when each message that has no outcome was sent
        self._step_at_s = 0.0  # when the model or a tool was called
        self._has_text = False  # of the message under way
        self._has_printed = False

    def _get_columns(self) -> int:
        """Return the width of a line: one column less, as some terminals wrap a full line."""
        return max(10, self._get_terminal_columns() - 1)

    def show(self, event: Event) -> None:
        if not self._is_asking:
            if isinstance(event.data, TextAdded):
                self._has_text = self._has_text or bool(event.data.delta.strip())
            else:
                self._has_text = False
            if isinstance(event.data, RunStarted | ToolStarted | ToolEnded):
                self._step_at_s = self._now_s()
            if isinstance(event.data, RunEnded):
                self._running.clear()
        super().show(event)
        if not isinstance(event.data, TextAdded):  # text is drawn with the spinner's next frame
            self._refresh()

    def start_waiting(self) -> None:
        """Show the spinner until `stop_waiting` was called as often."""
        self._waiting.append(self._now_s())
        if len(self._waiting) == 1:
            self._step_at_s = self._waiting[0]

    def stop_waiting(self) -> None:
        self._waiting.pop()
        if not self._waiting:
            self._end_line()
            self._running.clear()
        self._refresh()

    def echo(self, message: str) -> None:
        """Print a message that the person has sent."""
        lines = printable(message.expandtabs(4)).split("\n")
        hidden = len(lines) - _MAX_ECHOED_LINES
        shown = [*lines[:_MAX_ECHOED_LINES], f"… {hidden} more lines"] if hidden > 1 else lines
        columns = self._get_columns() - 2
        wrapped = [encode(part) for line in shown for part in wrap([(line, "")], columns)]
        marks = ["> ", *["  "] * (len(wrapped) - 1)]
        lines = [f"{mark}{line}" for mark, line in zip(marks, wrapped, strict=True)]
        gap = [""] if self._has_printed else []
        self._print([*gap, *(self._styled(line, BOLD) for line in lines)])

    def notice(self, text: str) -> None:
        """Print lines of the program itself, next to the answer that is under way."""
        for line in text.splitlines():
            self._print_wrapped(line, DIM)

    def error(self, text: str) -> None:
        self._line(text, "\x1b[31m")

    def close_question(self) -> None:
        super().close_question()
        self._step_at_s = self._now_s()

    def get_above(self, max_lines: int) -> list[str]:
        """Return the lines between what is printed and the input line."""
        status = [self._status()] if self._waiting else []
        pending = self._stream.pending() if self._waiting else []
        count = min(_MAX_PENDING_LINES, max(1, max_lines - len(status)))
        return [*pending[-count:], *status]

    def _status(self) -> str:
        """Return the spinner, what is waited for, and for how long."""
        now_s = self._now_s()
        frame = _FRAMES[int(now_s * _FRAMES_PER_S) % len(_FRAMES)]
        calls = [call for call, _ in self._running.values()]
        if calls:
            what = describe_call(calls[-1])
            what += f" and {len(calls) - 1} more" if len(calls) > 1 else ""
        else:
            what = "answering" if self._has_text else "waiting for the model"
        queued = len(self._waiting) - 1
        note = f" · {queued} more sent" if queued else ""
        spent = f" · {int(now_s - self._step_at_s)} s"
        room = self._get_columns() - len(f"{frame} {spent}{note}")
        shown = clip(printable(what), max(10, room))
        hint = _HINT if width(shown) + len(_HINT) <= room else ""
        return self._styled(f"{frame} {shown}{spent}{note}{hint}", DIM)

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{PLAIN}" if self._colour else text

    def _print(self, lines: Iterable[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if text:
            self._has_printed = True
            self._print_above(text)

    def _print_wrapped(self, text: str, style: str) -> None:
        indent = len(text) - len(text.lstrip(" "))
        lines = wrap([(printable(text.expandtabs(4)), "")], self._get_columns())
        blank = [" " * indent if indent < 10 and place else "" for place in range(len(lines))]
        self._print(
            self._styled(f"{before}{encode(line)}", style)
            for before, line in zip(blank, lines, strict=True)
        )

    def _line(self, text: str, colour_code: str = "") -> None:
        self._end_line()
        self._print_wrapped(text, colour_code or DIM)

    def _write(self, text: str) -> None:
        self._print(self._stream.feed(text))

    def _end_line(self) -> None:
        self._print(self._stream.end())
        super()._end_line()
