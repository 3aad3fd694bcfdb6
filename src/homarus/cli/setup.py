"""`homarus setup`: create the configuration and the workspace, never overwriting them."""

import asyncio
import json
import os
from pathlib import Path

import click

from homarus.agent.workspace import seed_workspace
from homarus.cli.command_group import examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import workspace_option
from homarus.cli.wizard_services import describe_missing
from homarus.config.agent_settings import default_agent_id, resolve_agent_settings
from homarus.config.load import load_config
from homarus.config.paths import Paths, shorten
from homarus.config.tree_edit import set_path
from homarus.config.write import write_config
from homarus.gateway.owner_token import add_token


@click.command("setup")
@examples("homarus setup", "homarus setup --workspace ~/assistant")
@workspace_option("The agent's workspace.", default="~/.openclaw/workspace")
@as_json_option
def command(workspace: str | None, *, as_json: bool) -> None:
    """Create the configuration and the workspace."""
    paths = Paths.find(os.environ)
    made: list[str] = []
    loaded = load_config(paths, os.environ)
    settings = resolve_agent_settings(loaded.config, paths, default_agent_id(loaded.config))
    target = Path(workspace).expanduser().absolute() if workspace else settings.workspace
    if not loaded.exists:
        key = ("agents", "defaults", "workspace")
        folder = shorten(target, paths.home)
        write_config(paths, os.environ, lambda tree: add_token(set_path(tree, key, folder)))
        made.append(str(paths.config))
    made += [str(target / name) for name in seed_workspace(target)]
    missing = asyncio.run(describe_missing(load_config(paths, os.environ), paths))
    next_lines = missing or ["Next: homarus chat"]
    if as_json:
        report = {"ok": True, "workspace": str(target), "made": made, "next": next_lines}
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    for path in made:
        click.echo(f"made  {path}")
    if not made:
        click.echo("Everything is in place already.")
    if loaded.exists and target != settings.workspace:
        click.echo(
            f"The configuration names {settings.workspace}; to use the new folder run\n"
            f"  homarus config set agents.defaults.workspace {target}"
        )
    for line in next_lines:
        click.echo(line)
