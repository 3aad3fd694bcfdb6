"""A memory backend that fails over to a second one.

After a failure the first backend has a cooldown, which grows with each failure, before it is tried
again. The start and the end of an outage are each logged once. One thread may sync while another
searches.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from homarus.core.errors import HomarusError
from homarus.core.text import one_line
from homarus.memory.base import (
    FallbackNotice,
    MemoryBackend,
    MemoryStatus,
    Progress,
    SearchOptions,
    SearchResponse,
    StoppableBackend,
    ignore_progress,
)
from homarus.memory.index import SyncReport

log = logging.getLogger(__name__)

MIN_COOLDOWN_S: Final = 30.0
MAX_COOLDOWN_S: Final = 600.0
_FIRST_SHARE = 0.75  # of the timeout; the rest is left for the second backend


class FailoverBackend:
    """Use the first backend while it works, else the second, which is opened when it is needed."""

    def __init__(
        self,
        name: str,
        first: MemoryBackend,
        second: Callable[[], MemoryBackend],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._first = name, first
        self._open_second, self._monotonic = second, monotonic
        self._opening = threading.Lock()
        self._second: MemoryBackend | None = None
        self._reason = ""
        self._failures = 0
        self._retry_at_s = 0.0
        self._is_stopped = False

    def sync(self, *, force: bool = False, progress: Progress = ignore_progress) -> SyncReport:
        if self._can_try_first():
            try:
                return self._first.sync(force=force, progress=progress)
            except HomarusError as exc:
                self._record_failure(exc)
        return self._get_second().sync(force=force, progress=progress)

    def search(self, text: str, options: SearchOptions) -> SearchResponse:
        """Search the first backend; when it fails, the second, and say why in `fallback`."""
        started_s = time.monotonic()
        if self._can_try_first():
            try:
                answer = self._first.search(text, _with_first_share(options))
            except HomarusError as exc:
                self._record_failure(exc)
                self._get_second().sync()  # it was not synced while the first answered
            else:
                self._record_success()
                return answer
        answer = self._get_second().search(
            text, _with_time_left(options, time.monotonic() - started_s)
        )
        return replace(answer, fallback=self._fallback)

    def status(self) -> MemoryStatus:
        if not self._failures:
            try:
                return self._first.status()
            except HomarusError as exc:
                self._record_failure(exc)
        return replace(self._get_second().status(), fallback=self._fallback)

    def stop(self) -> None:
        self._is_stopped = True
        backends: tuple[object, ...] = (self._first, self._second)
        for backend in backends:
            if isinstance(backend, StoppableBackend):
                backend.stop()

    def close(self) -> None:
        try:
            self._first.close()
        finally:
            if self._second:
                self._second.close()
                self._second = None

    @property
    def _fallback(self) -> FallbackNotice:
        return FallbackNotice(self._name, self._reason)

    def _get_second(self) -> MemoryBackend:
        with self._opening:
            if self._second is None:
                self._second = self._open_second()
            return self._second

    def _can_try_first(self) -> bool:
        return not self._failures or self._monotonic() >= self._retry_at_s

    def _record_failure(self, exc: HomarusError) -> None:
        if self._is_stopped:  # the failure comes from `stop`: the second is not opened for it
            raise exc
        cooldown_s = min(MIN_COOLDOWN_S * 2 ** min(self._failures, 10), MAX_COOLDOWN_S)
        self._retry_at_s = self._monotonic() + cooldown_s
        if not self._failures:
            log.warning("memory is searched by the index of our own: %s", one_line(str(exc), 300))
        self._failures += 1
        self._reason = str(exc)

    def _record_success(self) -> None:
        if self._failures:
            log.info("%s answers again", self._name)
        self._failures, self._reason = 0, ""


def _with_first_share(options: SearchOptions) -> SearchOptions:
    if not options.timeout_ms:
        return options
    return replace(options, timeout_ms=max(1, int(options.timeout_ms * _FIRST_SHARE)))


def _with_time_left(options: SearchOptions, spent_s: float) -> SearchOptions:
    if not options.timeout_ms:
        return options
    return replace(options, timeout_ms=max(1, options.timeout_ms - int(spent_s * 1000)))
