"""Cache what a provider rendered of each Message, for as long as the Message lives.

Every turn sends the complete session, but only its newest messages need rendering. Of long sessions
the encoded prefix is cached as well.
"""

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar
from weakref import ref

from homarus.core.message import Message

T = TypeVar("T")

LONG = 16  # messages from which on the prefix is cached
MAX_KEPT = 8  # conversations


class RenderCache(Generic[T]):
    """A cache of `render(message)` by identity: a Message contains mappings and has no hash."""

    def __init__(self, render: Callable[[Message], T]) -> None:
        self._render = render
        self._made: dict[int, tuple[ref[Message], T]] = {}

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, message: Message) -> T:
        key = id(message)
        held = self._made.get(key)
        if held is not None and held[0]() is message:
            return held[1]
        made = self._render(message)
        self._made[key] = (ref(message, partial(self._forget, key)), made)
        return made

    def _forget(self, key: int, gone: "ref[Message]") -> None:
        held = self._made.get(key)
        if held is not None and held[0] is gone:
            del self._made[key]


class PrefixCache(Generic[T]):
    """The encoded prefixes of the long conversations that were sent last."""

    def __init__(self, least: int = LONG) -> None:
        self.least = least
        self._kept: list[tuple[tuple[Message, ...], T]] = []  # the newest last

    def find(self, messages: tuple[Message, ...]) -> tuple[int, T] | None:
        """Return the length of a cached prefix of the messages, and its encoded form."""
        if len(messages) < self.least:
            return None
        for begun, made in reversed(self._kept):
            size = len(begun)
            # Identical objects compare quickly.
            if begun[0] is messages[0] and messages[:size] == begun:
                return size, made
        return None

    def keep(self, begun: tuple[Message, ...], made: T) -> None:
        """Cache a prefix of at least `least` messages; it replaces the conversation's older one."""
        others = [each for each in self._kept if each[0][0] is not begun[0]]
        self._kept = [*others, (begun, made)][-MAX_KEPT:]
