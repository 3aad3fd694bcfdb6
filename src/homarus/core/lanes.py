"""Lanes: named FIFOs with a width. Enter the narrow one first: `enter("session:KEY", "main")`."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager


class _Lane:
    """First come, first served, `width` at a time."""

    def __init__(self, width: int) -> None:
        self._free = width
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def depth(self) -> int:
        return len(self._waiting)

    async def acquire(self) -> None:
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # the place came together with the cancellation: pass it on
            elif place in self._waiting:  # else a release has stepped over it already
                self._waiting.remove(place)
            raise

    def release(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1


class Lanes:
    """Every lane of the process; one that is not named in `widths` is one wide."""

    def __init__(self, widths: Mapping[str, int] | None = None) -> None:
        self._widths = dict(widths or {})
        if narrow := [name for name, width in self._widths.items() if width < 1]:
            raise ValueError(f"a lane must be at least one wide: {', '.join(narrow)}")
        self._lanes: dict[str, _Lane] = {}
        self._users: dict[str, int] = {}

    def depth(self, name: str) -> int:
        """How many wait in a lane."""
        lane = self._lanes.get(name)
        return lane.depth if lane else 0

    @asynccontextmanager
    async def enter(self, *names: str) -> AsyncIterator[None]:
        """Wait for a place in each lane, in the order given."""
        async with AsyncExitStack() as stack:
            for name in names:
                await stack.enter_async_context(self._one(name))
            yield

    @asynccontextmanager
    async def _one(self, name: str) -> AsyncIterator[None]:
        lane = self._lanes.setdefault(name, _Lane(self._widths.get(name, 1)))
        self._users[name] = self._users.get(name, 0) + 1
        try:
            await lane.acquire()
            try:
                yield
            finally:
                lane.release()
        finally:
            self._users[name] -= 1
            if not self._users[name]:  # an idle session's lane costs nothing
                del self._users[name], self._lanes[name]
