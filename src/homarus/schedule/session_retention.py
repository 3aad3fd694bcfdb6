"""Delete the sessions of old runs of jobs and webhooks; their transcripts are archived.

A webhook's session is deleted if it is that of one delivery. One that several deliveries share is
a conversation, and stays.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.lanes import Lanes
from homarus.core.session_keys import is_cron_run, is_hook_delivery
from homarus.sessions.session import SessionRepository
from homarus.store.base import Store

log = logging.getLogger(__name__)

_AT_ONCE: Final = 50  # sessions, before other tasks get a turn


@dataclass(frozen=True, slots=True)
class RetentionServices:
    """What the deletion uses; `get_retention_ms` returns None to keep all sessions."""

    store: Store
    repository: SessionRepository
    clock: Clock
    lanes: Lanes
    is_busy: Callable[[str], bool]
    get_retention_ms: Callable[[], int | None]


async def prune_run_sessions(services: RetentionServices) -> int:
    """Delete sessions of runs that ended longer ago than the retention; return how many."""
    retention_ms, removed = services.get_retention_ms(), 0
    if retention_ms is None:
        return 0
    before_ms = services.clock.now_ms() - retention_ms
    found = await services.store.sessions(bare=True)
    old = [one for one in found if _is_single_run(one.key) and one.updated_ms < before_ms]
    for number, planned in enumerate(old, 1):
        async with services.lanes.enter(f"session:{planned.key}"):
            now = await services.store.session(planned.key)
            is_same = now is not None and now.version == planned.version
            if is_same and not services.is_busy(planned.key):
                await services.repository.delete(planned.key, services.clock.now_ms())
                removed += 1
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    if removed:
        log.info("deleted %d sessions of runs of jobs and webhooks", removed)
    return removed


def _is_single_run(key: str) -> bool:
    return is_cron_run(key) or is_hook_delivery(key)
