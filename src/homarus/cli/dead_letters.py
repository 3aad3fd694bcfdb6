"""`homarus channels dead-letters`: messages that were refused or may not have arrived."""

import asyncio
import json
from collections.abc import Mapping

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import GatewayOptions, as_json_option, gateway_options
from homarus.cli.inbox import change, list_waiting
from homarus.cli.options import channel_option
from homarus.cli.sessions import age
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible
from homarus.sessions.backlog import resolve_backlog_id


@click.group("dead-letters", cls=CommandGroup, invoke_without_command=True)
@examples("homarus channels dead-letters", "homarus channels dead-letters retry --all")
@click.pass_context
def dead_letters(ctx: click.Context) -> None:
    """Manage undelivered messages; without a subcommand, list them."""
    if not ctx.invoked_subcommand:
        ctx.invoke(list_)


@dead_letters.command("list")
@examples("homarus channels dead-letters list --channel telegram")
@channel_option("Only this channel.")
@as_json_option
@gateway_options
def list_(gateway: GatewayOptions, channel: str | None = None, *, as_json: bool = False) -> None:
    """List undelivered messages: `dead` was refused or expired, `unknown` may have arrived."""
    rows = [row for row in _records(gateway) if channel in {None, row["channel"]}]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        chat = f"{row['channel']}:{row['accountId']}, {escape_invisible(str(row['chat']))}"
        click.echo(f"{age(int(row['ageMs'])):>5}  {row['state']:<8}  {chat}")
        click.echo(f"       {row['preview']}")
        click.echo(f"       {escape_invisible(str(row['id']))}: {row['why']}")
    if not rows:
        click.echo("There are none.")


@dead_letters.command()
@examples("homarus channels dead-letters retry ID", "homarus channels dead-letters retry --all")
@click.argument("id", required=False)
@click.option("--all", "every", is_flag=True, help="All messages.")
@as_json_option
@gateway_options
def retry(
    id: str | None,  # noqa: A002 - the word for it
    gateway: GatewayOptions,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Send one message again, or all. An `unknown` one may then arrive twice."""
    _change("retry", id, gateway, every=every, as_json=as_json)


@dead_letters.command()
@examples("homarus channels dead-letters discard ID", "homarus channels dead-letters discard --all")
@click.argument("id", required=False)
@click.option("--all", "every", is_flag=True, help="All messages.")
@as_json_option
@gateway_options
def discard(
    id: str | None,  # noqa: A002 - the word for it
    gateway: GatewayOptions,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Discard one message, or all."""
    _change("discard", id, gateway, every=every, as_json=as_json)


def _change(
    verb: str, named: str | None, gateway: GatewayOptions, *, every: bool, as_json: bool
) -> None:
    if bool(named) == every:
        raise UserError("say which one, or --all", fix="homarus channels dead-letters lists them")
    parcels = _records(gateway)
    selected = (
        [resolve_backlog_id({"parcels": parcels}, named)]
        if named
        else [str(p["id"]) for p in parcels]
    )
    done = [asyncio.run(change(gateway, verb, each)) for each in selected]
    if as_json:
        click.echo(json.dumps({"ok": True, "ids": selected}, ensure_ascii=False))
        return
    when_text = "" if all(each["now"] for each in done) else " when the gateway next starts"
    for each in selected:
        result = f"is sent again{when_text}" if verb == "retry" else "is given up"
        click.echo(f"{escape_invisible(each)} {result}.")
    if not selected:
        click.echo("There are none.")


def _records(gateway: GatewayOptions) -> list[Mapping[str, Json]]:
    return list(asyncio.run(list_waiting(gateway, stuck=True))["parcels"])
