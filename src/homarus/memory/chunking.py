"""Split a note in two ways: OpenClaw's overlapping chunks, and lines that are cited.

A chunk is what is shown as a passage. A line is the unit of recall: a bullet, a turn of a dialogue,
a paragraph. A paragraph too long to show is several pieces of one line.
"""

import re
from collections.abc import Iterator
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.text import utf16_len

CHUNK_TOKENS: Final = 400
CHUNK_OVERLAP: Final = 80
MAX_PIECE_CHARS: Final = 700

_CHARS_PER_TOKEN = 4
_MIN_CHUNK_CHARS = 32
_MARK = re.compile(r"[ \t]*(?:>[ \t]*)*(?:(?:[-*+•]|\d{1,3}[.)])[ \t]+)?(?:\[[ xX]\][ \t]*)?")
_SPEAKER = re.compile(
    r"(?:\*\*|__)?(?:\[[^\]\n]{1,30}\]\s*)?(?:\*\*|__)?"
    r"(@?[^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30}){0,2})"
    r"(?:\*\*|__)?\s*(?:\([^)\n]{1,30}\)\s*)?:(?:\*\*|__)?\s+\S"
)
_HEADING = re.compile(r"[ ]{0,3}#{1,6}[ \t]+\S")
_BREAK = re.compile(r"(?<=[.!?。！？;])\s+|(?<=[。！？])")


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """The size of chunks in tokens, and how much of one is repeated in the next."""

    tokens: int = CHUNK_TOKENS
    overlap: int = CHUNK_OVERLAP


DEFAULT_CHUNK_SIZE: Final = ChunkSize()


@dataclass(frozen=True, slots=True)
class NoteChunk:
    """Complete lines; first and last are counted from 1."""

    start_line: int
    end_line: int
    text: str


@dataclass(frozen=True, slots=True)
class LinePiece:
    """A line with content, or a piece of a long one; `start` is its offset in the line."""

    line: int
    start: int
    text: str
    speaker: str = ""
    is_heading: bool = False


def cut_chunks(
    text: str, tokens: int = CHUNK_TOKENS, overlap_tokens: int = CHUNK_OVERLAP
) -> list[NoteChunk]:
    """Return chunks of a number of tokens, each starting with the end of the previous one."""
    max_chars = _max_chars(tokens)
    overlap = max(0, overlap_tokens * _CHARS_PER_TOKEN)
    chunks: list[NoteChunk] = []
    buffer: list[tuple[int, str, int]] = []
    buffer_chars = 0
    for number, line in enumerate(text.split("\n"), 1):
        for segment in _segments(line, max_chars):
            chars = (len(segment) if segment.isascii() else utf16_len(segment)) + 1
            if buffer and buffer_chars + chars > max_chars:
                chunks.append(_joined(buffer))
                buffer = _tail(buffer, overlap)
                buffer_chars = sum(size for _, _, size in buffer)
            buffer.append((number, segment, chars))
            buffer_chars += chars
    chunks.append(_joined(buffer))
    return chunks


def whole_lines(chunk: NoteChunk, size: ChunkSize = DEFAULT_CHUNK_SIZE) -> NoteChunk | None:
    """Return the chunk with one line of text for each of its lines, so that it can be cited.

    The pieces of a line longer than a chunk are separate lines in it, each as long as a chunk.
    Returns None if a complete line is just as long, as the two cannot be told apart.
    """
    parts = chunk.text.split("\n")
    joins = len(parts) - (chunk.end_line - chunk.start_line + 1)
    if not joins:
        return chunk
    max_chars = _max_chars(size.tokens)
    if joins != sum(len(part) == max_chars for part in parts[:-1]):
        return None
    text = "".join(part if len(part) == max_chars else f"{part}\n" for part in parts)
    return NoteChunk(chunk.start_line, chunk.end_line, text.removesuffix("\n"))


def _max_chars(tokens: int) -> int:
    return max(_MIN_CHUNK_CHARS, tokens * _CHARS_PER_TOKEN)


def _segments(line: str, max_chars: int) -> list[str]:
    if len(line) <= max_chars:
        return [line]
    return [line[at : at + max_chars] for at in range(0, len(line), max_chars)]


def _joined(buffer: list[tuple[int, str, int]]) -> NoteChunk:
    return NoteChunk(buffer[0][0], buffer[-1][0], "\n".join(segment for _, segment, _ in buffer))


def _tail(buffer: list[tuple[int, str, int]], overlap: int) -> list[tuple[int, str, int]]:
    chars = 0
    for back, (_, _, size) in enumerate(reversed(buffer), 1):
        chars += size
        if 0 < overlap <= chars:
            return buffer[-back:]
    return buffer[:] if overlap else []


def cut_lines(text: str, max_chars: int = MAX_PIECE_CHARS) -> Iterator[LinePiece]:
    """Return the lines with content in order; `text[start:…]` of the line is the piece."""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r")
        if not line.strip():
            continue
        if _HEADING.match(line) and len(line) <= max_chars:
            yield LinePiece(number, 0, line, is_heading=True)
            continue
        speaker = speaker_of(line)
        for start, part in _pieces(line, max_chars):
            yield LinePiece(number, start, part, speaker)


def speaker_of(line: str) -> str:
    """Return the speaker of a line such as `- Ada: hello`, in lower case; empty without one."""
    mark = _MARK.match(line)
    found = _SPEAKER.match(line, mark.end() if mark else 0)
    return found[1].lower().lstrip("@") if found else ""


def _pieces(line: str, max_chars: int) -> Iterator[tuple[int, str]]:
    """Yield pieces of at most `most` characters, cut after a sentence where possible."""
    start, last = 0, len(line.rstrip())
    while len(line) - start > max_chars:
        cuts = [
            found.end()
            for found in _BREAK.finditer(line, start + max_chars // 2, start + max_chars)
        ]
        space = line.rfind(" ", start + max_chars // 2, start + max_chars) + 1
        end = cuts[-1] if cuts else space or start + max_chars
        if line[start:end].strip():
            yield start, line[start:end]
        if end >= last:
            return
        start = end
    if line[start:].strip():
        yield start, line[start:]
