"""A cache of results by their request, bounded in time, entries and characters."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

MAX_ENTRIES: Final = 100
MAX_CHARS: Final = 2_000_000

V = TypeVar("V")


class TtlCache(Generic[V]):
    """Keeps results; the least recently stored are dropped first.

    How long one is valid is decided by the reader, so that a changed setting holds at once.
    """

    def __init__(
        self,
        get_time_s: Callable[[], float],
        get_size_chars: Callable[[V], int],
        *,
        max_entries: int = MAX_ENTRIES,
        max_chars: int = MAX_CHARS,
    ) -> None:
        self._get_time_s, self._get_size_chars = get_time_s, get_size_chars
        self._max_entries, self._max_chars = max_entries, max_chars
        self._entries: dict[Hashable, tuple[float, int, V]] = {}
        self._chars = 0

    def find(self, key: Hashable, ttl_s: float) -> V | None:
        """Return a result that is not older than this; None for none."""
        entry = self._entries.get(key)
        if entry is None or self._get_time_s() - entry[0] >= ttl_s:
            return None
        return entry[2]

    def add(self, key: Hashable, value: V) -> None:
        """Store a result in place of the last one; one that is too large is not stored."""
        self._remove(key)
        size = self._get_size_chars(value)
        if size > self._max_chars // 2:
            return
        self._entries[key] = (self._get_time_s(), size, value)
        self._chars += size
        while len(self._entries) > self._max_entries or self._chars > self._max_chars:
            self._remove(next(iter(self._entries)))

    def clear(self) -> None:
        """Drop every result."""
        self._entries.clear()
        self._chars = 0

    def _remove(self, key: Hashable) -> None:
        if entry := self._entries.pop(key, None):
            self._chars -= entry[1]

    def __len__(self) -> int:
        return len(self._entries)
