"""`homarus agents`: list, add, delete agents and set their identity."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path

import click

from homarus.agent.prompt.identity_file import (
    FILE,
    KEYS,
    AgentIdentity,
    find_identity,
    parse_identity,
)
from homarus.agent.workspace import seed_workspace, trash_agent_folders
from homarus.channels.registry import find_traits
from homarus.cli import completion_values
from homarus.cli.bindings import (
    bind_command,
    bindings_command,
    check_channel,
    known_agent,
    load_own_config,
    unbind_command,
)
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import agent_option, model_option, workspace_option, yes_option
from homarus.config import agent_edits
from homarus.config.agent_settings import agent_ids, default_agent_id, resolve_agent_settings
from homarus.config.binding_edits import parse_match
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths, shorten
from homarus.config.session_store import with_session_store
from homarus.config.write import write_config
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_AGENT
from homarus.core.text import escape_invisible, one_line

_MAX_FILE_BYTES = 1_000_000


@click.group("agents", cls=CommandGroup, invoke_without_command=True)
@examples("homarus agents", "homarus agents add work --bind telegram:work")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage agents; without a subcommand, list them."""
    if not ctx.invoked_subcommand:
        ctx.invoke(list_)


@command.command("list")
@examples("homarus agents list --bindings")
@click.option("--bindings", is_flag=True, help="Also show the bindings of each.")
@as_json_option
def list_(*, bindings: bool = False, as_json: bool = False) -> None:
    """List the agents with their identity, workspace and model."""
    paths, loaded = load_own_config()
    rows = [_row(paths, loaded, agent, bindings=bindings) for agent in agent_ids(loaded.config)]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        _print_row(row)


def _row(paths: Paths, loaded: LoadedConfig, agent: str, *, bindings: bool) -> dict[str, Json]:
    settings = resolve_agent_settings(loaded.config, paths, agent)
    identity = find_identity(settings)
    by_agent: dict[str, Json] = {
        "id": agent,
        "name": settings.name if settings.name != agent else None,
        "identityName": identity.name,
        "identityEmoji": identity.emoji,
        "workspace": str(settings.workspace),
        "agentDir": str(settings.agent_dir),
        "model": settings.model,
        "bindings": len(_bound(loaded, agent)),
        "isDefault": settings.is_default,
    }
    if bindings:
        by_agent["bindingDetails"] = _bound(loaded, agent)
    return {key: value for key, value in by_agent.items() if value not in (None, "")}


def _bound(loaded: LoadedConfig, agent: str) -> list[str]:
    return agent_edits.describe_bindings(loaded.raw, agent)


def _print_row(row: Mapping[str, Json]) -> None:
    identity = " ".join(str(row[k]) for k in ("identityEmoji", "identityName") if k in row)
    named = (
        f"  {escape_invisible(identity)}"
        if identity
        else f"  {escape_invisible(str(row['name']))}"
        if "name" in row
        else ""
    )
    mark = "  (default)" if row["isDefault"] else ""
    click.echo(f"{row['id']}{named}{mark}")
    click.echo(f"  workspace  {escape_invisible(str(row['workspace']))}")
    click.echo(
        f"  model      {escape_invisible(str(row.get('model', 'whatever this machine offers')))}"
    )
    for line in row.get("bindingDetails", ()):
        click.echo(f"  bound to   {line}")


@command.command()
@examples(
    "homarus agents add work", "homarus agents add work --model openai/gpt-5.2 --bind telegram:work"
)
@click.argument("name", required=False)
@workspace_option("Its workspace.", default="~/.openclaw/workspace-NAME")
@model_option("Its model.", default="agents.defaults.model")
@click.option(
    "--agent-dir",
    metavar="DIR",
    shell_complete=completion_values.directories,
    show_default="~/.openclaw/agents/NAME/agent",
    help="The folder of its credentials.",
)
@click.option(
    "--bind",
    metavar="CHANNEL[:ACCOUNT]",
    multiple=True,
    help="A channel or account whose messages it answers; repeatable.",
)
@click.option("--non-interactive", is_flag=True, help="Ask nothing; fail if something is missing.")
@as_json_option
def add(
    name: str | None,
    workspace: str | None,
    model: str | None,
    agent_dir: str | None,
    bind: tuple[str, ...],
    *,
    non_interactive: bool,
    as_json: bool,
) -> None:
    """Add an agent with its own workspace."""
    paths, loaded = load_own_config()
    if not name:
        if non_interactive or as_json:
            raise UserError("the new agent has no name", fix="homarus agents add NAME")
        name = click.prompt("Name of the new agent", type=str)
    agent, shown = agent_edits.check_name(name, agent_ids(loaded.config))
    home = paths.home
    default = shorten(paths.default_workspace(agent, is_default=False), home)
    named = shorten(_absolute(workspace), home) if workspace else default
    folder = agent_edits.check_workspace(named, paths)
    for text in bind:
        check_channel(loaded.config, parse_match(text)["channel"])
    new = agent_edits.NewAgent(
        agent,
        shown,
        named,
        model=_check_config(paths, loaded, model) if model else None,
        agent_dir=shorten(_absolute(agent_dir), home) if agent_dir else None,
        bindings=bind,
    )
    write_config(paths, os.environ, lambda tree: agent_edits.add_agent(tree, new, find_traits))
    seed_workspace(folder)
    if as_json:
        report = {"agentId": agent, "name": shown, "workspace": str(folder), "model": new.model}
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    click.echo(f"{shown} lives in {folder}.")
    click.echo(f"Next: homarus chat --agent {agent}")


def _check_config(paths: Paths, loaded: LoadedConfig, ref: str) -> str:
    from homarus.core.clock import SystemClock
    from homarus.providers.model_router import ModelRouter

    return ModelRouter(loaded.config, loaded.env, paths, SystemClock()).check_typed(ref).ref


@command.command()
@examples("homarus agents delete work --yes")
@click.argument("id", shell_complete=completion_values.agents)
@yes_option("--force")
@as_json_option
def delete(
    id: str,  # noqa: A002 - the word for it
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove an agent. Its files are moved to `trash` in the state directory."""
    paths, loaded = load_own_config()
    agent = known_agent(loaded.config, id)
    if agent in {DEFAULT_AGENT, default_agent_id(loaded.config)}:
        raise UserError(f'"{agent}" cannot be deleted', fix="make another agent the default first")
    if not yes:
        if as_json:
            raise UserError("removing an agent must be confirmed", fix="add --yes")
        click.confirm(f"Remove {agent}, its conversations and its files?", abort=True)
    done = asyncio.run(_delete(paths, loaded, agent))
    if as_json:
        click.echo(json.dumps(done, ensure_ascii=False))
    else:
        click.echo(f"{agent} is removed.")


async def _delete(paths: Paths, loaded: LoadedConfig, agent: str) -> dict[str, Json]:
    if is_gateway_running(GatewayOptions()):
        async with open_gateway(GatewayOptions()) as client:
            report = await client.call("agents.delete", {"agentId": agent})
        return report if isinstance(report, dict) else {}
    from homarus.core.clock import SystemClock
    from homarus.sessions.session import SessionRepository
    from homarus.store.sqlite import open_store

    settings = resolve_agent_settings(loaded.config, paths, agent)
    clock = SystemClock()
    now_ms = clock.now_ms()
    removed = 0

    def remove(tree: dict[str, Json]) -> Json:
        nonlocal removed
        changed, removed = agent_edits.remove_agent(tree, agent)
        return changed

    paths = with_session_store(paths, loaded.config)
    async with open_store(paths.state, sessions=paths.session_store) as store:
        sessions = SessionRepository(store, clock)
        for record in await store.sessions(agent=agent):
            await sessions.delete(record.key, now_ms)
        write_config(paths, os.environ, remove)
    trash_agent_folders(paths, agent, now_ms, settings.workspace, settings.agent_dir)
    return {"ok": True, "agentId": agent, "removedBindings": removed}


@command.command("set-identity")
@examples(
    "homarus agents set-identity --name Ada --emoji 🦞",
    "homarus agents set-identity --agent work --from-identity",
)
@agent_option("The agent.", "agent_id", default="the default agent")
@workspace_option("The agent, by its workspace.")
@click.option(
    "--identity-file",
    metavar="FILE",
    shell_complete=completion_values.files,
    help="Read the identity from this file.",
)
@click.option("--from-identity", is_flag=True, help=f"Read it from the workspace's {FILE}.")
@click.option("--name", metavar="TEXT", help="The name.")
@click.option("--creature", metavar="TEXT", help="What kind of being it is.")
@click.option("--vibe", metavar="TEXT", help="How it comes across.")
@click.option("--theme", metavar="TEXT", help="The manner, in a word or two.")
@click.option("--emoji", metavar="EMOJI", help="The emoji.")
@click.option("--avatar", metavar="PICTURE", help="A file of the workspace, or a URL.")
@as_json_option
def set_identity(
    agent_id: str | None,
    workspace: str | None,
    identity_file: str | None,
    *,
    from_identity: bool,
    as_json: bool,
    **fields: str | None,
) -> None:
    """Set how an agent presents itself: name, creature, vibe, theme, emoji and avatar."""
    paths, loaded = load_own_config()
    agent = _resolve_agent_id(paths, loaded, agent_id, workspace)
    values = {key: one_line(value, 500) for key, value in fields.items() if value}
    if from_identity or identity_file:
        folder = resolve_agent_settings(loaded.config, paths, agent).workspace
        values = {
            **_read_identity_file(_absolute(identity_file) if identity_file else folder / FILE),
            **values,
        }
    if not values:
        raise UserError(
            "nothing to set",
            fix="use --name, --creature, --vibe, --theme, --emoji, --avatar or --from-identity",
        )
    write_config(
        paths, os.environ, lambda tree: agent_edits.update_agent(tree, agent, {"identity": values})
    )
    if as_json:
        click.echo(json.dumps({"agentId": agent, "identity": values}, ensure_ascii=False))
        return
    for key, value in values.items():
        click.echo(f"{key:<8} {escape_invisible(value)}")


def _read_identity_file(file: Path) -> dict[str, str]:
    """Return what an IDENTITY.md contains."""
    with file.open("rb") as opened:
        own = parse_identity(opened.read(_MAX_FILE_BYTES).decode(errors="replace"))
    if own == AgentIdentity():
        raise UserError(f"{file} says nothing about an identity", fix="write `- Name: …` into it")
    return {key: value for key in KEYS if (value := getattr(own, key))}


def _resolve_agent_id(
    paths: Paths, loaded: LoadedConfig, agent_id: str | None, workspace: str | None
) -> str:
    if agent_id:
        return known_agent(loaded.config, agent_id)
    if not workspace:
        return default_agent_id(loaded.config)
    folder = _absolute(workspace).resolve()
    found = [
        agent
        for agent in agent_ids(loaded.config)
        if resolve_agent_settings(loaded.config, paths, agent).workspace.resolve() == folder
    ]
    if len(found) != 1:
        count_text = "several agents live" if found else "no agent lives"
        raise UserError(f"{count_text} in {folder}", fix="name one with --agent")
    return found[0]


def _absolute(path: str) -> Path:
    return Path(path).expanduser().absolute()


for each in (bind_command, unbind_command, bindings_command):
    command.add_command(each)
