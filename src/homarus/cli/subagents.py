"""`homarus subagents`: list, inspect, message and stop sub-agents."""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import limit_option, timeout_option
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line

_MAX_NAME_CHARS = 72


def _session_option(function: Any) -> Any:
    return click.option(
        "--session",
        "session_key",
        metavar="KEY",
        show_default="all sessions",
        help="Only the sub-agents that this session started.",
    )(function)


@click.group("subagents", cls=CommandGroup)
@examples("homarus subagents list", "homarus subagents log 1", "homarus subagents kill all")
def command() -> None:
    """List, inspect, message and stop sub-agents.

    A TARGET is a number of the list, a label, or the start of a run id or session key.
    """


@command.command("list")
@examples("homarus subagents list", "homarus subagents list --recent 120 --json")
@_session_option
@click.option(
    "--recent",
    "recent_minutes",
    metavar="MINUTES",
    type=click.IntRange(1, 1440),
    default=30,
    help="Also list those that ended in the last MINUTES.",
)
@as_json_option
@gateway_options
def list_(
    session_key: str | None, recent_minutes: int, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """List sub-agents: the active ones, and those that ended lately."""
    params = {"sessionKey": session_key, "recentMinutes": recent_minutes}
    found = _call(gateway, "subagents.list", params)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    rows = [*found["active"], *found["recent"]]
    if not rows:
        click.echo(f"No sub-agent is active, or ended in the last {recent_minutes} min.")
    for row in rows:
        click.echo(_line(row))


@command.command()
@examples("homarus subagents info 1", "homarus subagents info lamps --json")
@click.argument("target")
@_session_option
@as_json_option
@gateway_options
def info(target: str, session_key: str | None, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show everything that is known of the sub-agent TARGET."""
    found = _call(gateway, "subagents.info", {"target": target, "sessionKey": session_key})
    _show(found, found["text"], as_json=as_json)


@command.command()
@examples("homarus subagents log 1", "homarus subagents log lamps --limit 50 --tools")
@click.argument("target")
@_session_option
@limit_option("How many messages.", 200, default=20)
@click.option("--tools", "has_tools", is_flag=True, help="Also show tool calls and results.")
@as_json_option
@gateway_options
def log(
    target: str,
    session_key: str | None,
    limit: int,
    gateway: GatewayOptions,
    *,
    has_tools: bool,
    as_json: bool,
) -> None:
    """Show the newest messages of the sub-agent TARGET."""
    params = {"target": target, "sessionKey": session_key, "limit": limit, "tools": has_tools}
    found = _call(gateway, "subagents.log", params)
    _show(found, found["text"], as_json=as_json)


@command.command()
@examples("homarus subagents kill 1", "homarus subagents kill all")
@click.argument("target")
@_session_option
@as_json_option
@gateway_options
def kill(target: str, session_key: str | None, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Stop the sub-agent TARGET and those that it started, or `all`."""
    found = _call(gateway, "subagents.kill", {"target": target, "sessionKey": session_key})
    _show(found, found["text"], as_json=as_json)


@command.command()
@examples("homarus subagents steer 1 'Only the north wing.'")
@click.argument("target")
@click.argument("message")
@_session_option
@as_json_option
@gateway_options
def steer(
    target: str, message: str, session_key: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Give the active sub-agent TARGET a MESSAGE while it works."""
    params = {"target": target, "message": message, "sessionKey": session_key}
    found = _call(gateway, "subagents.steer", params)
    _show(found, found["text"], as_json=as_json)


@command.command()
@examples("homarus subagents send 1 'Which lamp was broken?'")
@click.argument("target")
@click.argument("message")
@_session_option
@timeout_option("How long to wait for the answer.", default=30)
@as_json_option
@gateway_options
def send(
    target: str,
    message: str,
    session_key: str | None,
    timeout: float,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Send the sub-agent TARGET a MESSAGE, also one that has ended, and wait for its answer."""
    params = {"target": target, "message": message, "sessionKey": session_key}
    found = _call(gateway, "subagents.send", {**params, "timeoutSeconds": timeout})
    _show(found, found["text"], as_json=as_json)
