"""Read lines from the terminal and print a run while it is under way."""

import asyncio
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Final, TextIO

from homarus.cli.text_layout import QUESTION_MARK, clusters, printable
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
from homarus.core.message import ToolCall, ToolResult
from homarus.core.text import escape_controls, one_line
from homarus.tools.describe import describe_call

__all__ = ["QUESTION_MARK", "LineReader", "TerminalView", "colour_possible", "colour_wanted"]

DIM, RED, BOLD, PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
REVERSE, CLEAR_LINE = "\x1b[7m", "\r\x1b[2K"
QUESTION_PROMPT = "Allow? [y/N]"
QUESTION_PROMPT_ALWAYS = "Allow? y: once, a: always, N: no [y/a/N]"
_MIN_SHOWN_S: Final = 0.1  # a shorter call's duration is not shown
_MORE_LINES_S: Final = 0.03  # lines that arrive together are one message
_MAX_LINE_BYTES: Final = 65_536


class LineReader:
    """Read lines from standard input on a thread, so that the event loop is not blocked.

    For a pipe, and for a terminal that cannot move its cursor. The thread is a daemon: the program
    can exit while it waits for a line.
    """

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self.terminal = asyncio.Lock()  # held by what reads from it: a line, or an approval prompt
        self._requests: SimpleQueue[tuple[str, Callable[[str | None], object]]] = SimpleQueue()
        self._thread = threading.Thread(target=self._read_lines, name="terminal", daemon=True)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Give the terminal to the caller, after the line that is being read."""
        async with self.terminal:
            yield

    async def read(self, prompt: str) -> str | None:
        """Return the next line, or None at the end of the input."""
        async with self.terminal:
            return await self._read(prompt)

    async def _read(self, prompt: str) -> str | None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()

        def set_result(line: str | None) -> None:
            if not answer.done():
                answer.set_result(line)

        self._requests.put((prompt, lambda line: loop.call_soon_threadsafe(set_result, line)))
        if not self._thread.is_alive():
            self._thread.start()
        return await answer

    def _read_lines(self) -> None:
        while True:
            prompt, answer = self._requests.get()
            try:
                answer(_typed_lines(prompt) if self.interactive else _piped_line())
            except EOFError:
                answer(None)
            except RuntimeError:  # the event loop is closed: the program is exiting
                return


def _piped_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _typed_lines(prompt: str) -> str:
    """Return a line, with those that arrive together with it: a pasted text is one message."""
    sys.stdout.write(prompt)
    sys.stdout.flush()
    descriptor, data = sys.stdin.fileno(), b""
    while not data or select.select([descriptor], [], [], _MORE_LINES_S)[0]:
        piece = os.read(descriptor, _MAX_LINE_BYTES)
        data += piece
        if not piece:
            break
    if not data:
        raise EOFError
    return data.decode("utf-8", "replace").rstrip("\n")


class TerminalView:
    """Print a run while it is under way: text as it streams, each tool call as one line."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._colour = colour
        self._open_line = False  # the cursor is behind text without a newline
        self._running: dict[str, tuple[ToolCall, float]] = {}  # and when it started
        self._asked_s, self._asked_at_s = 0.0, 0.0  # how long questions were open
        self._has_styles = colour or colour_possible(out)
        self._is_asking = False
        self._held: list[Event] = []  # what happened while a question is open
        self.attempts: list[AttemptFailed] = []  # of the last run

    def show(self, event: Event) -> None:
        """Print an event, after an open question has been answered."""
        if self._is_asking:
            self._held.append(event)
            return
        match event.data:
            case TextAdded(delta, media):
                self._show_text(delta, media)
            case ToolStarted(call):
                self._running[call.id] = call, event.ts_ms / 1000 - self._asked_s
                self._end_line()
            case ToolEnded(result):
                self._show_ended(result, event.ts_ms)
            case RunStarted():
                self.attempts.clear()
                self._running.clear()
            case AttemptFailed() as failed:
                self.attempts.append(failed)
                wait = f" in {failed.wait_s:.0f} s" if failed.wait_s >= 1 else ""
                self._line(f"↻ {one_line(failed.error, 200)}; next: {failed.then}{wait}", RED)
            case ErrorNoted(message):
                self._line(f"! {message}", RED)
            case CommandAnswered(text) if text:
                self.notice(text)
            case MessageSaved() | RunEnded():
                self._end_line()
            case _:
                pass

    def _show_text(self, text: str, media: Sequence[str]) -> None:
        if text:
            self._write(text)
        for path in media:
            self._line(f"📎 {one_line(path, 200)}")

    def _show_ended(self, result: ToolResult, at_ms: int) -> None:
        now_s = at_ms / 1000 - self._asked_s  # the time of a question is not the call's
        unknown = ToolCall(result.call_id, result.name, {}), now_s
        call, started_s = self._running.pop(result.call_id, unknown)
        reason = f": {result.text}" if result.text else ""  # a gateway may keep it to itself
        outcome = one_line(f"failed{reason}", 100, escape_controls)
        spent_s = now_s - started_s
        spent = f" · {format_seconds(spent_s)}" if spent_s >= _MIN_SHOWN_S else ""
        shown = f"⚙ {describe_call(call)} → {outcome if result.is_error else 'ok'}{spent}"
        self._line(shown, RED * result.is_error)

    def notice(self, text: str) -> None:
        """Print lines of the program itself, not of the agent."""
        self._end_line()
        for line in text.splitlines():
            self._line(line)

    def error(self, text: str) -> None:
        """Print an error."""
        self._end_line()
        self._line(text, RED)

    def end_answer(self) -> None:
        """Start a new line, if the text of the answer has not ended with one."""
        self._end_line()

    def open_question(self, title: str, detail: str) -> None:
        """Print a question in a form of its own; events wait until it is closed."""
        self._end_line()
        self._is_asking, self._asked_at_s = True, time.monotonic()
        columns = max(20, shutil.get_terminal_size().columns - len(QUESTION_MARK) - 2)
        self._print_marked(one_line(title, columns), REVERSE)
        for line in printable(detail).split("\n"):
            for part in _wrap(line.expandtabs(), columns):
                self._print_marked(part)

    def prompt_for_answer(
        self, note: str = "", *, offers_always: bool = False, prompt: str = ""
    ) -> None:
        """Print the prompt of the open question, below a note if there is one."""
        if note:
            self._print_marked(note)
        prompt = prompt or (QUESTION_PROMPT_ALWAYS if offers_always else QUESTION_PROMPT)
        self._print_marked(prompt, REVERSE, end=" ")
        self._open_line = True

    def echo_answer(self, before: str, after: str) -> None:
        """Print what changed in the answer that is being typed."""
        kept = len(after) if before.startswith(after) else len(before)
        self._out.write("\b \b" * (len(before) - kept) + after[kept:])
        self._out.flush()

    def close_question(self) -> None:
        """End the question and print the events that waited."""
        self._end_line()
        self._asked_s += time.monotonic() - self._asked_at_s
        self._is_asking, held, self._held = False, self._held, []
        for event in held:
            self.show(event)

    def _print_marked(self, text: str, style: str = "", end: str = "\n") -> None:
        marked = f"{QUESTION_MARK} {text}"
        styled = f"{style}{marked}{PLAIN}" if style and self._has_styles else marked
        self._out.write(f"{styled}{end}")
        self._out.flush()

    def _line(self, text: str, colour_code: str = "") -> None:
        self._end_line()
        text = printable(text)
        coloured = f"{colour_code or DIM}{text}{PLAIN}" if self._colour else text
        self._out.write(f"{coloured}\n")
        self._out.flush()

    def _write(self, text: str) -> None:
        text = printable(text)
        self._out.write(text)
        self._out.flush()
        self._open_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._open_line:
            self._out.write("\n")
            self._open_line = False


def format_seconds(seconds: float) -> str:
    """Format a duration for people: `0.4 s`, `12 s`, `3 min 5 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _wrap(line: str, columns: int) -> list[str]:
    """Cut a line for the terminal, which would continue it without the mark of a question."""
    parts, used = [""], 0
    for cluster, width in clusters(line):
        if used + width > columns:
            parts.append("")
            used = 0
        parts[-1] += cluster
        used += width
    return parts


def colour_possible(out: TextIO) -> bool:
    """Return whether this is a terminal that understands colours and styles."""
    return out.isatty() and os.environ.get("TERM") != "dumb"


def colour_wanted(out: TextIO) -> bool:
    """Return whether to use colours: on a terminal, unless the environment forbids it."""
    return colour_possible(out) and not os.environ.get("NO_COLOR")
