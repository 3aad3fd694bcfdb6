"""Run long-lived tasks so that a failure is logged and does not cancel their siblings."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from homarus.core.clock import Clock
from homarus.core.errors import HomarusError
from homarus.core.retry import Backoff

log = logging.getLogger(__name__)

# A task that ran this long before it failed was healthy: its backoff starts over.
STEADY_S = 60.0


async def supervise(
    name: str,
    run: Callable[[], Awaitable[None]],
    *,
    clock: Clock,
    backoff: Backoff,
    fatal: tuple[type[Exception], ...] = (),
    failed: Callable[[Exception], object] = lambda _exc: None,
) -> None:
    """Call `run` until it returns, restarting it with backoff when it raises.

    `fatal` errors are raised. `failed` is called with every error that leads to a restart.
    """
    failures = 0
    while True:
        started = clock.monotonic()
        try:
            await run()
        except Exception as exc:
            if _is_or_contains(exc, fatal):
                raise
            failures = 1 if clock.monotonic() - started >= STEADY_S else failures + 1
            delay_s = backoff.delay_s(failures)
            values = (name, failures, delay_s)
            if _is_plain(exc):  # its message suffices without a traceback
                log.warning("%s failed (%d in a row); again in %.1f s: %s", *values, exc)
            else:
                log.exception("%s failed (%d in a row); again in %.1f s", *values)
            failed(exc)
            await clock.sleep(delay_s)
        else:
            return


def _is_plain(exc: Exception) -> bool:
    """Return whether an error is no bug: one of ours, or that a resource is used up."""
    used_up = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
    return isinstance(exc, HomarusError) or (isinstance(exc, OSError) and exc.errno in used_up)


def _is_or_contains(exc: Exception, kinds: tuple[type[Exception], ...]) -> bool:
    """Return whether this is one of `kinds`, or an exception group that contains one."""
    if isinstance(exc, ExceptionGroup):
        return bool(kinds) and exc.subgroup(kinds) is not None
    return isinstance(exc, kinds)


async def run_contained(
    name: str, run: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]
) -> None:
    """Call `run` once; log an error and pass it to `failed` instead of raising it."""
    try:
        await run()
    except Exception as exc:
        if _is_plain(exc):
            log.warning("%s failed: %s", name, exc)
        else:
            log.exception("%s failed", name)
        failed(exc)


def call_contained(name: str, call: Callable[[], object]) -> None:
    """Call a function once; log an error instead of raising it."""
    try:
        call()
    except Exception:
        log.exception("%s failed", name)


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a TaskGroup that raises a single error as itself, so that its class can be caught."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
        if len(errors.exceptions) > 1 or isinstance(first, BaseExceptionGroup):
            raise
        raise first from first.__cause__
