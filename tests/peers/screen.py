"""A program on its own screen: tmux shows it, and presses its keys."""

import os
import select
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 60.0


class Screen:
    """What a program shows now."""

    def __init__(self, socket: Path, news: int) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        self._news, self._written = news, socket.with_name("written")

    @property
    def written(self) -> bytes:
        """Everything that the program has written to its terminal."""
        return self._written.read_bytes()

    def tmux(self, *args: str) -> str:
        done = subprocess.run([*self._tmux, *args], capture_output=True, text=True, check=True)
        return done.stdout

    @property
    def text(self) -> str:
        return self.tmux("capture-pane", "-p", "-J")

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def press(self, key: str) -> None:
        self.tmux("send-keys", key)

    def resize(self, columns: int, rows: int) -> None:
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def paste(self, text: str) -> None:
        """Paste as a terminal does that marks pasted text."""
        file = self._written.with_name("pasted")
        file.write_text(text, encoding="utf-8")
        self.tmux("load-buffer", str(file))
        self.tmux("paste-buffer", "-p", "-r")

    def enter(self, text: str) -> None:
        """Type a line and send it, once the program shows what was typed."""
        self.type(text)
        self.wait_for(text)
        self.press("Enter")

    def wait_for(self, text: str, *, gone: bool = False) -> str:
        """Return the complete screen, as soon as `text` is on it, or no longer on it."""
        deadline_s = time.monotonic() + DEADLINE_S
        while (text in (shown := self.text)) is gone:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"{'still' if gone else 'no'} {text!r} on the screen:\n{shown}"
            if select.select([self._news], [], [], min(left_s, 1.0))[0]:
                os.read(self._news, 65_536)  # it wrote something: check again
        return shown


@contextmanager
def shown(
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    *,
    columns: int = 120,
    rows: int = 40,
) -> Iterator[Screen]:
    """Run the program under tmux while the block lasts."""
    socket, pipe = folder / "tmux", folder / "news"
    os.mkfifo(pipe)
    news = os.open(pipe, os.O_RDWR)  # read and write, so that it never ends
    screen = Screen(socket, news)
    # A shell that waits, then becomes the program: no output before we listen.
    line = shlex.join(["env", "-i", *(f"{k}={v}" for k, v in env.items()), *command])
    try:
        size = ("-x", str(columns), "-y", str(rows))
        screen.tmux("new-session", "-d", *size, f"read go; exec {line}")
        written = shlex.quote(str(folder / "written"))
        screen.tmux("pipe-pane", "-o", f"tee {written} > {shlex.quote(str(pipe))}")
        screen.press("Enter")
        yield screen
    finally:
        subprocess.run([*screen._tmux, "kill-server"], check=False, capture_output=True)
        os.close(news)
