"""Keep `jobs.json` and the jobs in the store in step, and append to the run logs.

Both sides may change: the jobs here, and the file by a person or by OpenClaw. A job whose entry in
the file differs from what was written or read last was changed there, and that counts; a job that
is missing there was removed. Files are written after the store: a crash in between leaves a file
that is behind, which the next start writes again.

The caller holds the lock of the jobs. Files are read and written on a thread.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from homarus.core.clock import Clock
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.faults import fault_point
from homarus.core.file_stamp import FileStamp
from homarus.schedule.job import CronJob, JobState
from homarus.schedule.job_edit import initial_timing
from homarus.schedule.job_records import StoredJob, delete_job, put_job
from homarus.schedule.jobs_file import (
    JobsDocument,
    JobsFile,
    MirrorState,
    digest_of,
    find_problem,
    job_digest,
    parse_jobs,
    render_jobs,
)
from homarus.schedule.run_import import RunImporter
from homarus.schedule.run_log import RunLog
from homarus.store.base import Store, Transaction
from homarus.store.slots import SlotRecord

log = logging.getLogger(__name__)

MIRROR_KIND: Final = "cron-mirror"
_WRITTEN, _PENDING = "jobs", "pending"
_RECENT: Final = 200  # slots that may be missing in the logs after a crash

ChangeKind: TypeAlias = Literal["added", "updated", "removed"]


@dataclass(frozen=True, slots=True)
class JobChange:
    """What another program changed."""

    kind: ChangeKind
    job_id: str


class CronMirror:
    """The files of the jobs."""

    def __init__(self, path: Path, store: Store, clock: Clock) -> None:
        self._file, self._log = JobsFile(path), RunLog(path.parent / "runs")
        self._store, self._clock = store, clock
        self.runs = RunImporter(self._log, store, clock)
        self._written, self._pending = MirrorState(), MirrorState()
        self._is_loaded = False
        self._broken: FileStamp | None = None  # the stamp of a file that cannot be read
        self._reason = ""  # why it cannot

    @property
    def problem(self) -> str:
        """What is wrong with the file or with entries of it, "" for nothing."""
        return self._reason or "; ".join(map(find_problem, self._written.foreign))

    @property
    def path(self) -> Path:
        """The path of `jobs.json`."""
        return self._file.path

    async def import_changes(self, jobs: dict[str, StoredJob]) -> Sequence[JobChange]:
        """Import what another program wrote into the jobs and the store."""
        await self._load()
        stamp = self._file.stamp()
        if stamp is None or stamp in (self._written.stamp, self._broken):
            return ()
        data = await self._read(stamp)
        if data is None:
            return ()
        if digest_of(data) in {self._written.digest, self._pending.digest}:
            is_ours = digest_of(data) == self._pending.digest
            current = replace(self._pending if is_ours else self._written, stamp=stamp)
            await self._save(current, MirrorState())
            self._broken, self._reason = None, ""  # the file is again what it was
            return ()
        try:
            document = parse_jobs(data.decode("utf-8", "replace"))
        except UserError as exc:
            self._report_broken(stamp, str(exc))
            return ()
        self._broken, self._reason = None, ""
        for entry in document.foreign:
            log.warning("%s: %s", self.path, find_problem(entry))
        return await self._merge(jobs, document, stamp, digest_of(data))

    async def _read(self, stamp: FileStamp) -> bytes | None:
        try:
            return await asyncio.to_thread(self._file.read)
        except UserError as exc:
            self._report_broken(stamp, str(exc))
        except OSError as exc:
            self._report_broken(stamp, exc.strerror or str(exc))
        return None

    def _report_broken(self, stamp: FileStamp, reason: str) -> None:
        self._broken, self._reason = stamp, f"{self.path} cannot be read: {reason}"
        log.warning("%s; the jobs stay as they were", self.problem)

    async def _merge(
        self, jobs: dict[str, StoredJob], document: JobsDocument, stamp: FileStamp, digest: str
    ) -> Sequence[JobChange]:
        now_ms, changes = self._clock.now_ms(), list[JobChange]()
        merged: dict[str, StoredJob | None] = {}
        for id_, theirs in document.jobs.items():
            ours = jobs.get(id_)
            found = self._merge_job(ours, theirs, now_ms)
            if found is not ours and found is not None:
                merged[id_] = found
                changes.append(JobChange("updated" if ours else "added", id_))
        known = {*self._written.jobs, *self._pending.jobs}
        for id_ in (id_ for id_ in jobs if id_ not in document.jobs and id_ in known):
            merged[id_] = None
            changes.append(JobChange("removed", id_))
        digests = {id_: job_digest(job) for id_, job in document.jobs.items()}
        state = MirrorState(stamp, digest, digests, document.foreign, document.extra)

        def write(transaction: Transaction) -> None:
            for id_, stored in merged.items():
                if stored is None:
                    delete_job(transaction, id_)
                else:
                    put_job(transaction, stored)

        await self._save(state, MirrorState(), write)
        for id_, stored in merged.items():
            if stored is None:
                del jobs[id_]
            else:
                jobs[id_] = stored
        if changes:
            log.info("took %d changes of jobs from %s", len(changes), self.path)
        return changes

    def _merge_job(self, ours: StoredJob | None, theirs: CronJob, now_ms: int) -> StoredJob | None:
        """Return the job as it is now: ours if the file has nothing new."""
        digest = job_digest(theirs)
        before = {self._written.jobs.get(theirs.id), self._pending.jobs.get(theirs.id)}
        if ours is None:
            if digest in before:
                return None  # removed here, and the file is behind
            idle = replace(theirs, state=replace(theirs.state, running_at_ms=0))
            return StoredJob(idle, initial_timing(idle, now_ms))
        if digest in before or digest == job_digest(ours.job):
            if theirs.state.last_run_at_ms <= ours.job.state.last_run_at_ms or ours.is_running:
                return ours
            # OpenClaw has run it: those slots are over.
            state = replace(theirs.state, running_at_ms=0)
            job = replace(ours.job, state=state, enabled=theirs.enabled)
            return StoredJob(job, initial_timing(job, now_ms))
        job = replace(theirs, creator=ours.job.creator, state=ours.job.state)
        is_restarted = job.schedule != ours.job.schedule or (job.enabled and not ours.job.enabled)
        if not is_restarted:
            return replace(ours, job=job)
        timing = initial_timing(replace(job, state=JobState()), now_ms)
        return StoredJob(job, timing, ours.running_slot_ms)

    async def write(self, jobs: Mapping[str, StoredJob]) -> None:
        """Write the file if the jobs changed. Raises OSError."""
        await self._load()
        current, known = self._file.stamp(), self._written
        if not jobs and current is None and not known.digest:
            return  # there never was a job
        data = render_jobs((one.job for one in jobs.values()), known.foreign, known.extra)
        digest = digest_of(data)
        if digest == known.digest and current == known.stamp:
            return
        if current is not None and current == self._broken:
            copy = await asyncio.to_thread(self._file.quarantine, self._clock.now_ms())
            log.warning("%s is replaced; a copy of it is %s", self.path, copy)
        elif current is not None and current != known.stamp:
            return  # it was just changed: it is imported first
        digests = {id_: job_digest(one.job) for id_, one in jobs.items()}
        planned = replace(known, stamp=None, digest=digest, jobs=digests)
        await self._save(known, planned)
        stamp = await asyncio.to_thread(self._file.write, data)
        self._broken, self._reason = None, ""
        fault_point("cron.mirrored")
        await self._save(replace(planned, stamp=stamp), MirrorState())

    async def append(self, slots: Sequence[SlotRecord]) -> Sequence[SlotRecord]:
        """Append ended slots to the logs; return those of logs that cannot be written."""
        return await asyncio.to_thread(self._log.append, slots)

    async def recover_logs(self) -> Sequence[SlotRecord]:
        """Append the slots that ended before a crash and are not in the logs.

        Returns those of logs that cannot be written.
        """
        recent = await self._store.slots("ok", "error", "skipped", limit=_RECENT)
        last_ms: dict[str, int] = {}
        missing = list[SlotRecord]()
        for slot in sorted(recent, key=lambda one: (one.ended_ms, one.place)):
            if slot.job not in last_ms:
                last_ms[slot.job] = await asyncio.to_thread(self._log.last_ms, slot.job)
            if slot.ended_ms > last_ms[slot.job]:
                missing.append(slot)
        return await self.append(missing) if missing else ()

    async def prune_logs(self, jobs: Collection[str], before_ms: int) -> None:
        """Delete the logs of jobs that are gone, if they were not written since a time."""
        foreign = (entry.get("id") for entry in self._written.foreign if isinstance(entry, Mapping))
        await asyncio.to_thread(self._log.prune, {*jobs, *map(str, foreign)}, before_ms)

    async def _load(self) -> None:
        if not self._is_loaded:
            records = await self._store.records(MIRROR_KIND)
            self._written = MirrorState.decode(records.get(_WRITTEN))
            self._pending = MirrorState.decode(records.get(_PENDING))
            self._is_loaded = True

    async def _save(
        self,
        written: MirrorState,
        pending: MirrorState,
        extra_writes: Callable[[Transaction], None] = lambda _transaction: None,
    ) -> None:
        async with self._store.transaction() as transaction:
            transaction.put_record(MIRROR_KIND, _WRITTEN, written.encode())
            if pending.digest:
                transaction.put_record(MIRROR_KIND, _PENDING, pending.encode())
            else:
                transaction.delete_record(MIRROR_KIND, _PENDING)
            extra_writes(transaction)
        self._written, self._pending = written, pending
