"""Long-lived tasks: a failure is news and a restart, never the end of its neighbours."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from homarus.core.clock import Clock
from homarus.core.errors import HomarusError
from homarus.core.retry import Backoff

log = logging.getLogger(__name__)

# A task that ran this long before it failed counts as healthy: its backoff starts over.
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
    """Run until it returns; restart it when it raises, except for `fatal` errors.

    `failed` is told of every failure that leads to a restart.
    """
    failures = 0
    while True:
        started = clock.monotonic()
        try:
            await run()
        except Exception as exc:
            if _holds(exc, fatal):
                raise
            failures = 1 if clock.monotonic() - started >= STEADY_S else failures + 1
            delay_s = backoff.delay_s(failures)
            told = (name, failures, delay_s)
            if isinstance(exc, HomarusError):  # it says itself what happened
                log.warning("%s failed (%d in a row); again in %.1f s: %s", *told, exc)
            else:
                log.exception("%s failed (%d in a row); again in %.1f s", *told)
            failed(exc)
            await clock.sleep(delay_s)
        else:
            return


def _holds(exc: Exception, kinds: tuple[type[Exception], ...]) -> bool:
    """Whether this is one of `kinds`, or a TaskGroup's bundle with one of them in it."""
    if isinstance(exc, ExceptionGroup):
        return bool(kinds) and exc.subgroup(kinds) is not None
    return isinstance(exc, kinds)


async def contain(
    name: str, run: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]
) -> None:
    """Run once; a failure is logged and handed to `failed`, so that siblings go on."""
    try:
        await run()
    except Exception as exc:
        log.exception("%s failed", name)
        failed(exc)


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup whose one error comes out as itself, so that its class can say what to do."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
        if len(errors.exceptions) > 1 or isinstance(first, BaseExceptionGroup):
            raise
        raise first from first.__cause__
