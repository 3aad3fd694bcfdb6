"""`homarus uninstall`: remove what this program made, after asking."""

import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Final

import click

from homarus.cli.command_group import examples
from homarus.cli.options import yes_option
from homarus.cli.uninstall_plan import (
    Removal,
    UninstallPlan,
    describe_profiles,
    is_openclaws,
    make_plan,
    remove_empty,
    remove_path,
)
from homarus.config.paths import Paths, shorten
from homarus.core.errors import StateInUseError, UnavailableError, UserError
from homarus.store.lock import StateLock, lock_holder_pid

_STOP_TIMEOUT_S: Final = 30.0
_SCOPES: Final = ("service", "state", "workspace", "app")


@click.command("uninstall")
@examples("homarus uninstall --dry-run", "homarus uninstall --all --yes")
@click.option("--service", is_flag=True, help="Only the service of systemd or launchd.")
@click.option("--state", is_flag=True, help="The state directory, also what OpenClaw has in it.")
@click.option("--workspace", is_flag=True, help="The workspaces: the agents' files and notes.")
@click.option("--app", is_flag=True, help="The program itself.")
@click.option("--all", "everything", is_flag=True, help="All four.")
@yes_option()
@click.option("--non-interactive", is_flag=True, help="Never ask; needs --yes.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
def command(
    *,
    service: bool,
    state: bool,
    workspace: bool,
    app: bool,
    everything: bool,
    yes: bool,
    non_interactive: bool,
    dry_run: bool,
) -> None:
    """Remove what Homarus created on this machine, after asking.

    Without a scope, the service, the state directory and downloaded models are removed, and you
    are asked about workspaces. What Homarus did not make is left.
    """
    chosen = dict(zip(_SCOPES, (service, state, workspace, app), strict=True))
    scopes = {name for name in _SCOPES if everything or chosen[name]}
    can_ask = not non_interactive and _has_terminal()
    if not yes and not dry_run and not can_ask:
        raise UserError(
            "uninstall asks before it removes anything, and cannot ask here",
            fix="--yes removes without asking; --dry-run only lists",
        )
    _Uninstaller(scopes, should_ask=not yes, dry_run=dry_run).run()


class _Uninstaller:
    """Lists, asks and removes; `scopes` is empty when none was named."""

    def __init__(self, scopes: set[str], *, should_ask: bool, dry_run: bool) -> None:
        self._paths = Paths.find(os.environ)
        self._scopes = scopes or {"service", "state"}
        self._is_default = not scopes
        self._should_ask, self._dry_run = should_ask, dry_run
        self._failures: list[str] = []

    def run(self) -> None:
        from homarus.cli.gateway_service import find_installed

        service = find_installed(self._paths, os.environ) if "service" in self._scopes else None
        plan = make_plan(self._paths, os.environ, foreign=self._removes_foreign())
        removals = [one for one in plan.removals if self._includes(one, plan)]
        if service:
            what = "the service that keeps the gateway running"
            removals.insert(0, Removal("service", service.file, what, (service.file,)))
        self._show(removals, plan)
        if self._dry_run or not removals:
            self._finish()
            return
        removals = self._confirm(removals, plan)
        if any(one.scope == "service" for one in removals):
            self._remove_service()
        self._remove_files([one for one in removals if one.scope != "service"])
        self._finish()

    def _removes_foreign(self) -> bool:
        """Return whether OpenClaw's files of the state directory are removed, too."""
        if self._is_default or "state" not in self._scopes or not is_openclaws(self._paths):
            return False
        from homarus.gateway.openclaw_process import check_no_openclaw_gateway

        check_no_openclaw_gateway(self._paths, os.environ)
        if not self._should_ask or self._dry_run:
            return True
        shown = shorten(self._paths.state, self._paths.home)
        click.echo(f"OpenClaw uses {shown}, too.")
        return click.confirm("Remove its configuration, credentials and conversations as well?")

    def _includes(self, removal: Removal, plan: UninstallPlan) -> bool:
        if removal.scope in {"models", "shell"}:
            return "state" in self._scopes
        if removal.scope == "workspace" and self._is_default:
            return self._should_ask and not plan.is_shared
        return removal.scope in self._scopes

    def _show(self, removals: list[Removal], plan: UninstallPlan) -> None:
        home = self._paths.home
        if not removals:
            if self._scopes != {"app"}:
                click.echo("There is nothing to remove.")
        else:
            click.echo("Would be removed:" if self._dry_run else "Homarus can remove:")
        for one in removals:
            files, size_bytes = one.measure()
            size = f"{files} {'file' if files == 1 else 'files'}, {_format_size(size_bytes)}"
            click.echo(f"  {one.scope:<9}  {shorten(one.place, home)}: {one.what} ({size})")
        if "state" not in self._scopes:
            return
        left = [(each.path, each.why) for each in (*plan.kept, *describe_profiles(self._paths))]
        spared = [one for one in plan.removals if one.scope == "workspace" and one not in removals]
        left += [(one.place, "--workspace removes it") for one in spared]
        if left:
            click.echo("Not removed:")
        for path, why in left:
            click.echo(f"  {shorten(path, home)}: {why}")
        if self._is_default and is_openclaws(self._paths):
            click.echo("--state also removes what OpenClaw has in the state directory.")

    def _confirm(self, removals: list[Removal], plan: UninstallPlan) -> list[Removal]:
        """Ask, about each workspace once more; return what is to be removed."""
        if not self._should_ask:
            return removals
        first = [one for one in removals if one.scope != "workspace"]
        if any(one.scope != "service" for one in removals):
            click.echo("`homarus backup create` saves all of it to one file.")
        if first:
            names = " and ".join(dict.fromkeys(f"the {one.scope}" for one in first))
            if not click.confirm(f"Remove {names}?"):
                click.echo("Nothing was removed.")
                raise click.Abort
        chosen = list(first)
        for one in removals:
            if one.scope == "workspace":
                shown = shorten(one.place, self._paths.home)
                if click.confirm(f"Remove {shown}, too? It has {one.what}, for good"):
                    chosen.append(one)
                else:
                    click.echo(f"left     {shown}")
        return chosen

    def _remove_service(self) -> None:
        from homarus.cli import gateway_service

        try:
            done = gateway_service.uninstall()
        except UserError as exc:  # its manager does not run here, so only its files are removed
            done = gateway_service.remove_files(self._paths, os.environ)
            click.echo(f"{exc.message}: the service could not be stopped", err=True)
        if done:
            gateway_service.remove_empty_folders(done.file, self._paths.home)
            click.echo(f"removed  {shorten(done.file, self._paths.home)}")

    def _remove_files(self, removals: list[Removal]) -> None:
        if not removals:
            return
        is_state_used = any(one.scope in {"state", "workspace"} for one in removals)
        lock = self._lock_state() if is_state_used and self._paths.state.is_dir() else None
        try:
            # Workspaces first: the state directory is empty only without them.
            for one in sorted(removals, key=lambda one: one.scope != "workspace"):
                problems = [problem for path in one.paths if (problem := remove_path(path))]
                remove_empty(one.folders)
                self._failures += problems
                if not problems:
                    click.echo(f"removed  {shorten(one.place, self._paths.home)} ({one.scope})")
        finally:
            if lock is not None:
                lock.release()
                if not self._paths.database.exists():  # the lock was made only for this
                    (self._paths.state / "state.lock").unlink(missing_ok=True)
                    remove_empty([self._paths.state])

    def _lock_state(self) -> StateLock:
        """Stop a gateway that runs, and keep others from starting."""
        from homarus.gateway.client import find_running_gateway

        if running := find_running_gateway(self._paths):
            if self._should_ask and not click.confirm(
                f"The gateway runs (process {running.pid}). Stop it?"
            ):
                raise StateInUseError(
                    "the files of a gateway that runs are not removed", fix="homarus gateway stop"
                )
            os.kill(running.pid, signal.SIGTERM)
            deadline = time.monotonic() + _STOP_TIMEOUT_S
            while lock_holder_pid(self._paths.state) == running.pid:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"process {running.pid} has not stopped", fix="try again"
                    )
                time.sleep(0.05)
            click.echo(f"stopped  the gateway (process {running.pid})")
        return StateLock(self._paths.state)

    def _finish(self) -> None:
        """Say how the program itself is removed, or have its tool remove it."""
        from homarus.core.installation import find_installation

        found = find_installation()
        argv = found.removal.split()
        can_remove = found.tool in {"uv", "pipx"} and shutil.which(argv[0]) is not None
        if "app" in self._scopes and can_remove and not self._dry_run:
            if not self._should_ask or click.confirm(f"Remove the program, too ({found.removal})?"):
                done = subprocess.run(argv, check=False)  # noqa: S603 - fixed words
                if done.returncode:
                    self._failures.append(f"`{found.removal}` failed")
        else:
            click.echo(f"The program itself is still there; to remove it: {found.removal}")
        if self._failures:
            raise UserError(
                f"some of it is still there: {'; '.join(self._failures[:3])}",
                fix="check who owns it, and run homarus uninstall again",
            )


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _format_size(size_bytes: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"
