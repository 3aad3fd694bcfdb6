"""`homarus agents bind`, `unbind`, `bindings`: which messages an agent answers."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from homarus.channels.registry import find_traits
from homarus.cli import completion_values
from homarus.cli.command_group import examples
from homarus.cli.config_client import ConfigChangeResult, run_with_config
from homarus.cli.gateway_options import GatewayOptions, as_json_option, warn, with_gateway_config
from homarus.cli.options import agent_option
from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.config.binding_edits import (
    Match,
    add_bindings,
    describe_match,
    describe_matches,
    parse_match,
    remove_bindings,
)
from homarus.config.channels import channel_names
from homarus.config.load import LoadedConfig, load_config
from homarus.config.paths import Paths, shorten
from homarus.config.schema import Config
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import normalize_agent_id
from homarus.core.text import closest_names

T = TypeVar("T")


def load_own_config() -> tuple[Paths, LoadedConfig]:
    """Return this environment's paths and the configuration that its gateway uses."""
    paths = with_gateway_config(Paths.find(os.environ))
    return paths, load_config(paths, os.environ)


def known_agent(config: Config, agent_id: str) -> str:
    """Return an agent's id; UnknownNameError suggests the nearest."""
    known, agent = agent_ids(config), normalize_agent_id(agent_id)
    if agent not in known:
        raise UnknownNameError("agent", agent_id, closest_names(agent, known) or known[:3])
    return agent


def check_channel(config: Config, channel: str) -> None:
    """Refuse the name of a channel that is unknown to us, to OpenClaw and to the config."""
    from homarus.channels.registry import available_channels
    from homarus.config.known_keys import root_key

    original = root_key().children["channels"].children.keys() - {"defaults"}
    known = sorted({*available_channels(), *channel_names(config), *original})
    if channel not in known:
        raise UnknownNameError(
            "channel", channel, closest_names(channel, known), fix=f"one of {', '.join(known)}"
        )


def _match_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that describe what a binding matches."""
    wrapped = command
    for flag, name, metavar, help_text, is_multiple in (
        ("--role", "roles", "ID", "Only from members with this role; repeatable.", True),
        ("--team", "team", "ID", "Only in this team.", False),
        ("--guild", "guild", "ID", "Only in this guild.", False),
        (
            "--peer",
            "peer",
            "KIND:ID",
            "Only this chat: direct, group or channel, and id.",
            False,
        ),
        (
            "--bind",
            "named",
            "CHANNEL[:ACCOUNT]",
            "A channel; * is every account; repeatable.",
            True,
        ),
        ("--agent", "agent", "ID", "The agent.", False),
    ):
        wrapped = click.option(
            flag,
            name,
            metavar=metavar,
            help=help_text,
            multiple=is_multiple,
            default=None if is_multiple else "",
            show_default="the default agent" if name == "agent" else False,
            shell_complete=completion_values.agents if name == "agent" else None,
        )(wrapped)
    return wrapped


@click.command("bind")
@examples(
    "homarus agents bind --agent work --bind telegram:work",
    "homarus agents bind --agent work --bind telegram --peer group:-100123",
)
@_match_options
@as_json_option
def bind_command(agent: str, named: Sequence[str], *, as_json: bool, **options: Any) -> None:
    """Add a binding: the agent answers a channel, an account of it, or one chat."""
    _, loaded = load_own_config()
    config = loaded.config
    owner = known_agent(config, agent) if agent else default_agent_id(config)
    matches = _matches(config, named, options)
    found = run_with_config(
        GatewayOptions(),
        lambda settings: settings.change(
            lambda tree: add_bindings(tree, owner, matches, find_traits)
        ),
    )
    _print_result(owner, "answers", describe_matches(matches), found, as_json=as_json)
    for channel in sorted({match["channel"] for match in matches} - {*channel_names(config)}):
        warn(f"channels.{channel} is not configured yet: nothing comes from there.")


@click.command("unbind")
@examples(
    "homarus agents unbind --agent work --bind telegram:work",
    "homarus agents unbind --agent work --all",
)
@_match_options
@click.option("--all", "everything", is_flag=True, help="Remove all bindings of the agent.")
@as_json_option
def unbind_command(
    agent: str, named: Sequence[str], *, everything: bool, as_json: bool, **options: Any
) -> None:
    """Remove bindings of an agent."""
    _, loaded = load_own_config()
    config = loaded.config
    owner = known_agent(config, agent) if agent else default_agent_id(config)
    if everything and (named or any(options.values())):
        raise UserError("--all and a binding are two things", fix="name one of them")
    matches = None if everything else _matches(config, named, options, known=False)
    removed: tuple[str, ...] = ()

    def edit(tree: dict[str, Json]) -> Json:
        nonlocal removed
        changed, removed = remove_bindings(tree, owner, matches, find_traits)
        return changed

    found = run_with_config(GatewayOptions(), lambda settings: settings.change(edit))
    _print_result(owner, "no longer answers", removed, found, as_json=as_json)


def _matches(
    config: Config, named: Sequence[str], options: dict[str, Any], *, known: bool = True
) -> list[Match]:
    if not named:
        raise UserError("no channel is named", fix="add --bind CHANNEL or --bind CHANNEL:ACCOUNT")
    matches = [parse_match(text, **options) for text in named]
    for match in matches if known else ():
        check_channel(config, match["channel"])
    return matches


def _print_result(
    agent: str, verb: str, descriptions: Sequence[str], found: ConfigChangeResult, *, as_json: bool
) -> None:
    if as_json:
        report = {"ok": True, "agentId": agent, "bindings": list(descriptions)}
        report |= {"gateway": found.effect} if found.effect else {}
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    if not descriptions:
        click.echo(f"Nothing is bound to {agent}.")
        return
    file = shorten(Path(found.file), Paths.find(os.environ).home)
    effect = f"; {found.effect}" if found.effect else ""
    click.echo(f"{agent} {verb} {'; '.join(descriptions)} ({file}{effect}).")


@click.command("bindings")
@examples("homarus agents bindings", "homarus agents bindings --agent work")
@agent_option("Only bindings of this agent.")
@as_json_option
def bindings_command(agent: str | None, *, as_json: bool) -> None:
    """List the bindings of the configuration: which messages go to which agent."""
    _, loaded = load_own_config()
    config = loaded.config
    agent_id = known_agent(config, agent) if agent else None
    rows = [
        (normalize_agent_id(one.agent_id), one.match)
        for one in config.bindings
        if agent_id in {None, normalize_agent_id(one.agent_id)}
    ]
    if as_json:
        report = [
            {
                "agentId": owner,
                "match": match.model_dump(mode="json", by_alias=True, exclude_unset=True),
                "description": describe_match(match),
            }
            for owner, match in rows
        ]
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    if not rows:
        click.echo(f"Nothing is bound: {default_agent_id(config)} answers everywhere.")
    for owner, match in rows:
        missing = "" if owner in agent_ids(config) else "  (no such agent: the default one answers)"
        click.echo(f"{owner:<12} {describe_match(match)}{missing}")
