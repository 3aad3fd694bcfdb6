"""What a provider made of each Message, kept for as long as the Message lives.

A long session is sent whole with every turn; only its newest messages need rendering.
"""

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar
from weakref import ref

from homarus.core.message import Message

T = TypeVar("T")


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
