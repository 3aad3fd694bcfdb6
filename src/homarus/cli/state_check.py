"""Check the database of conversations for `homarus doctor`, and repair it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import apsw

from homarus.config.paths import Paths
from homarus.config.session_store import find_session_store
from homarus.config.sqlite_errors import TranslateErrors
from homarus.core.errors import CorruptDataError, HomarusError, StoreError
from homarus.store.damage import find_bad_rows, find_changed_entries, find_damage
from homarus.store.lock import StateLock
from homarus.store.repair import DAMAGED, RepairReport, repair_offline
from homarus.store.state_paths import StatePaths


def examine_database(paths: Paths) -> str:
    """Read the complete database and return what is wrong with it, "" for nothing."""
    try:
        with TranslateErrors(paths.database), ExitStack() as opened:
            db = apsw.Connection(str(paths.database))
            opened.callback(db.close)
            db.set_busy_timeout(5_000)
            db.execute("PRAGMA query_only = ON")
            found = find_damage(db, None) or find_bad_rows(db)
            return found or find_changed_entries(db, paths.state)
    except CorruptDataError as exc:
        return exc.message


def repair_database(paths: Paths, reason: str) -> RepairReport:
    """Repair the database, which no program may have open. Raises HomarusError."""
    lock = StateLock(paths.state)
    try:
        sessions = find_session_store(paths, os.environ).session_store
        return repair_offline(StatePaths(paths.state, sessions), reason)
    except OSError as exc:
        raise StoreError(f"the database cannot be repaired: {exc}") from exc
    finally:
        lock.release()


def check_state(paths: Paths, *, fix: bool) -> Iterator[tuple[bool, str, str]]:
    """Yield whether it is sound, a text and a fix, for the database and copies of damaged ones."""
    try:
        reason = examine_database(paths)
        if reason and fix:
            yield True, str(repair_database(paths, reason)), ""
            reason = examine_database(paths)
        if reason:
            text = f"state.sqlite is damaged: {reason}"
            yield False, text, "stop the gateway, then homarus doctor --fix"
        else:
            yield True, "the database is sound", ""
    except HomarusError as exc:
        yield False, exc.message, exc.fix
    kept = sorted(path.name for path in paths.state.glob(f"{DAMAGED}*") if path.suffix != "-wal")
    if kept:
        yield True, f"kept after a repair: {', '.join(kept)}", "delete it when nothing is missing"
