"""Lanes: named FIFO concurrency limits. Enter the narrow one first: `enter("session:KEY", "main")`.

A task that waits for something outside of the program can give up its place meanwhile
(`open_place`); it gets one back before tasks that have not started yet. A task that waits long for
a lane is logged, with the tasks that hold it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from homarus.core.diagnostics import Diagnostics, LaneDequeued, LaneEnqueued
from homarus.core.fast_dataclass import dataclass

log = logging.getLogger(__name__)

# Each kind of work has its own lane: a run that waits for a child must not block the child.
WIDTHS: Final[Mapping[str, int]] = {
    "main": 4,
    "subagent": 8,
    "cron": 1,
    "nested": 1,
    "heartbeat": 1,
}
NESTED_LANE: Final = "nested"  # of runs that another run caused, and may wait for
HEARTBEAT_LANE: Final = "heartbeat"  # of runs that no person waits for
SLOW_WAIT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class LaneHolder:
    """A task that holds a place in a lane, and for how long."""

    task_name: str
    held_s: float


class _Lane:
    """A FIFO semaphore that admits `width` tasks at a time."""

    def __init__(self, width: int) -> None:
        self._width = self._free = (
            width  # free is negative after the width was reduced below the number of holders
        )
        self._resuming: deque[asyncio.Future[None]] = deque()  # had a place before
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.holders: dict[object, tuple[str, float]] = {}  # task name, and since when

    @property
    def depth(self) -> int:
        return len(self._waiting) + len(self._resuming)

    async def acquire(
        self, slow_wait_s: float, on_slow_wait: Callable[[], None], *, resumes: bool = False
    ) -> None:
        """Wait for a place, calling `on_slow_wait` once when that takes `slow_wait_s`."""
        if self._free > 0 and not self._resuming and (resumes or not self._waiting):
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        queue = self._resuming if resumes else self._waiting
        queue.append(place)
        timer = loop.call_later(slow_wait_s, on_slow_wait)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # admitted and cancelled at once: pass the place on
            elif place in queue:  # else a release has skipped it already
                queue.remove(place)
            raise
        finally:
            timer.cancel()

    def release(self) -> None:
        self._free += 1
        self._admit()

    def resize(self, width: int) -> None:
        """Change the width; holders keep their places, and a narrower lane waits for them."""
        self._free += width - self._width
        self._width = width
        self._admit()

    def _admit(self) -> None:
        while self._free > 0 and (queue := self._resuming or self._waiting):
            place = queue.popleft()
            if not place.done():
                self._free -= 1
                place.set_result(None)


class LanePlace:
    """A place in a lane that its holder can give up and get back, as often as it likes."""

    def __init__(
        self,
        lane: _Lane,
        task_name: str,
        slow_wait_s: float,
        on_slow_wait: Callable[[], None],
        on_wait: Callable[[float | None], None] | None = None,
    ) -> None:
        self._lane, self._task_name, self._on_wait = lane, task_name, on_wait
        self._slow_wait_s, self._on_slow_wait = slow_wait_s, on_slow_wait
        self._is_closed = False
        self._acquiring = asyncio.Lock()  # several tool calls of one run may want it back at once
        self.is_held = False

    async def acquire(self, *, resumes: bool = True) -> None:
        """Wait for a place, unless one is held; one that `resumes` goes before new tasks.

        Raises CancelledError when the place was closed: its task was abandoned.
        """
        if self.is_held:
            return
        async with self._acquiring:
            if not self.is_held:
                await self._acquire(resumes=resumes)

    async def _acquire(self, *, resumes: bool) -> None:
        if self._on_wait and not resumes:
            started_s = asyncio.get_running_loop().time()
            self._on_wait(None)
            await self._lane.acquire(self._slow_wait_s, self._on_slow_wait)
            self._on_wait(asyncio.get_running_loop().time() - started_s)
        else:
            await self._lane.acquire(self._slow_wait_s, self._on_slow_wait, resumes=resumes)
        self.is_held = True
        self._lane.holders[self] = self._task_name, asyncio.get_running_loop().time()
        if self._is_closed:
            self.release()
            raise asyncio.CancelledError

    def release(self) -> None:
        """Give up the place, if it is held."""
        if self.is_held:
            self.is_held = False
            del self._lane.holders[self]
            self._lane.release()

    @asynccontextmanager
    async def given_up(self) -> AsyncIterator[None]:
        """Give up the place for the length of the block; others may work meanwhile."""
        self.release()
        yield
        await self.acquire()

    def close(self) -> None:
        """Give up the place for good."""
        self._is_closed = True
        self.release()


class Lanes:
    """All lanes of the process; a lane that is neither in `widths` nor in WIDTHS has width 1."""

    def __init__(
        self,
        widths: Mapping[str, int] | None = None,
        *,
        slow_wait_s: float = SLOW_WAIT_S,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        self._diagnostics = diagnostics or Diagnostics()
        self._widths: dict[str, int] = dict(WIDTHS)
        self._slow_wait_s = slow_wait_s
        self._lanes: dict[str, _Lane] = {}
        self._users: dict[str, int] = {}
        for name, width in (widths or {}).items():
            self.resize(name, width)

    def resize(self, name: str, width: int) -> None:
        """Change how many tasks a lane admits; tasks inside keep their places."""
        if width < 1:
            raise ValueError(f"a lane must be at least one wide: {name}")
        self._widths[name] = width
        if lane := self._lanes.get(name):
            lane.resize(width)

    def depth(self, name: str) -> int:
        """Return how many tasks wait for a lane."""
        lane = self._lanes.get(name)
        return lane.depth if lane else 0

    def holders(self, name: str) -> tuple[LaneHolder, ...]:
        """Return the tasks inside a lane, in the order in which they entered."""
        lane = self._lanes.get(name)
        if lane is None or not lane.holders:
            return ()
        now_s = asyncio.get_running_loop().time()
        return tuple(LaneHolder(task, now_s - since_s) for task, since_s in lane.holders.values())

    def snapshot(self) -> dict[str, tuple[int, int, int]]:
        """Return for each shared lane how many tasks are inside, how many wait, and its width."""
        return {
            name: (len(self.holders(name)), self.depth(name), width)
            for name, width in self._widths.items()
        }

    @asynccontextmanager
    async def enter(self, *names: str) -> AsyncIterator[None]:
        """Hold a place in each lane for the length of the block, acquired in the given order."""
        places = list[tuple[str, LanePlace]]()
        try:
            for name in names:
                place = self._open(name)
                places.append((name, place))
                await place.acquire(resumes=False)
            yield
        finally:
            for name, place in reversed(places):
                self._close(name, place)

    @asynccontextmanager
    async def open_place(self, name: str) -> AsyncIterator[LanePlace]:
        """Return a place in a lane, not held yet; it is given up when the block ends."""
        place = self._open(name)
        try:
            yield place
        finally:
            self._close(name, place)

    def _open(self, name: str) -> LanePlace:
        lane = self._lanes.setdefault(name, _Lane(self._widths.get(name, 1)))
        self._users[name] = self._users.get(name, 0) + 1
        task = _task_name()
        on_wait = None
        if self._diagnostics.is_active and name in self._widths:  # sessions have lanes too
            on_wait = partial(self._publish_wait, name)
        return LanePlace(
            lane, task, self._slow_wait_s, lambda: self._log_slow_wait(name, task), on_wait
        )

    def _publish_wait(self, name: str, waited_s: float | None) -> None:
        if waited_s is None:
            self._diagnostics.publish(LaneEnqueued(name, self.depth(name) + 1))
        else:
            wait_ms = round(waited_s * 1000)
            self._diagnostics.publish(LaneDequeued(name, self.depth(name), wait_ms))

    def _close(self, name: str, place: LanePlace) -> None:
        place.close()
        self._users[name] -= 1
        if not self._users[name]:  # an idle session's lane uses no memory
            del self._users[name], self._lanes[name]

    def _log_slow_wait(self, name: str, task: str) -> None:
        inside = ", ".join(
            f"{each.task_name} for {each.held_s:.0f} s" for each in self.holders(name)
        )
        log.warning("%s waits for lane %s; inside: %s", task, name, inside or "nobody")


def _task_name() -> str:
    task = asyncio.current_task()
    return task.get_name() if task else "a callback"
