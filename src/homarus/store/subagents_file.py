"""`subagents/runs.json`: the owner's sub-agents in OpenClaw's format.

The file is written in the background from the records in the database, as a new file that replaces
the old one. It is read when its stamp differs from the one we left. Runs that only the file has are
imported; one that it says is running awaits a message that the journal does not have, so that the
start of the program reports it as interrupted. Of a run that both have, ours counts, except for a
new label, and at a start for an end that we do not know of. One that is missing in the file is
deleted here when it has ended.
"""

import contextlib
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import apsw

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound, Json
from homarus.core.principal import OWNER
from homarus.core.session_keys import parse_agent_key, subagent_depth
from homarus.store import sqlite_sql
from homarus.store.database_writer import DatabaseWriter
from homarus.store.query import select
from homarus.store.state_paths import FileStamp, StatePaths, make_private_dir, stat_stamp
from homarus.store.subagents import (
    KIND,
    SubagentRecord,
    SubagentStatus,
    decode_subagent,
    encode_subagent,
)
from homarus.store.transcript_codec import dump_json, load_json, parse_ms

log = logging.getLogger(__name__)

VERSION: Final = 2
KILLED: Final = "killed"
INTERRUPTED: Final = "interrupted"
# Where the stamp of the file is stored, next to those of `sessions.json`; no agent has this id.
STAMP_KEY: Final = "subagents/runs.json"
_SCOPE: Final = (OWNER.team, OWNER.user)
_MAX_FILE_BYTES: Final = 32_000_000
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_STATUSES: Final[Mapping[str, SubagentStatus]] = {
    "ok": "done",
    "error": "failed",
    "timeout": "timed_out",
    "unknown": "unknown",
}
# Fields of an entry that a record has; the others are kept as they are.
_KNOWN: Final = frozenset(
    {
        "runId", "childSessionKey", "requesterSessionKey", "requesterDisplayKey", "task", "cleanup",
        "label", "model", "runTimeoutSeconds", "createdAt", "startedAt", "endedAt", "outcome",
        "archiveAtMs", "cleanupCompletedAt", "cleanupHandled", "suppressAnnounceReason",
        "announceCompletedAt", "announceHandled", "requesterOrigin", "requesterChannel",
        "requesterAccountId",
    }
)  # fmt: skip


def runs_path(state: Path) -> Path:
    """Return the path of the file."""
    return state / "subagents" / "runs.json"


class SubagentsFile:
    """The file and the records behind it; used by the mirror's thread alone."""

    def __init__(self, paths: StatePaths, db: apsw.Connection, writer: DatabaseWriter) -> None:
        self._path, self._db, self._writer = runs_path(paths.state), db, writer
        self._stamp: FileStamp | None = None
        self._written: bytes | None = None  # what the file has; None while that is not known
        self._is_first = True

    def sync(self) -> None:
        """Import the file, then write it if it is behind. Raises OSError if that fails."""
        self.import_changes()
        data = self._render()
        if data == self._written or (self._stamp is None and not self._records()):
            return
        _replace(self._path, data)
        self._remember(stat_stamp(self._path), data)

    def import_changes(self) -> None:
        """Import what another program wrote. Raises OSError when the file cannot be read."""
        stamp, is_first = stat_stamp(self._path), self._is_first
        known = self._stored() if is_first else self._stamp
        self._is_first = False
        if stamp is None or stamp == known:
            self._stamp = stamp
            if stamp is None:
                self._written = None
            return
        entries = _read(self._path)
        if entries is not None:
            given = [found for entry in entries if (found := decode_run(entry))]
            merge = _MergeRuns(given, is_start=is_first, had_file=known is not None)
            changes = self._writer.submit(merge).result()
            level = logging.INFO if changes else logging.DEBUG
            log.log(level, "took %d sub-agents from %s", changes, self._path)
        self._remember(stamp, None)

    def forget(self) -> None:
        """Drop what is known of the file: the database was replaced."""
        self._is_first, self._written = True, None

    def _records(self) -> list[SubagentRecord]:
        return _load_records(self._db)

    def _render(self) -> bytes:
        found = sorted(self._records(), key=lambda one: (one.created_ms, one.run_id))
        runs = {one.run_id: encode_run(one) for one in found}
        text = json.dumps({"version": VERSION, "runs": runs}, ensure_ascii=False, indent=2)
        return f"{text}\n".encode("utf-8", "replace")

    def _stored(self) -> FileStamp | None:
        found = select(
            self._db,
            "SELECT file_size, file_mtime_ns, file_inode FROM indexes"
            " WHERE team = ? AND user = ? AND agent = ? AND file_size IS NOT NULL",
            (*_SCOPE, STAMP_KEY),
        )
        return FileStamp(*found[0]) if found else None

    def _remember(self, stamp: FileStamp | None, data: bytes | None) -> None:
        self._stamp, self._written = stamp, data
        values = (stamp.size, stamp.mtime_ns, stamp.inode) if stamp else (None, None, None)

        def note(db: apsw.Connection) -> None:
            db.execute(
                "INSERT OR REPLACE INTO indexes VALUES (?, ?, ?, ?, ?, ?, 0)",
                (*_SCOPE, STAMP_KEY, *values),
            )

        self._writer.run_deferred(f"index {STAMP_KEY}", note)


@dataclass(frozen=True, slots=True)
class _MergeRuns:
    """The job that merges the runs of a file into the records; returns how many changed.

    `had_file`: the file was read or written before, so that a run which it lacks was removed.
    """

    given: Sequence[SubagentRecord]
    is_start: bool
    had_file: bool

    def __call__(self, db: apsw.Connection) -> int:
        ours = {one.child_key: one for one in _load_records(db)}
        changes = 0
        for theirs in self.given:
            known = ours.pop(theirs.child_key, None)
            merged = self._merge(known, theirs)
            if merged != known:
                text = dump_json(encode_subagent(merged))
                sqlite_sql.put_record(db, OWNER, KIND, merged.child_key, text)
                changes += 1
        for gone in ours.values():
            if self.had_file and not gone.is_active:
                sqlite_sql.delete_record(db, OWNER, KIND, gone.child_key)
                changes += 1
        return changes

    def _merge(self, ours: SubagentRecord | None, theirs: SubagentRecord) -> SubagentRecord:
        if ours is None:
            return theirs if self.is_start or not theirs.is_active else _interrupted(theirs)
        if ours.label != theirs.label and theirs.label:
            ours = replace(ours, label=theirs.label)
        if not self.is_start or not ours.is_active or theirs.is_active:
            return ours
        # OpenClaw ran with this folder after us: it ended the run, and announced that.
        ended = ("status", "error", "ended_ms", "archive_ms", "unannounced")
        return replace(ours, **{name: getattr(theirs, name) for name in ended})


def _interrupted(record: SubagentRecord) -> SubagentRecord:
    """Return a run that was written to the file while we run: no program works on it."""
    now_ms = time.time_ns() // 1_000_000
    reason = "interrupted: no program works on it"
    return replace(record, status=INTERRUPTED, error=reason, ended_ms=now_ms, awaits="")


def encode_run(record: SubagentRecord) -> dict[str, Json]:
    """Return the entry of a record, with its fields in OpenClaw's order."""
    entry: dict[str, Json] = {
        "runId": record.run_id,
        "childSessionKey": record.child_key,
        "requesterSessionKey": record.requester_key,
        "requesterOrigin": _encode_origin(record),
        "requesterDisplayKey": record.display_key or record.requester_key,
        "task": record.task,
        "cleanup": record.cleanup,
        "label": record.label,
        "model": record.model,
        "runTimeoutSeconds": int(record.timeout_s),
        "createdAt": record.created_ms,
        "startedAt": record.started_ms,
        "endedAt": record.ended_ms,
        "outcome": None if record.is_active else _encode_outcome(record),
        "archiveAtMs": record.archive_ms,
    }
    kept = {"runTimeoutSeconds"}
    entry = {name: value for name, value in entry.items() if value or name in kept}
    if record.is_active:
        entry["cleanupHandled"] = False
    else:  # its end was announced when it ended
        entry |= {"cleanupHandled": True, "cleanupCompletedAt": record.ended_ms}
    if record.status == KILLED:
        entry["suppressAnnounceReason"] = KILLED
    return {**record.extra, **entry}


def decode_run(entry: Mapping[str, Json]) -> SubagentRecord | None:
    """Return the record of an entry that OpenClaw wrote; None for one that is no run."""
    run_id, child, requester = (
        _text(entry, name) for name in ("runId", "childSessionKey", "requesterSessionKey")
    )
    if not run_id or not requester or parse_agent_key(child) is None or not subagent_depth(child):
        return None
    status, error = _decode_status(entry)
    return SubagentRecord(
        child_key=child,
        run_id=run_id,
        requester_key=requester,
        task=_text(entry, "task"),
        created_ms=parse_ms(entry.get("createdAt")),
        awaits=run_id if status == "running" else "",
        origin=_decode_origin(entry),
        display_key=_text(entry, "requesterDisplayKey"),
        cleanup="delete" if entry.get("cleanup") == "delete" else "keep",
        label=_text(entry, "label"),
        model=_text(entry, "model"),
        timeout_s=float(parse_ms(entry.get("runTimeoutSeconds"))),
        depth=subagent_depth(child),
        status=status,
        error=error,
        started_ms=parse_ms(entry.get("startedAt")),
        ended_ms=parse_ms(entry.get("endedAt")) if status != "running" else 0,
        archive_ms=parse_ms(entry.get("archiveAtMs")) if status != "running" else 0,
        unannounced=_text(entry, "suppressAnnounceReason") if status == KILLED else "",
        extra={name: value for name, value in entry.items() if name not in _KNOWN},
    )


def _decode_status(entry: Mapping[str, Json]) -> tuple[SubagentStatus, str]:
    outcome = entry.get("outcome")
    if not isinstance(outcome, Mapping) and not parse_ms(entry.get("endedAt")):
        return "running", ""
    found = outcome if isinstance(outcome, Mapping) else {}
    error = _text(found, "error")
    if entry.get("suppressAnnounceReason") == KILLED:
        return KILLED, error
    if error.startswith(INTERRUPTED):
        return INTERRUPTED, error
    return _STATUSES.get(_text(found, "status"), "unknown"), error


def _encode_outcome(record: SubagentRecord) -> dict[str, Json]:
    """Return how a run ended, in one of OpenClaw's four words."""
    match record.status:
        case "done":
            return {"status": "ok"}
        case "timed_out":
            return {"status": "timeout"}
        case "unknown":
            return {"status": "unknown"}
        case "failed":
            return {"status": "error", "error": record.error or "it failed"}
        case status:  # killed and interrupted, which OpenClaw has no word for
            reason = record.error if record.error.startswith(status) else ""
            return {"status": "error", "error": reason or status}


def _encode_origin(record: SubagentRecord) -> dict[str, Json]:
    """Return the chat that the requester was answering."""
    address = record.origin.address
    given = {
        "channel": address.channel,
        "to": address.chat,
        "accountId": "" if address.account == "default" else address.account,
        "threadId": address.thread,
    }
    return {name: value for name, value in given.items() if value}


def _decode_origin(entry: Mapping[str, Json]) -> Inbound:
    origin = entry.get("requesterOrigin")
    found = origin if isinstance(origin, Mapping) else {}
    channel = _text(found, "channel") or _text(entry, "requesterChannel")
    account = _text(found, "accountId") or _text(entry, "requesterAccountId") or "default"
    thread = found.get("threadId")
    address = Address(
        channel, _text(found, "to"), account, str(thread) if isinstance(thread, str | int) else None
    )
    return Inbound("", address, "", "")


def _load_records(db: apsw.Connection) -> list[SubagentRecord]:
    rows = select(
        db,
        "SELECT json FROM records WHERE team = ? AND user = ? AND kind = ? ORDER BY id",
        (*_SCOPE, KIND),
    )
    return [decode_subagent(load_json(text)) for (text,) in rows]


def _read(path: Path) -> list[Mapping[str, Json]] | None:
    """Return the entries of a file of version 1 or 2; None when it cannot be understood."""
    with path.open("rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    try:
        value = load_json(data.decode("utf-8", "replace"))
    except ValueError:
        value = None
    runs = value.get("runs") if isinstance(value, Mapping) else None
    is_known = isinstance(value, Mapping) and value.get("version") in (1, VERSION)
    if not is_known or not isinstance(runs, Mapping) or len(data) > _MAX_FILE_BYTES:
        log.warning("%s is not a list of sub-agents; it is written again", path)
        return None
    return [entry for entry in runs.values() if isinstance(entry, Mapping)]


def _replace(path: Path, data: bytes) -> None:
    """Replace the file atomically."""
    make_private_dir(path.parent)
    made = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(made, _CREATE, 0o600), "wb") as file:
            file.write(data)
        made.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            made.unlink()
        raise


def _text(entry: Mapping[str, Json], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""
