"""Sync automatically: after files changed and a debounce.

Polling is a walk over names, sizes and times, on a thread. A slow walk is made less often, so that
all of them use less than a fiftieth of a processor.
"""

import hashlib
import os
from collections.abc import Awaitable, Callable

from homarus.core.clock import Clock
from homarus.memory.note_files import NoteFile, find_notes
from homarus.memory.spec import MemorySpec
from homarus.memory.transcripts import TranscriptSource, wants_sessions

LOOK_S = 5.0
_SHARE = 50


def files_signature(spec: MemorySpec, transcripts: TranscriptSource) -> str:
    """Return a digest of the names, sizes and times of all files of a memory."""
    known_by = hashlib.blake2b(digest_size=16)
    if "memory" in spec.search.sources:
        for one in find_notes(spec.workspace, spec.extra()):
            known_by.update(f"{one.path}\0{_stamp(one)}\n".encode("utf-8", "surrogateescape"))
    if wants_sessions(spec):
        for talk in transcripts.find():
            stamp = talk.stamp
            told = f"{talk.path}\0{talk.audience}\0{stamp.size}\0{stamp.mtime_ns}\n"
            known_by.update(told.encode("utf-8", "replace"))
    return known_by.hexdigest()


def _stamp(one: object) -> str:
    if not isinstance(one, NoteFile):
        return "skipped"
    try:
        status = os.lstat(one.file)
    except OSError:
        return "gone"
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


async def watch_files(
    look: Callable[[], Awaitable[str]],
    sync: Callable[[], Awaitable[None]],
    *,
    clock: Clock,
    quiet_s: float,
    look_s: float = LOOK_S,
) -> None:
    """Sync when files changed and then stayed the same for `quiet_s`. Runs until cancelled."""
    known, took_s = await _timed(look, clock)
    while True:
        await clock.sleep(max(look_s, took_s * _SHARE))
        seen, took_s = await _timed(look, clock)
        if seen == known:
            continue
        while True:  # files are still being written
            await clock.sleep(quiet_s)
            again, took_s = await _timed(look, clock)
            if again == seen:
                break
            seen = again
        known = seen
        await sync()


async def _timed(look: Callable[[], Awaitable[str]], clock: Clock) -> tuple[str, float]:
    began_s = clock.monotonic()
    return await look(), clock.monotonic() - began_s
