"""`homarus backup`: save everything to one file, check such a file, and bring it back."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import yes_option
from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.config.config_files import read_text
from homarus.config.load import examine_config
from homarus.config.paths import Paths, shorten
from homarus.core.errors import StateInUseError, UserError
from homarus.store.backup import STATE, BackupReport, create_backup, restore_backup, verify_backup
from homarus.store.lock import StateLock
from homarus.store.state_paths import make_private_dir


@click.group("backup", cls=CommandGroup)
@examples("homarus backup create", "homarus backup restore backup.tar.gz")
def command() -> None:
    """Create, verify and restore backups."""


@command.command()
@examples("homarus backup create", "homarus backup create --output ~/backups")
@click.option(
    "--output",
    "-o",
    metavar="PATH",
    type=click.Path(path_type=Path),
    show_default="homarus-backup-TIME.tar.gz in this folder",
    help="The file, or its folder.",
)
@as_json_option
def create(output: Path | None, *, as_json: bool) -> None:
    """Save configuration, credentials, sessions and workspaces to one file."""
    paths = Paths.find(os.environ)
    if not paths.state.is_dir():
        raise UserError(f"there is nothing at {paths.state}", fix="homarus setup makes it")
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    target = (output or Path()).expanduser().absolute()
    if target.is_dir():
        target /= f"homarus-backup-{at}.tar.gz"
    make_private_dir(target.parent)
    report = create_backup(target, _roots(paths))
    if as_json:
        _print_json(report)
        return
    click.echo(f"{shorten(report.path, paths.home)}: {_describe(report)}.")
    for path in report.skipped:
        click.echo(f"not saved, as it is a link or no file: {path}")
    click.echo("It contains your credentials: keep it where only you can read it.")


@command.command()
@examples("homarus backup verify backup.tar.gz")
@click.argument("file", type=click.Path(path_type=Path))
@as_json_option
def verify(file: Path, *, as_json: bool) -> None:
    """Check that a backup is complete and unchanged, and its database intact."""
    report = verify_backup(file.expanduser().absolute())
    if as_json:
        _print_json(report)
    else:
        click.echo(f"{file} of {report.created_at} is complete: {_describe(report)}.")


@command.command()
@examples("homarus backup restore backup.tar.gz --yes")
@click.argument("file", type=click.Path(path_type=Path))
@yes_option()
@as_json_option
def restore(file: Path, *, yes: bool, as_json: bool) -> None:
    """Restore a backup. The present files are kept under another name."""
    paths = Paths.find(os.environ)
    report = verify_backup(file.expanduser().absolute())
    shown = shorten(paths.state, paths.home)
    if not yes and not as_json:
        click.echo(f"{file} of {report.created_at}: {_describe(report)}.")
        click.confirm(f"Put it at {shown}? What is there is kept", abort=True)
    try:
        lock = StateLock(paths.state)
    except StateInUseError as exc:
        raise StateInUseError(
            f"a backup cannot be restored over a running gateway: {exc.message}",
            fix="homarus gateway stop",
        ) from exc
    try:
        done = restore_backup(report.path, paths.state, _places(paths, report))
    finally:
        lock.release()
    if as_json:
        restored = {name: str(place) for name, place in done.restored.items()}
        kept = [str(path) for path in done.kept]
        click.echo(json.dumps({"ok": True, "restored": restored, "kept": kept}))
        return
    for name, place in done.restored.items():
        click.echo(f"{name}: {shorten(place, paths.home)}")
    for path in done.kept:
        click.echo(f"kept: {shorten(path, paths.home)}")


def _roots(paths: Paths) -> dict[str, Path]:
    """Return what is saved: the state directory, and what the config has outside of it."""
    roots = {STATE: paths.state}
    if paths.config.is_file() and not paths.config.is_relative_to(paths.state):
        roots["config"] = paths.config
    examined = examine_config(paths, os.environ, read_text(paths.config))
    if examined.config is None:
        raise UserError(
            "the config is wrong, so its workspaces are not known", fix="homarus config validate"
        )
    for agent in agent_ids(examined.config):
        workspace = resolve_agent_settings(examined.config, paths, agent).workspace
        is_saved = any(workspace.is_relative_to(root) for root in roots.values())
        if workspace.is_dir() and not is_saved:
            roots[f"workspace-{agent}"] = workspace
    return roots


def _places(paths: Paths, report: BackupReport) -> Mapping[str, Path]:
    """Return where roots outside the state directory go: only into plain folders of the home.

    The path of a workspace comes from the archive, and must not replace `~/.ssh`.
    """
    places: dict[str, Path] = {}
    for name, text in report.roots.items():
        place = Path(text)
        if name == "config" and not paths.config.is_relative_to(paths.state):
            places[name] = paths.config
        elif name.startswith("workspace-") and place.is_relative_to(paths.home):
            steps = place.relative_to(paths.home).parts
            is_plain = bool(steps) and not any(step.startswith(".") for step in steps)
            if is_plain and place.resolve() == place and not paths.state.is_relative_to(place):
                places[name] = place
    return places


def _describe(report: BackupReport) -> str:
    return f"{len(report.files)} files, {report.size_bytes / 1_000_000:.1f} MB"


def _print_json(report: BackupReport) -> None:
    shown = {
        "ok": True,
        "path": str(report.path),
        "createdAt": report.created_at,
        "files": len(report.files),
        "bytes": report.size_bytes,
        "roots": report.roots,
        "skipped": report.skipped,
    }
    click.echo(json.dumps(shown, ensure_ascii=False))
