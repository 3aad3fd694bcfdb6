"""`homarus directory`: our own names on chat services, and the chats that are known."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
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
from homarus.cli.options import channel_option, limit_option
from homarus.cli.sessions import age, read_records
from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import one_line

_channel = channel_option("Only this chat service.")
_account = click.option("--account", metavar="ID", help="Only this account of ours.")
_query = click.option("--query", metavar="TEXT", help="Only those with this in id or name.")
_limit = limit_option("How many at most.", 10_000, default=100)


@click.group("directory", cls=CommandGroup)
@examples("homarus directory self", "homarus directory groups --channel telegram")
def command() -> None:
    """Show our names on chat services, and known people and groups."""


@command.command("self")
@examples("homarus directory self --channel telegram --json")
@_channel
@_account
@as_json_option
@gateway_options
def self_(
    channel: str | None, account: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Ask each chat service who we are there."""
    if not is_gateway_running(gateway):
        raise UserError("accounts are logged in while a gateway runs", fix="homarus gateway")
    rows = [
        row
        for row in asyncio.run(_accounts(gateway))
        if channel in {None, row["channel"]} and account in {None, row["accountId"]}
    ]
    if as_json:
        click.echo(json.dumps({"accounts": rows}, ensure_ascii=False))
        return
    for row in rows:
        who = one_line(str(row["identity"] or row["error"] or "unknown"), 200)
        click.echo(f"{row['channel']}:{row['accountId']}  {who}")
    if not rows:
        click.echo("No such account is running; homarus channels status lists all.")


async def _accounts(gateway: GatewayOptions) -> list[dict[str, Json]]:
    async with open_gateway(gateway) as client:
        found = await client.call("channels.status", {"probe": True}, timeout_s=60.0)
    accounts = found["channelAccounts"] if isinstance(found, dict) else {}
    return [
        {
            "channel": channel,
            "accountId": row["accountId"],
            "identity": (row.get("probe") or {}).get("identity"),
            "error": (row.get("probe") or {}).get("error") or row.get("lastError"),
        }
        for channel, rows in accounts.items()
        for row in rows
        if row.get("running")
    ]


@command.command()
@examples("homarus directory peers", "homarus directory peers --query ann --json")
@_channel
@_account
@_query
@_limit
@as_json_option
@gateway_options
def peers(
    channel: str | None,
    account: str | None,
    query: str | None,
    limit: int,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """List the people who have written, and those that the configuration names."""
    _list("peers", {"direct"}, (channel, account, query), limit, gateway, as_json=as_json)


@command.command()
@examples("homarus directory groups --channel matrix")
@_channel
@_account
@_query
@_limit
@as_json_option
@gateway_options
def groups(
    channel: str | None,
    account: str | None,
    query: str | None,
    limit: int,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """List the groups and rooms in which we were written to, and those of the configuration."""
    kinds = {"group", "channel"}
    _list("groups", kinds, (channel, account, query), limit, gateway, as_json=as_json)


def _list(
    name: str,
    kinds: set[str],
    wanted: tuple[str | None, str | None, str | None],
    limit: int,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    channel, account, query = wanted
    text = (query or "").lower()
    rows = [
        row
        for row in _known_chats(gateway)
        if row["kind"] in kinds
        and channel in {None, row["channel"]}
        and account in {None, row["accountId"]}
        and text in f"{row['id']} {row['name']}".lower()
    ][:limit]
    if as_json:
        click.echo(json.dumps({name: rows, "count": len(rows)}, ensure_ascii=False))
        return
    now_ms = SystemClock().now_ms()
    for row in rows:
        seen = age(now_ms - row["lastSeenAt"]) if row["lastSeenAt"] else "-"
        place = f"{row['channel']}:{row['id']}"
        click.echo(f"{seen:>4}  {one_line(place, 80)}  {one_line(row['name'], 80)}".rstrip())
    if not rows:
        click.echo("None is known.")


def _known_chats(gateway: GatewayOptions) -> list[dict[str, Any]]:
    """Return every chat once: those of sessions, newest first, then those of the configuration."""
    sessions = _remote_sessions(gateway) if is_gateway_running(gateway) else _stored_sessions()
    found = dict[tuple[str, str, str], dict[str, Any]]()
    for key, updated_ms, data in sessions:
        if row := _chat_of_session(key, updated_ms, data):
            found.setdefault((row["channel"], row["accountId"], row["id"]), row)
    if not gateway.url:
        for row in _chats_of_config():
            found.setdefault((row["channel"], row["accountId"], row["id"]), row)
    return list(found.values())


def _stored_sessions() -> list[tuple[str, int, Mapping[str, Any]]]:
    records = asyncio.run(read_records(Paths.find(os.environ), None, 0))
    return [(record.key, record.updated_ms, record.data) for record in records]


def _remote_sessions(gateway: GatewayOptions) -> list[tuple[str, int, Mapping[str, Any]]]:
    async def ask() -> Any:
        async with open_gateway(gateway) as client:
            return await client.call("sessions.list", {"limit": 10_000})

    found = asyncio.run(ask())
    rows = found.get("sessions", ()) if isinstance(found, dict) else ()
    return [(row["key"], int(row.get("updatedAt") or 0), row) for row in rows]


def _chat_of_session(key: str, updated_ms: int, data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the chat of a session; None for one of a terminal or a page."""
    context = data.get("deliveryContext")
    context = context if isinstance(context, dict) else {}
    channel = data.get("lastChannel") or context.get("channel")
    chat = data.get("lastTo") or context.get("to")
    if not isinstance(channel, str) or not isinstance(chat, str) or channel == "webchat":
        return None
    kind = data.get("chatType")
    if kind not in {"direct", "group", "channel"}:
        kind = "group" if ":group:" in key else "channel" if ":channel:" in key else "direct"
    origin = data.get("origin")
    label = origin.get("label") if isinstance(origin, dict) else ""
    names = (data.get("displayName"), data.get("subject"), data.get("label"), label)
    return {
        "channel": channel,
        "accountId": str(data.get("lastAccountId") or context.get("accountId") or "default"),
        "id": chat,
        "kind": kind,
        "name": next((name for name in names if isinstance(name, str) and name), ""),
        "lastSeenAt": updated_ms,
        "source": "session",
    }


def _chats_of_config() -> Iterator[dict[str, Any]]:
    """Yield the people and groups that the configuration and the pairings name."""
    from homarus.channels.pairing import PairingStore
    from homarus.cli.bindings import load_own_config
    from homarus.config.channels import account_names, channel_names, common_settings

    paths, loaded = load_own_config()
    config = loaded.config
    store = PairingStore(paths.state, SystemClock())
    for channel in channel_names(config):
        for account in account_names(config, channel):
            settings = common_settings(config, channel, account)
            paired = store.approved_senders(channel, account)
            people = (*settings.allow_from, *settings.group_allow_from)
            for kind, source, ids in (
                ("direct", "config", people),
                ("direct", "pairing", paired),
                ("group", "config", tuple(settings.groups)),
            ):
                yield from _named_chats(channel, account, kind, source, ids)


def _named_chats(
    channel: str, account: str, kind: str, source: str, ids: Sequence[object]
) -> Iterator[dict[str, Any]]:
    for one in ids:
        if str(one) not in {"*", ""}:
            yield {
                "channel": channel, "accountId": account, "id": str(one), "kind": kind,
                "name": "", "lastSeenAt": 0, "source": source,
            }  # fmt: skip
