"""`homarus inbox`: messages without an answer, and replies that may not have arrived."""

import asyncio
import json
import os
from collections.abc import Mapping

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
from homarus.config.paths import Paths
from homarus.config.session_store import find_session_store
from homarus.core.clock import SystemClock
from homarus.core.message import Json
from homarus.core.text import escape_invisible
from homarus.sessions.backlog import DISCARDED, list_backlog, resolve_backlog_id
from homarus.store.sqlite import open_store


@click.group("inbox", cls=CommandGroup, invoke_without_command=True)
@examples("homarus inbox", "homarus inbox --stuck", "homarus inbox retry 4f2a")
@click.option("--stuck", is_flag=True, help="Only records that need an action.")
@as_json_option
@gateway_options
@click.pass_context
def command(ctx: click.Context, gateway: GatewayOptions, *, stuck: bool, as_json: bool) -> None:
    """List unanswered messages and unconfirmed replies."""
    if ctx.invoked_subcommand:
        if gateway != GatewayOptions():  # otherwise it would be done locally
            raise click.UsageError(f"--url and what lets you in go after {ctx.invoked_subcommand}")
        return
    found = asyncio.run(list_waiting(gateway, stuck=stuck))
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    if not found["messages"] and not found["parcels"]:
        click.echo("Nothing is stuck." if stuck else "Nothing waits.")
    for row in found["messages"]:
        _show(row, row["sessionKey"], f"{row['channel']}, from {row['sender']}")
    for row in found["parcels"]:
        _show(row, f"reply to {row['channel']}", row["chat"])


def _show(row: Mapping[str, Json], chat: str, sender: str) -> None:
    reason = f": {row['why']}" if row["why"] else ""
    chat, sender = escape_invisible(chat), escape_invisible(sender)
    click.echo(f"{age(int(row['ageMs'])):>5}  {row['state']:<8}  {chat} ({sender})")
    click.echo(f"       {row['preview']}")
    click.echo(f"       {escape_invisible(str(row['id']))}{reason}")


@command.command()
@examples("homarus inbox retry 4f2a")
@click.argument("id")
@as_json_option
@gateway_options
def retry(id: str, gateway: GatewayOptions, *, as_json: bool) -> None:  # noqa: A002 - the word for it
    """Retry a parked message or an unconfirmed reply. The start of its ID is enough."""
    done = asyncio.run(change(gateway, "retry", id))
    if as_json:
        click.echo(json.dumps(done, ensure_ascii=False))
    else:
        when = "now" if done["now"] else "when the gateway next starts"
        click.echo(f"{escape_invisible(done['id'])} is tried again {when}.")


@command.command()
@examples("homarus inbox discard 4f2a")
@click.argument("id")
@as_json_option
@gateway_options
def discard(id: str, gateway: GatewayOptions, *, as_json: bool) -> None:  # noqa: A002 - the word for it
    """Discard a parked message or an unconfirmed reply. The start of its ID is enough."""
    done = asyncio.run(change(gateway, "discard", id))
    if as_json:
        click.echo(json.dumps(done, ensure_ascii=False))
    else:
        click.echo(f"{escape_invisible(done['id'])} is given up.")


async def list_waiting(gateway: GatewayOptions, *, stuck: bool) -> dict[str, Json]:
    """Return the pending records of the journal, from a running gateway or the file."""
    if is_gateway_running(gateway):
        async with open_gateway(gateway) as client:
            found = await client.call("inbox.list", {"stuck": stuck})
        return found if isinstance(found, dict) else {"messages": [], "parcels": []}
    paths = find_session_store(Paths.find(os.environ), os.environ)
    async with open_store(paths.state, read_only=True, sessions=paths.session_store) as store:
        return await list_backlog(store.journal, SystemClock().now_ms(), stuck=stuck)


async def change(gateway: GatewayOptions, verb: str, named: str) -> dict[str, Json]:
    """Retry or discard the record with an id, or the start of one."""
    if is_gateway_running(gateway):
        async with open_gateway(gateway) as client:
            listed = await client.call("inbox.list", {"stuck": True})
            item_id = resolve_backlog_id(listed if isinstance(listed, dict) else {}, named)
            await client.call(f"inbox.{verb}", {"id": item_id})
        return {"ok": True, "id": item_id, "now": True}
    paths = find_session_store(Paths.find(os.environ), os.environ)
    async with open_store(paths.state, sessions=paths.session_store) as store:
        journal, now_ms = store.journal, SystemClock().now_ms()
        item_id = resolve_backlog_id(await list_backlog(journal, now_ms, stuck=True), named)
        if verb == "retry":
            await journal.retry(item_id, at_ms=now_ms)
        else:
            await journal.discard(item_id, at_ms=now_ms, why=DISCARDED)
    return {"ok": True, "id": item_id, "now": False}
