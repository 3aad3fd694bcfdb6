"""Add the cron jobs of a source to `cron/jobs.json`, in OpenClaw's format.

A job that is here under the same id stays as it is, so that no job runs twice.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from homarus.core.errors import StoreError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.importing.file_copy import CheckTarget
from homarus.importing.report import ImportReport
from homarus.importing.source_home import SourceHome, place_in, section
from homarus.importing.source_tree import RefusedSourceError
from homarus.schedule.jobs_file import JobsFile, decode_entry, render_jobs
from homarus.schedule.schedules import AtSchedule, check_schedule, parse_schedule
from homarus.store.transcript_codec import load_json

JOBS: Final = "cron/jobs.json"
_MAX_BYTES: Final = 32 << 20
# What changes when a job runs or is saved, and does not make it another job.
_VOLATILE: Final = frozenset({"state", "updatedAtMs"})


def read_jobs(home: SourceHome, report: ImportReport) -> list[dict[str, Json]]:
    """Return the jobs of a source, and report a file that cannot be read."""
    named = section(home.config, "cron").get("store")
    place = place_in(home.tree, named) if isinstance(named, str) else None
    path = place or JOBS
    try:
        tree = load_json(home.tree.read(path, _MAX_BYTES).decode("utf-8", "replace"))
    except FileNotFoundError:
        return []
    except RefusedSourceError as exc:
        report.add("cronJobs", "skipped", path, f"skipped: it {exc}")
        return []
    except ValueError:
        report.add("cronJobs", "skipped", path, "skipped: it is damaged")
        return []
    listed = tree.get("jobs") if isinstance(tree, dict) else tree
    return [job if isinstance(job, dict) else {} for job in listed or ()]


@dataclass(slots=True)
class CronImporter:
    """Adds jobs to the file of the target."""

    file: Path
    report: ImportReport
    is_dry_run: bool
    check_target: CheckTarget

    def count(self) -> int:
        """Return how many jobs the target has. Raises StoreError for a damaged file."""
        return len(self._load()["jobs"])

    def add(self, jobs: Sequence[Mapping[str, Json]]) -> None:
        """Add every valid job that is not here yet, in one write. Raises StoreError."""
        if not jobs:
            return
        tree = self._load()
        known: dict[Json, Mapping[str, Json]] = {
            job["id"]: job
            for job in tree["jobs"]
            if isinstance(job, dict) and isinstance(job.get("id"), str)
        }
        added: list[Json] = []
        for job in jobs:
            name = one_line(str(job.get("name") or job.get("id") or "a job"), 80)
            if reason := find_job_problem(job):
                self.report.add("cronJobs", "skipped", name, f"skipped: {reason}")
                continue
            existing = known.get(job["id"])
            if existing is None:
                known[job["id"]] = job
                added.append(_idle(job))
                self.report.add("cronJobs", "imported")
            elif _definition(existing) == _definition(job):
                self.report.add("cronJobs", "present")
            else:
                text = "not imported: the job of this id is different here"
                self.report.add("cronJobs", "conflicts", name, text)
        if added and not self.is_dry_run:
            self._save({**tree, "jobs": [*tree["jobs"], *added]})

    def _load(self) -> dict[str, Json]:
        fix = f"repair {self.file} or move it away, and import again"
        try:
            tree = load_json(self.file.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            return {"version": 1, "jobs": []}
        except OSError as exc:
            raise StoreError(f"{self.file} cannot be read: {exc.strerror}", fix=fix) from exc
        except ValueError:
            tree = None
        jobs = tree.get("jobs", []) if isinstance(tree, dict) else None
        if not isinstance(jobs, list):
            raise StoreError(f"{self.file} is damaged, so no job can be added to it", fix=fix)
        return {"version": 1, **tree, "jobs": jobs}

    def _save(self, tree: Mapping[str, Json]) -> None:
        fault_point("import.file")
        extra = {key: value for key, value in tree.items() if key not in {"version", "jobs"}}
        JobsFile(self.check_target(self.file)).write(render_jobs((), tree["jobs"], extra))
        fault_point("import.item")


def find_job_problem(job: Mapping[str, Json]) -> str:
    """Return why a job is not valid; "" for a valid one."""
    if job.get("declarationKey"):
        return "OpenClaw makes this job itself"
    try:
        schedule = parse_schedule(decode_entry(job).schedule)
        if not isinstance(schedule, AtSchedule):
            check_schedule(schedule, time.time_ns() // 1_000_000)
        elif schedule.at_ms is None:
            return "its schedule is not valid"
    except UserError as exc:
        return exc.message
    return ""


def _definition(job: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in job.items() if key not in _VOLATILE}


def _idle(job: Mapping[str, Json]) -> dict[str, Json]:
    """Return a job that is not running: what ran it is another program."""
    state = job.get("state")
    if not isinstance(state, dict):
        return dict(job)
    return {**job, "state": {k: v for k, v in state.items() if k != "runningAtMs"}}
