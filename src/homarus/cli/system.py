"""`homarus system`: leave notices for an agent, and control heartbeats."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.sessions import age
from homarus.core.clock import SystemClock
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line

_NOW: Final = "The agent gets the notice now."
_NEXT: Final = "The agent gets the notice with the next message or heartbeat."
# By what `wake` says of a heartbeat that does not run now.
_DELAYS: Final = {
    "switched-off": (
        "Heartbeats are switched off: the agent gets the notice with the next message, or once "
        "`homarus system heartbeat enable` switches them on."
    ),
    "no-heartbeat": (
        "The agent has no heartbeat (agents.defaults.heartbeat.every): it gets the notice with "
        "the next message."
    ),
    "quiet-hours": (
        "It is outside of the heartbeat's active hours: the agent gets the notice when they "
        "begin, or with the next message before."
    ),
    "requests-in-flight": "The agent is busy: it gets the notice when the current run has ended.",
}


@click.group("system", cls=CommandGroup)
@examples(
    'homarus system event --text "The backup failed" --mode now',
    "homarus system heartbeat last",
    "homarus system presence",
)
def command() -> None:
    """Leave notices for an agent, and control its heartbeats."""


@command.command()
@examples(
    'homarus system event --text "The backup failed" --mode now',
    'homarus system event --text "The parcel has arrived"',
)
@click.option("--text", required=True, metavar="TEXT", help="What has happened.")
@click.option(
    "--mode",
    type=click.Choice(["now", "next-heartbeat"]),
    default="next-heartbeat",
    help="When the agent gets it.",
)
@as_json_option
@gateway_options
def event(text: str, mode: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Leave a notice in the main session of the default agent.

    It goes before the next message of that session, or the next heartbeat.
    """
    if not text.strip():
        raise click.UsageError("--text is empty")
    found = _call(gateway, "wake", {"mode": mode, "text": text})
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        delay = found.get("delayedBy") if isinstance(found, dict) else None
        is_now = mode == "now" and not delay
        click.echo(_NOW if is_now else _DELAYS.get(str(delay), _NEXT))


@command.command()
@examples("homarus system presence", "homarus system presence --json")
@as_json_option
@gateway_options
def presence(gateway: GatewayOptions, *, as_json: bool) -> None:
    """List the clients and devices that are connected, or were a moment ago."""
    found = _call(gateway, "system-presence", {})
    rows = found if isinstance(found, list) else []
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    if not rows:
        click.echo("No client is connected.")
    now_ms = SystemClock().now_ms()
    for row in rows:
        click.echo(_presence_line(row, now_ms))


def _presence_line(row: Mapping[str, Json], now_ms: int) -> str:
    names = (str(row.get(key) or "") for key in ("text", "host", "mode", "version"))
    shown = "  ".join(escape_invisible(one_line(name, 80)) for name in names if name)
    at_ms = row.get("ts")
    return f"{age(max(0, now_ms - at_ms)) if isinstance(at_ms, int) else '-':>5}  {shown}"


@command.group(cls=CommandGroup)
@examples("homarus system heartbeat last", "homarus system heartbeat disable")
def heartbeat() -> None:
    """Show the last heartbeat, or switch heartbeats on or off."""


@heartbeat.command()
@examples("homarus system heartbeat last", "homarus system heartbeat last --json")
@as_json_option
@gateway_options
def last(gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show the last heartbeat since the start of the gateway."""
    found = _call(gateway, "last-heartbeat", {})
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    elif not isinstance(found, dict):
        click.echo("There was no heartbeat since the gateway started.")
    else:
        click.echo(_heartbeat_line(found, SystemClock().now_ms()))


def _heartbeat_line(payload: Mapping[str, Json], now_ms: int) -> str:
    at_ms, reason = payload.get("ts"), payload.get("reason")
    ago = age(max(0, now_ms - at_ms)) if isinstance(at_ms, int) else "-"
    parts = [ago, str(payload.get("status")), f"({reason})" if reason else ""]
    if payload.get("channel"):
        parts.append(f"to {payload['channel']} {payload.get('to', '')}")
    if payload.get("preview"):
        parts.append(f"“{payload['preview']}”")
    return escape_invisible(one_line(" ".join(part for part in parts if part), 300))


@heartbeat.command()
@examples("homarus system heartbeat enable")
@as_json_option
@gateway_options
def enable(gateway: GatewayOptions, *, as_json: bool) -> None:
    """Switch heartbeats on; the config decides which agents have one."""
    _switch(gateway, is_on=True, as_json=as_json)


@heartbeat.command()
@examples("homarus system heartbeat disable")
@as_json_option
@gateway_options
def disable(gateway: GatewayOptions, *, as_json: bool) -> None:
    """Switch the heartbeats of all agents off, until they are enabled again."""
    _switch(gateway, is_on=False, as_json=as_json)


def _switch(gateway: GatewayOptions, *, is_on: bool, as_json: bool) -> None:
    found = _call(gateway, "set-heartbeats", {"enabled": is_on})
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        click.echo(f"Heartbeats are {'on' if is_on else 'off'}.")


def _call(gateway: GatewayOptions, method: str, params: Mapping[str, Json]) -> Any:
    """Call a method of the running gateway."""
    if not is_gateway_running(gateway) and gateway == GatewayOptions():
        raise UserError("no gateway is running", fix="start one with `homarus gateway run`")

    async def call() -> Any:
        async with open_gateway(gateway) as client:
            return await client.call(method, params)

    return asyncio.run(call())
