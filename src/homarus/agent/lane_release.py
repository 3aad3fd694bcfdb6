"""Give up a run's place in its lane while the run waits for its model.

The lane `main` limits how many runs work at once: prepare a request, receive an answer, run tools.
A run does not work while it waits for a provider: for a rate limit, a connection, the first piece
of an answer, the next try, or the next piece of an answer that has stalled. Then it has no place,
so that any number of runs whose providers do not respond hold up no other run.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from homarus.core.lanes import LanePlace
from homarus.core.message import Message
from homarus.providers.base import AttemptRetried, Delta, ModelRequest, Provider

STALL_S: Final = 0.25  # an answer without a new piece for this long has stalled


class LaneReleasingProvider:
    """A provider whose caller has a place in a lane only while it receives an answer.

    The place is held when the last message is yielded; after an error it is not, because an error
    must be reported without delay.
    """

    def __init__(self, provider: Provider, place: LanePlace) -> None:
        self.name, self.api = provider.name, provider.api
        self._provider, self._place = provider, place

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        """Give up the place, and get it back for each piece that arrives."""
        place, watch = self._place, _StallWatch(self._place)
        place.release()
        try:
            async for piece in self._provider.stream(request):
                if isinstance(piece, AttemptRetried):
                    yield piece
                    place.release()
                    continue
                watch.is_waiting = False
                if not place.is_held:
                    await place.acquire()
                if isinstance(piece, Message):
                    watch.stop()
                else:
                    watch.on_piece()
                yield piece
                watch.is_waiting = True
        finally:
            watch.stop()

    async def close(self) -> None:
        await self._provider.close()


class _StallWatch:
    """Releases the place when the caller has waited for `STALL_S` for the next piece."""

    __slots__ = ("_loop", "_place", "_received_s", "_timer", "is_waiting")

    def __init__(self, place: LanePlace) -> None:
        self._place, self._loop = place, asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._received_s, self.is_waiting = 0.0, False

    def on_piece(self) -> None:
        self._received_s = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(STALL_S, self._check)

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()

    def _check(self) -> None:
        if self.is_waiting and self._loop.time() - self._received_s >= STALL_S:
            self._timer = None
            self._place.release()
        else:
            self._timer = self._loop.call_later(STALL_S, self._check)
