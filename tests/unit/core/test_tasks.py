"""Supervised tasks: restarted with growing pauses, and stopped only by what says stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from homarus.core.errors import ChannelAuthError, ChannelError
from homarus.core.retry import Backoff
from homarus.core.tasks import STEADY_S, run_contained, supervise, task_group
from homarus.testing.clock import FakeClock

STEADY = Backoff(first_s=1, factor=2, max_s=8, jitter=0)


def raising(*errors: Exception | None) -> Callable[[], Awaitable[None]]:
    """A task that fails as listed, call by call; None returns."""
    left = list(errors)

    async def run() -> None:
        if error := left.pop(0):
            raise error

    return run


def test_supervise_task_that_returns_is_not_restarted() -> None:
    clock = FakeClock(patient=False)
    asyncio.run(supervise("quiet", raising(None), clock=clock, backoff=STEADY))
    assert clock.slept == []


async def test_supervise_failing_task_restarts_with_capped_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock(patient=False)
    run = raising(*[RuntimeError("no luck")] * 6, None)
    with caplog.at_level(logging.ERROR):
        await supervise("flaky", run, clock=clock, backoff=STEADY)
    assert clock.slept == [1, 2, 4, 8, 8, 8]
    assert len(caplog.records) == 6
    assert "flaky failed (6 in a row); again in 8.0 s" in caplog.text
    assert "no luck" in caplog.text


async def test_supervise_failure_after_long_run_resets_backoff() -> None:
    clock, ends = FakeClock(patient=False), iter([0, 0, STEADY_S, STEADY_S - 1, None])

    async def run() -> None:
        lasts_s = next(ends)
        if lasts_s is None:
            return
        clock._elapsed_s += lasts_s
        raise RuntimeError("ended")

    await supervise("long", run, clock=clock, backoff=STEADY)
    assert clock.slept == [1, 2, 1, 2]


async def test_supervise_fatal_error_is_raised() -> None:
    clock = FakeClock(patient=False)
    run = raising(ChannelError("down"), ChannelAuthError("bad token"))
    with pytest.raises(ChannelAuthError):
        await supervise("chat", run, clock=clock, backoff=STEADY, fatal=(ChannelAuthError,))
    assert clock.slept == [1]


async def test_supervise_fatal_error_in_group_is_raised() -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_refused())

    async def _refused() -> None:
        raise ChannelAuthError("bad token")

    clock = FakeClock(patient=False)
    with pytest.raises(ExceptionGroup):
        await supervise("chat", run, clock=clock, backoff=STEADY, fatal=(ChannelAuthError,))
    assert clock.slept == []


def test_supervise_group_of_other_errors_restarts() -> None:
    clock = FakeClock(patient=False)
    run = raising(ExceptionGroup("several", [RuntimeError("a"), ValueError("b")]), None)
    asyncio.run(supervise("chat", run, clock=clock, backoff=STEADY))
    asyncio.run(supervise("chat", raising(None), clock=clock, backoff=STEADY, fatal=(OSError,)))
    assert clock.slept == [1]


@pytest.mark.parametrize("moment", ["running", "waiting to run again"])
async def test_supervise_cancelled_while_running_or_sleeping_stops(moment: str) -> None:
    clock, runs = FakeClock(), 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if moment == "running":
            await asyncio.Event().wait()
        raise RuntimeError("failed")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(supervise("any", run, clock=clock, backoff=STEADY))
        await clock.advance(0.5)
        task.cancel()
    assert task.cancelled()
    assert runs == 1


async def test_run_contained_error_goes_to_callback_not_siblings() -> None:
    failures, done = list[Exception](), list[str]()

    async def fine() -> None:
        await asyncio.sleep(0)
        done.append("fine")

    async with asyncio.TaskGroup() as group:
        group.create_task(run_contained("bad", raising(RuntimeError("bad")), failures.append))
        group.create_task(run_contained("fine", fine, failures.append))
    assert [str(error) for error in failures] == ["bad"]
    assert done == ["fine"]


async def test_run_contained_cancellation_is_raised() -> None:
    failures = list[Exception]()

    async def forever() -> None:
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_contained("long", forever, failures.append))
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
    assert failures == []


async def test_task_group_single_error_is_raised_as_itself() -> None:
    async def main() -> None:
        async with task_group() as group:
            group.create_task(raising_once())
            await asyncio.Event().wait()

    async def raising_once() -> None:
        raise ChannelError("down") from OSError("no route")

    with pytest.raises(ChannelError, match="down") as caught:
        await main()
    assert isinstance(caught.value.__cause__, OSError)


async def test_task_group_error_of_block_is_raised_as_itself() -> None:
    async def main() -> None:
        async with task_group():
            raise ChannelError("down")

    with pytest.raises(ChannelError, match="down"):
        await main()


async def test_task_group_several_errors_raise_a_group() -> None:
    async def fail(text: str) -> None:
        raise ChannelError(text)

    async def main() -> None:
        async with task_group() as group:
            group.create_task(fail("one"))
            group.create_task(fail("two"))

    with pytest.raises(ExceptionGroup) as caught:
        await main()
    assert [str(error) for error in caught.value.exceptions] == ["one", "two"]


async def test_task_group_cancelled_raises_cancelled_error() -> None:
    async def wait() -> None:
        async with task_group() as inner:
            inner.create_task(asyncio.Event().wait())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
