"""`homarus status`: the gateway, the model and the conversations."""

import asyncio
import json
import os
import time
from collections.abc import Iterator

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    list_pending,
    open_gateway,
)
from homarus.cli.memory_files import index_files
from homarus.cli.sessions import age, read_records
from homarus.config.paths import Paths, shorten
from homarus.core.message import Json
from homarus.core.text import escape_invisible
from homarus.gateway.device_records import describe_pending


@click.command("status")
@examples("homarus status", "homarus status --json")
@as_json_option
@gateway_options
def command(gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show what is running, and recent sessions."""
    paths = Paths.find(os.environ)
    status = asyncio.run(
        _from_gateway(gateway) if is_gateway_running(gateway) else _from_files(paths)
    )
    indexes = [] if gateway.url else list(index_files(paths))
    if as_json:
        memory = [
            {"agentId": one.agent, "bytes": one.size_bytes, "writtenAtMs": one.written_ms}
            for one in indexes
        ]
        report = {**status, "memory": memory}
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    running, sessions = status["gateway"], status["sessions"]
    state = shorten(paths.state, paths.home)
    where = f"version {running['version']}" if running["running"] else f"not running on {state}"
    click.echo(f"gateway   {where}")
    if running.get("configProblem"):
        click.echo(f"config    changed, wrong, not in use: {running['configProblem']}")
    for line in status.get("channelSummary", ()):
        click.echo(f"channel   {escape_invisible(str(line))}")
    for text in _describe_sandboxes(status):
        click.echo(f"sandbox   {text}")
    for text in _describe_jobs(status.get("cron") or {}, is_running=running["running"]):
        click.echo(f"jobs      {text}")
    for entry in status["pendingDevices"]:
        click.echo(f"device    {describe_pending(entry)}")
    now_ms = time.time_ns() // 1_000_000
    for one in indexes:
        click.echo(f"memory    {one.agent}: index of {one.describe(now_ms)}")
    click.echo(f"sessions  {sessions['count']}")
    for row in sessions["recent"]:
        click.echo(f"  {age(now_ms - int(row['updatedAt'])):>5}  {row['key']}")


def _describe_sandboxes(status: dict[str, Json]) -> Iterator[str]:
    for row in status.get("sandboxes", ()):
        if row["mode"] != "off":
            level = row["level"] or "not measured yet"
            details = f"{row['backend']}, {level}, workspace {row['workspaceAccess']}"
            yield f"{escape_invisible(str(row['agentId']))}: {details}"


def _describe_jobs(cron: dict[str, Json], *, is_running: bool) -> Iterator[str]:
    """Yield how many scheduled jobs there are, and when the next one runs; nothing for none."""
    from homarus.cli.cron import time_view

    if not cron.get("jobs"):
        return
    if not is_running:
        yield f"{cron['jobs']}; none runs without the gateway"
    elif not cron.get("enabled"):
        yield f"{cron['jobs']}; none runs: cron.enabled is false"
    else:
        yield f"{cron['jobs']}, next run {time_view().show(cron.get('nextWakeAtMs'))}"


async def _from_gateway(gateway: GatewayOptions) -> dict[str, Json]:
    async with open_gateway(gateway) as client:
        found = await client.call("status")
        pending = await list_pending(client)
        server = client.hello.get("server")
    status = found if isinstance(found, dict) else {}
    version = server.get("version") if isinstance(server, dict) else None
    problem = status.get("configProblem", "")
    running = {"running": True, "version": version, "configProblem": problem}
    return {**status, "gateway": running, "pendingDevices": pending}


async def _from_files(paths: Paths) -> dict[str, Json]:
    records = await read_records(paths, None, 0)
    recent = [{"key": record.key, "updatedAt": record.updated_ms} for record in records[:10]]
    sessions = {"count": len(records), "recent": recent}
    cron = await _stored_jobs(paths)
    return {"gateway": {"running": False}, "sessions": sessions, "pendingDevices": [], "cron": cron}


async def _stored_jobs(paths: Paths) -> dict[str, Json]:
    """Return how many jobs are stored; none of them runs without a gateway."""
    from homarus.store.sqlite import open_store

    async with open_store(paths.state, read_only=True) as store:
        count = len(await store.records("cron-job"))
    return {"enabled": True, "jobs": count, "nextWakeAtMs": None}
