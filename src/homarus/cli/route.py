"""`homarus route`: which agent answers a chat, in which conversation, and why."""

import json
from dataclasses import replace

import click

from homarus.channels.registry import find_traits
from homarus.cli.bindings import check_channel, load_own_config
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import channel_option
from homarus.config.binding_edits import parse_peer
from homarus.core.errors import UserError
from homarus.core.text import one_line
from homarus.sessions.routing import RouteQuery, explain_route, find_routes

_FORM = "write CHANNEL:KIND:ID, for example telegram:group:-100"


@click.group("route", cls=CommandGroup)
@examples("homarus route explain --from telegram:group:-100123")
def command() -> None:
    """Show which agent answers a chat, and why."""


@command.command("explain")
@examples(
    "homarus route explain --from telegram:direct:1234",
    "homarus route explain --channel irc --peer 'channel:#homarus'",
)
@click.option("--from", "target", metavar="CHANNEL:KIND:ID", help="The chat; replaces the others.")
@channel_option("The channel.")
@click.option(
    "--account",
    metavar="ID",
    default="",
    show_default="default",
    help="The account of the channel.",
)
@click.option("--peer", metavar="KIND:ID", help="The chat: direct, group or channel, and its id.")
@click.option("--thread", metavar="ID", default="", show_default=False, help="A thread or topic.")
@click.option("--guild", metavar="ID", default="", show_default=False, help="The guild.")
@click.option("--team", metavar="ID", default="", show_default=False, help="The team.")
@click.option(
    "--role", "roles", metavar="ID", multiple=True, help="A role of the sender; repeatable."
)
@as_json_option
def explain_command(
    target: str | None,
    channel: str | None,
    account: str,
    peer: str | None,
    thread: str,
    guild: str,
    team: str,
    roles: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Show which agent and session answer a chat, and why each binding matches or not."""
    _, loaded = load_own_config()
    if target and (channel or peer):
        raise UserError("--from already names the channel and the chat", fix=_FORM)
    query = _parse_chat(target) if target else _query_from_options(channel, peer)
    check_channel(loaded.config, query.channel)
    query = replace(
        query,
        account=account,
        thread=thread.strip() or query.thread,
        guild=guild.strip(),
        team=team.strip(),
        roles=roles,
        traits=find_traits(query.channel),
    )
    lines, routes = explain_route(loaded.config, query), find_routes(loaded.config, query)
    if not as_json:
        click.echo("\n".join(lines))
        return
    shown = [
        {
            "agentId": route.agent,
            "channel": route.channel,
            "accountId": route.account,
            "sessionKey": route.key,
            "mainSessionKey": route.main_key,
            "matchedBy": route.matched_by,
        }
        for route in routes
    ]
    click.echo(json.dumps({"routes": shown, "explanation": lines}, ensure_ascii=False))


def _query_from_options(channel: str | None, peer: str | None) -> RouteQuery:
    if not channel:
        raise UserError("no channel is named", fix=f"add --channel NAME, or --from: {_FORM}")
    name = channel.strip().lower()
    return _chat(name, peer) if peer else RouteQuery(name)


def _parse_chat(text: str) -> RouteQuery:
    """Parse `telegram:group:-100`, with `:topic:7` or `:thread:7` for a thread."""
    channel, _, peer = text.strip().partition(":")
    if not channel or not peer:
        raise UserError(f"{one_line(text)!r} names no chat", fix=_FORM)
    for mark in (":topic:", ":thread:"):
        chat, found, thread = peer.rpartition(mark)
        if found:
            return _chat(channel.lower(), chat, thread)
    return _chat(channel.lower(), peer)


def _chat(channel: str, text: str, thread: str = "") -> RouteQuery:
    kind, id_ = parse_peer(text)
    if not id_:
        raise UserError(f"{one_line(text)!r} has no id", fix="write KIND:ID")
    return RouteQuery(channel, peer_kind=kind, peer=id_, thread=thread)
