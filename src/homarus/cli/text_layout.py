"""Lay out styled text in the columns of a terminal: widths, word wrap, escape sequences. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from homarus.core.text import escape_controls

# Each line of an approval question starts with it; it is escaped in everything else.
QUESTION_MARK: Final = "\u2503"
Span: TypeAlias = tuple[str, str]  # text and its style: the numbers of an SGR sequence
Line: TypeAlias = list[Span]

_ZWJ: Final = "\u200d"
_EMOJI_STYLE: Final = "\ufe0f"
_RESET: Final = "\x1b[0m"
_PIECES = re.compile(r"\n| +|[!-~]+|[^ \n!-~]")  # an ASCII word is one piece
# Closing marks do not start a line, where words are not separated by blanks.
_NO_START = frozenset("、。，．：；？！）］｝」』】〉》〕ーぁぃぅぇぉっゃゅょァィゥェォッャュョ・…")


def printable(text: str) -> str:
    """Escape control characters: a model may not move the cursor, repaint the terminal or ask."""
    return escape_controls(text).replace(QUESTION_MARK, f"\\u{{{ord(QUESTION_MARK):x}}}")


def encode(line: Iterable[Span]) -> str:
    """Return a line with its styles as escape sequences."""
    return "".join(f"\x1b[{style}m{text}{_RESET}" if style else text for text, style in line)


def width(text: str) -> int:
    """Return how many columns a text takes; sequences of joined emoji count as one of them."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    found: int = wcswidth(text)
    return found if found >= 0 else len(text)


def clusters(text: str) -> Iterator[tuple[str, int]]:
    """Yield the characters that people see and the columns that they take at most.

    Combining marks, joiners, variation selectors, skin tones and the second half of a flag belong
    to the character before. A terminal may not know how to join emoji, so the columns of a joined
    sequence are those of all its parts.
    """
    if text.isascii():
        yield from ((ch, 1) for ch in text)
        return
    from wcwidth import wcwidth

    seen, columns = "", 0
    for ch in text:
        own: int = max(0, wcwidth(ch))
        is_part = not own or seen[-1:] == _ZWJ or "\U0001f3fb" <= ch <= "\U0001f3ff"
        is_flag_end = _is_flag(ch) and len(seen) == 1 and _is_flag(seen)
        if seen and "\n" not in (seen, ch) and (is_part or is_flag_end):
            seen, columns = seen + ch, max(columns + own, 2 if ch == _EMOJI_STYLE else 0)
            continue
        if seen:
            yield seen, columns
        seen, columns = ch, own
    if seen:
        yield seen, columns


def _is_flag(ch: str) -> bool:
    return "\U0001f1e6" <= ch <= "\U0001f1ff"


class _Word:
    """What is not divided at the end of a line, unless it is longer than one."""

    __slots__ = ("columns", "is_space", "spans")

    def __init__(self, *, is_space: bool = False) -> None:
        self.spans: Line = []
        self.columns, self.is_space = 0, is_space

    def add(self, text: str, style: str, columns: int) -> None:
        self.spans.append((text, style))
        self.columns += columns


def wrap(spans: Iterable[Span], columns: int) -> list[Line]:
    """Return lines of at most so many columns, divided at blanks and between wide characters."""
    columns = max(1, columns)
    lines: list[Line] = [[]]
    used = 0
    for word in _words(spans):
        if word is None:
            lines.append([])
            used = 0
            continue
        if used + word.columns > columns and used:
            _trim(lines[-1])
            if word.is_space:
                used = columns + 1  # the next word starts a line; this blank is not shown
                continue
            lines.append([])
            used = 0
        if word.columns <= columns:
            lines[-1] += word.spans
            used += word.columns
        else:
            used = _divide(word, lines, columns)
    _trim(lines[-1])
    return [_merge(line) for line in lines]


def _words(spans: Iterable[Span]) -> Iterator[_Word | None]:
    """Yield words, blanks, and None for the end of a line."""
    word: _Word | None = None
    is_glued = False  # the word may be continued, in another style too
    for text, style in spans:
        for piece in _pieces(text):
            own = len(piece) if piece.isascii() else sum(each for _, each in clusters(piece))
            if piece == "\n" or not piece.strip(" "):
                if word:
                    yield word
                word, is_glued = None, False
                if piece == "\n":
                    yield None
                else:
                    blank = _Word(is_space=True)
                    blank.add(piece, style, own)
                    yield blank
                continue
            is_wide = own > 1 and not piece.isascii()
            if word and (not is_glued or is_wide) and piece not in _NO_START:
                yield word
                word = None
            word = word or _Word()
            word.add(piece, style, own)
            is_glued = not is_wide
    if word:
        yield word


def _pieces(text: str) -> Iterator[str]:
    if text.isascii():
        yield from _PIECES.findall(text)
        return
    plain = ""
    for cluster, _ in clusters(text):
        if cluster.isascii() and cluster not in " \n":
            plain += cluster
            continue
        if plain:
            yield plain
            plain = ""
        yield cluster
    if plain:
        yield plain


def _divide(word: _Word, lines: list[Line], columns: int) -> int:
    """Add a word that is longer than a line; return the columns used in the last line."""
    first, *more = divide(word.spans, columns)
    lines[-1] += first
    lines += more
    return sum(own for text, _ in (more or [first])[-1] for _, own in clusters(text))


def divide(line: Iterable[Span], columns: int) -> list[Line]:
    """Return a line in parts of at most so many columns; all of its blanks are kept."""
    parts: list[Line] = [[]]
    used = 0
    for text, style in line:
        part = ""
        for cluster, own in clusters(text):
            if used + own > max(columns, 1) and used:
                parts[-1].append((part, style))
                parts.append([])
                part, used = "", 0
            part, used = part + cluster, used + own
        parts[-1].append((part, style))
    return parts


def _trim(line: Line) -> None:
    while line and not line[-1][0].strip(" "):
        line.pop()


def _merge(line: Line) -> Line:
    """Join neighbours of one style."""
    merged: Line = []
    for text, style in line:
        if merged and merged[-1][1] == style:
            merged[-1] = (merged[-1][0] + text, style)
        elif text:
            merged.append((text, style))
    return merged


def clip(text: str, columns: int) -> str:
    """Cut a text of one line, with an ellipsis."""
    if len(text) <= columns and text.isascii():
        return text
    kept, used = "", 0
    for cluster, own in clusters(text):
        if used + own > columns - 1:
            return text if width(text) <= columns and kept + cluster == text else f"{kept}…"
        kept, used = kept + cluster, used + own
    return text
