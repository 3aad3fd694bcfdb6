"""Filter a model's text while it is being written.

`ReasoningFilter` separates text from reasoning (`<think>`, `<final>` and similar), of which no tag
counts inside code; `directive_filter` has the other one.

Both receive pieces cut anywhere, and return each character as soon as it is clear what it belongs
to. What they return in all depends on the text alone, not on where it was cut: what may still
become a tag is held back, and whatever is held back has a maximum length that is a rule for
complete texts too. The time is linear in the text.
"""

import re
from typing import Final, NamedTuple

from homarus.agent.reply.reply_parser import REASONING_WORDS, match_reasoning
from homarus.core.fences import closes_fence, match_marker, opens_fence

_MAX_CODE_CHARS: Final = 2_000  # longer inline code is text
_MAX_TAG_CHARS: Final = 240
MAX_HEAD_CHARS: Final = 240  # of a line; they decide whether it opens a code fence
_TURN = re.compile(r"[`<]")
_RUN = re.compile(rf"`{{1,{_MAX_CODE_CHARS}}}")
_ASCII_WORDS: Final = re.IGNORECASE | re.ASCII  # else `ı` equals `i` here, and not in `lower`
_TAG_HEAD = re.compile(r"<\s{0,4}/?\s{0,4}(?:antml:)?([a-z]*)", _ASCII_WORDS)
_NO_TAG = re.compile(r"\A\w|[<>]", re.ASCII)
_FENCE_HEAD = re.compile(r" {0,3}(?:`{0,2}|~{0,2})")
_FENCE_START = re.compile(r" {0,3}[`~]")


class FilteredText(NamedTuple):
    """Newly clear text: visible text, and reasoning."""

    visible: str
    reasoning: str


class ReasoningFilter:
    """Separates visible text from reasoning.

    With `final_only`, only text in `<final>` is visible. A model that never writes this tag has
    not followed the hint in its prompt: the end of its text then makes all of it visible.
    """

    def __init__(self, *, final_only: bool = False) -> None:
        self._outside: list[str] | None = [] if final_only else None  # while it is not visible
        self._final_only, self._has_final = final_only, False
        self._rest = ""  # of the current line; from `_at` on it is not clear yet
        self._at = 0
        self._at_start = True  # nothing of the current line is clear yet
        self._verbatim = False  # the line is in a code fence
        self._thinking = False
        self._fences = FenceTracker()
        self._visible: list[str] = []
        self._reasoning: list[str] = []

    def feed(self, piece: str) -> FilteredText:
        """Read the next piece; return what is clear now."""
        *lines, last = (self._rest + piece).split("\n")
        for line in lines:
            if line:
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
        if self._outside and not self._has_final:
            self._visible += self._outside
        return self._take()

    @property
    def is_in_plain_line(self) -> bool:
        """Whether text without `<`, a backtick or a line end is visible as it is."""
        return (
            not (self._rest or self._at_start or self._thinking)
            and self._outside is None
            and self._fences.is_plain
        )

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
        if self._fences.inside:
            self._verbatim = True
        elif not self._thinking:
            opens = opens_code_fence(self._rest[: MAX_HEAD_CHARS + 1], complete=complete)
            if opens is None:
                return False
            self._verbatim = opens
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
        is_final = tag[2].lower() == "final"
        self._thinking = not tag[1] and not is_final
        if is_final and self._final_only:
            self._enter_final(is_open=not tag[1])
        return True

    def _enter_final(self, *, is_open: bool) -> None:
        if is_open:
            self._has_final, self._outside = True, None
            self._fences.restart_line()  # the text before it on this line is not visible
        elif self._has_final:
            self._outside = []

    def _read_code(self, *, complete: bool) -> bool:
        end = find_code_end(self._rest, self._at, len(self._rest), complete=complete)
        if end is not None:
            self._emit_visible(end)
        return end is not None

    def _emit_visible(self, end: int) -> None:
        text = self._rest[self._at : end]
        self._at = end
        self._show(text)
        self._fences.add(text)

    def _show(self, text: str) -> None:
        if self._outside is None:
            self._visible.append(text)
        elif not self._has_final:
            self._outside.append(text)

    def _emit_reasoning(self, end: int) -> None:
        self._reasoning.append(self._rest[self._at : end])
        self._at = end

    def _end_line(self) -> None:
        self._at_start, self._verbatim = True, False
        if self._thinking:
            self._reasoning.append("\n")
        else:
            self._show("\n")
            self._fences.end_line()


def opens_code_fence(head: str, *, complete: bool) -> bool | None:
    """Whether a line with this start opens a code fence; None when that is not clear yet."""
    marker = match_marker(head)
    # Backticks after backticks open no fence: the end of the line decides.
    is_open = marker is not None and marker[0][0] == "`" and opens_fence(*marker)
    if not complete and len(head) <= MAX_HEAD_CHARS and (is_open or _FENCE_HEAD.fullmatch(head)):
        return None
    return marker is not None and opens_fence(*marker)


def find_code_end(text: str, at: int, end: int, *, complete: bool) -> int | None:
    """Return where the inline code that starts at this backtick ends, None when it is not clear.

    Code extends from a run of backticks to the next of the same length, in one line; a run
    without such an end is text.
    """
    first, limit = len(_run(text, at, end)), at + _MAX_CODE_CHARS
    for run in _RUN.finditer(text, at + first, min(end, limit + 1)):
        if run.end() > limit:
            break
        if len(run[0]) == first:
            return run.end() if complete or run.end() < end else None
    return at + first if complete or end > limit else None


def _run(text: str, at: int, end: int) -> str:
    found = _RUN.match(text, at, end)
    return found[0] if found else ""


def _may_become_tag(text: str, at: int) -> bool:
    """Whether the `<` at this position may start a reasoning tag."""
    found = _TAG_HEAD.match(text, at)
    if found is None or len(text) - at > _MAX_TAG_CHARS:
        return False
    word, after = found[1].lower(), text[found.end() :]
    if not after:
        return any(name.startswith(word) for name in (*REASONING_WORDS, "antml:"))
    return word in REASONING_WORDS and not _NO_TAG.search(after)


class FenceTracker:
    """Tracks the open code fence, line by line."""

    def __init__(self) -> None:
        self._opener = ""
        self.restart_line()

    def restart_line(self) -> None:
        """Forget the text of the current line."""
        self._line: list[str] = []
        self._head = ""
        self.is_plain = False  # the line can neither open nor close a fence

    @property
    def inside(self) -> bool:
        return bool(self._opener)

    def add(self, text: str) -> None:
        if self.is_plain:
            return
        self._line.append(text)
        if len(self._head) < 4:
            self._head += text[:4]
            self.is_plain = len(self._head) >= 4 and _FENCE_START.match(self._head) is None

    def end_line(self) -> None:
        if not self._line:
            return
        marker = None if self.is_plain else match_marker("".join(self._line))
        self.restart_line()
        if self._opener:
            if marker and closes_fence(self._opener, *marker):
                self._opener = ""
        elif marker and opens_fence(*marker):
            self._opener = marker[0]
