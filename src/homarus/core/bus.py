"""The event bus: many readers, and no reader can slow or break a run."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from homarus.core.event import Event, Fact, RunEnded, TextAdded, ThinkingAdded, ToolProgressed

# What is told again later, whole: a slow reader loses these first.
_DELTAS = (TextAdded, ThinkingAdded, ToolProgressed)


class Subscription:
    """One reader's bounded view of the bus. `missed` counts what it was too slow for.

    It holds what was asked for: the facts of one run, of one session, of some kinds; without a
    wish, everything. That of one run ends with the run.
    """

    def __init__(
        self,
        size: int,
        *,
        run_id: str = "",
        session_key: str = "",
        kinds: tuple[type[Fact], ...] = (),
    ) -> None:
        if size < 1:
            raise ValueError("a subscription holds at least one event")
        self._size = size
        self._run_id, self._session_key, self._kinds = run_id, session_key, kinds
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._closed = False
        self.missed = 0

    def offer(self, event: Event) -> None:
        if self._closed or not self._concerns(event):
            return
        if not self._kinds or isinstance(event.fact, self._kinds):
            if len(self._events) == self._size:
                self._drop_one()
            self._events.append(event)
            self._news.set()
        if self._run_id and isinstance(event.fact, RunEnded):
            self.close()

    def _concerns(self, event: Event) -> bool:
        return self._run_id in ("", event.run_id) and self._session_key in ("", event.session_key)

    @property
    def waiting(self) -> int:
        """How many events lie here unread: a reader may take those together."""
        return len(self._events)

    def close(self) -> None:
        """End the iteration once what is queued has been read."""
        self._closed = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                return
            self._news.clear()
            await self._news.wait()

    def _drop_one(self) -> None:
        """Make room: the oldest delta goes, or the oldest of all when there is none."""
        deltas = (i for i, event in enumerate(self._events) if isinstance(event.fact, _DELTAS))
        del self._events[next(deltas, 0)]
        self.missed += 1


class Bus:
    """Publishes events to every subscriber."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def publish(self, event: Event) -> None:
        for subscription in self._subscriptions:
            subscription.offer(event)

    @contextmanager
    def subscribe(
        self,
        size: int = 1024,
        *,
        run_id: str = "",
        session_key: str = "",
        kinds: tuple[type[Fact], ...] = (),
    ) -> Iterator[Subscription]:
        """Listen for as long as the block lasts; its end ends the reader's iteration too."""
        subscription = Subscription(size, run_id=run_id, session_key=session_key, kinds=kinds)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.close()
