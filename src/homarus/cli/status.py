"""`homarus status`: the gateway, the model and the conversations."""

import asyncio
import json
import os
import time

import click

from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.memory_files import index_files
from homarus.cli.sessions import age, read_records
from homarus.config.paths import Paths, shorten
from homarus.core.message import Json
from homarus.core.text import escape_invisible


@click.command("status")
@as_json_option
@gateway_options
def command(reach: GatewayOptions, *, as_json: bool) -> None:
    """Say what runs and which conversations there are."""
    paths = Paths.find(os.environ)
    status = asyncio.run(_from_gateway(reach) if is_gateway_running(reach) else _from_files(paths))
    indexes = [] if reach.url else list(index_files(paths))
    if as_json:
        memory = [
            {"agentId": one.agent, "bytes": one.size_bytes, "writtenAtMs": one.written_ms}
            for one in indexes
        ]
        click.echo(json.dumps({**status, "memory": memory}, ensure_ascii=False))
        return
    gateway, sessions = status["gateway"], status["sessions"]
    state = shorten(paths.state, paths.home)
    where = f"version {gateway['version']}" if gateway["running"] else f"not running on {state}"
    click.echo(f"gateway   {where}")
    if gateway.get("configProblem"):
        click.echo(f"config    changed, wrong, not in use: {gateway['configProblem']}")
    for line in status.get("channelSummary", ()):
        click.echo(f"channel   {escape_invisible(str(line))}")
    now_ms = time.time_ns() // 1_000_000
    for one in indexes:
        click.echo(f"memory    {one.agent}: index of {one.describe(now_ms)}")
    click.echo(f"sessions  {sessions['count']}")
    for row in sessions["recent"]:
        click.echo(f"  {age(now_ms - int(row['updatedAt'])):>5}  {row['key']}")


async def _from_gateway(reach: GatewayOptions) -> dict[str, Json]:
    async with open_gateway(reach) as link:
        told = await link.call("status")
        server = link.hello.get("server")
    status = told if isinstance(told, dict) else {}
    version = server.get("version") if isinstance(server, dict) else None
    problem = status.get("configProblem", "")
    gateway = {"running": True, "version": version, "configProblem": problem}
    return {**status, "gateway": gateway}


async def _from_files(paths: Paths) -> dict[str, Json]:
    records = await read_records(paths, None, 0)
    recent = [{"key": record.key, "updatedAt": record.updated_ms} for record in records[:10]]
    return {"gateway": {"running": False}, "sessions": {"count": len(records), "recent": recent}}
