"""Monitor the event loop: how late it runs, and what blocks it.

A tick each second measures the loop's lag. A thread notices when a tick is overdue, because
something blocks the loop, and logs the loop's stack while it is still blocked. It costs two
wake-ups a second.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
LIMIT_S: Final = 3.0  # a loop without a tick for this long counts as blocked
STALLED_S: Final = 60.0  # health reports a stall for this long
_SAMPLES = 300


class LoopMonitor:
    """Measures the lag of the event loop in which `run` is started as a task."""

    def __init__(
        self,
        *,
        tick_s: float = TICK_S,
        limit_s: float = LIMIT_S,
        on_stall: Callable[[], None] = lambda: None,
    ) -> None:
        self.stalls = 0
        self._tick_s, self._limit_s, self._on_stall = tick_s, limit_s, on_stall
        self._lags_s: deque[float] = deque(maxlen=_SAMPLES)
        self._last_tick_s = 0.0
        self._stalled_until_s = 0.0
        self._thread = 0

    @property
    def is_stalled(self) -> bool:
        """Return whether the loop was blocked within the last minute."""
        return time.monotonic() < self._stalled_until_s

    @property
    def max_lag_ms(self) -> float:
        """Return the largest lag of the last minutes."""
        return 1000 * max(self._lags_s, default=0.0)

    @property
    def p99_lag_ms(self) -> float:
        lags = sorted(self._lags_s)
        return 1000 * lags[min(len(lags) - 1, len(lags) * 99 // 100)] if lags else 0.0

    async def run(self) -> None:
        """Tick until cancelled."""
        self._thread, self._last_tick_s = threading.get_ident(), time.monotonic()
        stop = threading.Event()
        watch = threading.Thread(target=self._watch, args=(stop,), name="loop-monitor", daemon=True)
        watch.start()
        try:
            while True:
                await asyncio.sleep(self._tick_s)
                now_s = time.monotonic()
                self._lags_s.append(max(0.0, now_s - self._last_tick_s - self._tick_s))
                self._last_tick_s = now_s
        finally:
            stop.set()
            watch.join()

    def _watch(self, stop: threading.Event) -> None:
        """Check for ticks from another thread; log the stack once per stall."""
        logged_s, checked_s = 0.0, time.monotonic()
        while not stop.wait(self._tick_s):
            now_s, tick_s = time.monotonic(), self._last_tick_s
            # This thread did not run either: the whole process was suspended.
            was_suspended = now_s - checked_s > self._tick_s + self._limit_s
            checked_s = now_s
            if now_s - tick_s <= self._tick_s + self._limit_s or was_suspended:
                continue
            self._stalled_until_s = now_s + STALLED_S
            if logged_s != tick_s:
                logged_s = tick_s
                self.stalls += 1
                self._report_stall(now_s - tick_s - self._tick_s)

    def _report_stall(self, late_s: float) -> None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented
        stack = "".join(traceback.format_stack(frame)) if frame else "(its thread is gone)"
        log.error("the event loop has been blocked for %.1f s\n%s", late_s, stack.rstrip())
        self._on_stall()
