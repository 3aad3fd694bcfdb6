"""The loop's pulse: how late it runs, and where it stood when it did not run at all."""

import asyncio
import logging
import threading
import time

import pytest

from homarus.core import loop_monitor
from homarus.core.loop_monitor import LoopMonitor


def block_until(stalled: threading.Event) -> None:
    """Block the event loop until the monitor noticed."""
    assert stalled.wait(60)


async def test_row_41_blocked_loop_is_logged_with_its_stack(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled = threading.Event()
    monitor = LoopMonitor(tick_s=0.01, limit_s=0.05, on_stall=stalled.set)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(monitor.run())
        await asyncio.sleep(0)
        block_until(stalled)
        while monitor.max_lag_ms < 50:  # noqa: ASYNC110 - the next tick measures it
            await asyncio.sleep(0.01)
        assert monitor.is_stalled
        running.cancel()
    assert monitor.stalls >= 1
    assert monitor.max_lag_ms >= monitor.p99_lag_ms > 0
    assert "the event loop has been blocked for" in caplog.text
    assert "in block_until" in caplog.text
    monkeypatch.setattr(loop_monitor, "STALLED_S", 0.0)
    later_s = time.monotonic() + 3_600
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert not monitor.is_stalled


async def test_loop_monitor_logs_each_stall_once() -> None:
    stalled = list[str]()
    seen = threading.Semaphore(0)
    monitor = LoopMonitor(tick_s=0.005, limit_s=0.02, on_stall=lambda: stalled.append("stalled"))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(monitor.run())
        await asyncio.sleep(0)
        while not stalled:
            seen.acquire(timeout=0.001)
        for _ in range(40):
            seen.acquire(timeout=0.005)  # the thread looks many times more
        running.cancel()
    assert stalled == ["stalled"] and monitor.stalls == 1


async def test_loop_monitor_running_loop_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monitor = LoopMonitor(tick_s=0.001, limit_s=30)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(monitor.run())
        while len(monitor._lags_s) < 20:  # noqa: ASYNC110 - twenty ticks
            await asyncio.sleep(0)
        running.cancel()
    assert (monitor.stalls, monitor.is_stalled, caplog.records) == (0, False, [])
    assert not [one for one in threading.enumerate() if one.name == "loop-monitor"]


def test_loop_monitor_without_tick_has_zero_lag() -> None:
    assert (LoopMonitor().p99_lag_ms, LoopMonitor().max_lag_ms) == (0.0, 0.0)
