"""`homarus health`: the health of a running gateway."""

import asyncio
import json

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    open_gateway,
)
from homarus.cli.options import timeout_option
from homarus.core.message import Json


@click.command("health")
@examples("homarus health", "homarus health --timeout 2 --json")
@gateway_options
@timeout_option("Seconds to wait for the answer.")
@as_json_option
def command(gateway: GatewayOptions, timeout_s: float, *, as_json: bool) -> None:
    """Show the health of a running gateway."""
    print_health(gateway, timeout_s, as_json=as_json)


def print_health(gateway: GatewayOptions, timeout_s: float, *, as_json: bool) -> None:
    """Fetch and print the health; exit with 1 when it is not good."""
    found = asyncio.run(_fetch(gateway, timeout_s))
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        raise click.exceptions.Exit(0 if found.get("ok") else 1)
    sessions = found.get("sessions")
    count = sessions.get("count", 0) if isinstance(sessions, dict) else 0
    agents = found.get("agents")
    names = [row["agentId"] for row in agents] if isinstance(agents, list) else []
    disk = found.get("disk")
    problem = disk.get("problem") if isinstance(disk, dict) else None
    blocked = "something blocked it a moment ago (homarus logs)"
    state = "ok" if found.get("ok") else f"the disk fails: {problem}" if problem else blocked
    click.echo(f"{state}: {count} conversations, agents {', '.join(map(str, names))}")
    raise click.exceptions.Exit(0 if found.get("ok") else 1)


async def _fetch(gateway: GatewayOptions, timeout_s: float) -> dict[str, Json]:
    async with open_gateway(gateway) as client:
        found = await client.call("health", timeout_s=timeout_s)
    return found if isinstance(found, dict) else {}
