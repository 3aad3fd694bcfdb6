"""The check of `homarus doctor` about the file of cron jobs."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from homarus.config.paths import Paths, shorten
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.core.text import escape_invisible, one_line

# What it is about, the state, the text and the fix, as of a finding of doctor.
CronFinding: TypeAlias = tuple[str, Literal["ok", "note", "bad"], str, str]


def check_jobs_file(paths: Paths, config: Config) -> Iterator[CronFinding]:
    """Yield what is wrong with `jobs.json`; nothing without one. The file is only read."""
    from homarus.app_schedule import jobs_path
    from homarus.schedule.jobs_file import JobsFile, find_problem, parse_jobs

    file = JobsFile(jobs_path(config, paths))
    if file.stamp() is None:
        return
    shown = shorten(file.path, paths.home)
    try:
        document = parse_jobs(file.read().decode("utf-8", "replace"))
    except (UserError, OSError) as exc:
        reason = exc.strerror or str(exc) if isinstance(exc, OSError) else exc.message
        text = f"{shown} cannot be read: {one_line(escape_invisible(reason), 200)}"
        yield "cron", "bad", text, "repair it; until then the jobs stay as they were"
        return
    for entry in document.foreign:
        text = f"{shown}: {one_line(escape_invisible(find_problem(entry)), 200)}"
        yield "cron", "note", text, "correct the entry, or remove it; until then it is not run"
    if not document.foreign:
        yield "cron", "ok", f"{shown}: {len(document.jobs)} jobs", ""
