"""Session maintenance: prune old sessions, model calls and trash; bound archives, `sessions.json`.

The scheduler runs it once a day. Mode `warn` only logs what `enforce` would do.
The transcript of a pruned session stays in the store, and its file is renamed, not removed, up to
a budget.
"""

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Literal

from homarus.config import schema
from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.config.paths import Paths
from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.lanes import Lanes
from homarus.core.session_keys import is_main
from homarus.core.units import parse_byte_size, parse_duration_ms
from homarus.sessions.session import SessionRepository
from homarus.store.base import SessionRecord, Store
from homarus.tools.trash import prune_trash

log = logging.getLogger(__name__)

PRUNE_AFTER: Final = "30d"
KEPT_MS: Final = 7 * 86_400_000  # how long duplicates of a settled message are recognised
APPROVALS_KEPT_MS: Final = 30 * 86_400_000
ARCHIVE_BYTES: Final = 1 << 30  # of archived transcripts, for each agent
BACKUPS: Final = 3  # of a sessions.json that grew too large
_ARCHIVED = re.compile(r".+\.jsonl\.(?:reset|deleted)\.[^/]+")
_AT_ONCE = 50  # sessions, before other tasks get a turn


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The limits of age, number and size."""

    mode: Literal["warn", "enforce"] = "warn"
    prune_after_ms: int = 30 * 86_400_000
    max_entries: int = 500
    rotate_bytes: int = 10 << 20


def retention_rules(config: schema.MaintenanceConfig) -> RetentionRules:
    """Return the rules of the config."""
    after = config.prune_after
    if after is None:
        after = PRUNE_AFTER if config.prune_days is None else f"{config.prune_days}d"
    return RetentionRules(
        config.mode,
        parse_duration_ms(str(after), "d"),
        config.max_entries,
        parse_byte_size(str(config.rotate_bytes)),
    )


@dataclass(frozen=True, slots=True)
class PruningPlan:
    """The sessions of an agent to prune: too old, or too many."""

    old: tuple[SessionRecord, ...] = ()
    over: tuple[SessionRecord, ...] = ()


def plan_pruning(
    records: Sequence[SessionRecord],
    now_ms: int,
    rules: RetentionRules,
    stays: Callable[[SessionRecord], bool],
) -> PruningPlan:
    """Select old sessions, and of the rest the oldest above the maximum; some always stay."""
    limit_ms = now_ms - rules.prune_after_ms
    old = [one for one in records if 0 < one.updated_ms < limit_ms and not stays(one)]
    gone = {one.key for one in old}
    left = sorted((one for one in records if one.key not in gone), key=lambda r: -r.updated_ms)
    over = [one for one in left[rules.max_entries :] if not stays(one)]
    return PruningPlan(tuple(old), tuple(over))


def over_budget(sizes: Sequence[tuple[str, int, float]], budget: int) -> tuple[str, ...]:
    """Return the names of the oldest files beyond a budget, given name, size and mtime."""
    gone, left = list[str](), sum(size for _, size, _ in sizes)
    for name, size, _ in sorted(sizes, key=lambda one: one[2]):
        if left <= budget:
            break
        gone.append(name)
        left -= size
    return tuple(gone)


@dataclass(frozen=True, slots=True)
class MaintenanceServices:
    """What session maintenance uses; `is_busy` tells whether a session has or awaits a run.

    `prune_sandboxes` removes the sandboxes that are unused or old at a time in milliseconds.
    """

    get_config: Callable[[], schema.Config]
    paths: Paths
    store: Store
    repository: SessionRepository
    clock: Clock
    lanes: Lanes
    is_busy: Callable[[str], bool]
    prune_sandboxes: Callable[[int], Awaitable[None]] | None = None


class SessionMaintenance:
    """Prunes sessions and archived transcripts."""

    def __init__(
        self, services: MaintenanceServices, *, archive_bytes: int = ARCHIVE_BYTES
    ) -> None:
        self._services, self._clock = services, services.clock
        self._archive_bytes = archive_bytes

    async def run_once(self) -> None:
        """Apply the rules to every agent's sessions, and prune the journal."""
        now_ms = self._clock.now_ms()
        forgotten = await self._services.store.journal.prune(
            now_ms - KEPT_MS, approvals_before_ms=now_ms - APPROVALS_KEPT_MS
        )
        if forgotten:
            log.info("forgot %d settled messages and sent replies", forgotten)
        config = self._services.get_config()
        retention = config.session.maintenance.usage_retention
        if retention is not False:
            before_ms = now_ms - parse_duration_ms(str(retention), "d")
            if pruned := await self._services.store.prune_usage(before_ms):
                log.info("deleted %d old model calls; their daily totals stay", pruned)
        rules = retention_rules(config.session.maintenance)
        for agent in agent_ids(config):
            await self._maintain_agent(agent, rules)
            workspace = resolve_agent_settings(config, self._services.paths, agent).workspace
            if removed := await asyncio.to_thread(prune_trash, workspace, now_ms):
                log.info("agent %s: %d old deletions removed from the trash", agent, len(removed))
        if prune_sandboxes := self._services.prune_sandboxes:
            await prune_sandboxes(now_ms)

    async def _maintain_agent(self, agent: str, rules: RetentionRules) -> None:
        records = await self._services.store.sessions(agent=agent, bare=True)
        planned = plan_pruning(records, self._clock.now_ms(), rules, self._stays)
        gone = [*planned.old, *planned.over]
        files = await asyncio.to_thread(self._surplus, agent)
        if rules.mode == "warn":
            _warn(agent, planned, files)
            return
        for number, record in enumerate(gone):
            await self._prune(record)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        index, now_ms = self._services.paths.sessions_index(agent), self._clock.now_ms()
        removed = await asyncio.to_thread(_remove, index.parent, files)
        rotated = await asyncio.to_thread(_rotate, index, rules.rotate_bytes, now_ms)
        if gone or removed or rotated:
            log.info(
                "agent %s: %d sessions put aside, %d old transcripts removed%s",
                agent, len(gone), removed, ", sessions.json copied" if rotated else "",
            )  # fmt: skip

    def _stays(self, record: SessionRecord) -> bool:
        return self._services.is_busy(record.key) or is_main(record.key, record.agent)

    async def _prune(self, planned: SessionRecord) -> None:
        """Delete a session, unless it was used since it was listed."""
        async with self._services.lanes.enter(f"session:{planned.key}"):
            now = await self._services.store.session(planned.key)
            if now is not None and now.version == planned.version and not self._stays(now):
                await self._services.repository.delete(planned.key, self._clock.now_ms())

    def _surplus(self, agent: str) -> tuple[str, ...]:
        """Return the archived transcripts beyond the budget."""
        found = list[tuple[str, int, float]]()
        with (
            contextlib.suppress(OSError),
            os.scandir(self._services.paths.sessions_dir(agent)) as entries,
        ):
            for entry in entries:
                if _ARCHIVED.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found.append((entry.name, status.st_size, status.st_mtime))
        return over_budget(found, self._archive_bytes)


def _warn(agent: str, planned: PruningPlan, files: Sequence[str]) -> None:
    if not planned.old and not planned.over and not files:
        return
    log.warning(
        "agent %s has %d sessions unused for long, %d more than it may keep, and %d old"
        " transcripts over the budget; with session.maintenance.mode enforce they are put aside",
        agent, len(planned.old), len(planned.over), len(files),
    )  # fmt: skip


def _remove(folder: Path, names: Sequence[str]) -> int:
    removed = 0
    for name in names:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
            removed += 1
    return removed


def _rotate(index: Path, max_bytes: int, now_ms: int) -> bool:
    """Copy a sessions.json that is too large, and remove all but the newest copies."""
    try:
        if index.lstat().st_size <= max_bytes:
            return False
        # Each write replaces the file: a second name keeps the current one.
        os.link(index, index.with_name(f"{index.name}.bak.{now_ms}"))
    except OSError:
        return False
    copies = sorted(
        (path for path in index.parent.iterdir() if path.name.startswith(f"{index.name}.bak.")),
        key=lambda path: path.stat().st_mtime,
    )
    _remove(index.parent, [copy.name for copy in copies[:-BACKUPS]])
    return True
