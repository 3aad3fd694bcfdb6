"""Supervised tasks: restarted with growing pauses, and stopped only by what says stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from homarus.core.errors import ChannelAuthFailed, ChannelError
from homarus.core.retry import Backoff
from homarus.core.tasks import STEADY_S, contain, supervise, task_group
from homarus.testing.clock import FakeClock

STEADY = Backoff(first_s=1, factor=2, most_s=8, jitter=0)


def raising(*errors: Exception | None) -> Callable[[], Awaitable[None]]:
    """A task that fails as listed, call by call; None returns."""
    left = list(errors)

    async def run() -> None:
        if error := left.pop(0):
            raise error

    return run


def test_a_task_that_returns_is_not_restarted() -> None:
    clock = FakeClock(patient=False)
    asyncio.run(supervise("quiet", raising(None), clock=clock, backoff=STEADY))
    assert clock.slept == []


def test_a_failing_task_is_restarted_after_growing_and_capped_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock(patient=False)
    run = raising(*[RuntimeError("no luck")] * 6, None)
    with caplog.at_level(logging.ERROR):
        asyncio.run(supervise("flaky", run, clock=clock, backoff=STEADY))
    assert clock.slept == [1, 2, 4, 8, 8, 8]
    assert len(caplog.records) == 6
    assert "flaky failed (6 in a row); again in 8.0 s" in caplog.text
    assert "no luck" in caplog.text


def test_a_task_that_ran_long_before_it_failed_starts_its_pauses_over() -> None:
    async def main() -> None:
        clock, ends = FakeClock(patient=False), iter([0, 0, STEADY_S, STEADY_S - 1, None])

        async def run() -> None:
            lasts_s = next(ends)
            if lasts_s is None:
                return
            clock._elapsed_s += lasts_s
            raise RuntimeError("ended")

        await supervise("long", run, clock=clock, backoff=STEADY)
        assert clock.slept == [1, 2, 1, 2]

    asyncio.run(main())


def test_a_fatal_error_ends_it_at_once() -> None:
    clock = FakeClock(patient=False)
    run = raising(ChannelError("down"), ChannelAuthFailed("bad token"))
    with pytest.raises(ChannelAuthFailed):
        asyncio.run(supervise("chat", run, clock=clock, backoff=STEADY, fatal=(ChannelAuthFailed,)))
    assert clock.slept == [1]


def test_a_fatal_error_inside_a_task_group_ends_it_too() -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_refused())

    async def _refused() -> None:
        raise ChannelAuthFailed("bad token")

    clock = FakeClock(patient=False)
    with pytest.raises(ExceptionGroup):
        asyncio.run(supervise("chat", run, clock=clock, backoff=STEADY, fatal=(ChannelAuthFailed,)))
    assert clock.slept == []


def test_a_group_of_ordinary_errors_is_a_failure_like_any_other() -> None:
    clock = FakeClock(patient=False)
    run = raising(ExceptionGroup("several", [RuntimeError("a"), ValueError("b")]), None)
    asyncio.run(supervise("chat", run, clock=clock, backoff=STEADY))
    asyncio.run(supervise("chat", raising(None), clock=clock, backoff=STEADY, fatal=(OSError,)))
    assert clock.slept == [1]


@pytest.mark.parametrize("moment", ["running", "waiting to run again"])
def test_cancelling_stops_it_whether_it_runs_or_waits(moment: str) -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_a_contained_failure_is_handed_over_and_its_siblings_go_on() -> None:
    async def main() -> None:
        failures, done = list[Exception](), list[str]()

        async def fine() -> None:
            await asyncio.sleep(0)
            done.append("fine")

        async with asyncio.TaskGroup() as group:
            group.create_task(contain("bad", raising(RuntimeError("bad")), failures.append))
            group.create_task(contain("fine", fine, failures.append))
        assert [str(error) for error in failures] == ["bad"]
        assert done == ["fine"]

    asyncio.run(main())


def test_containing_does_not_swallow_a_cancellation() -> None:
    async def main() -> None:
        failures = list[Exception]()

        async def forever() -> None:
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(contain("long", forever, failures.append))
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
        assert failures == []

    asyncio.run(main())


def test_one_error_out_of_a_task_group_comes_out_as_itself() -> None:
    async def main() -> None:
        async with task_group() as group:
            group.create_task(raising_once())
            await asyncio.Event().wait()

    async def raising_once() -> None:
        raise ChannelError("down") from OSError("no route")

    with pytest.raises(ChannelError, match="down") as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, OSError)


def test_an_error_of_the_block_itself_comes_out_as_itself() -> None:
    async def main() -> None:
        async with task_group():
            raise ChannelError("down")

    with pytest.raises(ChannelError, match="down"):
        asyncio.run(main())


def test_several_errors_out_of_a_task_group_stay_together() -> None:
    async def fail(text: str) -> None:
        raise ChannelError(text)

    async def main() -> None:
        async with task_group() as group:
            group.create_task(fail("one"))
            group.create_task(fail("two"))

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert [str(error) for error in caught.value.exceptions] == ["one", "two"]


def test_a_cancelled_task_group_ends_as_cancelled() -> None:
    async def main() -> None:
        async def wait() -> None:
            async with task_group() as inner:
                inner.create_task(asyncio.Event().wait())

        async with asyncio.TaskGroup() as group:
            task = group.create_task(wait())
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()

    asyncio.run(main())
