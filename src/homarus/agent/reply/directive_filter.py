"""Remove the directives from a reply while it is being written.

These are reply tags, `MEDIA:` lines, lines with the silent word alone, and tool calls written as
text; none of them inside code. `stream_filters` says what both filters guarantee.
"""

import re
from typing import TYPE_CHECKING, Final

from homarus.agent.reply.reply_parser import ReplyDirectives, split_media
from homarus.agent.reply.stream_filters import (
    MAX_HEAD_CHARS,
    FenceTracker,
    find_code_end,
    opens_code_fence,
)
from homarus.core.silent_reply import SILENT_WORD

if TYPE_CHECKING:  # imported for a reply that has one
    from homarus.agent.reply.tool_call_text import ToolCallSkipper

_MAX_MEDIA_LINE_CHARS: Final = 16_000
_MAX_DIRECTIVE_CHARS: Final = 4_200
_MAX_SILENT_LINE_CHARS: Final = 64
_BRACKET = re.compile(r"[`\[]")
_DIRECTIVE = re.compile(rf"\[\[([^\[\]\n]{{1,{_MAX_DIRECTIVE_CHARS}}})\]\]")
_DIRECTIVE_NAMES: Final = ("reply_to_current", "reply_to", "audio_as_voice", "media")
_TOOL: Final = "[tool "


class DirectiveFilter:
    """Removes directives from visible text and collects them in `directives`.

    White space at the start and at the end of the text is removed, and around a removed directive.
    """

    def __init__(self, silent_word: str = SILENT_WORD) -> None:
        self.directives = ReplyDirectives([], [])
        self.has_silent_line = False
        self._silent_word = silent_word
        self._fences = FenceTracker()
        self._text, self._at = "", 0  # from `_at` on it is not clear yet
        self._skipper: ToolCallSkipper | None = None  # inside a tool call
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
            and not (self._text or self._skipper or self._needs_space)
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
            if self._skipper:
                if not self._skip(self._skipper, complete=complete):
                    return
                continue
            newline = self._text.find("\n", self._at)
            end = newline if newline >= 0 else len(self._text)
            if not self._read_line(end, complete=complete or newline >= 0):
                return
            if newline >= 0 and not self._skipper:
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
        while self._at < end and not self._skipper:
            if self._verbatim:
                self._show(end)
            else:
                turn = _BRACKET.search(self._text, self._at, end)
                if turn is None or turn.start() > self._at:
                    self._show(turn.start() if turn else end)
                elif turn[0] == "`":
                    code = find_code_end(self._text, self._at, end, complete=complete)
                    if code is None:
                        return False
                    self._show(code)
                elif not self._read_bracket(end, complete=complete):
                    return False
        return True

    def _begin_line(self, end: int, *, complete: bool) -> bool:
        """Find out whether a line is code or names files; False when that is not clear yet."""
        at = self._at
        head = self._text[at : min(end, at + MAX_HEAD_CHARS + 1)]
        if self._fences.inside:
            self._verbatim = True
        else:
            opens = opens_code_fence(head, complete=complete)
            if opens is None:
                return False
            self._verbatim = opens
            word = head.lstrip()[:6]
            limit = _MAX_MEDIA_LINE_CHARS if word == "MEDIA:" else MAX_HEAD_CHARS
            if not opens and "MEDIA:".startswith(word) and end - at <= limit:
                if not complete:
                    return False
                if word == "MEDIA:":
                    self._read_media(end)
        self._at_start = False
        return True

    def _read_media(self, end: int) -> None:
        """Read a `MEDIA:` line; what it has besides files is text."""
        text, media, as_voice = split_media(self._text[self._at : end])
        if not media:
            return
        self.directives.media += media
        self.directives.as_voice = self.directives.as_voice or as_voice
        self._cut(end)
        if text:
            following = self._text, self._at
            self._text, self._at, self._at_start = text, 0, False
            self._read_line(len(text), complete=True)
            (self._text, self._at), self._skipper = following, None

    def _read_bracket(self, end: int, *, complete: bool) -> bool:
        """Read a `[`; False when it is not clear yet what it starts."""
        text, at = self._text, self._at
        tag = _DIRECTIVE.match(text, at, end)
        if tag and self.directives.apply_tag(tag[1]):
            self._cut(tag.end())
            return True
        if not complete and _may_become_directive(text, at, end):
            return False
        self._skipper = _find_tool_call(text, at, end)
        if self._skipper:
            self._cut(self._skipper.end)
        else:
            self._show(at + 1)
        return True

    def _skip(self, skipper: "ToolCallSkipper", *, complete: bool) -> bool:
        """Skip a tool call; False when its end is not clear yet."""
        self._at = skipper.skip(self._text, self._at, complete=complete)
        if skipper.is_done:
            self._skipper = None
        return skipper.is_done

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


def _find_tool_call(text: str, at: int, end: int) -> "ToolCallSkipper | None":
    if text[at : at + len(_TOOL)].lower() != _TOOL:
        return None
    from homarus.agent.reply.tool_call_text import find_tool_call

    return find_tool_call(text, at, end)


def _may_become_directive(text: str, at: int, end: int) -> bool:
    """Whether the `[` at this position, without its end yet, may start a directive."""
    if end - at == 1:
        return True
    if text[at + 1] != "[":
        head = text[at : min(end, at + len(_TOOL))].lower()
        if len(head) < len(_TOOL) or head != _TOOL:
            return _TOOL.startswith(head)
        from homarus.agent.reply.tool_call_text import may_become_tool_call

        return may_become_tool_call(text, at, end)
    if end - at > _MAX_DIRECTIVE_CHARS + 4:
        return False
    name, colon, value = text[at + 2 : end].removesuffix("]").partition(":")
    name = name.strip().lower()
    if colon:
        return name in {"reply_to", "media"} and "[" not in value and "]" not in value
    return any(known.startswith(name) for known in _DIRECTIVE_NAMES)
