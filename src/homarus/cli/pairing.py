"""`homarus pairing`: approve or reject unknown senders of chat channels."""

import asyncio
import json
import os
import secrets

import click

from homarus.channels.pairing import TTL_MS, PairingRequest, PairingStore
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    is_gateway_running,
    open_gateway,
    warn,
)
from homarus.cli.options import channel_argument, optional_channel_argument
from homarus.cli.sessions import age
from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.core.errors import HomarusError
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_ACCOUNT, normalize_account_id
from homarus.core.text import one_line

_NOTE = "You can talk to me now: I was told to let you in."
account_option = click.option("--account", metavar="ID", help="Only requests to this account.")


@click.group("pairing", cls=CommandGroup)
@examples("homarus pairing list", "homarus pairing approve telegram ABCD2345")
def command() -> None:
    """Approve or reject people who wrote for the first time."""


@command.command("list")
@examples("homarus pairing list", "homarus pairing list telegram --json")
@optional_channel_argument
@account_option
@as_json_option
def list_(channel: str | None, account: str | None, *, as_json: bool) -> None:
    """List pending requests, of one CHANNEL or of all."""
    pairings, now_ms = _pairings(), SystemClock().now_ms()
    channels = [channel.lower()] if channel else pairings.channels()
    rows = [one for each in channels for one in pairings.pending(each, _account(account))]
    if as_json:
        click.echo(json.dumps({"requests": [_row(one) for one in rows]}, ensure_ascii=False))
        return
    if not rows:
        click.echo("Nobody waits.")
    for one in rows:
        named = f"{one_line(one.id)} ({one_line(one.name)})" if one.name else one_line(one.id)
        minutes_left = max(0, one.created_ms + TTL_MS - now_ms) // 60_000
        of = "" if one.account == "default" else f" to {one.account}"
        click.echo(f"{one.code}  {one.channel}{of}  {named}")
        waited = age(now_ms - one.created_ms)
        since = "new" if waited == "now" else f"{waited} old"
        click.echo(f"          {since}, good for {minutes_left} min more")


@command.command()
@examples("homarus pairing approve telegram ABCD2345 --notify")
@channel_argument
@click.argument("code")
@account_option
@click.option(
    "--notify", is_flag=True, help="Send the person a message through the running gateway."
)
@as_json_option
def approve(channel: str, code: str, account: str | None, *, notify: bool, as_json: bool) -> None:
    """Approve the person who got CODE."""
    found = _pairings().approve(channel.lower(), code, _account(account))
    is_notified = notify and _notify(found)
    if as_json:
        click.echo(json.dumps({"ok": True, "request": _row(found), "notified": is_notified}))
        return
    click.echo(f"{one_line(found.id)} is heard on {found.channel} from now on.")
    click.echo(
        "Commands for the owner alone (/config, /restart …) stay closed to them; "
        "commands.ownerAllowFrom opens those."
    )


@command.command()
@examples("homarus pairing reject telegram ABCD2345")
@channel_argument
@click.argument("code")
@account_option
@as_json_option
def reject(channel: str, code: str, account: str | None, *, as_json: bool) -> None:
    """Reject the person who got CODE; they can request again."""
    found = _pairings().reject(channel.lower(), code, _account(account))
    if as_json:
        click.echo(json.dumps({"ok": True, "request": _row(found)}, ensure_ascii=False))
    else:
        click.echo(f"{one_line(found.id)} was not let in.")


@command.command()
@examples("homarus pairing revoke telegram 123456789")
@channel_argument
@click.argument("sender")
@click.option("--account", metavar="ID", help="The account.", show_default="default")
@as_json_option
def revoke(channel: str, sender: str, account: str | None, *, as_json: bool) -> None:
    """Revoke the approval of SENDER, who has to request again."""
    is_inherited = _pairings().revoke(channel.lower(), sender, _account(account) or DEFAULT_ACCOUNT)
    if as_json:
        click.echo(json.dumps({"ok": True, "sender": sender, "inOpenClaw": is_inherited}))
        return
    click.echo(f"{one_line(sender)} is not approved on {channel.lower()} any more.")
    if is_inherited:
        click.echo("OpenClaw still approves them when it runs: its database is not changed.")


def _pairings() -> PairingStore:
    return PairingStore(Paths.find(os.environ).state, SystemClock())


def _account(named: str | None) -> str | None:
    return normalize_account_id(named) if named else None


def _row(request: PairingRequest) -> dict[str, Json]:
    return {
        "channel": request.channel,
        "accountId": request.account,
        "id": request.id,
        "code": request.code,
        "createdAtMs": request.created_ms,
        "lastSeenAtMs": request.seen_ms,
        "meta": dict(request.meta),
    }


def _notify(request: PairingRequest) -> bool:
    """Have the gateway notify the sender, who is approved whether or not that succeeds."""
    if not is_gateway_running(GatewayOptions()):
        warn("They were not told: no gateway runs that could.")
        return False
    try:
        asyncio.run(_send(request))
    except HomarusError as exc:
        warn(f"They were not told: {exc}")
        return False
    return True


async def _send(request: PairingRequest) -> None:
    params = {
        "channel": request.channel,
        "accountId": request.account,
        "to": request.chat,
        "message": _NOTE,
        "idempotencyKey": f"paired-{secrets.token_hex(8)}",
    }
    async with open_gateway(GatewayOptions()) as client:
        await client.call("send", params)
