"""Add the cron jobs of a source to `cron/jobs.json`, in OpenClaw's format.

A job that is here under the same id stays as it is, so that no job runs twice.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Json
from homarus.core.private_files import make_private_dir
from homarus.core.text import one_line
from homarus.importing.file_copy import CheckTarget
from homarus.importing.report import ImportReport
from homarus.importing.source_home import SourceHome, place_in, section
from homarus.importing.source_tree import RefusedSourceError
from homarus.store.transcript_codec import load_json

JOBS: Final = "cron/jobs.json"
_MAX_BYTES: Final = 32 << 20
_MAX_ID_CHARS: Final = 200
# What changes when a job runs or is saved, and does not make it another job.
_VOLATILE: Final = frozenset({"state", "updatedAtMs"})
_PAYLOAD_TEXT: Final = {"systemEvent": "text", "agentTurn": "message"}


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
        make_private_dir(self.file.parent)
        data = json.dumps(tree, indent=2, ensure_ascii=True) + "\n"
        fault_point("import.file")
        write_atomic(self.check_target(self.file), data.encode("ascii"))
        fault_point("import.item")


def find_job_problem(job: Mapping[str, Json]) -> str:
    """Return why a job is not valid; "" for a valid one."""
    id_ = job.get("id")
    if not isinstance(id_, str) or not id_ or len(id_) > _MAX_ID_CHARS or not id_.isprintable():
        return "it has no valid id"
    if "/" in id_ or "\\" in id_ or id_.startswith("."):
        return "its id is a path"  # it names the file of its runs
    if job.get("declarationKey"):
        return "OpenClaw makes this job itself"
    payload = job.get("payload")
    if not isinstance(payload, dict) or payload.get("kind") not in _PAYLOAD_TEXT:
        return "its payload is neither a systemEvent nor an agentTurn"
    kind = payload["kind"]
    if not isinstance(payload.get(_PAYLOAD_TEXT[kind]), str):
        return f"its payload has no {_PAYLOAD_TEXT[kind]}"
    target = job.get("sessionTarget")
    if target == ("isolated" if kind == "systemEvent" else "main"):
        return f"a {kind} cannot run in sessionTarget {target}"
    return _schedule_problem(job.get("schedule"))


def _schedule_problem(schedule: Json) -> str:
    if not isinstance(schedule, dict):
        return "it has no schedule"
    match schedule.get("kind"):
        case "at":
            at = schedule.get("at", schedule.get("atMs"))
            is_valid = _is_number(at) or (isinstance(at, str) and _is_time(at))
        case "every":
            is_valid = _is_number(schedule.get("everyMs"))
        case "cron":
            expression = schedule.get("expr")
            is_valid = isinstance(expression, str) and (
                expression.startswith("@") or 5 <= len(expression.split()) <= 7
            )
        case _:
            is_valid = False
    return "" if is_valid else "its schedule is not valid"


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _definition(job: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in job.items() if key not in _VOLATILE}


def _idle(job: Mapping[str, Json]) -> dict[str, Json]:
    """Return a job that is not running: what ran it is another program."""
    state = job.get("state")
    if not isinstance(state, dict):
        return dict(job)
    return {**job, "state": {k: v for k, v in state.items() if k != "runningAtMs"}}
