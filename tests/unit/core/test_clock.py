"""The system clock, and the fake that replaces it in tests."""

import asyncio
import time

from homarus.core.clock import Clock, SystemClock
from homarus.testing.clock import START_MS, FakeClock


def test_system_clock_now_is_milliseconds_since_epoch() -> None:
    before = time.time()
    now_ms = SystemClock().now_ms()
    assert before * 1000 - 1 <= now_ms <= time.time() * 1000 + 1


def test_system_clock_monotonic_never_decreases() -> None:
    clock = SystemClock()
    asyncio.run(clock.sleep(0))
    first = clock.monotonic()
    assert clock.monotonic() >= first


async def test_fake_clock_moves_only_when_advanced() -> None:
    clock = FakeClock()
    assert (clock.now_ms(), clock.monotonic()) == (START_MS, 0)
    await clock.advance(2.5)
    assert (clock.now_ms(), clock.monotonic()) == (START_MS + 2500, 2.5)


async def test_fake_clock_wakes_sleepers_in_deadline_order() -> None:
    clock, woken = FakeClock(), list[str]()

    async def nap(name: str, *naps: float) -> None:
        for seconds in naps:
            await clock.sleep(seconds)
            woken.append(f"{name} at {clock.monotonic():g}")

    async with asyncio.TaskGroup() as group:
        group.create_task(nap("long", 5))
        group.create_task(nap("twice", 1, 3))
        group.create_task(nap("short", 2))
        await clock.advance(4.5)
        assert woken == ["twice at 1", "short at 2", "twice at 4"]
        waiting = clock.sleepers
        await clock.advance(0.5)
    assert (waiting, clock.sleepers) == (1, 0)
    assert woken[3:] == ["long at 5"]


async def test_fake_clock_cancelled_sleeper_does_not_delay_others() -> None:
    clock: FakeClock = FakeClock()
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(clock.sleep(1))
        stays = group.create_task(clock.sleep(2))
        await clock.advance(0)
        gone.cancel()
        await clock.advance(2)
        assert gone.cancelled()
        assert stays.done()


async def test_fake_clock_auto_advance_records_every_sleep() -> None:
    clock = FakeClock(patient=False)
    seam: Clock = clock
    await seam.sleep(60)
    await seam.sleep(-1)
    assert seam.monotonic() == 60
    assert clock.slept == [60, -1]
