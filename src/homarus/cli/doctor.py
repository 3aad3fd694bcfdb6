"""`homarus doctor`: check everything that a chat needs, and say how to fix what is wrong."""

import asyncio
import json
import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import click

from homarus.agent.workspace import SEEDED, advise
from homarus.cli.memory_files import index_files
from homarus.cli.reach import as_json_option
from homarus.config.check import unbuilt
from homarus.config.load import Examined, examine
from homarus.config.paths import Paths, shorten
from homarus.config.resolve import agent_settings, agents, default_agent
from homarus.config.schema import Config
from homarus.config.source import read_text
from homarus.core.clock import SystemClock
from homarus.core.errors import ConfigError, HomarusError
from homarus.core.value import dataclass
from homarus.providers.choose import Choice
from homarus.providers.models import Models, Wish
from homarus.store.sqlite import check_database

State: TypeAlias = Literal["ok", "note", "bad"]
MARKS: dict[State, str] = {"ok": "✓", "note": "·", "bad": "✗"}
LOW_DISK_BYTES = 200 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    about: str
    state: State
    text: str
    fix: str = ""


@click.command("doctor")
@as_json_option
def command(*, as_json: bool) -> None:
    """Look for what is wrong and say how to mend it."""
    paths = Paths.find(os.environ)
    examined, findings = _config(paths, os.environ)
    if examined and examined.config:
        findings += _agents(paths, examined.config)
        findings += _workspaces(paths, examined.config)
        findings.append(_model(paths, examined.config, examined.env))
    findings += [_state(paths), *_memory(paths), _disk(paths), _git()]
    if as_json:
        rows = [_row(finding) for finding in findings]
        healthy = all(finding.state != "bad" for finding in findings)
        click.echo(json.dumps({"ok": healthy, "findings": rows, "notBuilt": sorted(unbuilt())}))
    else:
        _print(findings)
    wrong = {finding.about for finding in findings if finding.state == "bad"}
    raise click.exceptions.Exit(2 if "config" in wrong else 1 if wrong else 0)


def _row(finding: Finding) -> dict[str, str]:
    return {
        "about": finding.about,
        "state": finding.state,
        "text": finding.text,
        "fix": finding.fix,
    }


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.about) for finding in findings)
    for finding in findings:
        click.echo(f"{MARKS[finding.state]} {finding.about:<{width}}  {finding.text}")
        if finding.fix:
            click.echo(f"{'':<{width + 4}}→ {finding.fix}")
    groups = ", ".join(sorted(unbuilt()))
    told = f"Settings of the original that have no effect yet: {groups}."
    click.echo("\n" + textwrap.fill(told, 100, break_on_hyphens=False))


def _config(paths: Paths, env: Mapping[str, str]) -> tuple[Examined | None, list[Finding]]:
    file = shorten(paths.config, paths.home)
    try:
        examined = examine(paths, env, read_text(paths.config))
    except ConfigError as exc:
        return None, [Finding("config", "bad", exc.message, exc.fix), *_ways_out(paths, env)]
    if examined.errors:
        wrong = [Finding("config", "bad", e.message, e.fix) for e in examined.errors]
        return None, [*wrong, *_ways_out(paths, env)]
    if not examined.exists:
        return examined, [Finding("config", "note", f"{file} is not there; defaults hold")]
    notes = [Finding("config", "note", text) for text in examined.warnings]
    return examined, [Finding("config", "ok", file), *notes]


def _ways_out(paths: Paths, env: Mapping[str, str]) -> Iterator[Finding]:
    """Return what can be used while the config is invalid."""
    from homarus.gateway.last_good import FILE, bring_back, recall

    if back := bring_back(paths, env):
        yield Finding("config", "note", "there is a backup that is sound", back)
    if recall(paths, env):
        kept = shorten(paths.state / FILE, paths.home)
        text = f"a gateway goes on, and starts, with the last config that was in use ({kept})"
        yield Finding("config", "note", text)


def _agents(paths: Paths, config: Config) -> Iterator[Finding]:
    for agent in agents(config):
        workspace = agent_settings(config, paths, agent).workspace
        yield _workspace(agent, workspace, shorten(workspace, paths.home))


def _workspaces(paths: Paths, config: Config) -> Iterator[Finding]:
    used = [agent_settings(config, paths, agent).workspace for agent in agents(config)]
    for advice in advise(used, paths.home, paths.state):
        yield Finding("workspace", "note", advice.text, advice.fix)


def _workspace(agent: str, workspace: Path, shown: str) -> Finding:
    about = f"agent {agent}"
    if not workspace.exists():
        return Finding(about, "note", f"no workspace at {shown} yet", "homarus setup makes it")
    if not os.access(workspace, os.R_OK | os.W_OK | os.X_OK) or not workspace.is_dir():
        fix = "make it a folder you can write to, or change agents.defaults.workspace"
        return Finding(about, "bad", f"the workspace {shown} cannot be used", fix)
    missing = [name for name in SEEDED if not (workspace / name).exists()]
    if missing:
        return Finding(about, "note", f"{shown} has no {', '.join(missing)}", "homarus setup")
    return Finding(about, "ok", f"workspace {shown}")


def _model(paths: Paths, config: Config, env: Mapping[str, str]) -> Finding:
    async def look() -> Choice:
        models = Models(config, env, paths, SystemClock())
        try:
            choice = await models.choice()
            await models.road(Wish(default_agent(config), choice.ref))  # reports a missing key
            return choice
        finally:
            await models.close()

    try:
        choice = asyncio.run(look())
    except HomarusError as exc:
        return Finding("model", "bad", exc.message, exc.fix)
    return Finding("model", "ok", f"{choice.ref}: {choice.why}")


def _state(paths: Paths) -> Finding:
    shown = shorten(paths.state, paths.home)
    nearest = next(path for path in (paths.state, *paths.state.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        return Finding("state", "bad", f"{nearest} cannot be written", "check who owns it")
    if not paths.database.exists():
        return Finding("state", "note", f"{shown} holds no conversations yet")
    try:
        check_database(paths.database)
    except HomarusError as exc:
        return Finding("state", "bad", exc.message, exc.fix)
    return Finding("state", "ok", f"{shown}, database sound")


def _memory(paths: Paths) -> Iterator[Finding]:
    """Check the memory indexes; a damaged one is rebuilt automatically, so it is only reported."""
    now_ms = SystemClock().now_ms()
    for one in index_files(paths):
        about = f"memory {one.agent}"
        try:
            check_database(paths.state / "memory" / f"{one.agent}.sqlite")
        except HomarusError as exc:
            yield Finding(about, "note", exc.message, f"homarus memory index --agent {one.agent}")
            continue
        yield Finding(about, "ok", f"index of {one.told(now_ms)}, sound")


def _disk(paths: Paths) -> Finding:
    nearest = next(path for path in (paths.state, *paths.state.parents) if path.exists())
    free = shutil.disk_usage(nearest).free
    text = f"{free >> 20:,} MB free"
    if free < LOW_DISK_BYTES:
        return Finding("disk", "bad", text, "make room: conversations could not be saved")
    return Finding("disk", "ok", text)


def _git() -> Finding:
    if shutil.which("git"):
        return Finding("git", "ok", "workspaces keep a history")
    return Finding("git", "note", "not installed: workspaces keep no history", "install git")
