"""`homarus plugins`: packages that add channels, providers, memory and other backends.

A plugin is a Python package with entry points of Homarus. It is in use from the moment it is
installed, as far as the configuration names what it adds.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import yes_option
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.installation import find_installation
from homarus.core.text import closest_names, one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS: Final = (
    "homarus.channels", "homarus.embedders", "homarus.memory", "homarus.providers",
    "homarus.sandboxes", "homarus.search_providers",
)  # fmt: skip
_OWN: Final = "homarus"
_dry_run = click.option("--dry-run", is_flag=True, help="Print the command; do not run it.")


@click.group("plugins", cls=CommandGroup, invoke_without_command=True)
@examples("homarus plugins list", "homarus plugins info my-channel", "homarus plugins doctor")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage packages that add channels, providers and others."""
    if not ctx.invoked_subcommand:
        ctx.invoke(list_)


@command.command("list")
@examples("homarus plugins list", "homarus plugins list --json")
@as_json_option
def list_(*, as_json: bool = False) -> None:
    """List the installed packages that add something."""
    rows = find_plugins()
    if as_json:
        click.echo(json.dumps({"plugins": rows}, ensure_ascii=False))
        return
    for row in rows:
        added = ", ".join(f"{one['kind']} {one['name']}" for one in row["adds"])
        click.echo(one_line(f"{row['id']} {row['version']}  {added}", 200))
    if not rows:
        click.echo("No plugin is installed: a plugin is a Python package.")


@command.command()
@examples("homarus plugins info my-channel")
@click.argument("plugin")
@as_json_option
def info(plugin: str, *, as_json: bool) -> None:
    """Show what a plugin adds, and from where it is loaded."""
    row = _find(plugin)
    if as_json:
        click.echo(json.dumps(row, ensure_ascii=False))
        return
    click.echo(one_line(f"{row['id']} {row['version']}: {row['summary']}", 200))
    for one in row["adds"]:
        click.echo(one_line(f"  {one['kind']} {one['name']} from {one['module']}", 200))


@command.command()
@examples("homarus plugins doctor")
@as_json_option
def doctor(*, as_json: bool) -> None:
    """Load everything that plugins add, and report what fails."""
    rows = [
        {"plugin": plugin["id"], **one, "problem": _problem(one["group"], one["name"])}
        for plugin in find_plugins()
        for one in plugin["adds"]
    ]
    broken = [row for row in rows if row["problem"]]
    if as_json:
        click.echo(json.dumps({"ok": not broken, "checked": rows}, ensure_ascii=False))
    else:
        for row in broken:
            click.echo(
                one_line(f"✗ {row['plugin']}: {row['kind']} {row['name']}: {row['problem']}", 300)
            )
        click.echo(f"{len(rows) - len(broken)} of {len(rows)} can be loaded.")
    if broken:
        raise click.exceptions.Exit(1)


@command.command()
@examples("homarus plugins install homarus-example-channel --dry-run")
@click.argument("package")
@_dry_run
@yes_option()
@as_json_option
def install(package: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Install a plugin next to Homarus: a package, a folder or an archive.

    A plugin is a program that runs with all rights of the gateway: install only what you trust.
    """
    _run(_pip("install", package), dry_run=dry_run, yes=yes, as_json=as_json)


@command.command()
@examples("homarus plugins update homarus-example-channel --dry-run")
@click.argument("plugin")
@_dry_run
@yes_option()
@as_json_option
def update(plugin: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Install the newest version of a plugin."""
    name = str(_find(plugin)["id"])
    _run(_pip("install", "--upgrade", name), dry_run=dry_run, yes=yes, as_json=as_json)


@command.command()
@examples("homarus plugins uninstall homarus-example-channel --dry-run")
@click.argument("plugin")
@_dry_run
@yes_option()
@as_json_option
def uninstall(plugin: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove a plugin; the configuration stays as it is."""
    name = str(_find(plugin)["id"])
    _run(_pip("uninstall", name), dry_run=dry_run, yes=yes, as_json=as_json)


def find_plugins() -> list[dict[str, Any]]:
    """Return the installed packages of others with entry points of ours."""
    from importlib.metadata import entry_points

    found = dict[str, dict[str, Any]]()
    for group in GROUPS:
        for entry in entry_points(group=group):
            package = entry.dist.name if entry.dist else "?"
            if package == _OWN:
                continue
            row = found.setdefault(package, _describe(entry, package))
            kind = group.partition(".")[2].replace("_", " ").removesuffix("s")
            row["adds"].append(
                {"kind": kind, "group": group, "name": entry.name, "module": entry.value}
            )
    return [found[name] for name in sorted(found)]


def _describe(entry: "EntryPoint", package: str) -> dict[str, Any]:
    metadata = entry.dist.metadata if entry.dist else None
    summary = metadata["Summary"] if metadata and "Summary" in metadata else ""
    version = entry.dist.version if entry.dist else ""
    return {"id": package, "version": version, "summary": summary, "adds": []}


def _find(plugin: str) -> dict[str, Any]:
    rows = {row["id"].lower(): row for row in find_plugins()}
    if row := rows.get(plugin.lower()):
        return row
    raise UnknownNameError("plugin", plugin, closest_names(plugin, rows) or tuple(rows))


def _problem(group: str, name: str) -> str:
    """Return why an entry point cannot be loaded, "" if it can."""
    from importlib.metadata import entry_points

    try:
        for entry in entry_points(group=group, name=name):
            entry.load()
    except (ImportError, AttributeError, SyntaxError) as exc:
        return f"{type(exc).__name__}: {exc}"
    return ""


def _pip(verb: str, *arguments: str) -> list[str]:
    """Return the command of the tool that installed this program."""
    name = arguments[-1]
    if name.startswith("-"):
        raise UserError(f"{one_line(name, 60)!r} is no package")
    options: Sequence[str] = arguments[:-1]
    match find_installation().tool:
        case "pipx":
            words = {"install": "inject", "uninstall": "uninject"}
            upgrade = ["--force"] if options else []
            return ["pipx", words[verb], _OWN, *upgrade, name]
        case "uv":
            return ["uv", "pip", verb, "--python", sys.executable, *options, name]
        case "uvx":
            raise UserError(
                "uvx makes a new installation each time", fix=f"uvx --with {name} homarus …"
            )
        case _:
            quiet = ["--yes"] if verb == "uninstall" else []
            return [sys.executable, "-m", "pip", verb, *options, *quiet, name]


def _run(argv: Iterable[str], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    words = [*argv]
    line = shlex.join(words)
    if not dry_run:
        if not yes and not sys.stdin.isatty():
            raise UserError("this asks before it changes anything", fix=f"--yes runs {line}")
        if not yes:
            click.confirm(f"Run {line}?", abort=True)
        done = subprocess.run(words, check=False, stdout=sys.stderr)  # noqa: S603 - no shell
        if done.returncode:
            raise UserError(f"{line} failed with status {done.returncode}")
    if as_json:
        click.echo(json.dumps({"ok": True, "ran": not dry_run, "command": words}))
    else:
        click.echo(line if dry_run else "Done. A running gateway needs: homarus gateway restart")
