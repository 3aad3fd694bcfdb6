"""`homarus channels`: the configured chat accounts and their state."""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from homarus.cli.channel_accounts import account_option, add, login, logout, remove, resolve
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.config_client import run_with_config
from homarus.cli.dead_letters import dead_letters
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
    with_gateway_config,
)
from homarus.cli.options import (
    channel_option,
    limit_option,
    optional_channel_argument,
    timeout_option,
)
from homarus.config.load import read_raw, resolve_env
from homarus.config.paths import Paths
from homarus.core.errors import HomarusError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import normalize_account_id
from homarus.core.text import escape_invisible, one_line

if TYPE_CHECKING:
    from homarus.channels.base import Channel
    from homarus.config.schema import Config

_MAX_LOG_LINES: Final = 5_000
_STRUCTURE: Final = ("topics", "threads", "forums", "roles")  # that chats of a service may have


@click.group("channels", cls=CommandGroup, invoke_without_command=True)
@examples("homarus channels", "homarus channels add telegram --token -")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage chat channels; without a subcommand, show their status."""
    if not ctx.invoked_subcommand:
        ctx.invoke(status)


for each in (add, remove, logout, dead_letters, login, resolve):
    command.add_command(each)


@command.command("list")
@examples("homarus channels list")
@as_json_option
def list_(*, as_json: bool) -> None:
    """List the configured accounts, and the channels that can be added."""
    from homarus.channels.registry import available_channels

    rows = _configured(_config())
    free = [name for name in available_channels() if name not in {row["channel"] for row in rows}]
    if as_json:
        click.echo(json.dumps({"accounts": rows, "available": free}, ensure_ascii=False))
        return
    for row in rows:
        named = f"  {escape_invisible(row['name'])}" if row["name"] else ""
        state = str(row["problem"] or ("on" if row["enabled"] else "off"))
        click.echo(f"{_name(row['channel'], row['account'])} {escape_invisible(state)}{named}")
    if not rows:
        click.echo("No channel is configured.")
    if free:
        click.echo(f"Can be added: {', '.join(free)} (homarus channels add NAME)")


def _name(channel: str, account: str) -> str:
    return f"{channel}:{account}".ljust(24)


def _configured(config: "Config") -> list[dict[str, Json]]:
    """Return what the config says of every account, without calling a service."""
    from homarus.channels.registry import channel_label
    from homarus.config.account_edits import has_unset_variables
    from homarus.config.channels import account_names, channel_names, merged_section

    rows: list[dict[str, Json]] = []
    for channel in channel_names(config):
        for account in account_names(config, channel):
            settings = merged_section(config.channels, channel, account)
            enabled, name = settings.get("enabled") is not False, str(settings.get("name") or "")
            row: dict[str, Json] = {"channel": channel, "account": account, "name": name}
            row |= {"label": channel_label(channel), "enabled": enabled, "problem": ""}
            # The gateway may have a variable that is not set in this shell: no error.
            if enabled and not has_unset_variables(settings):
                row["problem"] = _problem(config, channel, account)
            rows.append(row)
    return rows


def _problem(config: "Config", channel: str, account: str) -> str:
    """Return why an account could not start, as far as that is known without a service."""
    try:
        _make(config, channel, account)
    except HomarusError as exc:
        return str(exc)
    return ""


@command.command()
@examples("homarus channels status", "homarus channels status --probe --timeout 5")
@click.option("--probe", is_flag=True, help="Log in to every service to check the credentials.")
@timeout_option("Seconds to wait for each service.", max_s=60)
@as_json_option
@gateway_options
def status(timeout_s: float, gateway: GatewayOptions, *, probe: bool, as_json: bool) -> None:
    """Show the state of every account in the running gateway."""
    if is_gateway_running(gateway):
        found = asyncio.run(_fetch_status(gateway, probe=probe, timeout_s=timeout_s))
        if as_json:
            click.echo(json.dumps({"gateway": True, **found}, ensure_ascii=False))
        else:
            _print_status(found)
        return
    rows = _configured(_config())
    if as_json:
        click.echo(json.dumps({"gateway": False, "accounts": rows}, ensure_ascii=False))
        return
    click.echo("The gateway is not running: nothing is received or sent.")
    for row in rows:
        state = str(row["problem"] or ("configured" if row["enabled"] else "off"))
        click.echo(f"{_name(row['channel'], row['account'])} {escape_invisible(state)}")
    next_step = (
        "homarus gateway run" if rows else "homarus channels add NAME, then homarus gateway run"
    )
    click.echo(f"Next: {next_step}")


async def _fetch_status(
    gateway: GatewayOptions, *, probe: bool, timeout_s: float
) -> dict[str, Json]:
    async with open_gateway(gateway) as client:
        found = await client.call(
            "channels.status",
            {"probe": probe, "timeoutMs": max(1, round(timeout_s * 1000))},
            timeout_s=timeout_s + 20,
        )
    return found if isinstance(found, dict) else {}


def _print_status(found: Mapping[str, Json]) -> None:
    if not found.get("channelOrder"):
        click.echo("No channel is configured: homarus channels add NAME")
    for channel in found.get("channelOrder", ()):
        for row in found["channelAccounts"][channel]:
            click.echo(f"{_name(channel, row['accountId'])} {escape_invisible(_state(row))}")


def _state(row: Mapping[str, Json]) -> str:
    """Return the state of an account in one line."""
    if not row["enabled"]:
        return "off"
    parts = ["connected" if row["connected"] else "not connected" if row["running"] else "stopped"]
    if probe := row.get("probe"):
        parts.append(f"{probe['identity']}" if probe["ok"] else f"probe failed: {probe['error']}")
    if row.get("waiting"):
        parts.append(f"{row['waiting']} to send")
    if row.get("unreadable"):
        parts.append(f"{row['unreadable']} unreadable (homarus matrix devices)")
    if row.get("reconnectAttempts"):
        parts.append(f"restarted {row['reconnectAttempts']} times")
    if row.get("lastError"):
        parts.append(one_line(str(row["lastError"]), 300))
    return ", ".join(parts)


@command.command()
@examples("homarus channels capabilities", "homarus channels capabilities telegram")
@optional_channel_argument
@account_option
@as_json_option
def capabilities(channel: str | None, account: str | None, *, as_json: bool) -> None:
    """Show what configured accounts can send: length limits, markup, files, features."""
    from homarus.channels.registry import load_channel

    config = _config()
    named = normalize_account_id(account) if account else None
    rows = [
        _capabilities(config, row["channel"], row["account"])
        for row in _configured(config)
        if channel in {None, row["channel"]} and named in {None, row["account"]}
    ]
    if channel and not rows:
        load_channel(channel)
        name, option = (f"{channel}:{named}", f" --account {named}") if named else (channel, "")
        raise UserError(f"{name} is not configured", fix=f"homarus channels add {channel}{option}")
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        click.echo(f"{row['channel']}:{row['account']}")
        if row["problem"]:
            click.echo(f"  {escape_invisible(row['problem'])}")
            continue
        click.echo(f"  text     {row['textLimit']} {row['unit']} units, shown as {row['dialect']}")
        files = f"up to {row['mediaMaxBytes'] >> 20} MB" if row["mediaMaxBytes"] else "none"
        click.echo(f"  files    {files}")
        click.echo(f"  buttons  {row['maxButtons'] or 'none'}")
        click.echo(f"  chats    {', '.join(['groups', *row['structure']])}")
        click.echo(f"  can      {', '.join(row['abilities']).lower() or 'carry messages'}")
    if not rows:
        click.echo("No channel is configured: homarus channels add NAME")


def _capabilities(config: "Config", channel: str, account: str) -> dict[str, Json]:
    from homarus.channels.controller import supported_features
    from homarus.channels.registry import find_traits

    traits = find_traits(channel)
    row: dict[str, Json] = {"channel": channel, "account": account, "problem": ""}
    try:
        adapter = _make(config, channel, account)
    except HomarusError as exc:
        return {**row, "problem": str(exc)}
    capabilities = adapter.capabilities
    return {
        **row,
        "textLimit": capabilities.text_limit,
        "unit": capabilities.unit,
        "dialect": capabilities.dialect,
        "byLine": capabilities.by_line,
        "idempotent": capabilities.idempotent,
        "captionLimit": capabilities.caption_limit,
        "mediaMaxBytes": capabilities.media_max_bytes,
        "maxFiles": capabilities.max_files,
        "maxButtons": capabilities.max_buttons,
        "structure": [name for name in _STRUCTURE if getattr(traits, f"has_{name}")],
        "abilities": list(supported_features(adapter)),
    }


def _make(config: "Config", channel: str, account: str) -> "Channel":
    """Build an account without connecting it."""
    from homarus.channels.base import ChannelContext
    from homarus.channels.registry import load_channel
    from homarus.config.channels import account_settings
    from homarus.core.clock import SystemClock

    paths = with_gateway_config(Paths.find(os.environ))
    env, _ = resolve_env(paths, os.environ, read_raw(paths))
    module = load_channel(channel)
    settings = account_settings(config, channel, account, module.Settings)
    context = ChannelContext(channel, account, SystemClock(), env=env, state=paths.state)
    return module.create(context, settings)


@command.command()
@examples("homarus channels logs --channel telegram --limit 20")
@channel_option("Only this channel.", default="all")
@limit_option("How many lines at most.", _MAX_LOG_LINES, default=200, old_name="--lines")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the stored lines, one JSON object each."
)
@gateway_options
def logs(channel: str, limit: int, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show the log of channels."""
    from homarus.cli.logs import follow_log, show_line

    found: list[str] = []
    asyncio.run(follow_log(gateway, _MAX_LOG_LINES, None, found.append))
    matching = [line for line in found if _is_about(line, channel)]
    for line in matching[-limit:]:
        click.echo(line) if as_json else show_line(line)


def _is_about(line: str, channel: str) -> bool:
    """Return whether a log line is about channels, and about this one."""
    try:
        row = json.loads(line)
        logger, message = str(row["logger"]), str(row["message"])
    except (ValueError, LookupError, TypeError):
        return False
    named = f"homarus.channels.{channel.replace('-', '_')}"
    if channel != "all":
        return logger.startswith(named) or f"{channel}:" in message
    return logger.startswith("homarus.channels") or message.startswith("channel ")


def _config() -> "Config":
    return run_with_config(GatewayOptions(), lambda settings: settings.config())
