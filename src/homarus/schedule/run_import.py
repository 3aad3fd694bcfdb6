"""Import the runs that OpenClaw wrote to `cron/runs/<jobId>.jsonl` as slots of our table.

A line whose run has a row is not imported: the lines that this program appends are among them, and
so are those of an earlier import. Lines that cannot be read are left out and counted.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from homarus.core.clock import Clock
from homarus.core.errors import ConflictError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.schedule.run_log import MAX_LINES, RunLog
from homarus.store.base import Store
from homarus.store.slots import SlotRecord, SlotState, decode_usage

log = logging.getLogger(__name__)

ROWS_KEPT_MS: Final = 90 * 86_400_000  # the age at which rows are deleted
_MAX_MS: Final = 1 << 53
_STATES: Final = frozenset({"ok", "error", "skipped"})


@dataclass(frozen=True, slots=True)
class LoggedRuns:
    """The finished runs of a log, oldest first, and the number of lines that cannot be read."""

    slots: Sequence[SlotRecord] = ()
    broken: int = 0


class RunImporter:
    """Compares logs with the rows of the store. The caller holds the lock of the jobs."""

    def __init__(self, run_log: RunLog, store: Store, clock: Clock) -> None:
        self._log, self._store, self._clock = run_log, store, clock

    async def import_newer(self, job_ids: Iterable[str]) -> None:
        """Import the logs that end later than the newest rows of their jobs."""
        for id_ in job_ids:
            last_ms = await asyncio.to_thread(self._log.last_ms, id_)
            rows = await self._store.slots("ok", "error", "skipped", job=id_, limit=MAX_LINES)
            if last_ms > max((one.ended_ms for one in rows), default=0):
                await self.import_log(id_)

    async def import_log(self, job_id: str) -> None:
        """Import the runs of a log that have no row."""
        lines = await asyncio.to_thread(self._log.read_lines, job_id)
        found = parse_lines(job_id, lines)
        if found.broken:
            log.warning("%s: %d lines cannot be read", self._log.path(job_id), found.broken)
        rows = await self._store.slots(job=job_id)
        missing = _without_rows(found.slots, rows, self._clock.now_ms() - ROWS_KEPT_MS)
        if not missing:
            return
        try:
            async with self._store.transaction() as transaction:
                for slot in missing:
                    transaction.claim_slot(slot)
        except ConflictError as exc:  # another process imports the same log
            log.info("the runs of job %s are not imported: %s", job_id, exc)
        else:
            log.info("took %d runs of job %s from its log", len(missing), job_id)


def _without_rows(
    logged: Sequence[SlotRecord], rows: Sequence[SlotRecord], oldest_ms: int
) -> list[SlotRecord]:
    """Return the runs without a row; old ones stay out, because their rows may be deleted."""
    known = {ms for one in rows for ms in (one.slot_ms, one.started_ms)}
    missing = list[SlotRecord]()
    for one in logged:
        is_kept = one.ended_ms >= oldest_ms or (not rows and one is logged[-1])
        if is_kept and one.slot_ms not in known:
            known.add(one.slot_ms)
            missing.append(one)
    return missing


def parse_lines(job_id: str, lines: Iterable[bytes]) -> LoggedRuns:
    """Return the finished runs of a job's log; lines about anything else are left out."""
    slots, broken = list[SlotRecord](), 0
    for line in lines:
        try:
            data = json.loads(line)
            if data.get("action") == "finished":
                slots.append(_decode(job_id, data))
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            broken += 1
    return LoggedRuns(slots, broken)


def _decode(job_id: str, data: Mapping[str, Json]) -> SlotRecord:
    """Return the slot of a line. Raises ValueError or TypeError for a line that is not valid."""
    if data.get("jobId") != job_id:
        raise ValueError("it is a line of another job")
    state = data.get("status") or ("error" if data.get("error") else "ok")
    if state not in _STATES:
        raise ValueError("its status is unknown")
    ended_ms, started_ms = _time(data, "ts"), _time(data, "runAtMs")
    slot_ms, usage = started_ms or ended_ms, data.get("usage")
    if not slot_ms:
        raise ValueError("it has no time")
    return SlotRecord(
        job_id,
        slot_ms,
        state=cast("SlotState", state),
        reason=_text(data, "error"),
        started_ms=0 if state == "skipped" else started_ms,
        ended_ms=max(ended_ms, slot_ms),
        session_key=_text(data, "sessionKey"),
        session_id=_text(data, "sessionId"),
        summary=_text(data, "summary"),
        model=_text(data, "model"),
        provider=_text(data, "provider"),
        usage=decode_usage(usage) if isinstance(usage, Mapping) else None,
        next_run_ms=_time(data, "nextRunAtMs"),
    )


def _time(data: Mapping[str, Json], name: str) -> int:
    """Return a time in milliseconds; 0 without one."""
    value = data.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_MS:
        raise ValueError("it has a time that is none")
    return int(value)


def _text(data: Mapping[str, Json], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
