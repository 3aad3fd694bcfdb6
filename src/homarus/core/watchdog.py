"""Abandon work that ignores its cancellation, so that its lane becomes free.

A tool that swallows its cancellation would block its session, a place in `main` and, at shutdown,
the whole program. `run` starts work in a task of its own. After the task is cancelled it has
`grace_s` to end; then its stack is logged and the caller continues without it.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Final, TypeVar

from homarus.core.errors import RunStuckError

log = logging.getLogger(__name__)

GRACE_S: Final = 10.0
_MAX_TASKS_LOGGED = 20

T = TypeVar("T")


class Watchdog:
    """Runs work that can be cancelled; `stuck` counts the tasks that were abandoned."""

    def __init__(self) -> None:
        self.stuck = 0
        self._abandoned: set[asyncio.Task[Any]] = set()  # abandoned and still running

    @property
    def abandoned(self) -> int:
        """Return how many abandoned tasks still run."""
        return len(self._abandoned)

    async def run(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, T]],
        scope: asyncio.Timeout,
        *,
        grace_s: float = GRACE_S,
    ) -> T:
        """Run work inside `scope`, whose deadline cancels it.

        Raises RunStuckError when the work does not end within `grace_s` after that; work that
        ends leads to the scope's TimeoutError as usual. When the caller is cancelled, the work
        has the same grace period before it is abandoned.
        """
        loop = asyncio.get_running_loop()
        # No TaskGroup: it would wait for ever for an abandoned task.
        task = loop.create_task(work(), name=name)
        cancellations, deadline_s = 0, 0.0
        while not task.done() and not (cancellations and loop.time() >= deadline_s):
            try:
                await asyncio.wait(
                    [task], timeout=deadline_s - loop.time() if cancellations else None
                )
            except asyncio.CancelledError:
                cancellations += 1
                deadline_s = deadline_s or loop.time() + grace_s
                task.cancel()
        if not task.done():
            self._abandon(task, grace_s)
        if cancellations > scope.expired():  # the caller was cancelled too, not only by the scope
            if task.done() and not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it
            raise asyncio.CancelledError
        if not task.done():
            raise RunStuckError(
                f"{name} was told to stop and did not within {grace_s:g} s; it was given up",
                fix="homarus logs shows where it hangs; restart the gateway if it keeps on",
            )
        return task.result()

    def detach_abandoned(self) -> None:
        """Keep `asyncio.run` from waiting for abandoned tasks. Call it last, at shutdown."""
        if not self._abandoned:
            return
        for task in [*self._abandoned, *_uncancelled_tasks()]:
            asyncio._unregister_task(task)  # noqa: SLF001 - documented for programs that track their tasks

    def _abandon(self, task: asyncio.Task[Any], grace_s: float) -> None:
        self.stuck += 1
        self._abandoned.add(task)
        task.add_done_callback(self._on_end)
        tasks = [task, *(other for other in _uncancelled_tasks() if other is not task)]
        stacks = "\n".join(map(describe_task, tasks[:_MAX_TASKS_LOGGED]))
        log.error(
            "%s did not stop within %g s and is given up\n%s", task.get_name(), grace_s, stacks
        )

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        outcome = "" if task.cancelled() else f": {task.exception() or 'done'}"
        log.warning("%s ended after it was given up%s", task.get_name(), outcome)


def _uncancelled_tasks() -> list[asyncio.Task[Any]]:
    """Return the tasks that were cancelled and still run; the one that hangs is among them."""
    return [task for task in asyncio.all_tasks() if task.cancelling() and not task.done()]


def describe_task(task: asyncio.Task[Any]) -> str:
    """Format a task's name and its stack, from its start to the innermost await."""
    frames = [(frame, frame.f_lineno) for frame in _frames(task.get_coro())]
    stack = traceback.StackSummary.extract(iter(frames), lookup_lines=True)
    return f"task {task.get_name()}\n{''.join(stack.format())}".rstrip()


def _frames(awaited: object) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine and of what it awaits."""
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{kind}_frame", None)
            if isinstance(frame, FrameType):
                yield frame
                break
        else:
            return
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
