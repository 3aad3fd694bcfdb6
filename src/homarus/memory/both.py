"""A backend that may fail, with one behind it that answers then.

After a failure the first is left in peace for a while, longer each time, and then tried again. An
outage is said once, and so is its end. One thread may sync while another searches.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from homarus.core.errors import HomarusError
from homarus.core.text import one_line
from homarus.memory.base import Answer, Ask, Backend, Fallback, Progress, Status, Stops, unseen
from homarus.memory.index import Report

log = logging.getLogger(__name__)

WANTED: Final = "qmd"
FIRST_PAUSE_S: Final = 30.0
LONGEST_PAUSE_S: Final = 600.0
_FIRST_SHARE = 0.75  # of the time that there is: the rest is for the one behind


class Both:
    """The first while it works, else the second, which is opened when it is needed."""

    def __init__(
        self,
        first: Backend,
        second: Callable[[], Backend],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first, self._open_second, self._monotonic = first, second, monotonic
        self._opening = threading.Lock()
        self._second: Backend | None = None
        self._why = ""
        self._failures = 0
        self._again_s = 0.0
        self._is_stopped = False

    def sync(self, *, force: bool = False, progress: Progress = unseen) -> Report:
        """Bring the index that answers to what the files say."""
        if self._may_try():
            try:
                return self._first.sync(force=force, progress=progress)
            except HomarusError as exc:
                self._failed(exc)
        return self._behind().sync(force=force, progress=progress)

    def search(self, text: str, ask: Ask) -> Answer:
        """What the first finds; when it fails, what the second finds, and why."""
        began_s = time.monotonic()
        if self._may_try():
            try:
                answer = self._first.search(text, _shared(ask))
            except HomarusError as exc:
                self._failed(exc)
                self._behind().sync()  # nobody did so while the first answered
            else:
                self._works()
                return answer
        answer = self._behind().search(text, _rest(ask, time.monotonic() - began_s))
        return replace(answer, fallback=self._fallback)

    def status(self) -> Status:
        """How the one that answers is doing."""
        if not self._failures:
            try:
                return self._first.status()
            except HomarusError as exc:
                self._failed(exc)
        return replace(self._behind().status(), fallback=self._fallback)

    def stop(self) -> None:
        """End soon what either of them does."""
        self._is_stopped = True
        either: tuple[object, ...] = (self._first, self._second)
        for one in either:
            if isinstance(one, Stops):
                one.stop()

    def close(self) -> None:
        """Let go of both."""
        try:
            self._first.close()
        finally:
            if self._second:
                self._second.close()
                self._second = None

    @property
    def _fallback(self) -> Fallback:
        return Fallback(WANTED, self._why)

    def _behind(self) -> Backend:
        with self._opening:
            if self._second is None:
                self._second = self._open_second()
            return self._second

    def _may_try(self) -> bool:
        return not self._failures or self._monotonic() >= self._again_s

    def _failed(self, exc: HomarusError) -> None:
        if self._is_stopped:  # it was ended, and whoever is behind it is not begun
            raise exc
        pause_s = min(FIRST_PAUSE_S * 2 ** min(self._failures, 10), LONGEST_PAUSE_S)
        self._again_s = self._monotonic() + pause_s
        if not self._failures:
            told = one_line(str(exc), 300)
            log.warning("memory is searched by the index of our own: %s", told)
        self._failures += 1
        self._why = str(exc)

    def _works(self) -> None:
        if self._failures:
            log.info("qmd answers again")
        self._failures, self._why = 0, ""


def _shared(ask: Ask) -> Ask:
    if not ask.timeout_ms:
        return ask
    return replace(ask, timeout_ms=max(1, int(ask.timeout_ms * _FIRST_SHARE)))


def _rest(ask: Ask, spent_s: float) -> Ask:
    if not ask.timeout_ms:
        return ask
    return replace(ask, timeout_ms=max(1, ask.timeout_ms - int(spent_s * 1000)))
