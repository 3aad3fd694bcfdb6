"""The event bus: many readers, and no reader can slow or break a run."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from homarus.core.event import Event


class Subscription:
    """One reader's bounded view of the bus. `missed` counts what it was too slow for."""

    def __init__(self, size: int) -> None:
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(size)
        self.missed = 0

    def offer(self, event: Event) -> None:
        if self._queue.full():
            self._queue.get_nowait()
            self.missed += 1
        self._queue.put_nowait(event)

    def close(self) -> None:
        """End the iteration once what is queued has been read."""
        if self._queue.full():
            self._queue.get_nowait()
            self.missed += 1
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self._queue.get()) is not None:
            yield event


class Bus:
    """Publishes events to every subscriber."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def publish(self, event: Event) -> None:
        for subscription in self._subscriptions:
            subscription.offer(event)

    @contextmanager
    def subscribe(self, size: int = 1024) -> Iterator[Subscription]:
        subscription = Subscription(size)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
