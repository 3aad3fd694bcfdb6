"""`homarus security`: who may do what on this machine, and which files others may read."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.doctor import MARKS, DoctorFinding, find_security_problems
from homarus.cli.gateway_options import as_json_option
from homarus.config.config_files import read_text
from homarus.config.load import ConfigExamination, examine_config
from homarus.config.paths import Paths, openclaw_files_dir, shorten
from homarus.config.schema import Config
from homarus.core.errors import ConfigError
from homarus.core.text import escape_invisible

_OTHERS: Final = 0o077
_RANK: Final = {"bad": 0, "note": 1, "info": 2, "ok": 3}


@click.group("security", cls=CommandGroup)
@examples("homarus security audit", "homarus security audit --fix")
def command() -> None:
    """Find settings and files that let others in."""


@command.command()
@examples("homarus security audit", "homarus security audit --deep --json")
@click.option("--deep", is_flag=True, help="Also read the complete audit log.")
@click.option("--fix", is_flag=True, help="Make private what others may read.")
@as_json_option
def audit(*, deep: bool, fix: bool, as_json: bool) -> None:
    """Check settings, files and devices; the exit status is 1 when something is wrong."""
    paths = Paths.find(os.environ)
    examined = _examine(paths)
    findings = [*_files(paths, fix=fix), *_exposure(examined.config if examined else None)]
    findings += find_security_problems(paths, examined, deep=deep)
    findings.sort(key=lambda finding: _RANK[finding.state])
    is_bad = any(finding.state == "bad" for finding in findings)
    if as_json:
        rows = [
            {"about": one.about, "state": one.state, "text": one.text, "fix": one.fix}
            for one in findings
        ]
        click.echo(json.dumps({"ok": not is_bad, "findings": rows}, ensure_ascii=False))
    else:
        for one in findings:
            click.echo(escape_invisible(f"{MARKS[one.state]} {one.about}: {one.text}"))
            if one.fix and one.state != "ok":
                click.echo(f"  → {escape_invisible(one.fix)}")
    if is_bad:
        raise click.exceptions.Exit(1)


def _examine(paths: Paths) -> ConfigExamination | None:
    try:
        return examine_config(paths, os.environ, read_text(paths.config))
    except ConfigError:  # homarus doctor says what is wrong with it
        return None


def _private_paths(paths: Paths) -> Iterator[Path]:
    """Yield what only its owner should read: the state, the configuration and credentials."""
    yield from (paths.state, paths.config, paths.own_config, paths.database)
    folder = openclaw_files_dir(paths.state)
    for name in ("credentials", "identity", "devices"):
        yield folder / name
        yield from sorted((folder / name).rglob("*"))
    yield from sorted(folder.glob("agents/*/agent/auth-profiles.json"))


def _files(paths: Paths, *, fix: bool) -> Iterator[DoctorFinding]:
    checked, wrong = 0, 0
    for path in dict.fromkeys(_private_paths(paths)):
        try:
            info = path.lstat()
        except OSError:
            continue
        if stat.S_ISLNK(info.st_mode):
            continue
        checked += 1
        if not info.st_mode & _OTHERS:
            continue
        wrong += 1
        shown, mode = shorten(path, paths.home), stat.S_IMODE(info.st_mode)
        if fix:
            path.chmod(mode & ~_OTHERS)
            yield DoctorFinding("files", "ok", f"{shown} is private now")
        else:
            text = f"{shown} can be read by other users of this machine (mode {mode:04o})"
            yield DoctorFinding("files", "bad", text, "homarus security audit --fix")
    if not wrong:
        yield DoctorFinding("files", "ok", f"{checked} files and folders are private")


def _exposure(config: Config | None) -> Iterator[DoctorFinding]:
    """Yield who may reach the gateway and write to agents."""
    if config is None:
        yield DoctorFinding("config", "bad", "the configuration is invalid", "homarus doctor")
        return
    gateway = config.gateway
    if gateway.bind == "loopback":
        yield DoctorFinding("gateway", "ok", "only programs of this machine can reach it")
    elif gateway.tls.enabled:
        yield DoctorFinding("gateway", "ok", f"it listens on {gateway.bind}, with TLS")
    else:
        text = f"it listens on {gateway.bind} without TLS: others on the network can read along"
        yield DoctorFinding("gateway", "note", text, "set gateway.tls.enabled, or use a tunnel")
    if gateway.auth.mode == "none":
        text = "every program of this machine may use it"
        yield DoctorFinding("gateway", "note", text, "remove gateway.auth.mode")
    if not config.channels:
        return
    from homarus.config.channels import account_names, channel_names, common_settings

    for channel in channel_names(config):
        for account in account_names(config, channel):
            settings = common_settings(config, channel, account)
            if settings.dm_policy == "open":
                text = "everyone may write to the agent"
                fix = f"set channels.{channel}.dmPolicy to pairing or allowlist"
                yield DoctorFinding(f"channel {channel}:{account}", "note", text, fix)
