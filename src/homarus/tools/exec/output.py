"""Collect a command's output: decoded, bounded, with throttled progress. No I/O."""

import codecs
from collections.abc import Callable

PROGRESS_EVERY_S = 0.1
PROGRESS_CHARS = 4_000


class OutputBuffer:
    """Stores the head and the tail of any amount of text."""

    def __init__(self, max_chars: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head_chars = max_chars * 2 // 3
        self._tail_chars = max_chars - self._head_chars
        self._head = ""
        self._tail = ""
        self._total = 0

    @property
    def total_chars(self) -> int:
        """The size of all text that was added, also of what is left out."""
        return self._total

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """Return the text of a part of the output, which may end within a character."""
        return self._decoder.decode(data, final)

    def add(self, data: bytes, *, final: bool = False) -> str:
        """Add output and return its text."""
        return self.add_text(self.decode(data, final=final))

    def add_text(self, text: str) -> str:
        """Add text and return it."""
        self._total += len(text)
        room = self._head_chars - len(self._head)
        self._head += text[:room] if room > 0 else ""
        self._tail += text[max(room, 0) :]
        if len(self._tail) > 2 * self._tail_chars:
            self._tail = self._tail[-self._tail_chars :]
        return text

    @property
    def text(self) -> str:
        left_out = self._total - len(self._head) - self._tail_chars
        if left_out <= 0:
            return self._head + self._tail
        tail = self._tail[-self._tail_chars :]
        return f"{self._head}\n\n[… {left_out} characters left out …]\n\n{tail}"


class ProgressThrottle:
    """Passes on the newest text, limited in rate and size."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._waiting = ""
        self._next_s = 0.0

    def add(self, text: str, now_s: float) -> None:
        self._waiting = (self._waiting + text)[-PROGRESS_CHARS:]
        if now_s >= self._next_s:
            self.flush(now_s)

    def flush(self, now_s: float) -> None:
        if self._waiting:
            self._show(self._waiting)
            self._waiting = ""
            self._next_s = now_s + PROGRESS_EVERY_S

    def due_in_s(self, now_s: float) -> float | None:
        """Return the time until pending text may be passed on."""
        return max(0.0, self._next_s - now_s) if self._waiting else None
