"""Filter a model's text while it is being written.

`ReasoningFilter` separates text from reasoning (`<think>`, `<final>` and similar);
`DirectiveFilter` removes directives: reply tags, `MEDIA:` lines, the silent word on its own line.
Both receive deltas cut anywhere, and return each character as soon as it is clear what it belongs
to. In the end the result equals what `reply_parser` makes of the complete text.

A prefix that may still become a tag is held back until it is clear; never for longer than a line,
and within a line for a bounded number of characters only.
"""

import re
from typing import NamedTuple

from homarus.agent.reply.reply_parser import (
    REASONING_WORDS,
    ReplyDirectives,
    match_reasoning,
    read_line,
)
from homarus.core.fences import closes_fence, match_marker, opens_fence
from homarus.core.silent_reply import SILENT_WORD

_MAX_CODE_CHARS = 2_000  # longer inline code is not held back
_MAX_TAG_CHARS = 240
_TURN = re.compile(r"[`<]")
_RUN = re.compile(r"`+")
_TAG_HEAD = re.compile(r"<\s{0,4}/?\s{0,4}(?:antml:)?([a-z]*)", re.IGNORECASE)
_NO_TAG = re.compile(r"\A\w|[<>]")
_FENCE_HEAD = re.compile(r" {0,3}(?:`{0,2}|~{0,2})")
_LINE_WORDS = ("MEDIA:", SILENT_WORD)


class FilteredText(NamedTuple):
    """Newly clear text: visible text, and reasoning."""

    visible: str
    reasoning: str


class ReasoningFilter:
    """Separates visible text from reasoning."""

    def __init__(self) -> None:
        self._rest = ""  # of the current line; from `_at` on it is not clear yet
        self._at = 0
        self._at_start = True  # nothing of the current line is clear yet
        self._verbatim = False  # the line is in a code fence
        self._thinking = False
        self._fences = _FenceTracker()
        self._visible: list[str] = []
        self._reasoning: list[str] = []

    def feed(self, piece: str) -> FilteredText:
        """Read the next piece; return what is clear now."""
        *lines, last = (self._rest + piece).split("\n")
        for line in lines:
            self._rest, self._at = line, 0
            self._read(complete=True)
            self._end_line()
        self._rest, self._at = last, 0
        self._read(complete=False)
        self._rest, self._at = self._rest[self._at :], 0
        return self._take()

    def finish(self) -> FilteredText:
        """Return what was held back: the text is complete."""
        self._read(complete=True)
        self._rest, self._at = "", 0
        return self._take()

    def _take(self) -> FilteredText:
        split = FilteredText("".join(self._visible), "".join(self._reasoning))
        self._visible.clear()
        self._reasoning.clear()
        return split

    def _read(self, *, complete: bool) -> None:
        """Read the current line as far as it is clear."""
        if self._at_start and not self._begin_line(complete=complete):
            return
        while self._at < len(self._rest):
            if self._verbatim:
                self._emit_visible(len(self._rest))
            elif self._thinking:
                if not self._read_reasoning(complete=complete):
                    return
            elif not self._read_visible(complete=complete):
                return

    def _begin_line(self, *, complete: bool) -> bool:
        """Find out whether a line belongs to a code fence; False when that is not clear yet."""
        line = self._rest
        if not self._thinking and not self._fences.inside:
            if not complete and (_FENCE_HEAD.fullmatch(line) or _may_open_fence(line)):
                return False
            marker = match_marker(line)
            self._verbatim = marker is not None and opens_fence(*marker)
        elif self._fences.inside:
            self._verbatim = True
        self._at_start = False
        return True

    def _read_visible(self, *, complete: bool) -> bool:
        """Read on in visible text; False when the rest is not clear yet."""
        rest, at = self._rest, self._at
        turn = _TURN.search(rest, at)
        if turn is None or turn.start() > at:
            self._emit_visible(turn.start() if turn else len(rest))
            return True
        if turn[0] == "`":
            return self._read_code(complete=complete)
        if self._consume_tag():
            return True
        if not complete and _may_become_tag(rest, at):
            return False
        self._emit_visible(at + 1)
        return True

    def _read_reasoning(self, *, complete: bool) -> bool:
        """Read on in reasoning, where code does not count; False when the rest is not clear yet."""
        rest, at = self._rest, self._at
        turn = rest.find("<", at)
        if turn != at:
            self._emit_reasoning(turn if turn >= 0 else len(rest))
            return True
        if self._consume_tag():
            return True
        if not complete and _may_become_tag(rest, at):
            return False
        self._emit_reasoning(at + 1)
        return True

    def _consume_tag(self) -> bool:
        """Consume a reasoning tag at this position. `<final>` also ends unclosed reasoning."""
        tag = match_reasoning(self._rest, self._at)
        if tag is None:
            return False
        self._at = tag.end()
        self._thinking = not tag[1] and tag[2].lower() != "final"
        return True

    def _read_code(self, *, complete: bool) -> bool:
        """Read inline code: from a run of backticks to the next of the same length."""
        rest = self._rest
        runs = _RUN.finditer(rest, self._at)
        first = next(runs)
        close = next((run for run in runs if len(run[0]) == len(first[0])), None)
        end = close.end() if close else first.end()
        growing = not complete and (end == len(rest) or close is None)
        if growing and len(rest) - self._at <= _MAX_CODE_CHARS:
            return False
        self._emit_visible(end)
        return True

    def _emit_visible(self, end: int) -> None:
        text = self._rest[self._at : end]
        self._at = end
        self._visible.append(text)
        self._fences.add(text)

    def _emit_reasoning(self, end: int) -> None:
        self._reasoning.append(self._rest[self._at : end])
        self._at = end

    def _end_line(self) -> None:
        self._at_start, self._verbatim = True, False
        if self._thinking:
            self._reasoning.append("\n")
        else:
            self._visible.append("\n")
            self._fences.end_line()


def _may_open_fence(line: str) -> bool:
    """Whether the end of the line decides: backticks after backticks open no fence."""
    marker = match_marker(line)
    if marker is None or len(line) > _MAX_TAG_CHARS:
        return False
    return marker[0][0] == "`" and opens_fence(*marker)


def _may_become_tag(text: str, at: int) -> bool:
    """Whether the `<` at this position may start a reasoning tag."""
    found = _TAG_HEAD.match(text, at)
    if found is None or len(text) - at > _MAX_TAG_CHARS:
        return False
    word, after = found[1].lower(), text[found.end() :]
    if not after:
        return any(name.startswith(word) for name in (*REASONING_WORDS, "antml:"))
    return word in REASONING_WORDS and not _NO_TAG.search(after)


class _FenceTracker:
    """Tracks the open code fence, line by line."""

    def __init__(self) -> None:
        self._opener = ""
        self._line: list[str] = []

    @property
    def inside(self) -> bool:
        return bool(self._opener)

    def add(self, text: str) -> None:
        self._line.append(text)

    def end_line(self) -> None:
        marker = match_marker("".join(self._line))
        self._line.clear()
        if self._opener:
            if marker and closes_fence(self._opener, *marker):
                self._opener = ""
        elif marker and opens_fence(*marker):
            self._opener = marker[0]


class DirectiveFilter:
    """Removes directives from visible text and collects them in `directives`."""

    def __init__(self) -> None:
        self.directives = ReplyDirectives([])
        self._fences = _FenceTracker()
        self._shown: list[str] = []  # of the current line
        self._rest = ""  # of the current line, not shown yet
        self._gap = ""  # line ends held back until a visible line follows

    def feed(self, piece: str) -> str:
        """Read the next piece; return what can be shown now."""
        *lines, last = (self._rest + piece).split("\n")
        out: list[str] = []
        for line in lines:
            self._rest = line
            out += self._end_line("\n")
        self._rest = last
        out += self._begin_line()
        return "".join(out)

    def finish(self) -> str:
        """Return the rest: the text is complete."""
        return "".join(self._end_line(""))

    def _begin_line(self) -> list[str]:
        """Return the part of an unfinished line that can only be text."""
        rest = self._rest
        if self._fences.inside:
            end = len(rest)
        elif not self._shown and _may_be_directive(rest):
            end = 0
        else:  # trailing white space is removed when a tag follows
            end = len(rest[: _first_bracket(rest)].rstrip())
        self._rest = rest[end:]
        if end:
            self._shown.append(rest[:end])
        return self._show(rest[:end])

    def _end_line(self, newline: str) -> list[str]:
        shown = "".join(self._shown)
        line = shown + self._rest
        was_inside = self._fences.inside
        self._fences.add(line)
        self._fences.end_line()
        is_code = was_inside or self._fences.inside
        left = line if is_code else read_line(line, self.directives)
        self._shown, self._rest = [], ""
        if left is None:
            return []
        out = self._show(left[len(shown) :])
        self._gap += newline
        return out

    def _show(self, text: str) -> list[str]:
        if not text:
            return []
        gap, self._gap = self._gap, ""
        return [gap, text]


def _may_be_directive(line: str) -> bool:
    """Whether an unfinished line may become a `MEDIA:` line or the silent word."""
    text = line.strip()
    return any(word.startswith(text) or text.startswith(word) for word in _LINE_WORDS)


def _first_bracket(line: str) -> int:
    """Return where a tag may start in a line, else the line's end."""
    at = line.find("[[")
    if at >= 0:
        return at
    return len(line) - 1 if line.endswith("[") else len(line)
