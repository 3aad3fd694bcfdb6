"""The event bus: publishes events to subscribers, none of which can slow or break a run."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from homarus.core.event import Event, EventData, RunEnded, TextAdded, ThinkingAdded, ToolProgressed

# A later event repeats the complete text: a slow subscriber loses these first.
_DELTAS = (TextAdded, ThinkingAdded, ToolProgressed)


class Subscription:
    """A bounded queue of events for one reader; `missed` counts the events it dropped.

    It may be limited to one run, one session or some kinds of event data. A subscription to one
    run ends with the run.
    """

    def __init__(
        self,
        size: int,
        *,
        run_id: str = "",
        session_key: str = "",
        kinds: tuple[type[EventData], ...] = (),
    ) -> None:
        if size < 1:
            raise ValueError("a subscription holds at least one event")
        self._size = size
        self._run_id, self._session_key, self._kinds = run_id, session_key, kinds
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self.missed = 0

    def push(self, event: Event) -> None:
        if self._closed or not self._is_relevant(event):
            return
        if not self._kinds or isinstance(event.data, self._kinds):
            if len(self._events) == self._size:
                self._drop_one()
            self._events.append(event)
            self._changed.set()
        if self._run_id and isinstance(event.data, RunEnded):
            self.close()

    def _is_relevant(self, event: Event) -> bool:
        return self._run_id in ("", event.run_id) and self._session_key in ("", event.session_key)

    @property
    def pending(self) -> int:
        """Return the number of unread events, which a reader may process as one batch."""
        return len(self._events)

    def close(self) -> None:
        """End the iteration after the queued events have been read."""
        self._closed = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()

    def _drop_one(self) -> None:
        """Drop the oldest delta, or the oldest event when there is no delta."""
        deltas = (i for i, event in enumerate(self._events) if isinstance(event.data, _DELTAS))
        del self._events[next(deltas, 0)]
        self.missed += 1


class Bus:
    """Publishes events to every subscriber."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._of_runs: dict[str, list[Callable[[Event], None]]] = {}

    def publish(self, event: Event) -> None:
        for subscription in self._subscriptions:
            subscription.push(event)
        for push in tuple(self._of_runs.get(event.run_id, ())):
            push(event)

    def follow_run(self, run_id: str, push: Callable[[Event], None]) -> Callable[[], None]:
        """Call a function with each event of a run, until the returned function is called.

        It is called while the run publishes: it must be quick, and must not raise. Readers of other
        runs cost nothing.
        """
        self._of_runs.setdefault(run_id, []).append(push)

        def leave() -> None:
            pushes = self._of_runs.get(run_id, [])
            if push in pushes:
                pushes.remove(push)
            if not pushes:
                self._of_runs.pop(run_id, None)

        return leave

    @contextmanager
    def subscribe(
        self,
        size: int = 1024,
        *,
        run_id: str = "",
        session_key: str = "",
        kinds: tuple[type[EventData], ...] = (),
    ) -> Iterator[Subscription]:
        """Subscribe for the length of the block, whose end also ends the reader's iteration."""
        subscription = Subscription(size, run_id=run_id, session_key=session_key, kinds=kinds)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.close()
