"""Split a text into messages that a service accepts.

A limit counts in the service's unit: UTF-16 units, code points or UTF-8 bytes. Cuts prefer the end
of a line, then white space, and avoid parentheses; code fences are closed at the end of one chunk
and opened again in the next. No character but white space is lost. A single character wider than
the limit is a chunk of its own. Everything is linear in the text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from homarus.core.fences import Fence, closes_fence, fence_at, find_fences, match_marker
from homarus.core.message import Json
from homarus.core.text import utf16_len

Unit: TypeAlias = Literal["utf16", "codepoint", "byte"]
ChunkMode: TypeAlias = Literal["length", "newline"]

DEFAULT_LIMIT = 4_000

_BREAK_OR_PAREN = re.compile(r"[\s()]")
_NOT_SPACE = re.compile(r"\S")
_PARAGRAPH = re.compile(r"\n[\t ]*+\n+")
_LOOKS_LIKE_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_MAX_STEPS_BACK = 80
_MAX_CHAR_UNITS = 4  # the maximum units of one character


def measure(text: str, unit: Unit) -> int:
    """Return the length of a text in a service's unit."""
    if unit == "codepoint" or text.isascii():
        return len(text)
    return utf16_len(text) if unit == "utf16" else len(text.encode("utf-8", "surrogatepass"))


def chunk_text(text: str, limit: int, unit: Unit = "utf16") -> list[str]:
    """Split plain text at the last line end that fits, else at white space, else anywhere."""
    if not text:
        return []
    if limit <= 0:
        return [text]
    chunks: list[str] = []
    start = 0
    while start < len(text):
        end = _reach(text, start, limit, unit)
        if end == len(text):
            chunks.append(text[start:])
            break
        cut = _soft_break(text, start, end) or end
        if chunk := text[start:cut].rstrip():
            chunks.append(chunk)
        start = _skip_space(text, cut)
    return chunks


def chunk_markdown_text(text: str, limit: int, unit: Unit = "utf16") -> list[str]:
    """Split markdown like plain text; a fence that is cut is closed and reopened."""
    if not text:
        return []
    if limit <= 0 or measure(text, unit) <= limit:
        return [text]
    return [chunk for chunk in _Cutter(text, limit, unit).run() if chunk.strip()]


def chunk_by_newline(
    text: str,
    limit: int,
    unit: Unit = "utf16",
    *,
    split_long_lines: bool = True,
    trim_lines: bool = True,
) -> list[str]:
    """Return one chunk per line; empty lines go to the start of the next, the last to the end.

    A line that is too long is cut first where the limit is, then like plain text.
    """
    if not text:
        return []
    if limit <= 0:
        return [text] if text.strip() else []
    chunks: list[str] = []
    blank = 0
    for line in text.split("\n"):
        if not line.strip():
            blank += 1
            continue
        content = line.strip() if trim_lines else line
        cut = len(content)
        if split_long_lines and measure(content, unit) + blank > limit:
            cut = _reach(content, 0, max(1, limit - blank), unit)
        chunks.append(_blank_lines(blank, content[:cut], limit, unit) + content[:cut])
        chunks += chunk_text(content[cut:], limit, unit)
        blank = 0
    if chunks:
        chunks[-1] += _blank_lines(blank, chunks[-1], limit, unit)
    return chunks


def chunk_by_paragraph(
    text: str, limit: int, unit: Unit = "utf16", *, split_long_paragraphs: bool = True
) -> list[str]:
    """Return one chunk per paragraph; a code fence is not cut between paragraphs."""
    if not text:
        return []
    if limit <= 0:
        return [text]
    chunks: list[str] = []
    for paragraph in _paragraphs(text.replace("\r\n", "\n")):
        if split_long_paragraphs and measure(paragraph, unit) > limit:
            chunks += chunk_text(paragraph, limit, unit)
        else:
            chunks.append(paragraph)
    return chunks


def chunk_markdown_with_mode(
    text: str, limit: int, mode: ChunkMode, unit: Unit = "utf16"
) -> list[str]:
    """Split markdown by length alone, or by paragraph."""
    if mode == "length":
        return chunk_markdown_text(text, limit, unit)
    return [
        chunk
        for paragraph in chunk_by_paragraph(text, limit, unit, split_long_paragraphs=False)
        for chunk in chunk_markdown_text(paragraph, limit, unit)
    ]


def text_chunk_limit(
    channels: Mapping[str, Json],
    channel: str,
    account: str | None = None,
    *,
    default: int = DEFAULT_LIMIT,
) -> int:
    """Return the limit of the account, else of its channel, else of the service."""
    default = default if default > 0 else DEFAULT_LIMIT
    settings = channels.get(channel)
    if not isinstance(settings, Mapping):
        return default
    accounts = settings.get("accounts")
    if account and isinstance(accounts, Mapping):
        for name, own in accounts.items():
            if name.lower() == account.strip().lower() and (limit := _limit(own)):
                return limit
    return _limit(settings) or default


def _limit(settings: Json) -> int:
    limit = settings.get("textChunkLimit") if isinstance(settings, Mapping) else None
    return limit if type(limit) is int and limit > 0 else 0


def _reach(text: str, start: int, limit: int, unit: Unit) -> int:
    """Return the end of the longest piece from `start` that fits; at least one character."""
    end = min(len(text), start + max(1, limit))
    if unit == "codepoint" or text[start:end].isascii():
        return end
    if unit == "utf16" and max(text[start:end]) <= "\uffff":
        return end
    room = limit
    for at, ch in enumerate(text[start:end], start):
        if unit == "utf16":
            room -= 2 if ch > "\uffff" else 1
        else:
            room -= 1 if ch < "\x80" else 2 if ch < "\u0800" else 3 if ch <= "\uffff" else 4
        if room < 0:
            return max(at, start + 1)
    return end


def _soft_break(text: str, start: int, end: int, fences: Sequence[Fence] | None = None) -> int:
    """Return the best cut in `text[start:end]` outside words and fences; 0 if there is none.

    The last line end, else the last white space, else the same inside parentheses.
    """
    line_end = space = inside = depth = 0
    for found in _outside(text, start, end, fences or ()):
        at = found.start()
        if found[0] in "()":
            depth = depth + 1 if found[0] == "(" else max(0, depth - 1)
        elif at > start and (found[0] == "\n" or fences is None or not _opens(text, at + 1)):
            if depth:
                inside = at
            elif found[0] == "\n":
                line_end = at
            else:
                space = at
    if text[end].isspace() and (fences is None or not _opens(text, end + 1)):
        inside = end
    return line_end or space or inside


def _hard_break(text: str, start: int, end: int) -> int:
    """Return a cut inside a word: at `end`, or a little before a fence's marker."""
    for cut in range(end, max(start, end - _MAX_STEPS_BACK), -1):
        if not _opens(text, cut):
            return cut
    return end


def _opens(text: str, at: int) -> bool:
    """Return whether a marker inside a line would open or end a fence at the start of a line."""
    return _LOOKS_LIKE_FENCE.match(text, at) is not None


def _outside(text: str, start: int, end: int, fences: Sequence[Fence]) -> Iterator[re.Match[str]]:
    """Yield white space and parentheses that are not in a fence."""
    index = bisect_right(fences, start, key=lambda fence: fence.end)
    while index < len(fences) and fences[index].start < end:
        yield from _BREAK_OR_PAREN.finditer(text, start, fences[index].start)
        start = fences[index].end
        index += 1
    yield from _BREAK_OR_PAREN.finditer(text, start, end)


def _skip_space(text: str, start: int) -> int:
    found = _NOT_SPACE.search(text, start)
    return found.start() if found else len(text)


def _skip_newlines(text: str, start: int) -> int:
    while start < len(text) and text[start] == "\n":
        start += 1
    return start


def _blank_lines(count: int, beside: str, limit: int, unit: Unit) -> str:
    return "\n" * min(count, max(0, limit - measure(beside, unit)))


def _paragraphs(text: str) -> list[str]:
    fences = find_fences(text)
    parts: list[str] = []
    start = 0
    for gap in _PARAGRAPH.finditer(text):
        if not fence_at(fences, gap.start()):
            parts.append(text[start : gap.start()])
            start = gap.end()
    parts.append(text[start:])
    return [part.rstrip() for part in parts if part.strip()]


class _Cutter:
    """Split one markdown text."""

    def __init__(self, text: str, limit: int, unit: Unit) -> None:
        self._text, self._limit, self._unit = text, limit, unit
        self._fences = [fence for fence in find_fences(text) if self._can_split(fence)]

    def run(self) -> Iterator[str]:
        text, start, opening = self._text, 0, ""
        while start < len(text):
            room = self._limit - self._size(opening)
            end = _reach(text, start, room, self._unit)
            if end == len(text):
                yield opening + text[start:]
                return
            cut = _soft_break(text, start, end, self._fences) or _hard_break(text, start, end)
            fence = fence_at(self._fences, cut)
            if fence:
                cut = self._break_in_fence(fence, start, room)
                fence = fence_at(self._fences, cut)
            yield opening + self._closed(text[start:cut], fence)
            start, opening = self._resume(cut, fence)

    def _size(self, text: str) -> int:
        return measure(text, self._unit)

    def _can_split(self, fence: Fence) -> bool:
        """Return whether a chunk has room for the fence's lines and some code."""
        first = self._size(fence.open_line) + self._size(fence.close_line) + 2
        again = 2 * self._size(fence.close_line) + 2
        return max(first, again) + _MAX_CHAR_UNITS <= self._limit and again * 4 <= self._limit * 3

    def _opening(self, fence: Fence) -> str:
        """Return the line that reopens a fence; without its info if that takes half a chunk."""
        fence_size = self._size(fence.open_line) + self._size(fence.close_line) + 2
        return (fence.open_line if fence_size * 2 <= self._limit else fence.close_line) + "\n"

    def _break_in_fence(self, fence: Fence, start: int, room: int) -> int:
        """Cut before the fence if it starts in this chunk, else after a code line."""
        if fence.start > start:
            return fence.start
        text, unit = self._text, self._unit
        code = max(start, fence.start + len(fence.open_line) + 1)
        room -= self._size(fence.close_line)
        if line_end := text.rfind("\n", code, _reach(text, start, room, unit)) + 1:
            return line_end
        return _hard_break(text, code, max(_reach(text, start, room - 1, unit), code + 1))

    def _closed(self, content: str, fence: Fence | None) -> str:
        if fence is None:
            return content
        return content + ("" if content.endswith("\n") else "\n") + fence.close_line

    def _resume(self, cut: int, fence: Fence | None) -> tuple[int, str]:
        """Return where the next chunk starts, and the line that reopens a cut fence."""
        text = self._text
        if fence is None:
            separated = text[cut].isspace() and not fence_at(self._fences, cut + 1)
            return _skip_newlines(text, cut + separated), ""
        if self._only_closes(cut, fence):
            return _skip_newlines(text, fence.end), ""
        return cut + self._spare_space(cut, fence), self._opening(fence)

    def _only_closes(self, cut: int, fence: Fence) -> bool:
        """Return whether only the closing line of a fence is left."""
        if fence.end - cut > self._limit or self._text[cut - 1] != "\n":
            return False
        line = self._text[cut : fence.end]
        found = match_marker(line)
        return "\n" not in line and found is not None and closes_fence(fence.marker, *found)

    def _spare_space(self, cut: int, fence: Fence) -> int:
        """Drop an invisible space: code loses its fence's own indent when shown."""
        if not fence.indent or self._text[cut - 1] != "\n":
            return 0
        line = self._text[cut : cut + len(fence.indent) + 1]
        return int(line.startswith(" ") and len(line) - len(line.lstrip(" ")) <= len(fence.indent))
