"""What a provider made of each Message, kept for as long as the Message lives.

A long session is sent whole with every turn; only its newest messages need rendering. Of the
longest, the beginning is kept as one piece.
"""

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar
from weakref import ref

from homarus.core.message import Message

T = TypeVar("T")

LONG = 100  # messages from which on a conversation's beginning is kept
MAX_KEPT = 8  # conversations


class Rendered(Generic[T]):
    """A memory of `render(message)`, by identity: a Message holds mappings, so it has no hash."""

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


class Beginnings(Generic[T]):
    """What was made of the beginnings of the long conversations that were sent last."""

    def __init__(self, least: int = LONG) -> None:
        self.least = least
        self._kept: list[tuple[tuple[Message, ...], T]] = []  # the newest last

    def find(self, messages: tuple[Message, ...]) -> tuple[int, T] | None:
        """How many messages a known beginning has, and what was made of it."""
        if len(messages) < self.least:
            return None
        for begun, made in reversed(self._kept):
            size = len(begun)
            if begun[0] is messages[0] and messages[:size] == begun:  # the same ones: it is quick
                return size, made
        return None

    def keep(self, begun: tuple[Message, ...], made: T) -> None:
        """Remember one of at least `least`; the older one of its conversation is forgotten."""
        others = [each for each in self._kept if each[0][0] is not begun[0]]
        self._kept = [*others, (begun, made)][-MAX_KEPT:]
