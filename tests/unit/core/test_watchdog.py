"""Work that will not stop is given up, with its stack in the log, and its lane is free."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from homarus.core.errors import RunStuckError
from homarus.core.lanes import Lanes
from homarus.core.watchdog import Watchdog, describe_task
from tests.waiting import settle

GRACE_S = 0.05


async def stubborn(stop: asyncio.Event) -> str:
    """A tool that swallows its cancellation, until an event is set."""
    while not stop.is_set():
        try:
            await stop.wait()
        except asyncio.CancelledError:
            continue
    return "at last"


class Crew:
    """A run with two lanes around stubborn work, as the runner does it."""

    def __init__(self) -> None:
        self.dog, self.lanes, self.stop = Watchdog(), Lanes({"main": 1}), asyncio.Event()
        self.scope: asyncio.Timeout | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, str]]) -> str:
        async with (
            self.lanes.enter("session:a"),
            asyncio.timeout(None) as self.scope,
            self.lanes.enter("main"),
        ):
            return await self.dog.run("run a", work, self.scope, grace_s=GRACE_S)

    def strike(self) -> None:
        assert self.scope
        self.scope.reschedule(0)

    async def enter_both(self) -> None:
        async with asyncio.timeout(30), self.lanes.enter("session:a", "main"):
            pass


async def test_watchdog_finished_work_returns_result_or_raises() -> None:
    crew = Crew()

    async def fine() -> str:
        return "done"

    async def broken() -> str:
        raise ZeroDivisionError

    assert await crew.run(fine) == "done"
    with pytest.raises(ZeroDivisionError):
        await crew.run(broken)
    assert (crew.dog.stuck, crew.dog.abandoned) == (0, 0)


async def test_watchdog_work_that_obeys_deadline_raises_timeout() -> None:
    crew = Crew()

    async def slow() -> str:
        crew.strike()
        await asyncio.Event().wait()
        return ""

    with pytest.raises(TimeoutError):
        await crew.run(slow)
    assert crew.dog.stuck == 0
    await crew.enter_both()


async def test_watchdog_work_that_stops_slowly_gets_grace() -> None:
    crew, cleaned = Crew(), list[str]()

    async def tidy() -> str:
        crew.strike()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("yes")
        return ""

    with pytest.raises(TimeoutError):
        await crew.run(tidy)
    assert cleaned == ["yes"]


async def test_watchdog_stuck_work_is_abandoned_and_frees_its_lanes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crew = Crew()

    async def tools() -> str:
        async with asyncio.TaskGroup() as group:  # as the loop runs its calls
            call = group.create_task(stubborn(crew.stop), name="tool hang")
        return call.result()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(_expect_stuck(crew, tools))
        await settle(10)
        assert [one.task_name for one in crew.lanes.holders("main")]
        crew.strike()
        await running
        await crew.enter_both()
        assert (crew.dog.stuck, crew.dog.abandoned) == (1, 1)
        crew.stop.set()
        await settle(10)
    assert (crew.dog.stuck, crew.dog.abandoned) == (1, 0)
    text = caplog.records[0].getMessage()
    assert "run a did not stop within 0.05 s and is given up" in text
    assert "task tool hang" in text
    assert "await stop.wait()" in text, "the line where it hangs"
    assert "run a ended after it was given up" in caplog.records[1].getMessage()


async def _expect_stuck(crew: Crew, work: Callable[[], Coroutine[Any, Any, str]]) -> None:
    with pytest.raises(RunStuckError, match="run a was told to stop"):
        await crew.run(work)


@pytest.mark.parametrize("deadline_first", [False, True])
async def test_watchdog_caller_cancelled_raises_cancelled_error(*, deadline_first: bool) -> None:
    crew, after = Crew(), list[str]()

    async def run() -> None:
        await crew.run(lambda: stubborn(crew.stop))
        after.append("went on")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(run())
        await settle(10)
        if deadline_first:
            crew.strike()
            await settle(10)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and after == []
        assert crew.dog.abandoned == 1
        await crew.enter_both()
        crew.stop.set()
        await settle(10)


def test_watchdog_abandoned_work_does_not_block_exit() -> None:
    async def main() -> tuple[Crew, list[asyncio.Task[str]]]:
        crew, kept = Crew(), list[asyncio.Task[str]]()

        async def tools() -> str:
            async with asyncio.TaskGroup() as group:
                kept.append(group.create_task(stubborn(crew.stop)))
            return ""

        async with asyncio.TaskGroup() as group:
            running = group.create_task(_expect_stuck(crew, tools))
            await settle(10)
            crew.strike()
            await running
        Watchdog().detach_abandoned()
        crew.dog.detach_abandoned()
        return crew, kept

    with asyncio.Runner() as runner:
        crew, kept = runner.run(main())  # hangs, as long as it is waited for
        runner.get_loop().call_soon(crew.stop.set)
        runner.run(asyncio.wait(kept))
        runner.run(settle(10))
        assert kept[0].result() == "at last" and crew.dog.abandoned == 0


async def test_describe_task_shows_stack_to_innermost_await() -> None:
    never = asyncio.Event()

    async def inner() -> None:
        await never.wait()

    async def outer() -> None:
        await inner()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(outer(), name="deep")
        await settle(10)
        text = describe_task(task)
        never.set()
    assert text.startswith("task deep\n")
    assert text.index("in outer") < text.index("in inner") < text.index("in wait")
