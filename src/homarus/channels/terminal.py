"""The terminal: lines in, a live view of the answer out."""

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
from homarus.core.text import one_line, reveal
from homarus.tools.caption import describe_call

DIM, RED, BOLD, PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
CLEAR_LINE = "\r\x1b[2K"


class Lines:
    """Lines a person types, read by a thread of their own so that nothing else waits.

    The thread is a daemon: a program that is done does not wait for another line.
    """

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._asked: SimpleQueue[tuple[str, Callable[[str | None], object]]] = SimpleQueue()
        self._thread = threading.Thread(target=self._read_on, name="terminal", daemon=True)

    async def read(self, prompt: str) -> str | None:
        """The next line, or None when there are no more."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()

        def tell(line: str | None) -> None:
            if not answer.done():
                answer.set_result(line)

        self._asked.put((prompt, lambda line: loop.call_soon_threadsafe(tell, line)))
        if not self._thread.is_alive():
            if self.interactive:
                import readline  # noqa: F401 - gives input() editing and history

            self._thread.start()
        return await answer

    def _read_on(self) -> None:
        while True:
            prompt, answer = self._asked.get()
            try:
                answer(input(prompt) if self.interactive else _piped_line())
            except EOFError:
                answer(None)
            except RuntimeError:  # the loop is closed: the program is ending
                return


def _piped_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


class View:
    """Shows a run as it happens: text as it comes, each tool call as one line."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._colour = colour
        self._open_line = False  # is the cursor behind text that no newline has ended?
        self._running: dict[str, ToolCall] = {}
        self._waiting_shown = False
        self.attempts: list[AttemptFailed] = []  # of the last run

    def show(self, event: Event) -> None:
        """Write what an event means for a person."""
        match event.fact:
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
                self.note(reveal(text))
            case MessageSaved() | RunEnded():
                self._end_line()
            case _:
                pass

    def note(self, text: str) -> None:
        """A line from the program itself, apart from what the agent says."""
        self._end_line()
        for line in text.splitlines():
            self._line(line)

    def error(self, text: str) -> None:
        """A line that something went wrong."""
        self._end_line()
        self._line(text, RED)

    def _line(self, text: str, paint: str = "") -> None:
        self._end_line()
        painted = f"{paint or DIM}{text}{PLAIN}" if self._colour else text
        self._out.write(f"{painted}\n")
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
        """On a colour terminal, name what is running until its own line replaces it."""
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
    """What a model wrote may not move the cursor or repaint the terminal."""
    return text if text.isprintable() else reveal(text)


def colour_wanted(out: TextIO) -> bool:
    """Whether to paint: a terminal, and nobody said no."""
    return out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
