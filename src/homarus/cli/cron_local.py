"""Do what `homarus cron` asks for without a gateway, on the stored state."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from homarus.cli.job_id import check_runs, find_job_id
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.process import open_app
from homarus.schedule.cron_answers import encode_entries, encode_internal_job, encode_status
from homarus.schedule.job import encode_job

if TYPE_CHECKING:
    from homarus.schedule.cron_service import CronService


async def call_here(action: str, job_id: str | None, params: Mapping[str, Json]) -> dict[str, Json]:
    """Read or change the jobs in this process; none is run. Raises UserError."""
    if action == "run":
        raise UserError(
            "no job can be run: the gateway does not run",
            fix="homarus gateway run; what is due then is run",
        )
    async with open_app(os.environ) as app:
        cron = app.schedules()
        if action == "internal":
            await app.schedules.internal.load()
            return {"jobs": [encode_internal_job(job) for job in app.schedules.internal.statuses()]}
        if job_id is None:
            return await _call_all(cron, action, params)
        return await _call_one(cron, action, job_id, params)


async def _call_all(
    cron: "CronService", action: str, params: Mapping[str, Json]
) -> dict[str, Json]:
    if action == "list":
        jobs = await cron.jobs(include_disabled=bool(params.get("includeDisabled")))
        return {"jobs": [encode_job(job) for job in jobs]}
    if action == "runs":
        return {"entries": encode_entries(await cron.runs(None, params["limit"]))}
    if action == "add":
        return encode_job(await cron.add(params))
    return encode_status(await cron.status())


async def _call_one(
    cron: "CronService", action: str, word: str, params: Mapping[str, Json]
) -> dict[str, Json]:
    ids = [job.id for job in await cron.jobs(include_disabled=True)]
    job_id = find_job_id(word, ids, may_be_gone=action == "runs")
    found: dict[str, Json]
    match action:
        case "runs":
            found = {"entries": encode_entries(await cron.runs(job_id, params["limit"]))}
            check_runs(word, job_id, ids, found)
            return found
        case "update":
            return encode_job(await cron.update(job_id, params["patch"]))
        case "remove":
            return {"ok": True, "removed": await cron.remove(job_id)}
        case _:
            return encode_job(await cron.find(job_id))
