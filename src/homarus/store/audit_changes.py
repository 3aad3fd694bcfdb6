"""Move changes that other processes recorded (`config.change_log`) to the audit log."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from homarus.config.change_log import FILE, MAX_FILE_BYTES
from homarus.config.load import LoadedConfig
from homarus.config.tree_edit import differing_paths, format_path
from homarus.core.message import Json
from homarus.store.audit import AuditEntry, AuditLog
from homarus.store.base import Store

log = logging.getLogger(__name__)

_RECORD: Final = ("audit", "imported")  # the ids of the last file, in case its deletion was missed


async def import_changes(store: Store, state: Path) -> int:
    """Add the recorded changes to the audit log, each once; return their number."""
    taken = state / f"{FILE}.taken"
    if not taken.exists():  # else a crash left it
        try:
            (state / FILE).rename(taken)
        except FileNotFoundError:
            return 0
    lines = list(_read(taken))
    stored = await store.record(*_RECORD)
    known = set((stored or {}).get("ids", ()))
    entries = [_entry(line) for line in lines if line["id"] not in known]
    async with store.transaction() as transaction:
        transaction.add_audit(*entries)
        transaction.put_record(*_RECORD, {"ids": [line["id"] for line in lines]})
    taken.unlink(missing_ok=True)
    return len(entries)


async def record_reload(
    log: AuditLog, store: Store, state: Path, configs: tuple[LoadedConfig, LoadedConfig], at_ms: int
) -> None:
    """Record that another config is used, given both: one edited by hand has no other row."""
    old, new = configs
    await import_changes(store, state)
    changed: Json = [format_path(path) for path in differing_paths(old.raw, new.raw)]
    data = {"target": "config", "action": "load", "hash": new.hash, "changed": changed}
    await log.write(AuditEntry(at_ms, "config", data=data))


def pending_changes(state: Path) -> list[AuditEntry]:
    """Return the changes that are recorded and not yet in the audit log."""
    files = (state / f"{FILE}.taken", state / FILE)
    return [_entry(line) for file in files for line in _read(file)]


def _read(path: Path) -> Iterator[dict[str, Json]]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES * 2).decode("utf-8", "replace")
    except FileNotFoundError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found: Json = json.loads(line)
        except ValueError:
            log.warning("%s: line %d is no record of a change", path, number)
            continue
        if isinstance(found, dict) and isinstance(found.get("id"), str):
            yield found


def _entry(line: dict[str, Json]) -> AuditEntry:
    at_ms = line.get("atMs")
    data = {name: value for name, value in line.items() if name not in {"id", "atMs", "agent"}}
    return AuditEntry(
        at_ms if isinstance(at_ms, int) else 0, "config", str(line.get("agent") or ""), data=data
    )
