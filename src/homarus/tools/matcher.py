"""Find the matching lines of a text within a time limit.

Plain text is searched in this process. A regular expression runs in a child process, because one
like `(a+)+$` never ends and nothing else can stop it: the child is killed on timeout.
"""

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from homarus.core.errors import ToolError, ToolTimeoutError
from homarus.core.message import Json
from homarus.core.text import one_line

MAX_PATTERN_CHARS = 1000
PER_TEXT_S = 2.0
_START_S = 10.0
_POLL_S = 0.05
_SPECIAL = frozenset(r"\.^$*+?{}[]|()")
_CHILD = Path(__file__).with_name("matcher_child.py")


class Matcher(Protocol):
    """Finds matching lines. One thread uses it and closes it."""

    def find_lines(self, text: str, limit: int) -> list[int]:
        """Return the first matching line numbers, from 1. Raises ToolTimeoutError on timeout."""
        ...

    def close(self) -> None: ...


def make_matcher(
    pattern: str,
    *,
    literal: bool,
    ignore_case: bool,
    stop: threading.Event,
    per_text_s: float = PER_TEXT_S,
) -> Matcher:
    """Return the cheapest matcher for a pattern. Setting `stop` cancels it."""
    if not pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"a pattern has 1 to {MAX_PATTERN_CHARS} characters")
    if literal or not _SPECIAL & set(pattern):
        return LiteralMatcher(pattern, ignore_case=ignore_case)
    return RegexMatcher(pattern, ignore_case=ignore_case, stop=stop, per_text_s=per_text_s)


class LiteralMatcher:
    """Finds plain text."""

    def __init__(self, pattern: str, *, ignore_case: bool) -> None:
        self._ignore_case = ignore_case
        self._pattern = pattern.casefold() if ignore_case else pattern

    def find_lines(self, text: str, limit: int) -> list[int]:
        if self._pattern not in (text.casefold() if self._ignore_case else text):
            return []
        numbers: list[int] = []
        for number, line in enumerate(text.split("\n"), 1):
            if len(numbers) == limit:
                break
            if self._pattern in (line.casefold() if self._ignore_case else line):
                numbers.append(number)
        return numbers

    def close(self) -> None:
        """Do nothing: no resource is open."""


class RegexMatcher:
    """Runs a regular expression in a child process."""

    def __init__(
        self, pattern: str, *, ignore_case: bool, stop: threading.Event, per_text_s: float
    ) -> None:
        self._stop = stop
        self._per_text_s = per_text_s
        self._due_s: float | None = None
        self._closed = threading.Event()
        self._child = subprocess.Popen(  # noqa: S603 - our own file, no shell
            [sys.executable, "-I", "-S", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            request = json.dumps({"pattern": pattern, "ignore_case": ignore_case})
            answer = self._exchange(request, _START_S)
            if answer:
                reason = one_line(str(answer["error"]))
                raise ToolError(f"not a regular expression: {reason}", fix="is it literal text?")
        except ToolError:
            self.close()
            raise

    def find_lines(self, text: str, limit: int) -> list[int]:
        return [int(number) for number in self._exchange(f"{limit}\n{text}", self._per_text_s)]

    def close(self) -> None:
        self._closed.set()
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            with suppress(OSError):  # unsent data no longer matters
                pipe and pipe.close()

    def _exchange(self, text: str, timeout_s: float) -> Json:
        data = text.encode("utf-8", "replace")
        answer = b""
        self._due_s = time.monotonic() + timeout_s
        with suppress(BrokenPipeError):  # killed while it was reading
            if self._child.stdin and self._child.stdout:
                self._child.stdin.write(len(data).to_bytes(4, "big") + data)
                self._child.stdin.flush()
                answer = self._child.stdout.readline()
        self._due_s = None
        if not answer:
            raise ToolTimeoutError(
                "the pattern takes too long", fix="make it simpler, or set literal"
            )
        return json.loads(answer)

    def _watch(self) -> None:
        while not self._closed.wait(_POLL_S):
            due_s = self._due_s
            if self._stop.is_set() or (due_s is not None and time.monotonic() > due_s):
                self._child.kill()
                return
