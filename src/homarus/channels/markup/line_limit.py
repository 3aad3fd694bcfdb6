"""Split a rendered text where it has more lines than one message should have.

A code block that is cut is closed, and opened again in the next message.
"""

import re
from collections.abc import Iterator

from homarus.channels.chunk import Unit, measure
from homarus.core.fast_dataclass import dataclass

_FENCE = re.compile(r"((?:> ?)*)(`{3,})([^`]*)")


@dataclass(frozen=True, slots=True)
class _Fence:
    """The first line of an open code block, and the line that closes it."""

    opening: str
    closing: str


def limit_lines(text: str, max_lines: int, limit: int, unit: Unit) -> Iterator[str]:
    """Yield parts of at most `max_lines` lines; those that a cut adds fit into `limit` too."""
    lines = text.split("\n")
    if len(lines) <= max_lines:
        yield text
        return
    current, size, fence, is_empty = list[str](), 0, None, True
    for line in lines:
        after = _fence_after(line, fence)
        owed = 1 + measure(after.closing, unit) if after else 0
        cost = measure(line, unit) + 1
        is_full = len(current) + 1 + bool(after) > max_lines or size + cost + owed > limit
        if is_full:
            if not is_empty:  # else it has blank lines alone, which are left out
                yield _closed(current, fence)
            current = [fence.opening] if fence else []
            size, is_empty = sum(measure(each, unit) + 1 for each in current), True
        current.append(line)
        size, fence, is_empty = size + cost, after, is_empty and not line.strip()
    if not is_empty:
        yield _closed(current, None)


def _closed(lines: list[str], fence: _Fence | None) -> str:
    return "\n".join([*lines, fence.closing] if fence else lines).strip("\n")


def _fence_after(line: str, fence: _Fence | None) -> _Fence | None:
    """Return the code block that is open after a line."""
    if fence:
        return None if line == fence.closing else fence
    found = _FENCE.fullmatch(line)
    return _Fence(line, found[1] + found[2]) if found else None
