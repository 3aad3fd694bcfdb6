"""Read a window of lines from a file of any size, in bounded memory and time."""

import os
from typing import BinaryIO

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass

MAX_SCAN_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LineWindow:
    """Lines from `offset` on. `cut`: the first line alone was too long, and is incomplete.

    `more` lines follow; at least that many when not `counted`.
    """

    data: bytes
    lines: int
    cut: bool
    more: int
    counted: bool


def read_window(file: BinaryIO, offset: int, max_lines: int, max_bytes: int) -> LineWindow:
    """Read complete lines from line `offset` (from 1) while they fit."""
    before, whole = _skip(file, offset - 1)
    if before < offset - 1:
        raise ToolError(f"offset {offset} is past the end", fix=f"the file has {before} lines")
    if not whole:
        raise ToolError(f"offset {offset} is beyond the first {MAX_SCAN_BYTES >> 20} MB")
    parts: list[bytes] = []
    size, cut = 0, False
    while len(parts) < max_lines and (line := file.readline(max_bytes - size + 1)):
        if size + len(line) <= max_bytes:
            parts.append(line)
            size += len(line)
            continue
        file.seek(-len(line), os.SEEK_CUR)
        if not parts:
            parts, cut = [line[:max_bytes]], True
            _skip(file, 1)
        break
    if not parts and offset > 1:
        raise ToolError(f"offset {offset} is past the end", fix=f"the file has {before} lines")
    more, counted = _skip(file, None)
    return LineWindow(b"".join(parts), len(parts), cut, more, counted)


def _skip(file: BinaryIO, count: int | None) -> tuple[int, bool]:
    """Skip `count` lines or all; return how many there were, and whether the end was reached.

    A last line without its newline counts.
    """
    passed, scanned, open_line = 0, 0, False
    while count is None or passed < count:
        chunk = file.read(_CHUNK_BYTES)
        if not chunk:
            return passed + open_line, True
        newlines = chunk.count(b"\n")
        if count is not None and passed + newlines >= count:
            at = -1
            for _ in range(count - passed):
                at = chunk.index(b"\n", at + 1)
            file.seek(at + 1 - len(chunk), os.SEEK_CUR)
            return count, True
        passed += newlines
        scanned += len(chunk)
        open_line = not chunk.endswith(b"\n")
        if scanned >= MAX_SCAN_BYTES:
            return max(passed, count or 0), False
    return passed, True
