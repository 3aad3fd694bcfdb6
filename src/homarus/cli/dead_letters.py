"""`homarus channels dead-letters`: messages that were refused or may not have arrived."""

import asyncio
import json
from collections.abc import Mapping

import click

from homarus.cli.gateway_options import GatewayOptions, as_json_option, gateway_options
from homarus.cli.inbox import change, list_waiting
from homarus.cli.sessions import age
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible
from homarus.sessions.backlog import resolve_backlog_id


@click.group("dead-letters", invoke_without_command=True)
@click.pass_context
def dead_letters(ctx: click.Context) -> None:
    """Messages that no service took, or that may not have arrived; alone, list them."""
    if not ctx.invoked_subcommand:
        ctx.invoke(list_)


@dead_letters.command("list")
@click.option("--channel", metavar="NAME", help="Of one channel.")
@as_json_option
@gateway_options
def list_(reach: GatewayOptions, channel: str | None = None, *, as_json: bool = False) -> None:
    """List them: `dead` was refused or too late, `unknown` may have arrived."""
    rows = [row for row in _records(reach) if channel in {None, row["channel"]}]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        where = f"{row['channel']}:{row['accountId']}, {escape_invisible(str(row['chat']))}"
        click.echo(f"{age(int(row['ageMs'])):>5}  {row['state']:<8}  {where}")
        click.echo(f"       {row['preview']}")
        click.echo(f"       {escape_invisible(str(row['id']))}: {row['why']}")
    if not rows:
        click.echo("There are none.")


@dead_letters.command()
@click.argument("id", required=False)
@click.option("--all", "every", is_flag=True, help="All of them.")
@as_json_option
@gateway_options
def retry(
    id: str | None,  # noqa: A002 - the word for it
    reach: GatewayOptions,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Send one again, or all. What is `unknown` may then arrive twice."""
    _change("retry", id, reach, every=every, as_json=as_json)


@dead_letters.command()
@click.argument("id", required=False)
@click.option("--all", "every", is_flag=True, help="All of them.")
@as_json_option
@gateway_options
def discard(
    id: str | None,  # noqa: A002 - the word for it
    reach: GatewayOptions,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Give one up for good, or all."""
    _change("discard", id, reach, every=every, as_json=as_json)


def _change(
    verb: str, named: str | None, reach: GatewayOptions, *, every: bool, as_json: bool
) -> None:
    if bool(named) == every:
        raise UserError("say which one, or --all", fix="homarus channels dead-letters lists them")
    parcels = _records(reach)
    meant = (
        [resolve_backlog_id({"parcels": parcels}, named)]
        if named
        else [str(p["id"]) for p in parcels]
    )
    done = [asyncio.run(change(reach, verb, each)) for each in meant]
    if as_json:
        click.echo(json.dumps({"ok": True, "ids": meant}, ensure_ascii=False))
        return
    when = "" if all(each["now"] for each in done) else " when the gateway next starts"
    for each in meant:
        result = f"is sent again{when}" if verb == "retry" else "is given up"
        click.echo(f"{escape_invisible(each)} {result}.")
    if not meant:
        click.echo("There are none.")


def _records(reach: GatewayOptions) -> list[Mapping[str, Json]]:
    return list(asyncio.run(list_waiting(reach, stuck=True))["parcels"])
