"""Work that will not end: told to stop, waited for, then given up, so that its lane is free.

A tool that swallows its cancellation would hold its session, a place in `main` and, at the end,
the whole program. `bounded` runs work in a task of its own; once that was told to stop, it has
`grace_s` to do so. Then its stack goes to the log and whoever waits goes on without it.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Final, TypeVar

from homarus.core.errors import RunStuck

log = logging.getLogger(__name__)

GRACE_S: Final = 10.0
_MAX_TASKS_SHOWN = 20

T = TypeVar("T")


class Watchdog:
    """Keeps an eye on work that can be stopped; `stuck` counts what was given up."""

    def __init__(self) -> None:
        self.stuck = 0
        self._left: set[asyncio.Task[Any]] = set()  # given up, and still there

    @property
    def left(self) -> int:
        """How much of what was given up has not ended since."""
        return len(self._left)

    async def bounded(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, T]],
        scope: asyncio.Timeout,
        *,
        grace_s: float = GRACE_S,
    ) -> T:
        """Do work inside `scope`, whose deadline stops it; RunStuck when it does not stop.

        Work that does stop is the scope's TimeoutError, as without this. When the caller itself
        is cancelled, the work has the same time, and then it is left behind.
        """
        loop = asyncio.get_running_loop()
        # No TaskGroup: it would wait for ever for what is given up here.
        task = loop.create_task(work(), name=name)
        caught, until_s = 0, 0.0
        while not task.done() and not (caught and loop.time() >= until_s):
            try:
                await asyncio.wait([task], timeout=until_s - loop.time() if caught else None)
            except asyncio.CancelledError:
                caught += 1
                until_s = until_s or loop.time() + grace_s
                task.cancel()
        if not task.done():
            self._give_up(task, grace_s)
        if caught > scope.expired():  # somebody else told us to end, too
            if task.done() and not task.cancelled():
                task.exception()  # how it ended is nobody's business any more
            raise asyncio.CancelledError
        if not task.done():
            raise RunStuck(
                f"{name} was told to stop and did not within {grace_s:g} s; it was given up",
                fix="homarus logs shows where it hangs; restart the gateway if it keeps on",
            )
        return task.result()

    def let_go(self) -> None:
        """Keep `asyncio.run` from waiting for what was given up. Only when all else has ended."""
        if not self._left:
            return
        for task in [*self._left, *_unheeding()]:
            asyncio._unregister_task(task)  # noqa: SLF001 - documented, for who keeps own tasks

    def _give_up(self, task: asyncio.Task[Any], grace_s: float) -> None:
        self.stuck += 1
        self._left.add(task)
        task.add_done_callback(self._end)
        shown = [task, *(other for other in _unheeding() if other is not task)]
        stacks = "\n".join(map(describe_task, shown[:_MAX_TASKS_SHOWN]))
        log.error(
            "%s did not stop within %g s and is given up\n%s", task.get_name(), grace_s, stacks
        )

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        how = "" if task.cancelled() else f": {task.exception() or 'done'}"
        log.warning("%s ended after it was given up%s", task.get_name(), how)


def _unheeding() -> list[asyncio.Task[Any]]:
    """The tasks that were told to stop and go on: the one that hangs is among them."""
    return [task for task in asyncio.all_tasks() if task.cancelling() and not task.done()]


def describe_task(task: asyncio.Task[Any]) -> str:
    """A task's name, and where it waits: every frame from its start to the innermost await."""
    frames = [(frame, frame.f_lineno) for frame in _frames(task.get_coro())]
    stack = traceback.StackSummary.extract(iter(frames), lookup_lines=True)
    return f"task {task.get_name()}\n{''.join(stack.format())}".rstrip()


def _frames(awaited: object) -> Iterator[FrameType]:
    """The frames of a suspended coroutine and of what it awaits."""
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{kind}_frame", None)
            if isinstance(frame, FrameType):
                yield frame
                break
        else:
            return
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
