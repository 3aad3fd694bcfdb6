import asyncio

from hypothesis import given
from hypothesis import strategies as st

from homarus.providers.concurrency_limiter import WIDEST, ConcurrencyLimiter
from homarus.testing.clock import FakeClock


async def test_limiter_without_refusal_admits_all() -> None:
    limiter = ConcurrencyLimiter(FakeClock())
    async with asyncio.TaskGroup() as group:
        inside = asyncio.Barrier(100)

        async def ask() -> None:
            async with limiter.enter():
                await inside.wait()

        for _ in range(100):
            group.create_task(ask())


async def test_limiter_refusal_blocks_for_requested_time() -> None:
    clock = FakeClock(patient=False)
    limiter = ConcurrencyLimiter(clock)
    limiter.on_rate_limited(30.0)
    async with limiter.enter():
        assert 30.0 <= clock.monotonic() <= 30.5


async def test_limiter_after_burst_admits_few_at_a_time() -> None:
    """A service that allows ten at once: no more than that after it has said no."""
    clock = FakeClock(patient=False)
    limiter = ConcurrencyLimiter(clock)
    under_way, peak_after_refusal, answered, refusals = 0, 0, 0, 0

    async def session() -> None:
        nonlocal under_way, peak_after_refusal, answered, refusals
        while True:
            async with limiter.enter():
                under_way += 1
                if refusals:
                    peak_after_refusal = max(peak_after_refusal, limiter.limit)
                await asyncio.sleep(0)
                too_many = under_way > 10
                under_way -= 1
                if not too_many:
                    limiter.on_success()
                    answered += 1
                    return
                refusals += 1
                limiter.on_rate_limited(1.0)

    async with asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(session())
    assert answered == 1000
    assert refusals < 1000  # everyone was not refused again and again


def test_limiter_success_raises_limit_gradually() -> None:
    limiter = ConcurrencyLimiter(FakeClock())
    limiter.on_rate_limited(0.0)
    assert limiter.limit == 1
    for _ in range(3):
        limiter.on_success()
    assert 2 <= limiter.limit <= 3
    for _ in range(100_000):
        limiter.on_success()
    assert limiter.limit == int(WIDEST)


@given(st.lists(st.sampled_from(["enter", "leave", "cancel", "refuse", "well"]), max_size=60))
async def test_limiter_never_loses_or_doubles_places(steps: list[str]) -> None:
    clock = FakeClock(patient=False)
    limiter = ConcurrencyLimiter(clock)
    held: list[tuple[asyncio.Task[None], asyncio.Event]] = []

    async def hold(done: asyncio.Event) -> None:
        async with limiter.enter():
            await done.wait()

    async with asyncio.TaskGroup() as group:
        for step in steps:
            if step == "enter":
                done = asyncio.Event()
                held.append((group.create_task(hold(done)), done))
            elif step == "leave" and held:
                held.pop(0)[1].set()
            elif step == "cancel" and held:
                held.pop()[0].cancel()
            elif step == "refuse":
                limiter.on_rate_limited(0.0)
            elif step == "well":
                limiter.on_success()
            for _ in range(5):
                await asyncio.sleep(0)
        for task, _ in held:
            task.cancel()
    assert limiter._under_way == 0 and not [w for w in limiter._waiting if not w.done()]
