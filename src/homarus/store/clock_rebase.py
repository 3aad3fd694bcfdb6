"""Correct the stored times of unsent replies when the wall clock was set.

Within a process the outbox workers detect a step and call `shift_times`. For a step between two
starts, the database holds the wall clock next to the time since boot, as of the last start or
step: while the machine was not rebooted, both must have advanced equally.
"""

import json
import time
from pathlib import Path
from typing import Final

import apsw

from homarus.core.clock import MIN_STEP_MS, seconds_since_boot
from homarus.core.principal import Principal
from homarus.store.query import select

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_KEY: Final = "clock"


def shift_times(db: apsw.Connection, step_ms: int, principal: Principal | None = None) -> None:
    """Correct the unsent outbox records of a principal, or of all (see Journal.shift_times)."""
    scope = (principal.team, principal.user) if principal else (None, None)
    db.execute(
        "UPDATE parcels SET expires_ms = expires_ms + max(?1, 0),"
        " not_before_ms = max(0, not_before_ms + min(?1, 0))"
        " WHERE state IN ('pending', 'sending')"
        " AND (?2 IS NULL OR team = ?2) AND (?3 IS NULL OR user = ?3)",
        (step_ms, *scope),
    )
    _record_clock(db)


def rebase_at_start(db: apsw.Connection) -> int:
    """Correct the times by the step since the last start, and return the step."""
    step_ms = _step_since_last_start(db)
    if abs(step_ms) < MIN_STEP_MS:
        step_ms = 0
        _record_clock(db)
    else:
        shift_times(db, step_ms)
        db.execute(  # else recovery would park them as too old
            "UPDATE accepted SET at_ms = at_ms + max(?, 0) WHERE state IN ('accepted', 'running')",
            (step_ms,),
        )
    return step_ms


def _step_since_last_start(db: apsw.Connection) -> int:
    found = select(db, "SELECT value FROM meta WHERE key = ?", (_KEY,))
    if not found:
        return 0
    try:
        boot_id, boot_ms, wall_ms = json.loads(found[0][0])
        if boot_id and boot_id == _boot_id():
            return _now_ms() - int(wall_ms + _boot_ms() - boot_ms)
    except (ValueError, TypeError):  # damaged: it is rewritten
        return 0
    # After a reboot only a clock that went back is seen, such as one without a battery.
    newest_ms = select(db, "SELECT max(at_ms) FROM parcels")[0][0] or 0
    return min(0, _now_ms() - int(max(wall_ms, newest_ms)))


def _record_clock(db: apsw.Connection) -> None:
    value = json.dumps([_boot_id(), _boot_ms(), _now_ms()])
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, value))


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _boot_ms() -> int:
    return round(seconds_since_boot() * 1000)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
