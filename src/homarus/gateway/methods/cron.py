"""The `cron.*` methods: list, add, change, run and remove scheduled jobs.

The answers are OpenClaw's; clients of protocol 4 also get the fields that 2026.9 added.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field

from homarus.config.agent_settings import default_agent_id
from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.message import Json
from homarus.gateway.frames import NEWEST_PROTOCOL
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import MAX_INT, Name

if TYPE_CHECKING:  # imported by the first call
    from homarus.schedule.cron_service import CronService
    from homarus.schedule.cron_values import CronRunResult
    from homarus.schedule.job import CronJob
    from homarus.schedule.job_selection import JobSelection, Page
    from homarus.store.slots import SlotRecord

_MAX_RUNS = 5_000
_MAX_PAGE = 200
_DEFAULT_RUNS = 200
_COMPLETION = {"ok": "succeeded", "error": "failed"}

Part: TypeAlias = Annotated[dict[str, Any], Field(max_length=32)]
Offset: TypeAlias = Annotated[int, Field(ge=0, le=MAX_INT)]
RunStatus: TypeAlias = Literal["ok", "error", "skipped"]
SortDirection: TypeAlias = Literal["asc", "desc"]


class CronListParams(Params):
    """Which jobs: also disabled ones; and the filters, the order and the page of 2026.9."""

    include_disabled: bool = False
    limit: Annotated[int, Field(ge=1, le=_MAX_PAGE)] | None = None
    offset: Offset = 0
    query: Annotated[str, Field(max_length=512)] = ""
    enabled: Literal["all", "enabled", "disabled"] | None = None
    schedule_kind: Literal["all", "at", "every", "cron", "on-exit", "stream"] = "all"
    last_run_status: Literal["all", "ok", "error", "skipped", "unknown"] = "all"
    trigger: Literal["all", "conditional", "unconditional"] = "all"
    sort_by: Literal["nextRunAtMs", "updatedAtMs", "name"] | None = None
    sort_dir: SortDirection = "asc"
    agent_id: Name | None = None
    compact: bool = False
    include_delivery_previews: bool = False


class CronJobParams(Params):
    """Which job, by `id` or `jobId`."""

    id: Name | None = None
    job_id: Name | None = None


class CronAddParams(Params):
    """A job without id and state. Older forms are accepted, such as a schedule without `kind`."""

    name: Annotated[str, Field(max_length=512)] | None = None
    display_name: Name | None = None
    agent_id: Name | None = None
    session_key: Name | None = None
    description: Annotated[str, Field(max_length=10_000)] | None = None
    enabled: bool | None = None
    delete_after_run: bool | None = None
    schedule: Part
    session_target: Name | None = None
    wake_mode: Name | None = None
    payload: Part
    delivery: Part | None = None
    misfire: Part | None = None


class CronUpdateParams(CronJobParams):
    """Which job, and its new fields; null removes one.

    With `expectedConfigRevision`, the job is changed only if it is still as the client read it.
    """

    patch: Part
    expected_config_revision: Name | None = None


class CronRunParams(CronJobParams):
    """Which job; `due` runs it only if it is due, `if-enabled` only if it is enabled."""

    mode: Literal["due", "force", "if-enabled"] = "force"


class CronRunsParams(CronJobParams):
    """Which runs: of one job, or of all with the scope `all`; the filters and page of 2026.9."""

    scope: Literal["job", "all"] = "job"
    agent_id: Name | None = None
    run_id: Name | None = None
    limit: Annotated[int, Field(ge=1, le=_MAX_RUNS)] = _DEFAULT_RUNS
    offset: Offset = 0
    statuses: Annotated[list[RunStatus], Field(min_length=1, max_length=3)] | None = None
    status: Literal["all", "ok", "error", "skipped"] = "all"
    query: Annotated[str, Field(max_length=512)] = ""
    sort_dir: SortDirection | None = None


@method("cron.list", scope="read", params=CronListParams)
async def list_(call: MethodCall, params: CronListParams) -> Json:
    """The jobs; disabled ones with `includeDisabled`."""
    from homarus.schedule.job_selection import Page, select_jobs

    everything = params.include_disabled or params.enabled in {"all", "disabled"}
    jobs = await _cron(call).jobs(include_disabled=everything)
    found = select_jobs(jobs, _job_selection(params), _default_agent(call))
    if params.trigger == "conditional":
        found = []  # no job has a condition
    page = Page(params.offset, params.limit or max(len(found), 1))
    shown: list[Json] = [_encode(call, job) for job in page.cut(found)]
    answer = {"jobs": shown, **_paging(call, page, len(found))}
    if call.caller.protocol >= NEWEST_PROTOCOL:
        from homarus.schedule.cron_answers import list_revision
        from homarus.schedule.job import encode_job

        answer["snapshotRevision"] = list_revision([encode_job(job) for job in found])
    return answer


@method("cron.get", scope="read", params=CronJobParams)
async def get(call: MethodCall, params: CronJobParams) -> Json:
    """One job. From 2026.9."""
    return _encode(call, await _cron(call).find(_id_of(params, "cron.get")))


@method("cron.status", scope="read", params=NoParams)
async def status(call: MethodCall, _params: NoParams) -> Json:
    """Whether jobs run, how many there are, and when the next one is due."""
    from homarus.schedule.cron_answers import encode_public_status, encode_status

    encode = encode_status if call.caller.may("admin") else encode_public_status
    return encode(await _cron(call).status())


@method("cron.internal", scope="read", params=NoParams, advertised=False)
async def internal(call: MethodCall, _params: NoParams) -> Json:
    """The jobs of the program itself, such as session maintenance. Ours."""
    from homarus.schedule.cron_answers import encode_internal_job

    return {"jobs": [encode_internal_job(job) for job in _cron(call).internal_jobs()]}


@method("cron.add", scope="admin", params=CronAddParams)
async def add(call: MethodCall, params: CronAddParams) -> Json:
    """Add a job."""
    from homarus.schedule.job_fields import check_job_fields

    draft = params.model_dump(by_alias=True, exclude_none=True)
    check_job_fields(draft)
    return _encode(call, await _cron(call).add(draft))


@method("cron.update", scope="admin", params=CronUpdateParams)
async def update(call: MethodCall, params: CronUpdateParams) -> Json:
    """Change fields of a job."""
    from homarus.schedule.job_fields import check_job_fields

    check_job_fields(params.patch)
    cron, job_id = _cron(call), _id_of(params, "cron.update")
    if expected := params.expected_config_revision:
        await _check_revision(cron, job_id, expected)
    return _encode(call, await cron.update(job_id, params.patch))


@method("cron.remove", scope="admin", params=CronJobParams)
async def remove(call: MethodCall, params: CronJobParams) -> Json:
    """Remove a job; `removed` is false if there was none."""
    return {"ok": True, "removed": await _cron(call).remove(_id_of(params, "cron.remove"))}


@method("cron.run", scope="admin", params=CronRunParams)
async def run(call: MethodCall, params: CronRunParams) -> Json:
    """Run a job now. The answer comes when the run has started."""
    from homarus.schedule.cron_answers import encode_run_result

    cron, job_id = _cron(call), _id_of(params, "cron.run")
    if params.mode == "if-enabled" and not (await cron.find(job_id)).enabled:
        return {"ok": True, "ran": False, "reason": "disabled"}
    result = await cron.run(job_id, "due" if params.mode == "due" else "force")
    answer = encode_run_result(result)
    if result.ran and call.caller.protocol >= NEWEST_PROTOCOL:
        answer |= {"enqueued": True, "runId": await _run_id(cron, job_id, result)}
    return answer


@method("cron.runs", scope="read", params=CronRunsParams)
async def runs(call: MethodCall, params: CronRunsParams) -> Json:
    """The runs of a job that have ended, and the times it was skipped; newest last.

    Clients of protocol 4 get the newest first, as in 2026.9.
    """
    from homarus.schedule.job_selection import Page, RunSelection, select_runs

    cron, is_newest = _cron(call), call.caller.protocol >= NEWEST_PROTOCOL
    job_id = None if params.scope == "all" else _id_of(params, "cron.runs")
    wanted = frozenset(params.statuses or (() if params.status == "all" else (params.status,)))
    selection = RunSelection(wanted, params.query, params.run_id or "")
    slots = await cron.runs(job_id, _MAX_RUNS)
    names = {job.id: job for job in await cron.jobs(include_disabled=True)}
    found = select_runs(slots, selection)
    if params.agent_id:
        owner = {id_: job.agent or _default_agent(call) for id_, job in names.items()}
        found = [slot for slot in found if owner.get(slot.job) == params.agent_id]
    newest_first = found[::-1]
    page = Page(params.offset, params.limit)
    shown = page.cut(newest_first)
    if (params.sort_dir or ("desc" if is_newest else "asc")) == "asc":
        shown.reverse()
    entries: list[Json] = [_entry(call, slot, names) for slot in shown]
    return {"entries": entries, **_paging(call, page, len(found))}


def _cron(call: MethodCall) -> "CronService":
    if call.services.schedules is None:
        raise UnavailableError("there are no scheduled jobs here")
    return call.services.schedules()


def _id_of(params: CronJobParams, name: str) -> str:
    if (job_id := params.id or params.job_id) is None:
        raise InvalidRequestError(f"invalid {name} params: must have required property 'id'")
    return job_id


async def _check_revision(cron: "CronService", job_id: str, expected: str) -> None:
    """Raise InvalidRequestError if a job was changed after a client had read it."""
    from homarus.schedule.cron_answers import job_revision
    from homarus.schedule.job import encode_job

    if job_revision(encode_job(await cron.find(job_id))) != expected:
        raise InvalidRequestError("the job was changed since it was read", fix="read it again")


def _default_agent(call: MethodCall) -> str:
    return default_agent_id(call.services.loaded.config)


def _job_selection(params: CronListParams) -> "JobSelection":
    from homarus.schedule.job_selection import JobSelection

    return JobSelection(
        params.query,
        {"enabled": True, "disabled": False}.get(params.enabled or ""),
        "" if params.schedule_kind == "all" else params.schedule_kind,
        "" if params.last_run_status == "all" else params.last_run_status,
        params.agent_id or "",
        params.sort_by,
        params.sort_dir,
    )


def _encode(call: MethodCall, job: "CronJob") -> dict[str, Json]:
    from homarus.schedule.job import encode_job

    encoded = encode_job(job)
    if call.caller.protocol >= NEWEST_PROTOCOL:
        from homarus.schedule.cron_answers import job_revision

        encoded["configRevision"] = job_revision(encoded)
        encoded["effectiveAgentId"] = job.agent or _default_agent(call)
        if job.state.next_run_at_ms:
            encoded["nextRunAtMs"] = job.state.next_run_at_ms
    return encoded


def _entry(call: MethodCall, slot: "SlotRecord", jobs: "dict[str, CronJob]") -> dict[str, Json]:
    from homarus.schedule.cron_answers import slot_run_id
    from homarus.schedule.run_log import encode_line

    entry = encode_line(slot)
    if call.caller.protocol >= NEWEST_PROTOCOL:
        entry["runId"] = slot_run_id(slot)
        if slot.state in _COMPLETION:
            entry["completionStatus"] = _COMPLETION[slot.state]
        if job := jobs.get(slot.job):
            entry["jobName"] = job.name
    return entry


def _paging(call: MethodCall, page: "Page", total: int) -> dict[str, Json]:
    return page.describe(total) if call.caller.protocol >= NEWEST_PROTOCOL else {}


async def _run_id(cron: "CronService", job_id: str, result: "CronRunResult") -> str:
    """Return the id by which `cron.runs` finds the run that was started."""
    from homarus.schedule.cron_answers import slot_run_id

    if result.run_id:
        return result.run_id
    manual = [slot for slot in await cron.runs(job_id, 5) if slot.trigger == "manual"]
    return slot_run_id(manual[-1]) if manual else ""
