"""What a person sees of a program's output: a small terminal with a scrollback.

It knows the sequences that a line editor uses: moves of the cursor, erasing, styles. Anything else
that could change a real terminal (titles, the clipboard, absolute positions) is recorded in
`strange`.
"""

import codecs
import fcntl
import os
import re
import select
import struct
import termios
import time
from collections.abc import Callable

from wcwidth import wcwidth

from tests.e2e.program import DEADLINE_S, Home, Terminal

_SEQUENCE = re.compile(
    r"\x1b\[(?P<private>\??)(?P<numbers>[\d;]*)(?P<final>[A-Za-z@`~])"
    r"|\x1b\](?P<title>[^\x07\x1b]*)(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>78cDEHM]"
)
_MODES = {"7", "12", "25", "2004", "1"}


class Screen:
    """The lines of a terminal: each cell has a character and its style, the numbers of SGR."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns, self.rows = columns, rows
        self.cells: list[list[tuple[str, str]]] = [[]]
        self.strange: list[str] = []
        self._x = self._y = 0
        self._pending = ""
        self._style: list[str] = []

    @property
    def lines(self) -> list[str]:
        """Everything that was printed, with what scrolled out of sight."""
        return ["".join(ch for ch, _ in row).rstrip() for row in self.cells]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    @property
    def cursor_line(self) -> str:
        return self.lines[self._y]

    def feed(self, text: str) -> None:
        """Show more output."""
        text, self._pending = self._pending + text, ""
        place = 0
        while place < len(text):
            if text[place] != "\x1b":
                self._put(text[place])
                place += 1
                continue
            found = _SEQUENCE.match(text, place)
            if found is None:
                if len(text) - place < 32:
                    self._pending = text[place:]  # the rest of it follows
                else:
                    self.strange.append(text[place : place + 32])
                    self._pending = text[place + 1 :]
                return
            self._obey(found)
            place = found.end()

    def _put(self, ch: str) -> None:
        if ch == "\n":
            self._down()
        elif ch == "\r":
            self._x = 0
        elif ch == "\b":
            self._x = max(0, self._x - 1)
        elif ch == "\t":
            self._x = min(self.columns - 1, (self._x // 8 + 1) * 8)
        elif ch < " " or ch == "\x7f":
            self.strange.append(ch)
        else:
            self._write(ch, wcwidth(ch))

    def _write(self, ch: str, own: int) -> None:
        row = self.cells[self._y]
        if own == 0:
            before = range(min(self._x, len(row)) - 1, -1, -1)
            place = next((n for n in before if row[n][0]), None)
            if place is not None:
                row[place] = (row[place][0] + ch, row[place][1])
            return
        if self._x + own > self.columns:
            self._x = 0
            self._down()
            row = self.cells[self._y]
        style = ";".join(self._style)
        row += [(" ", "")] * (self._x + own - len(row))
        row[self._x : self._x + own] = [(ch, style), *[("", style)] * (own - 1)]
        self._x += own

    def _down(self) -> None:
        self._y += 1
        if self._y == len(self.cells):
            self.cells.append([])

    def _obey(self, found: re.Match[str]) -> None:
        if found["final"] is None:
            self.strange.append(found[0])
            return
        numbers = [int(each) if each else 0 for each in found["numbers"].split(";")]
        count = max(1, numbers[0])
        top = max(0, len(self.cells) - self.rows)
        match found["final"]:
            case "A":
                self._y = max(top, self._y - count)
            case "B":
                self._y = min(len(self.cells) - 1, self._y + count)
            case "C":
                self._x = min(self.columns - 1, self._x + count)
            case "D":
                self._x = max(0, self._x - count)
            case "J" if numbers[0] == 0:
                del self.cells[self._y][self._x :], self.cells[self._y + 1 :]
            case "K" if numbers[0] == 0:
                del self.cells[self._y][self._x :]
            case "m":
                self._set_style(found["numbers"].split(";"))
            case "h" | "l" if found["private"] and found["numbers"] in _MODES:
                pass
            case _:
                self.strange.append(found[0])

    def _set_style(self, codes: list[str]) -> None:
        for code in codes:
            if code in {"", "0"}:
                self._style = []
            elif code in {"39", "49"}:
                self._style = [each for each in self._style if each[0] != code[0] or len(each) < 2]
            elif code not in self._style:
                self._style.append(code)


class ScreenTerminal(Terminal):
    """A program at a terminal of this size, as a person sees it."""

    def __init__(self, home: Home, *args: str, columns: int = 80, rows: int = 24) -> None:
        super().__init__(home, *args)
        self.shown, self.output = Screen(columns, rows), ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, size)

    def press(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def paste(self, text: str) -> None:
        """Paste as a terminal does that marks pasted text."""
        self.press(f"\x1b[200~{text}\x1b[201~")

    def wait_until(self, text: str, *, line: str | None = None) -> str:
        """Wait until `text` is shown, and the input line is `line`; return all that is shown."""

        def is_shown() -> bool:
            return text in self.shown.text and line in (None, self.shown.cursor_line)

        return self._wait(is_shown, f"no {text!r} above {line!r}")

    def wait_until_gone(self, text: str) -> str:
        """Wait until `text` is no longer shown; return all that is shown."""
        return self._wait(lambda: text not in self.shown.text, f"{text!r} is still there")

    def _wait(self, is_done: Callable[[], bool], problem: str) -> str:
        deadline_s = time.monotonic() + DEADLINE_S
        while not is_done():
            left_s = max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([self.descriptor], [], [], left_s)
            assert ready, f"{problem}:\n{self.shown.text}"
            self._read_once()
        return self.shown.text

    def read_available(self) -> None:
        """Show the output that there is, without waiting for more."""
        while select.select([self.descriptor], [], [], 0)[0]:
            self._read_once()

    def _read_once(self) -> None:
        data = self._decode(os.read(self.descriptor, 65_536))
        self.output += data
        self.shown.feed(data)
