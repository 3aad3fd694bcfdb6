"""A listening socket that survives the exhaustion of file descriptors.

asyncio calls `accept` in a loop, and reports every failure with a traceback. This socket holds one
descriptor in reserve: when none is left, it uses the reserve to take a waiting client and closes
it at once, so that clients are refused instead of left waiting, and says so once a minute.
"""

import errno
import logging
import os
import socket
import time
from contextlib import suppress
from typing import Any, Final

log = logging.getLogger(__name__)

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LOG_INTERVAL_S: Final = 60.0
_PAUSE_S: Final = 0.01  # without a reserve: the event loop would try again at once


class ListeningSocket(socket.socket):
    """A socket whose `accept` raises only what asyncio takes as "no client is waiting"."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reserve = _open_reserve()
        self._refused, self._next_log_at_s = 0, 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        while True:
            try:
                return super().accept()
            except OSError as exc:
                if exc.errno not in EXHAUSTED:
                    raise
                self._report(exc)
                if not self._refuse_one():
                    raise BlockingIOError(errno.EAGAIN, "no client can be accepted now") from exc

    def close(self) -> None:
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1
        super().close()

    def _refuse_one(self) -> bool:
        """Take a client with the descriptor in reserve and close it; return whether that worked."""
        if self._reserve < 0:
            self._reserve = _open_reserve()
        if self._reserve < 0:
            time.sleep(_PAUSE_S)
            return False
        os.close(self._reserve)
        self._reserve = -1
        try:
            with suppress(BlockingIOError, ConnectionAbortedError):
                client, _ = super().accept()
                client.close()
                self._refused += 1
                return True
        except OSError as exc:
            if exc.errno not in EXHAUSTED:
                raise
            time.sleep(_PAUSE_S)
        finally:
            self._reserve = _open_reserve()
        return False

    def _report(self, problem: OSError) -> None:
        if time.monotonic() < self._next_log_at_s:
            return
        self._next_log_at_s = time.monotonic() + _LOG_INTERVAL_S
        log.error(
            "clients are refused, as no file descriptor is left: %s (%d refused before);"
            " raise the limit of open files (ulimit -n), or close clients",
            problem.strerror,
            self._refused,
        )


def _open_reserve() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
