"""`homarus reset`: start again, with what was there moved aside."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import yes_option
from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.config.config_files import read_text
from homarus.config.load import examine_config
from homarus.config.paths import Paths, openclaw_files_dir, shorten
from homarus.core.errors import ConfigError, StateInUseError, UserError
from homarus.core.private_files import make_private_dir
from homarus.store.lock import StateLock
from homarus.store.state_paths import LOCK

FOLDER: Final = "reset"  # in the state directory, with a folder for each reset
SCOPES: Final = ("config", "config+creds+sessions", "full")
_MAX_TRIES: Final = 100


@click.command("reset")
@examples(
    "homarus reset --scope config --dry-run", "homarus reset --scope full --yes --non-interactive"
)
@click.option(
    "--scope", type=click.Choice(SCOPES), show_default="ask",
    help="What to reset; full includes the workspaces.",
)  # fmt: skip
@yes_option()
@click.option("--non-interactive", is_flag=True, help="Never ask; needs --scope and --yes.")
@click.option("--dry-run", is_flag=True, help="Show what would be moved; move nothing.")
@as_json_option
def command(
    scope: str | None, *, yes: bool, non_interactive: bool, dry_run: bool, as_json: bool
) -> None:
    """Move the configuration, or more, aside and start again.

    Nothing is deleted: everything is moved to the folder `reset` of the state directory, from
    which it can be moved back. The gateway must be stopped.
    """
    can_ask = not non_interactive and sys.stdin.isatty() and not as_json
    scope = _choose_scope(scope, can_ask=can_ask)
    if not (yes or dry_run or can_ask):
        raise UserError(
            "reset asks before it moves anything, and cannot ask here",
            fix="--yes moves without asking; --dry-run only lists",
        )
    paths = Paths.find(os.environ)
    moved = [path for path in _listed(paths, scope) if os.path.lexists(path)]
    if dry_run or not moved:
        _report(paths, scope, moved, None, as_json=as_json)
        return
    if not yes:
        _show(paths, moved)
        click.confirm(f"Move these {len(moved)} aside?", abort=True)
    _report(paths, scope, moved, _move(paths, moved), as_json=as_json)


def _choose_scope(scope: str | None, *, can_ask: bool) -> str:
    if scope:
        return scope
    if not can_ask:
        raise UserError("it is not said what to reset", fix=f"give --scope {'|'.join(SCOPES)}")
    chosen: str = click.prompt("What", type=click.Choice(SCOPES), default="config")
    return chosen


def _move(paths: Paths, moved: list[Path]) -> Path:
    """Move everything to a new folder, and return it. Raises StateInUseError."""
    from homarus.gateway.openclaw_process import check_no_openclaw_gateway

    check_no_openclaw_gateway(paths, os.environ)
    try:
        lock = StateLock(paths.state)
    except StateInUseError as exc:
        raise StateInUseError(exc.message, fix="homarus gateway stop") from exc
    try:
        target = _make_folder(paths.state / FOLDER)
        for path in moved:
            inside = path.is_relative_to(paths.state)
            place = target / (
                path.relative_to(paths.state) if inside else Path("outside") / path.name
            )
            make_private_dir(place.parent)
            shutil.move(path, _free(place))
    finally:
        lock.release()
    return target


def _make_folder(parent: Path) -> Path:
    make_private_dir(parent)
    folder = _free(parent / time.strftime("%Y%m%d-%H%M%S"))
    folder.mkdir(mode=0o700)
    return folder


def _free(path: Path) -> Path:
    """Return the path, or one with a number if it is taken."""
    for number in range(1, _MAX_TRIES):
        found = path if number == 1 else path.with_name(f"{path.name}-{number}")
        if not os.path.lexists(found):
            return found
    raise UserError(f"{path} is taken", fix="remove old folders of earlier resets")


def _listed(paths: Paths, scope: str) -> list[Path]:
    """Return what a scope includes; nothing twice, and nothing inside of another."""
    if scope == "full":
        return _all(paths)
    found = [paths.config, paths.own_config]
    if scope != "config":
        found += _credentials_and_sessions(paths)
    return list(dict.fromkeys(found))


def _credentials_and_sessions(paths: Paths) -> Iterator[Path]:
    folder = openclaw_files_dir(paths.state)
    yield from (folder / "credentials", folder / "subagents")
    for agent in sorted((folder / "agents").glob("*")):
        yield from (agent / "sessions", agent / "agent" / "auth-profiles.json")
    for suffix in ("", "-wal", "-shm"):
        yield paths.database.with_name(f"{paths.database.name}{suffix}")


def _all(paths: Paths) -> list[Path]:
    """Return everything in the state directory, and the workspaces and config outside of it."""
    kept = {FOLDER, LOCK}
    try:
        inside = sorted(path for path in paths.state.iterdir() if path.name not in kept)
    except FileNotFoundError:
        inside = []
    outside = [paths.config, paths.own_config, *_workspaces(paths)]
    return inside + [
        path for path in dict.fromkeys(outside) if not path.is_relative_to(paths.state)
    ]


def _workspaces(paths: Paths) -> list[Path]:
    """Return the folders of the agents. Raises UserError for one that holds more than that."""
    try:
        config = examine_config(paths, os.environ, read_text(paths.config)).config
    except ConfigError:
        config = None
    if config is None:
        return []
    found = [resolve_agent_settings(config, paths, agent).workspace for agent in agent_ids(config)]
    for folder in found:
        if paths.home.is_relative_to(folder) or paths.state.is_relative_to(folder):
            raise UserError(
                f"the workspace {folder} holds more than an agent's files",
                fix="use --scope config+creds+sessions",
            )
    return found


def _show(paths: Paths, moved: list[Path]) -> None:
    for path in moved:
        click.echo(f"  {shorten(path, paths.home)}")


def _report(
    paths: Paths, scope: str, moved: list[Path], target: Path | None, *, as_json: bool
) -> None:
    if as_json:
        report: dict[str, Any] = {"ok": True, "scope": scope, "paths": [str(one) for one in moved]}
        click.echo(json.dumps({**report, "movedTo": str(target) if target else None}))
        return
    if not moved:
        click.echo("There is nothing to reset.")
    elif target is None:
        click.echo("Would be moved aside:")
        _show(paths, moved)
    else:
        click.echo(f"Moved to {shorten(target, paths.home)}. homarus onboard starts again.")
