"""`cron/runs/<jobId>.jsonl`: the ended slots of a job in OpenClaw's format.

Lines are appended when the end of a slot is stored. After a crash the slots that ended later than
the last line of a file are appended to it.
"""

import json
import logging
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from homarus.core.atomic_file import write_atomic
from homarus.core.message import Json
from homarus.core.private_files import make_private_dir
from homarus.store.slots import SlotRecord, encode_usage

log = logging.getLogger(__name__)

MAX_BYTES: Final = 2_000_000
MAX_LINES: Final = 2_000
_TAIL_BYTES: Final = 65_536
_READ_BYTES: Final = 4 * MAX_BYTES  # of a log that another program did not prune
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def encode_event(slot: SlotRecord, action: str = "finished") -> dict[str, Json]:
    """Return the payload of the event `cron`, which a line of the log repeats."""
    event: dict[str, Json] = {
        "jobId": slot.job,
        "action": action,
        "status": "" if slot.is_running else slot.state,
        "error": slot.reason,
        "summary": slot.summary,
        "sessionId": slot.session_id,
        "sessionKey": slot.session_key,
        "runAtMs": slot.started_ms or slot.slot_ms,
        "durationMs": slot.duration_ms if slot.ended_ms else None,
        "nextRunAtMs": slot.next_run_ms,
        "model": slot.model,
        "provider": slot.provider,
        "usage": encode_usage(slot.usage) if slot.usage else None,
    }
    required = {"jobId", "action", "runAtMs"}
    return {
        key: value
        for key, value in event.items()
        if key in required or value or (key == "durationMs" and value is not None)
    }


def encode_line(slot: SlotRecord) -> dict[str, Json]:
    """Return the line of an ended slot."""
    return {"ts": slot.ended_ms, **encode_event(slot)}


class RunLog:
    """The folder of the logs; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, job: str) -> Path:
        """Return the file of a job."""
        return self.folder / f"{job}.jsonl"

    def append(self, slots: Iterable[SlotRecord]) -> list[SlotRecord]:
        """Append ended slots, in this order; return those of logs that cannot be written."""
        left, failed = list[SlotRecord](), set[str]()
        for slot in slots:
            try:
                if slot.job not in failed:  # its lines stay in order
                    self._append(slot)
                    continue
            except OSError as exc:
                failed.add(slot.job)
                log.warning("%s cannot be written: %s", self.path(slot.job), exc.strerror or exc)
            left.append(slot)
        return left

    def _append(self, slot: SlotRecord) -> None:
        path = self.path(slot.job)
        make_private_dir(path.parent)
        text = json.dumps(encode_line(slot), ensure_ascii=False, separators=(",", ":"))
        with os.fdopen(os.open(path, _APPEND, 0o600), "ab") as file:
            start = b"\n" if _ends_in_line(path) else b""
            file.write(start + text.encode("utf-8", "replace") + b"\n")
            size = file.tell()
        if size > MAX_BYTES:
            with suppress(OSError):  # the line is written; it is pruned with a later one
                _prune(path)

    def prune(self, jobs: Collection[str], before_ms: int) -> None:
        """Delete the logs of other jobs than these that were not written since a time."""
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                job, suffix = os.path.splitext(entry.name)  # noqa: PTH122 - a name, not a path
                if suffix != ".jsonl" or job in jobs or not entry.is_file(follow_symlinks=False):
                    continue
                if entry.stat(follow_symlinks=False).st_mtime_ns < before_ms * 1_000_000:
                    os.unlink(entry.path)  # noqa: PTH108 - its path is a text

    def last_ms(self, job: str) -> int:
        """Return when the last slot of the log ended; 0 without a log."""
        last = 0
        for line in _tail(self.path(job), _TAIL_BYTES)[1]:
            try:
                found = json.loads(line)
            except ValueError:
                continue  # the first line of the tail, or one that a crash cut off
            if isinstance(found, Mapping) and isinstance(found.get("ts"), int):
                last = max(last, found["ts"])
        return last

    def read_lines(self, job: str) -> list[bytes]:
        """Return the last lines of a job's log, oldest first; none without a log."""
        is_cut, lines = _tail(self.path(job), _READ_BYTES)
        return [line for line in lines[1 if is_cut else 0 :] if line.strip()][-MAX_LINES:]


def _tail(path: Path, size: int) -> tuple[bool, list[bytes]]:
    """Return whether the file is longer than this, and the lines of its end."""
    try:
        with os.fdopen(os.open(path, _READ), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return False, []
            start = max(0, file.seek(0, os.SEEK_END) - size)
            file.seek(start)
            return start > 0, file.read(size).splitlines()
    except OSError:
        return False, []


def _ends_in_line(path: Path) -> bool:
    """Return whether a crash cut off the last line."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _prune(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    write_atomic(path, b"".join(lines[-MAX_LINES:]))
