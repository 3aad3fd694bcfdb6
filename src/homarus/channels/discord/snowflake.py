"""Ids of Discord: they grow with time, so that an id says when it was made."""

from typing import Final

EPOCH_MS: Final = 1_420_070_400_000
_MAX_ID_CHARS: Final = 20


def is_id(text: str) -> bool:
    """Return whether a text is an id."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_ID_CHARS


def id_at(at_ms: int) -> int:
    """Return the first id of a moment."""
    return max(0, at_ms - EPOCH_MS) << 22


def time_of(id_: int) -> int:
    """Return when an id was made, in milliseconds."""
    return (id_ >> 22) + EPOCH_MS
