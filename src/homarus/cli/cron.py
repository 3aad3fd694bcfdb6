"""`homarus cron`: list, add, change, run and remove scheduled jobs."""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from homarus.cli import completion_values
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.cron_options import job_options
from homarus.cli.cron_output import TimeView, internal_lines, job_lines, list_lines, run_line
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.job_id import check_runs, find_job_id
from homarus.cli.options import limit_option
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line

job_argument = click.argument("job", shell_complete=completion_values.cron_jobs)


_OTHER_NAMES: Final = {"create": "add", "remove": "rm", "delete": "rm", "show": "get"}


class CronGroup(CommandGroup):
    """The group, whose commands also have the other names that OpenClaw gives them."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _OTHER_NAMES.get(cmd_name, cmd_name))


@click.group("cron", cls=CronGroup)
@examples(
    "homarus cron list --all",
    "homarus cron add --name tea --at 20m --system-event 'Make tea.'",
    "homarus cron run 1f3c",
)
def command() -> None:
    """List, add, change, run and remove scheduled jobs.

    A JOB is its id, which may be shortened as long as one job alone starts with it.
    """


@command.command()
@examples("homarus cron status", "homarus cron status --json")
@as_json_option
@gateway_options
def status(gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show whether jobs run, how many there are, and when the next one is due."""
    found = _call(gateway, "status")
    if as_json:
        _print_json(found)
        return
    enabled = "on" if found.get("enabled") else "off: cron.enabled is false"
    running = "" if is_gateway_running(gateway) else "; the gateway does not run, so no job does"
    click.echo(f"scheduler  {enabled}{running}")
    click.echo(f"jobs       {found.get('jobs', 0)}")
    click.echo(f"next run   {time_view().show(found.get('nextWakeAtMs'))}")
    if found.get("storePath"):
        click.echo(f"file       {found['storePath']}")
    if problem := found.get("problem"):
        click.echo(f"problem    {escape_invisible(one_line(str(problem), 300))}")


@command.command("list")
@examples("homarus cron list", "homarus cron list --all --json")
@click.option("--all", "everything", is_flag=True, help="Also disabled and internal jobs.")
@as_json_option
@gateway_options
def list_(gateway: GatewayOptions, *, everything: bool, as_json: bool) -> None:
    """List the jobs, the one that is due first first."""
    found = _call(gateway, "list", includeDisabled=everything)
    internal = _call(gateway, "internal")["jobs"] if everything else []
    if as_json:
        _print_json({**found, **({"internal": internal} if everything else {})})
        return
    jobs, view = found["jobs"], time_view()
    if not jobs:
        more = "" if everything else " that is enabled"
        click.echo(f"There is no job{more}. homarus cron add creates one.")
    _print_lines([*list_lines(jobs, view), *internal_lines(internal, view)])


@command.command()
@examples("homarus cron get 1f3c", "homarus cron get 1f3c --json")
@job_argument
@as_json_option
@gateway_options
def get(job: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show the job JOB."""
    _show_job(_call(gateway, "get", job), as_json=as_json)


@command.command()
@examples(
    "homarus cron add --name tea --at 20m --system-event 'Make tea.'",
    "homarus cron add --name news --cron '0 8 * * 1-5' --message 'News?'",
    "homarus cron add --name feeds --every 2h --message 'Read the feeds.'",
)
@job_options
@click.option("--disabled", "is_disabled", is_flag=True, help="Add it, and do not run it yet.")
@as_json_option
@gateway_options
def add(gateway: GatewayOptions, *, is_disabled: bool, as_json: bool, **options: Any) -> None:
    """Add a job."""
    from homarus.cli.cron_draft import make_draft

    options["enabled"] = False if is_disabled else None
    draft = make_draft(options, _now_ms())
    job = _call(gateway, "add", **draft)
    if not as_json:
        click.echo(f"Added {job['id']}.")
    _show_job(job, as_json=as_json)


@command.command()
@examples("homarus cron edit 1f3c --every 3h", "homarus cron edit 1f3c --no-deliver")
@job_argument
@job_options
@click.option("--enable/--disable", "enabled", default=None, help="Let it run, or not.")
@click.option("--clear-agent", is_flag=True, help="Use the default agent.")
@click.option("--clear-session-key", "clear_session", is_flag=True, help="Use the main session.")
@as_json_option
@gateway_options
def edit(job: str, gateway: GatewayOptions, *, as_json: bool, **options: Any) -> None:
    """Change the job JOB."""
    from homarus.cli.cron_draft import make_patch

    patch = make_patch(options, _now_ms())
    _show_job(_call(gateway, "update", job, patch=patch), as_json=as_json)


@command.command()
@examples("homarus cron rm 1f3c", "homarus cron rm 1f3c --json")
@job_argument
@as_json_option
@gateway_options
def rm(job: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Remove the job JOB."""
    found = _call(gateway, "remove", job)
    if as_json:
        _print_json(found)
    else:
        click.echo("Removed." if found.get("removed") else "There was no such job.")


@command.command()
@examples("homarus cron enable 1f3c")
@job_argument
@as_json_option
@gateway_options
def enable(job: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Let the job JOB run again."""
    _show_job(_call(gateway, "update", job, patch={"enabled": True}), as_json=as_json)


@command.command()
@examples("homarus cron disable 1f3c")
@job_argument
@as_json_option
@gateway_options
def disable(job: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Keep the job JOB, and do not run it."""
    _show_job(_call(gateway, "update", job, patch={"enabled": False}), as_json=as_json)


@command.command()
@examples("homarus cron run 1f3c", "homarus cron run 1f3c --due")
@job_argument
@click.option("--force", "is_forced", is_flag=True, help="Also if it is not due; the default.")
@click.option("--due", "only_due", is_flag=True, help="Only if it is due.")
@as_json_option
@gateway_options
def run(
    job: str, gateway: GatewayOptions, *, is_forced: bool, only_due: bool, as_json: bool
) -> None:
    """Run the job JOB now."""
    if is_forced and only_due:
        raise UserError("--force and --due contradict each other", fix="use one of them")
    found = _call(gateway, "run", job, mode="due" if only_due else "force")
    if as_json:
        _print_json(found)
    elif found.get("ran"):
        click.echo(f"Started. homarus cron runs {job} shows how it went.")
    else:
        click.echo(f"Not started: {str(found.get('reason') or 'unknown').replace('-', ' ')}.")
    if not found.get("ran"):
        raise click.exceptions.Exit(1)


@command.command()
@examples("homarus cron runs 1f3c", "homarus cron runs --id 1f3c --limit 5 --json")
@click.argument("job", required=False, shell_complete=completion_values.cron_jobs)
@click.option(
    "--id",
    "named_id",
    metavar="ID",
    shell_complete=completion_values.cron_jobs,
    show_default="all jobs",
    help="The same as the argument.",
)
@limit_option("How many runs.", 5_000, default=50)
@as_json_option
@gateway_options
def runs(
    job: str | None, named_id: str | None, limit: int, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Show the last runs of the job JOB, or of all jobs; the newest last."""
    wanted = job or named_id
    if wanted:
        found = _call(gateway, "runs", wanted, limit=limit)
    else:
        found = _call(gateway, "runs", scope="all", limit=limit)
    if as_json:
        _print_json(found)
        return
    entries, view = found["entries"], time_view()
    if not entries:
        click.echo("No run has ended yet.")
    names = {} if wanted else _names(gateway)
    for entry in entries:
        name = f"  {names.get(entry['jobId'], entry['jobId'])}" if not wanted else ""
        click.echo(f"{run_line(entry, view)}{name}")


def _names(gateway: GatewayOptions) -> dict[str, str]:
    from homarus.core.text import escape_invisible, one_line

    jobs = _call(gateway, "list", includeDisabled=True)["jobs"]
    return {job["id"]: escape_invisible(one_line(str(job.get("name")), 40)) for job in jobs}


def _show_job(job: Mapping[str, Json], *, as_json: bool) -> None:
    if as_json:
        _print_json(job)
    else:
        _print_lines(job_lines(job, time_view()))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _print_json(value: Json) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def _now_ms() -> int:
    from homarus.core.clock import SystemClock

    return SystemClock().now_ms()


def time_view() -> TimeView:
    """Return how times are shown: in the user's zone."""
    from homarus.config.load import read_raw
    from homarus.config.paths import Paths
    from homarus.config.timezone import zone_name
    from homarus.core.errors import ConfigError

    try:
        raw = read_raw(Paths.find(os.environ))
        configured = ((raw.get("agents") or {}).get("defaults") or {}).get("userTimezone")
    except (ConfigError, AttributeError):
        configured = None
    return TimeView(zone_name(configured if isinstance(configured, str) else None), _now_ms())


def _call(
    gateway: GatewayOptions, action: str, job_id: str | None = None, /, **params: Json
) -> dict[str, Json]:
    """Call a method of a running gateway; without one, do the same in this process."""
    return asyncio.run(_call_gateway(gateway, action, job_id, params))


async def _call_gateway(
    gateway: GatewayOptions, action: str, job_id: str | None, params: Mapping[str, Json]
) -> dict[str, Json]:
    if not is_gateway_running(gateway):
        from homarus.cli.cron_local import call_here

        return await call_here(action, job_id, params)
    async with open_gateway(gateway) as client:
        if job_id is None:
            found = await client.call(f"cron.{action}", params)
            return found if isinstance(found, dict) else {}
        listed = await client.call("cron.list", {"includeDisabled": True})
        jobs = listed.get("jobs", ()) if isinstance(listed, dict) else ()
        ids = [job["id"] for job in jobs]
        wanted = find_job_id(job_id, ids, may_be_gone=action == "runs")
        answer = await client.call(f"cron.{action}", {**params, "id": wanted})
        found = answer if isinstance(answer, dict) else {}
        if action == "runs":
            check_runs(job_id, wanted, ids, found)
        return found
