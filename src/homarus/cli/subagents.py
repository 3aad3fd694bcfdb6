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
from homarus.cli.text_layout import printable
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
@timeout_option("How many seconds to wait for the answer.", default_s=30)
@as_json_option
@gateway_options
def send(
    target: str,
    message: str,
    session_key: str | None,
    timeout_s: float,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Send the sub-agent TARGET a MESSAGE, also one that has ended, and wait for its answer."""
    params = {"target": target, "message": message, "sessionKey": session_key}
    found = _call(gateway, "subagents.send", {**params, "timeoutSeconds": timeout_s})
    _show(found, found["text"], as_json=as_json)


def _show(found: Mapping[str, Json], text: str, *, as_json: bool) -> None:
    shown = json.dumps(found, ensure_ascii=False) if as_json else printable(text)
    click.echo(shown)


def _line(row: Mapping[str, Json]) -> str:
    name = escape_invisible(one_line(str(row.get("label") or row["task"]), _MAX_NAME_CHARS))
    status = str(row["status"]).replace("_", " ")
    key = escape_invisible(str(row["sessionKey"]))
    return f"{row['index']:>3}  {status:<11}  {str(row['runId'])[:8]}  {name}\n     {key}"


def _call(gateway: GatewayOptions, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
    """Call a method of a running gateway; without one, do the same on the stored state."""
    given = {name: value for name, value in params.items() if value is not None}
    return asyncio.run(_call_gateway(gateway, method, given))


async def _call_gateway(
    gateway: GatewayOptions, method: str, params: Mapping[str, Json]
) -> dict[str, Json]:
    if not is_gateway_running(gateway):
        return await _call_here(method, params)
    async with open_gateway(gateway) as client:
        found = await client.call(method, params)
    return found if isinstance(found, dict) else {}


async def _call_here(method: str, params: Mapping[str, Json]) -> dict[str, Json]:
    """Read what is stored; stop or message a sub-agent in a program that ends afterwards."""
    action, requester = method.removeprefix("subagents."), params.get("sessionKey")
    if action in {"list", "info", "log"}:
        return await _read_here(action, requester, params)
    if action == "steer":
        raise UserError(
            "no sub-agent works: the gateway does not run",
            fix="homarus gateway run; it goes on with those that were interrupted",
        )
    from homarus.process import open_app

    async with open_app(os.environ) as app:
        control, target = app.subagents.control(), params["target"]
        if action == "kill":
            result = await control.kill(requester, target)
        else:
            result = await control.send(
                requester, target, params["message"], timeout_s=params["timeoutSeconds"]
            )
        return {**result.details, "text": result.text}


async def _read_here(
    action: str, requester: str | None, params: Mapping[str, Json]
) -> dict[str, Json]:
    from homarus.agent.subagents.log import format_log
    from homarus.agent.subagents.reader import SubagentReader
    from homarus.agent.subagents.rows import subagent_row
    from homarus.config.paths import Paths
    from homarus.config.session_store import find_session_store
    from homarus.core.clock import SystemClock
    from homarus.store.sqlite import open_store

    paths, clock = find_session_store(Paths.find(os.environ), os.environ), SystemClock()
    async with open_store(paths.state, read_only=True, sessions=paths.session_store) as store:
        reader = SubagentReader(store, clock)
        if action == "list":
            rows = await reader.list_rows(requester, params["recentMinutes"])
            return {"ts": clock.now_ms(), **rows}
        record = await reader.find(requester, params["target"])
        if action == "info":
            row = subagent_row(record, clock.now_ms())
            return {"subagent": row, "text": await reader.describe(record)}
        lines = await reader.read_log(record, params["limit"], has_tools=params["tools"])
        shown = [line.to_json() for line in lines]
        return {"sessionKey": record.child_key, "messages": shown, "text": format_log(lines)}
