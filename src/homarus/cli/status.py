"""`homarus status`: the gateway, the model and the conversations."""

import asyncio
import json
import os
import time

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
from homarus.core.errors import ConfigError
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
    unused = () if gateway.url else _unused(paths)
    if as_json:
        memory = [
            {"agentId": one.agent, "bytes": one.size_bytes, "writtenAtMs": one.written_ms}
            for one in indexes
        ]
        report = {**status, "memory": memory, "unused": list(unused)}
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
    for row in status.get("sandboxes", ()):
        if row["mode"] != "off":
            level = row["level"] or "not measured yet"
            details = f"{row['backend']}, {level}, workspace {row['workspaceAccess']}"
            click.echo(f"sandbox   {escape_invisible(str(row['agentId']))}: {details}")
    for entry in status["pendingDevices"]:
        click.echo(f"device    {describe_pending(entry)}")
    now_ms = time.time_ns() // 1_000_000
    for one in indexes:
        click.echo(f"memory    {one.agent}: index of {one.describe(now_ms)}")
    for text in unused:
        click.echo(f"not built {escape_invisible(text)}")
    click.echo(f"sessions  {sessions['count']}")
    for row in sessions["recent"]:
        click.echo(f"  {age(now_ms - int(row['updatedAt'])):>5}  {row['key']}")


def _unused(paths: Paths) -> tuple[str, ...]:
    """Return what is set up and does not work yet; nothing while the config is wrong."""
    from homarus.config.load import load_config
    from homarus.config.unused_files import find_unused

    try:
        loaded = load_config(paths, os.environ)
    except ConfigError:
        return ()
    return find_unused(loaded.config, loaded.raw, paths)


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
    return {"gateway": {"running": False}, "sessions": sessions, "pendingDevices": []}
