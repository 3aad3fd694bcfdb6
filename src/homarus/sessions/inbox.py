"""One mailbox per session: a message starts a run, or waits for the one that is live.

A message that arrives while a run is live is handed to it when the loop next looks; what
arrives after the loop's last look gets a run of its own. `put` returns the outcome of the run
that takes the message.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from homarus.core.message import Inbound, Message, user
from homarus.core.tasks import contain

Outcome = TypeVar("Outcome")
Start: TypeAlias = Callable[[str, Inbound], Awaitable[Outcome]]


class Inbox(Generic[Outcome]):
    """Decides what a new message does to its session."""

    def __init__(self, start: Start[Outcome], group: asyncio.TaskGroup) -> None:
        self._start = start
        self._group = group
        self._live: dict[str, list[asyncio.Future[Outcome]]] = {}  # the promises of each live run
        self._waiting: defaultdict[str, list[tuple[Inbound, asyncio.Future[Outcome]]]] = (
            defaultdict(list)
        )

    def put(self, session: str, inbound: Inbound) -> asyncio.Future[Outcome]:
        """Take a message; the future is done when the run that answers it is."""
        promise: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if session in self._live:
            self._waiting[session].append((inbound, promise))
        else:
            self._begin(session, inbound, promise)
        return promise

    def take(self, session: str) -> list[Message]:
        """What waits for the live run; the run answers for it from now on."""
        waiting = self._waiting.pop(session, [])
        self._live[session].extend(promise for _, promise in waiting)
        return [user(m.text, *m.images, at_ms=m.at_ms) for m, _ in waiting]

    def drop(self, session: str, run_id: str | None = None) -> tuple[str, ...]:
        """Give up what still waits, or one message of it; the run ids it came with."""
        waiting = self._waiting.pop(session, [])
        gone = [one for one in waiting if run_id in (None, one[0].run_id)]
        kept = [one for one in waiting if run_id not in (None, one[0].run_id)]
        if kept:
            self._waiting[session] = kept
        for _, promise in gone:
            promise.cancel()
        return tuple(inbound.run_id for inbound, _ in gone)

    def _begin(self, session: str, inbound: Inbound, promise: asyncio.Future[Outcome]) -> None:
        promised = self._live[session] = [promise]

        async def run() -> None:
            outcome = await self._start(session, inbound)
            for kept in promised:
                if not kept.done():
                    kept.set_result(outcome)

        def failed(exc: Exception) -> None:
            for broken in promised:
                if not broken.done():
                    broken.set_exception(exc)

        async def whole() -> None:
            try:
                await contain(f"run {session}", run, failed)
            finally:
                del self._live[session]
                for left in promised:
                    left.cancel()
                self._next(session)

        self._group.create_task(whole(), name=f"run {session}")

    def _next(self, session: str) -> None:
        """Start over with what came after the loop's last look."""
        waiting = self._waiting.pop(session, [])
        if waiting:
            (inbound, promise), *rest = waiting
            self._begin(session, inbound, promise)
            if rest:
                self._waiting[session] = rest
