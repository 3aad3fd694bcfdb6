"""`homarus update`: which version is installed, and how a newer one is."""

import json
import shlex
import subprocess
import sys

import click

from homarus import __version__
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import yes_option
from homarus.core.errors import UserError
from homarus.core.installation import Installation, find_installation


@click.group("update", cls=CommandGroup, invoke_without_command=True)
@examples("homarus update", "homarus update --dry-run", "homarus update status")
@yes_option()
@click.option("--dry-run", is_flag=True, help="Print the command; do not run it.")
@as_json_option
@click.pass_context
def command(ctx: click.Context, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Install the newest version, after asking.

    The tool that installed this one does it: pip, pipx, uv or git. A running gateway keeps its
    version until `homarus gateway restart`.
    """
    if ctx.invoked_subcommand:
        return
    installed = find_installation()
    if not dry_run:
        _confirm(installed, yes=yes)
        words = shlex.split(installed.update)
        done = subprocess.run(words, check=False, stdout=sys.stderr)  # noqa: S603 - our command
        if done.returncode:
            raise UserError(
                f"{installed.update} failed with status {done.returncode}",
                fix="its output above says why; nothing else was changed",
            )
    report = {"ok": True, "ran": not dry_run, "command": installed.update, "tool": installed.tool}
    if as_json:
        click.echo(json.dumps(report))
    elif dry_run:
        click.echo(installed.update)
    else:
        click.echo("Done. A running gateway needs: homarus gateway restart")


def _confirm(installed: Installation, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(
            "update asks before it installs anything, and cannot ask here",
            fix=f"--yes runs it: {installed.update}",
        )
    click.confirm(f"Run {installed.update}?", abort=True)


@command.command()
@examples("homarus update status", "homarus update status --json")
@as_json_option
def status(*, as_json: bool) -> None:
    """Show the installed version, how it was installed, and what updates it.

    Nothing is asked of the network: whether there is a newer version, the tool finds out.
    """
    installed = find_installation()
    if as_json:
        report = {"version": __version__, "tool": installed.tool, "folder": str(installed.folder)}
        click.echo(json.dumps({**report, "command": installed.update}))
        return
    click.echo(f"homarus {__version__}, installed with {installed.tool} in {installed.folder}")
    click.echo(f"To update it: {installed.update}")
