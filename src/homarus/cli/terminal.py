"""Read lines from the terminal and print a run while it is under way."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TextIO

from homarus.core.event import (
    AttemptFailed,
    CommandAnswered,
    ErrorNoted,
    Event,
    MessageSaved,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.message import ToolCall
from homarus.core.text import escape_invisible, one_line
from homarus.tools.describe import describe_call

DIM, RED, BOLD, PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
CLEAR_LINE = "\r\x1b[2K"


class LineReader:
    """Read lines from standard input on a thread, so that the event loop is not blocked.

    The thread is a daemon: the program can exit while it waits for a line.
    """

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._requests: SimpleQueue[tuple[str, Callable[[str | None], object]]] = SimpleQueue()
        self._thread = threading.Thread(target=self._read_lines, name="terminal", daemon=True)

    async def read(self, prompt: str) -> str | None:
        """Return the next line, or None at the end of the input."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()

        def set_result(line: str | None) -> None:
            if not answer.done():
                answer.set_result(line)

        self._requests.put((prompt, lambda line: loop.call_soon_threadsafe(set_result, line)))
        if not self._thread.is_alive():
            if self.interactive:
                import readline  # noqa: F401 - gives input() editing and history

            self._thread.start()
        return await answer

    def _read_lines(self) -> None:
        while True:
            prompt, answer = self._requests.get()
            try:
                answer(input(prompt) if self.interactive else _piped_line())
            except EOFError:
                answer(None)
            except RuntimeError:  # the event loop is closed: the program is exiting
                return


def _piped_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


class TerminalView:
    """Print a run while it is under way: text as it streams, each tool call as one line."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._colour = colour
        self._open_line = False  # the cursor is behind text without a newline
        self._running: dict[str, ToolCall] = {}
        self._waiting_shown = False
        self.attempts: list[AttemptFailed] = []  # of the last run

    def show(self, event: Event) -> None:
        """Print an event."""
        match event.data:
            case TextAdded(delta):
                self._write(_printable(delta))
            case ToolStarted(call):
                self._running[call.id] = call
                self._end_line()
                self._show_waiting()
            case ToolEnded(result):
                call = self._running.pop(result.call_id)
                outcome = f"failed: {result.text}" if result.is_error else "ok"
                self._hide_waiting()
                self._line(
                    f"⚙ {describe_call(call)} → {one_line(outcome, 100)}", RED * result.is_error
                )
                self._show_waiting()
            case RunStarted():
                self.attempts.clear()
            case AttemptFailed() as failed:
                self.attempts.append(failed)
                wait = f" in {failed.wait_s:.0f} s" if failed.wait_s >= 1 else ""
                self._line(f"↻ {one_line(failed.error, 200)}; next: {failed.then}{wait}", RED)
            case ErrorNoted(message):
                self._line(f"! {message}", RED)
            case CommandAnswered(text) if text:
                self.notice(escape_invisible(text))
            case MessageSaved() | RunEnded():
                self._end_line()
            case _:
                pass

    def notice(self, text: str) -> None:
        """Print lines of the program itself, not of the agent."""
        self._end_line()
        for line in text.splitlines():
            self._line(line)

    def error(self, text: str) -> None:
        """Print an error."""
        self._end_line()
        self._line(text, RED)

    def _line(self, text: str, colour_code: str = "") -> None:
        self._end_line()
        coloured = f"{colour_code or DIM}{text}{PLAIN}" if self._colour else text
        self._out.write(f"{coloured}\n")
        self._out.flush()

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._open_line = not text.endswith("\n")

    def _end_line(self) -> None:
        self._hide_waiting()
        if self._open_line:
            self._out.write("\n")
            self._open_line = False

    def _show_waiting(self) -> None:
        """Name the tool calls under way until their own lines replace them; needs colours."""
        if self._colour and self._running:
            calls = ", ".join(describe_call(call) for call in self._running.values())
            self._out.write(f"{DIM}⚙ {one_line(calls, 70)} …{PLAIN}")
            self._out.flush()
            self._waiting_shown = True

    def _hide_waiting(self) -> None:
        if self._waiting_shown:
            self._out.write(CLEAR_LINE)
            self._waiting_shown = False


def _printable(text: str) -> str:
    """Escape control characters: a model may not move the cursor or repaint the terminal."""
    return text if text.isprintable() else escape_invisible(text)


def colour_wanted(out: TextIO) -> bool:
    """Return whether to use colours: on a terminal, unless the environment forbids it."""
    return out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
