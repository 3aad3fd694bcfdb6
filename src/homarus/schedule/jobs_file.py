"""`cron/jobs.json` in OpenClaw's format: read what others wrote, write what changed.

The file mirrors the jobs in the store. `JobsFile` reads and writes it; what each side changed since
the last time is found by digests: those of the jobs as they were written or read last. Entries that
are no valid jobs stay in the file as they are. A file that cannot be parsed is left alone, and
copied before it is replaced.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from homarus.config.json5_document import parse_json5, to_plain
from homarus.core.atomic_file import write_atomic
from homarus.core.errors import HomarusError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_stamp import FileStamp, stat_stamp
from homarus.core.message import Json
from homarus.core.private_files import make_private_dir
from homarus.core.text import one_line
from homarus.schedule.job import CronJob, JobCreator, decode_job, encode_job
from homarus.schedule.job_fields import check_restrictions
from homarus.schedule.job_input import normalize_job_create

log = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 32 << 20
_MAX_ID_BYTES: Final = 200  # with `.jsonl`, less than a file name may have
_IMPORTED: Final = JobCreator("file")
_VOLATILE: Final = frozenset({"state", "updatedAtMs"})


@dataclass(frozen=True, slots=True)
class JobsDocument:
    """The contents of a file: valid jobs, entries that are none, and other fields of the file."""

    jobs: Mapping[str, CronJob] = field(default_factory=dict)
    foreign: tuple[Json, ...] = ()
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MirrorState:
    """What is stored of the file: its stamp, its digest, and the digests of its jobs.

    `foreign` are the entries that are no jobs, `extra` the other fields of the file.
    """

    stamp: FileStamp | None = None
    digest: str = ""
    jobs: Mapping[str, str] = field(default_factory=dict)
    foreign: tuple[Json, ...] = ()
    extra: Mapping[str, Json] = field(default_factory=dict)

    def encode(self) -> dict[str, Json]:
        """Return the state as JSON."""
        stamp = self.stamp
        return {
            "stamp": [stamp.size, stamp.mtime_ns, stamp.inode] if stamp else None,
            "digest": self.digest,
            "jobs": dict(self.jobs),
            "foreign": list(self.foreign),
            "extra": dict(self.extra),
        }

    @classmethod
    def decode(cls, data: Mapping[str, Json] | None) -> "MirrorState":
        """Return the state that `encode` wrote."""
        if not data:
            return cls()
        stamp = data.get("stamp")
        return cls(
            FileStamp(*stamp) if stamp else None,
            data.get("digest", ""),
            data.get("jobs") or {},
            tuple(data.get("foreign") or ()),
            data.get("extra") or {},
        )


def job_digest(job: CronJob) -> str:
    """Return a digest of what a person wrote of a job: all but its state."""
    data = {key: value for key, value in encode_job(job).items() if key not in _VOLATILE}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def parse_jobs(text: str) -> JobsDocument:
    """Return the jobs of a file. Raises UserError for one that is not a list of jobs."""
    tree = _parse(text)
    listed = tree.get("jobs") if isinstance(tree, Mapping) else tree
    if not isinstance(listed, list):
        raise UserError("it has no list of jobs")
    jobs, foreign = dict[str, CronJob](), list[Json]()
    for entry in listed:
        try:
            job = decode_entry(entry)
        except UserError:
            foreign.append(entry)
            continue
        if jobs.setdefault(job.id, job) is not job:
            foreign.append(entry)
    extra = (
        {key: value for key, value in tree.items() if key not in {"version", "jobs"}}
        if isinstance(tree, Mapping)
        else {}
    )
    return JobsDocument(jobs, tuple(foreign), extra)


def find_problem(entry: Json) -> str:
    """Return why an entry of a file is no job: it is not valid, or another one has its id."""
    try:
        job = decode_entry(entry)
    except UserError as exc:
        name = str(entry.get("name") or entry.get("id")) if isinstance(entry, Mapping) else ""
        return f"job {one_line(name, 80)!r}: {exc}"
    return f"job {job.id!r} is there twice: the first one counts"


def decode_entry(entry: Json) -> CronJob:
    """Return the job of an entry, which may have an older shape. Raises UserError."""
    if not isinstance(entry, Mapping):
        raise UserError("it is not an object")
    given = {**entry, "id": entry.get("id", entry.get("jobId"))}
    check_job_id(given["id"])
    data = normalize_job_create(given)
    if data is None:
        raise UserError("it is not an object")
    check_restrictions(data)
    if "deleteAfterRun" not in entry:  # a default of new jobs, not of stored ones
        data.pop("deleteAfterRun", None)
    data.pop("jobId", None)
    data.setdefault("name", data["id"])
    return decode_job(data, _IMPORTED)


def check_job_id(id_: Json) -> None:
    """Raise UserError unless this can be the id of a job; it names the file of its runs."""
    fix = "give it an id of letters, digits and hyphens"
    if not isinstance(id_, str) or not id_.strip():
        raise UserError("it has no valid id", fix=fix)
    if not id_.isprintable() or "/" in id_ or "\\" in id_ or id_.startswith("."):
        raise UserError("its id is a path, or has characters that no file name has", fix=fix)
    if len(id_.encode()) > _MAX_ID_BYTES:
        raise UserError(f"its id has more than {_MAX_ID_BYTES} bytes", fix=fix)


def render_jobs(
    jobs: Iterable[CronJob], foreign: Sequence[Json] = (), extra: Mapping[str, Json] | None = None
) -> bytes:
    """Return the file with these jobs, oldest first."""
    ordered = sorted(jobs, key=lambda job: (job.created_at_ms, job.id))
    entries = [*(encode_job(job) for job in ordered), *foreign]
    tree = {"version": 1, **(extra or {}), "jobs": entries}
    # OpenClaw writes no newline at the end: a file that nothing changed keeps its bytes.
    return json.dumps(tree, ensure_ascii=False, indent=2).encode("utf-8", "replace")


def digest_of(data: bytes) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(data).hexdigest()


class JobsFile:
    """The file, which may be a link to it; its methods block, and raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def _target(self) -> Path:
        return Path(os.path.realpath(self.path))

    def stamp(self) -> FileStamp | None:
        """Return the stamp of the file; None when there is none."""
        return stat_stamp(self._target)

    def read(self) -> bytes:
        """Return the contents. Raises UserError when the file is too large."""
        with self._target.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise UserError(f"it is larger than {MAX_FILE_BYTES} bytes")
        return data

    def write(self, data: bytes) -> FileStamp | None:
        """Replace the file atomically, keep the old one as `.bak`, and return its stamp."""
        target = self._target
        make_private_dir(target.parent)
        if self.stamp() is not None:
            backup = self.path.with_name(f"{self.path.name}.bak")
            write_atomic(backup, target.read_bytes())
        write_atomic(target, data)
        return self.stamp()

    def quarantine(self, at_ms: int) -> Path:
        """Copy a file that cannot be read, and return the path of the copy."""
        copy = self.path.with_name(f"{self.path.name}.unreadable-{at_ms}")
        write_atomic(copy, self._target.read_bytes())
        return copy


def _parse(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return to_plain(parse_json5(text))  # what a person may have written
    except (HomarusError, ValueError, RecursionError) as exc:
        raise UserError(f"it is not valid JSON: {exc}") from exc
