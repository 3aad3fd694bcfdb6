"""Filter a model's text while it is being written.

`ReasoningFilter` separates text from reasoning (`<think>`, `<final>` and similar);
`DirectiveFilter` removes reply tags, `MEDIA:` lines, lines with the silent word alone, and tool
calls that were written as text. None of them counts inside code, except in reasoning.

Both receive pieces cut anywhere, and return each character as soon as it is clear what it belongs
to. What they return in all depends on the text alone, not on where it was cut: what may still
become a tag is held back, and whatever is held back has a maximum length that is a rule for
complete texts too. The time is linear in the text.
"""

import re
from typing import Final, Literal, NamedTuple

from homarus.agent.reply.reply_parser import (
    REASONING_WORDS,
    ReplyDirectives,
    match_reasoning,
    split_media,
)
from homarus.core.fences import closes_fence, match_marker, opens_fence
from homarus.core.silent_reply import SILENT_WORD

_MAX_CODE_CHARS: Final = 2_000  # longer inline code is text
_MAX_TAG_CHARS: Final = 240
_MAX_HEAD_CHARS: Final = 240  # of a line; they decide whether it opens a code fence
_MAX_MEDIA_LINE_CHARS: Final = 16_000
_MAX_DIRECTIVE_CHARS: Final = 4_200
_MAX_MARKER_CHARS: Final = 400
_MAX_SILENT_LINE_CHARS: Final = 64
_TURN = re.compile(r"[`<]")
_RUN = re.compile(rf"`{{1,{_MAX_CODE_CHARS}}}")
_ASCII_WORDS: Final = re.IGNORECASE | re.ASCII  # else `ı` equals `i` here, and not in `lower`
_TAG_HEAD = re.compile(r"<\s{0,4}/?\s{0,4}(?:antml:)?([a-z]*)", _ASCII_WORDS)
_NO_TAG = re.compile(r"\A\w|[<>]", re.ASCII)
_FENCE_HEAD = re.compile(r" {0,3}(?:`{0,2}|~{0,2})")
_FENCE_START = re.compile(r" {0,3}[`~]")

_BRACKET = re.compile(r"[`\[]")
_DIRECTIVE = re.compile(rf"\[\[([^\[\]\n]{{1,{_MAX_DIRECTIVE_CHARS}}})\]\]")
_DIRECTIVE_NAMES: Final = ("reply_to_current", "reply_to", "audio_as_voice", "media")
_TOOL_MARKER = re.compile(
    rf"\[tool (call:|result for id)[^\]\n]{{0,{_MAX_MARKER_CHARS}}}\]", _ASCII_WORDS
)
_TOOL_HEADS: Final = ("[tool call:", "[tool result for id")
_NEXT_TOOL = re.compile(r"\[tool ", _ASCII_WORDS)
_ARGUMENTS = re.compile(r"[ \t]{0,16}(?:\r?\n)?[ \t]{0,16}arguments", _ASCII_WORDS)
_ARGUMENTS_HEAD = re.compile(r"[ \t]{0,16}(?:\r?\n?[ \t]{0,16})?([a-z]{0,9})", _ASCII_WORDS)
_JSON_START = re.compile(r"[\s:]*")
_JSON_TURN = re.compile(r'["{}\[\]]')
_STRING_TURN = re.compile(r'["\\]')


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
        self._fences = _FenceTracker()
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
            opens = _opens_fence(self._rest[: _MAX_HEAD_CHARS + 1], complete=complete)
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
        end = _find_code_end(self._rest, self._at, len(self._rest), complete=complete)
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


def _opens_fence(head: str, *, complete: bool) -> bool | None:
    """Whether a line with this start opens a code fence; None when that is not clear yet."""
    marker = match_marker(head)
    # Backticks after backticks open no fence: the end of the line decides.
    is_open = marker is not None and marker[0][0] == "`" and opens_fence(*marker)
    if not complete and len(head) <= _MAX_HEAD_CHARS and (is_open or _FENCE_HEAD.fullmatch(head)):
        return None
    return marker is not None and opens_fence(*marker)


def _find_code_end(text: str, at: int, end: int, *, complete: bool) -> int | None:
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


class _FenceTracker:
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


class DirectiveFilter:
    """Removes directives from visible text and collects them in `directives`.

    White space at the start and at the end of the text is removed, and around a removed directive.
    """

    def __init__(self, silent_word: str = SILENT_WORD) -> None:
        self.directives = ReplyDirectives([], [])
        self.has_silent_line = False
        self._silent_word = silent_word
        self._fences = _FenceTracker()
        self._text, self._at = "", 0  # from `_at` on it is not clear yet
        self._skipped: Literal["", "call", "arguments", "json", "string", "result"] = ""
        self._depth = 0  # of the JSON that is skipped
        self._is_escaped = False
        self._out: list[str] = []
        self._has_text = False  # something of the text is visible
        self._gap: list[str] = []  # line ends, held back until a visible line follows
        self._gap_lines = 0
        self._was_removed = False  # the last line that was not empty
        self._start_line()

    def _start_line(self) -> None:
        self._at_start, self._verbatim = True, False
        self._is_cut = False  # a directive was removed
        self._needs_space = False  # between what is before and what is after it
        self._held = ""  # the start of a line that may be the silent word
        self._is_shown = False  # something of the line is visible
        self._spaces: list[str] = []  # at the end of what is visible

    @property
    def is_in_plain_line(self) -> bool:
        """Whether text without `[`, a backtick or a line end can be given to `feed_plain`."""
        return (
            self._is_shown
            and not (self._text or self._skipped or self._needs_space)
            and self._fences.is_plain
        )

    def feed_plain(self, piece: str) -> str:
        """Read the next piece, which continues a plain line; return what can be shown now."""
        if not self._spaces and not piece[-1:].isspace():
            return piece
        self._write(piece)
        return self._take()

    def feed(self, piece: str) -> str:
        """Read the next piece; return what can be shown now."""
        self._text += piece
        self._read(complete=False)
        self._text, self._at = self._text[self._at :], 0
        return self._take()

    def finish(self) -> str:
        """Return the rest: the text is complete."""
        self._read(complete=True)
        self._end_line()
        self._text, self._at = "", 0
        return self._take()

    def _take(self) -> str:
        shown = "".join(self._out)
        self._out.clear()
        return shown

    def _read(self, *, complete: bool) -> None:
        """Read the text as far as it is clear."""
        while self._at < len(self._text):
            if self._skipped:
                if not self._skip(complete=complete):
                    return
                continue
            newline = self._text.find("\n", self._at)
            end = newline if newline >= 0 else len(self._text)
            if not self._read_line(end, complete=complete or newline >= 0):
                return
            if newline >= 0 and not self._skipped:
                self._end_line()
                self._at = newline + 1
                self._skip_blank_lines()

    def _skip_blank_lines(self) -> None:
        """Read the line ends that follow another."""
        at = self._at
        while self._text.startswith("\n", self._at):
            self._at += 1
        if (count := self._at - at) and not self._was_removed:
            self._add_gap("\n" * count, count)
        elif count and self._gap_lines == 1:
            self._add_gap("\n", 1)
            self._at = at + 1
            self._skip_blank_lines()

    def _read_line(self, end: int, *, complete: bool) -> bool:
        """Read on in a line, up to a tool call; False when the rest is not clear yet."""
        if self._at_start and not self._begin_line(end, complete=complete):
            return False
        while self._at < end and not self._skipped:
            if self._verbatim:
                self._show(end)
            else:
                turn = _BRACKET.search(self._text, self._at, end)
                if turn is None or turn.start() > self._at:
                    self._show(turn.start() if turn else end)
                elif turn[0] == "`":
                    code = _find_code_end(self._text, self._at, end, complete=complete)
                    if code is None:
                        return False
                    self._show(code)
                elif not self._read_bracket(end, complete=complete):
                    return False
        return True

    def _begin_line(self, end: int, *, complete: bool) -> bool:
        """Find out whether a line is code or names files; False when that is not clear yet."""
        at = self._at
        head = self._text[at : min(end, at + _MAX_HEAD_CHARS + 1)]
        if self._fences.inside:
            self._verbatim = True
        else:
            opens = _opens_fence(head, complete=complete)
            if opens is None:
                return False
            self._verbatim = opens
            word = head.lstrip()[:6]
            limit = _MAX_MEDIA_LINE_CHARS if word == "MEDIA:" else _MAX_HEAD_CHARS
            if not opens and "MEDIA:".startswith(word) and end - at <= limit:
                if not complete:
                    return False
                if word == "MEDIA:":
                    self._read_media(end)
        self._at_start = False
        return True

    def _read_media(self, end: int) -> None:
        """Read a `MEDIA:` line; what it has besides files is text."""
        voice: list[bool]
        text, media, *voice = split_media(self._text[self._at : end])
        if not media:
            return
        self.directives.media += media
        self.directives.as_voice = self.directives.as_voice or any(voice)
        self._cut(end)
        if text:
            following = self._text, self._at
            self._text, self._at, self._at_start = text, 0, False
            self._read_line(len(text), complete=True)
            (self._text, self._at), self._skipped = following, ""

    def _read_bracket(self, end: int, *, complete: bool) -> bool:
        """Read a `[`; False when it is not clear yet what it starts."""
        text, at = self._text, self._at
        tag = _DIRECTIVE.match(text, at, end)
        if tag and self.directives.apply_tag(tag[1]):
            self._cut(tag.end())
            return True
        marker = _TOOL_MARKER.match(text, at, end)
        if not complete and (
            marker.end() == end if marker else _may_become_directive(text, at, end)
        ):
            return False
        if marker is None or text.startswith("(", marker.end()):  # a link
            self._show(at + 1)
        else:
            self._cut(marker.end())
            self._skipped = "call" if marker[1].endswith(":") else "result"
        return True

    def _skip(self, *, complete: bool) -> bool:
        """Skip what belongs to a tool call or its result; False when that is not clear yet."""
        text, at = self._text, self._at
        match self._skipped:
            case "call":
                found = _ARGUMENTS.match(text, at)
                if not found and not complete and _may_become_arguments(text[at : at + 60]):
                    return False
                self._at, self._skipped = (found.end(), "arguments") if found else (at, "")
            case "arguments":
                start = _JSON_START.match(text, at)
                self._at = at = start.end() if start else at
                if at < len(text):
                    self._skipped = "json" if text[at] in "{[" else ""
                    self._depth = 0
            case "result":
                found = _NEXT_TOOL.search(text, at)
                if found:
                    self._at, self._skipped = found.start(), ""
                else:
                    self._at = len(text) if complete else max(at, len(text) - len("[tool"))
                    return self._at == len(text)
            case _:
                self._skip_json()
        return True

    def _skip_json(self) -> None:
        """Skip to the next character that matters in JSON."""
        text, at = self._text, self._at
        if self._is_escaped:
            self._at, self._is_escaped = at + 1, False
            return
        is_string = self._skipped == "string"
        turn = (_STRING_TURN if is_string else _JSON_TURN).search(text, at)
        self._at = turn.end() if turn else len(text)
        match turn[0] if turn else "":
            case "\\":
                self._is_escaped = True
            case '"':
                self._skipped = "json" if is_string else "string"
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                self._skipped = "json" if self._depth else ""
            case _:
                pass

    def _cut(self, end: int) -> None:
        """Remove a directive."""
        self._at = end
        self._is_cut, self._needs_space = True, True
        self._held = self._held.rstrip()
        self._spaces.clear()

    def _show(self, end: int) -> None:
        """Show the text up to a position of the current line."""
        text = self._text[self._at : end]
        self._at = end
        if self._needs_space:
            text = text.lstrip()
            if not text:
                return
            self._needs_space = False
            if self._is_shown or self._held:
                text = f" {text}"
        self._fences.add(text)
        if not self._is_shown and not self._verbatim:
            text = self._held + text
            if len(text) <= _MAX_SILENT_LINE_CHARS and self._silent_word.startswith(text.strip()):
                self._held = text
                return
            self._held = ""
        self._write(text)

    def _write(self, text: str) -> None:
        visible = text.rstrip()
        if not visible:
            self._spaces.append(text)
            return
        if self._has_text:
            self._out += self._gap
            self._out += self._spaces
            self._out.append(visible)
        else:
            self._out.append(visible.lstrip())
        self._spaces = [text[len(visible) :]] if len(visible) < len(text) else []
        self._gap.clear()
        self._gap_lines = 0
        self._has_text = self._is_shown = True

    def _end_line(self) -> None:
        is_silent = bool(self._held) and self._held.strip() == self._silent_word
        if self._held and not is_silent:
            self._write(self._held)
        self.has_silent_line = self.has_silent_line or is_silent
        self._fences.end_line()
        if not self._is_shown and (is_silent or self._is_cut):
            self._was_removed = True
        # The empty lines around a removed line become one.
        elif self._is_shown or not self._was_removed or self._gap_lines == 1:
            if not self._is_cut:
                self._gap += self._spaces
            self._add_gap("\n", 1)
        self._start_line()

    def _add_gap(self, text: str, lines: int) -> None:
        self._gap.append(text)
        self._gap_lines += lines
        self._was_removed = False


def _may_become_directive(text: str, at: int, end: int) -> bool:
    """Whether the `[` at this position, without its end yet, may start a directive."""
    if end - at == 1:
        return True
    if text[at + 1] != "[":
        head = text[at : min(end, at + 20)].lower()
        is_marker = any(head.startswith(name) or name.startswith(head) for name in _TOOL_HEADS)
        return is_marker and end - at <= _MAX_MARKER_CHARS + 20 and "]" not in text[at:end]
    if end - at > _MAX_DIRECTIVE_CHARS + 4:
        return False
    name, colon, value = text[at + 2 : end].removesuffix("]").partition(":")
    name = name.strip().lower()
    if colon:
        return name in {"reply_to", "media"} and "[" not in value and "]" not in value
    return any(known.startswith(name) for known in _DIRECTIVE_NAMES)


def _may_become_arguments(text: str) -> bool:
    """Whether a text after a tool call may become the arguments of that call."""
    found = _ARGUMENTS_HEAD.fullmatch(text)
    return found is not None and "arguments".startswith(found[1].lower())
