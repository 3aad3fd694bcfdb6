"""Lanes: named FIFOs with a width. Enter the narrow one first: `enter("session:KEY", "main")`.

Who waits in one for long is told in the log, with those inside.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from homarus.core.value import dataclass

log = logging.getLogger(__name__)

# A run that waits for a child must not wait for its own lane: each kind of work has one.
WIDTHS: Final[Mapping[str, int]] = {"main": 4, "subagent": 8, "cron": 1, "nested": 1}
LONG_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Who is inside a lane, and for how long."""

    who: str
    for_s: float


class _Lane:
    """First come, first served, `width` at a time."""

    def __init__(self, width: int) -> None:
        self._width = self._free = width  # free is below zero while too many are inside
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.inside: dict[object, tuple[str, float]] = {}  # who, and since when

    @property
    def depth(self) -> int:
        return len(self._waiting)

    async def acquire(self, long_s: float, told: Callable[[], None]) -> None:
        """Wait for a place; `told` is called once when that takes long."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.append(place)
        timer = loop.call_later(long_s, told)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # the place came together with the cancellation: pass it on
            elif place in self._waiting:  # else a release has stepped over it already
                self._waiting.remove(place)
            raise
        finally:
            timer.cancel()

    def release(self) -> None:
        self._free += 1
        self._admit()

    def resize(self, width: int) -> None:
        """Nobody inside is sent away: a narrower lane fills again when enough have left."""
        self._free += width - self._width
        self._width = width
        self._admit()

    def _admit(self) -> None:
        while self._free > 0 and self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                self._free -= 1
                place.set_result(None)


class Lanes:
    """Every lane of the process; one that is named neither in `widths` nor above is one wide."""

    def __init__(self, widths: Mapping[str, int] | None = None, *, long_s: float = LONG_S) -> None:
        self._widths: dict[str, int] = dict(WIDTHS)
        self._long_s = long_s
        self._lanes: dict[str, _Lane] = {}
        self._users: dict[str, int] = {}
        for name, width in (widths or {}).items():
            self.resize(name, width)

    def resize(self, name: str, width: int) -> None:
        """Let this many into a lane from now on; who is inside stays."""
        if width < 1:
            raise ValueError(f"a lane must be at least one wide: {name}")
        self._widths[name] = width
        if lane := self._lanes.get(name):
            lane.resize(width)

    def depth(self, name: str) -> int:
        """How many wait in a lane."""
        lane = self._lanes.get(name)
        return lane.depth if lane else 0

    def holders(self, name: str) -> tuple[Holder, ...]:
        """Who is inside a lane, the first to enter first."""
        lane = self._lanes.get(name)
        if lane is None or not lane.inside:
            return ()
        now_s = asyncio.get_running_loop().time()
        return tuple(Holder(who, now_s - since_s) for who, since_s in lane.inside.values())

    def shown(self) -> dict[str, tuple[int, int, int]]:
        """The shared lanes: how many are inside, how many wait, how many may be inside."""
        return {
            name: (len(self.holders(name)), self.depth(name), width)
            for name, width in self._widths.items()
        }

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
        who, mark = _whoever(), object()
        try:
            await lane.acquire(self._long_s, lambda: self._tell(name, who))
            try:
                lane.inside[mark] = who, asyncio.get_running_loop().time()
                yield
            finally:
                del lane.inside[mark]
                lane.release()
        finally:
            self._users[name] -= 1
            if not self._users[name]:  # an idle session's lane costs nothing
                del self._users[name], self._lanes[name]

    def _tell(self, name: str, who: str) -> None:
        inside = ", ".join(f"{one.who} for {one.for_s:.0f} s" for one in self.holders(name))
        log.warning("%s waits for lane %s; inside: %s", who, name, inside or "nobody")


def _whoever() -> str:
    task = asyncio.current_task()
    return task.get_name() if task else "a callback"
