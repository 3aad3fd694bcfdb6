"""Whether the event loop is alive: how late it runs, and where it stands when it does not.

A tick each second measures how late the loop is. A thread beside it notices when a tick stays
out, which is when something blocks the loop, and writes the loop's stack to the log while it can
still be seen. Cheap: two wake-ups a second.
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
LIMIT_S: Final = 3.0  # without a tick for this long, the loop counts as blocked
RED_S: Final = 60.0  # for this long afterwards, health says so
_SAMPLES = 300


class Pulse:
    """The loop's heartbeat. `run` it in a task of that loop."""

    def __init__(
        self,
        *,
        tick_s: float = TICK_S,
        limit_s: float = LIMIT_S,
        stalled: Callable[[], None] = lambda: None,
    ) -> None:
        self.stalls = 0
        self._tick_s, self._limit_s, self._stalled = tick_s, limit_s, stalled
        self._lags_s: deque[float] = deque(maxlen=_SAMPLES)
        self._beat_s = 0.0
        self._red_until_s = 0.0
        self._thread = 0

    @property
    def is_red(self) -> bool:
        """Whether the loop was blocked a moment ago."""
        return time.monotonic() < self._red_until_s

    @property
    def max_ms(self) -> float:
        """The latest it was in the last minutes."""
        return 1000 * max(self._lags_s, default=0.0)

    @property
    def p99_ms(self) -> float:
        lags = sorted(self._lags_s)
        return 1000 * lags[min(len(lags) - 1, len(lags) * 99 // 100)] if lags else 0.0

    async def run(self) -> None:
        """Tick until cancelled."""
        self._thread, self._beat_s = threading.get_ident(), time.monotonic()
        stop = threading.Event()
        watch = threading.Thread(target=self._watch, args=(stop,), name="pulse", daemon=True)
        watch.start()
        try:
            while True:
                await asyncio.sleep(self._tick_s)
                now_s = time.monotonic()
                self._lags_s.append(max(0.0, now_s - self._beat_s - self._tick_s))
                self._beat_s = now_s
        finally:
            stop.set()
            watch.join()

    def _watch(self, stop: threading.Event) -> None:
        """Look from outside; once per standstill the stack is told."""
        told_s, looked_s = 0.0, time.monotonic()
        while not stop.wait(self._tick_s):
            now_s, beat_s = time.monotonic(), self._beat_s
            slept = now_s - looked_s > self._tick_s + self._limit_s  # the whole process stood
            looked_s = now_s
            if now_s - beat_s <= self._tick_s + self._limit_s or slept:
                continue
            self._red_until_s = now_s + RED_S
            if told_s != beat_s:
                told_s = beat_s
                self.stalls += 1
                self._tell(now_s - beat_s - self._tick_s)

    def _tell(self, late_s: float) -> None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented
        stack = "".join(traceback.format_stack(frame)) if frame else "(its thread is gone)"
        log.error("the event loop has been blocked for %.1f s\n%s", late_s, stack.rstrip())
        self._stalled()
