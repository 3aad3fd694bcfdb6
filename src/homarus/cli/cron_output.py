"""Show scheduled jobs and their runs to people. Pure."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from homarus.config.timezone import load_zone
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line

_MAX_NAME_CHARS: Final = 40
_MAX_TEXT_CHARS: Final = 100
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


@dataclass(frozen=True, slots=True)
class TimeView:
    """The user's time zone ("" for this machine's) and the current time."""

    zone: str
    now_ms: int

    def show(self, at_ms: Json) -> str:
        """Return an instant as `Wed 2026-11-18 09:00 CET (in 2h 5m)`; `-` for none."""
        if not isinstance(at_ms, int | float) or not at_ms:
            return "-"
        try:
            at = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(load_zone(self.zone))
        except (ValueError, OverflowError, OSError):
            return "-"
        distance_ms = int(at_ms) - self.now_ms
        shown = describe_duration(abs(distance_ms))
        relative = f"in {shown}" if distance_ms >= 0 else f"{shown} ago"
        return f"{at:%a %Y-%m-%d %H:%M %Z} ({relative})"


def describe_duration(ms: int) -> str:
    """Return a duration in its two largest units, as `2h 5m`; less than a second is `0s`."""
    for index, (unit, size) in enumerate(_UNITS):
        if ms >= size:
            rest = _UNITS[index + 1 : index + 2]
            more = [f"{ms % size // small}{name}" for name, small in rest if ms % size // small]
            return " ".join([f"{ms // size}{unit}", *more])
    return "0s"


def describe_schedule(schedule: Json, view: TimeView) -> str:
    """Return when a job runs, as `every 2h`, `0 9 * * * (Europe/Berlin)` or a time."""
    if not isinstance(schedule, Mapping):
        return "-"
    match schedule.get("kind"):
        case "every" if isinstance(every := schedule.get("everyMs"), int | float):
            return f"every {describe_duration(int(every))}"
        case "cron":
            zone = schedule.get("tz")
            return _clean(f"{schedule.get('expr')}{f' ({zone})' if zone else ''}")
        case "at":
            from homarus.schedule.absolute_time import parse_absolute_time_ms

            at_ms = parse_absolute_time_ms(str(schedule.get("at")))
            return f"once at {view.show(at_ms)}" if at_ms else _clean(f"at {schedule.get('at')}")
        case kind:
            return _clean(str(kind))


def list_lines(jobs: list[dict[str, Json]], view: TimeView) -> Iterator[str]:
    """Yield the lines of a list of jobs: two or three for each."""
    for job in jobs:
        state = job.get("state") or {}
        name = _clean(str(job.get("name") or ""), _MAX_NAME_CHARS)
        yield f"{job['id']}  {name}  [{job_status(job)}]"
        schedule = describe_schedule(job.get("schedule"), view)
        next_run = view.show(state.get("nextRunAtMs")) if job.get("enabled") else "-"
        is_once = schedule.startswith("once at")
        yield f"  {schedule}" if is_once else f"  {schedule}, next run {next_run}"
        if state.get("lastRunAtMs"):
            yield f"  last run {view.show(state['lastRunAtMs'])}: {_last_outcome(state)}"


def job_status(job: Mapping[str, Json]) -> str:
    """Return `running`, `disabled`, `waiting`, or how the last run went."""
    state = job.get("state") or {}
    if state.get("runningAtMs"):
        return "running"
    if not job.get("enabled"):
        return "disabled"
    return str(state.get("lastStatus") or "waiting")


def _last_outcome(state: Mapping[str, Json]) -> str:
    status = str(state.get("lastStatus") or "unknown")
    error = state.get("lastError")
    return _clean(f"{status}: {error}") if error and status != "ok" else status


def job_lines(job: Mapping[str, Json], view: TimeView) -> Iterator[str]:
    """Yield everything that a person needs to know of one job."""
    payload, delivery = job.get("payload") or {}, job.get("delivery") or {}
    state = job.get("state") or {}
    yield f"id        {job['id']}"
    yield f"name      {_clean(str(job.get('name') or ''))}"
    yield f"status    {job_status(job)}"
    yield f"schedule  {describe_schedule(job.get('schedule'), view)}"
    if job.get("enabled"):
        yield f"next run  {view.show(state.get('nextRunAtMs'))}"
    text = payload.get("message") or payload.get("text") or ""
    what = "message" if payload.get("kind") == "agentTurn" else "event"
    yield f"{what:<9} {_clean(str(text))}"
    if delivery:
        where = [delivery.get(key) for key in ("mode", "channel", "to") if delivery.get(key)]
        yield f"delivery  {_clean(' '.join(map(str, where)))}"
    for key, title in (("agentId", "agent"), ("sessionKey", "session")):
        if job.get(key):
            yield f"{title:<9} {_clean(str(job[key]))}"


def run_line(entry: Mapping[str, Json], view: TimeView) -> str:
    """Return one line about a run."""
    took = entry.get("durationMs")
    duration = f", {describe_duration(int(took))}" if isinstance(took, int | float) else ""
    text = entry.get("error") or entry.get("summary") or ""
    at = view.show(entry.get("runAtMs") or entry.get("ts"))
    shown = _clean(str(text))
    return f"{at}  {entry.get('status') or 'unknown'}{duration}" + (f"  {shown}" if shown else "")


def internal_lines(jobs: list[dict[str, Json]], view: TimeView) -> Iterator[str]:
    """Yield the lines of the program's own jobs."""
    for job in jobs:
        yield f"{_clean(str(job['name']))}  [internal]  {_clean(str(job['description']))}"
        yield f"  {_clean(str(job['schedule']))}, next run {view.show(job.get('nextRunAtMs'))}"
        if job.get("lastRunAtMs"):
            error = job.get("lastError")
            outcome = _clean(f"error: {error}") if error else "ok"
            yield f"  last run {view.show(job['lastRunAtMs'])}: {outcome}"


def _clean(text: str, max_chars: int = _MAX_TEXT_CHARS) -> str:
    return escape_invisible(one_line(text, max_chars))
