"""`homarus sandbox`: measure, explain, list and recreate the sandboxes of commands."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homarus.channels.registry import find_traits
from homarus.cli.bindings import known_agent, load_own_config
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import agent_option, session_option
from homarus.cli.policy import read_session_entry, resolve_session_key
from homarus.cli.sessions import age
from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.config.paths import Paths, shorten
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.errors import SandboxError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import escape_invisible
from homarus.policy.sandbox_settings import MIN_LEVEL, resolve_sandbox, sandbox_mode

if TYPE_CHECKING:
    from homarus.agent.sandbox_explanation import SandboxExplanation
    from homarus.tools.sandbox.base import SandboxReport
    from homarus.tools.sandbox.registry import SandboxEntry, SandboxRegistry

_DEFAULT_BACKEND = "bubblewrap"
_MEASURED = {True: "✓", False: "✗"}


@click.group("sandbox", cls=CommandGroup)
@examples("homarus sandbox probe", "homarus sandbox explain", "homarus sandbox list")
def command() -> None:
    """Measure, explain, list and recreate the sandboxes of commands."""


@command.command()
@examples("homarus sandbox probe", "homarus sandbox probe --backend oci --json")
@click.option("--backend", metavar="NAME", help="The backend; without it, those of all agents.")
@as_json_option
def probe(backend: str | None, *, as_json: bool) -> None:
    """Try to escape from a sandbox, and show the level that it holds.

    The exit status is 1 when it is below the level that the configuration demands.
    """
    paths, loaded = load_own_config()
    chosen = _choose_backends(loaded.config, backend)
    reports = asyncio.run(_measure(_make_registry(paths, loaded.config), chosen))
    is_enough = all(report.level >= demanded for report, demanded in reports)
    if as_json:
        rows = [_report_to_json(report, demanded) for report, demanded in reports]
        click.echo(json.dumps({"ok": is_enough, "backends": rows}, ensure_ascii=False))
    else:
        for report, demanded in reports:
            _print_report(report, demanded)
    if not is_enough:
        raise click.exceptions.Exit(1)


@dataclass(frozen=True, slots=True)
class _ChosenBackend:
    """A backend to be measured, with its options and the highest level that is demanded of it."""

    name: str
    options: Mapping[str, object]
    demanded: str


def _choose_backends(config: Config, backend: str | None) -> list[_ChosenBackend]:
    """Return the backends of the agents that have sandboxes, or only the named one."""
    from homarus.tools.sandbox.session_sandbox import container_options, resolve_backend

    chosen: list[_ChosenBackend] = []
    for agent in agent_ids(config):
        settings = resolve_sandbox(config, agent)
        name, options = resolve_backend(settings), container_options(settings)
        if sandbox_mode(config, agent) == "off" or (backend and name != backend):
            continue
        same = [each for each in chosen if (each.name, each.options) == (name, options)]
        level = max([settings.level, *(each.demanded for each in same)])
        chosen = [each for each in chosen if each not in same]
        chosen.append(_ChosenBackend(name, options, level))
    if chosen:
        return chosen
    options = container_options(resolve_sandbox(config, default_agent_id(config)))
    return [_ChosenBackend(backend or _DEFAULT_BACKEND, options, MIN_LEVEL)]


def _make_registry(paths: Paths, config: Config) -> "SandboxRegistry":
    from homarus.tools.sandbox.registry import SandboxRegistry

    return SandboxRegistry(lambda: config, paths.state)


async def _measure(
    registry: "SandboxRegistry", chosen: Sequence[_ChosenBackend]
) -> "list[tuple[SandboxReport, str]]":
    """Return the report about each backend, and the level that is demanded of it."""
    return [(await registry.report(each.name, each.options), each.demanded) for each in chosen]


def _print_report(report: "SandboxReport", demanded: str) -> None:
    from homarus.tools.sandbox.probe_list import PROBES

    width = max((len(each.name) for each in report.probes), default=0)
    for each in report.probes:
        known = PROBES.get(each.name)
        text = known.description if known else ""
        line = f"{_MEASURED[each.has_held]} {each.name:<{width}}  {text}: {each.detail}"
        click.echo(escape_invisible(line))
    if report.probes:
        held = sum(each.has_held for each in report.probes)
        click.echo(f"{held} of {len(report.probes)} probes held.")
    click.echo(f"{report.backend}: level {report.level} ({demanded} is demanded)")
    if report.problem:
        click.echo(escape_invisible(f"  {report.problem}"))
    if report.fix:
        click.echo(escape_invisible(f"  → {report.fix}"))


def _report_to_json(report: "SandboxReport", demanded: str) -> dict[str, Any]:
    return {
        "backend": report.backend,
        "level": report.level,
        "demanded": demanded,
        "ok": report.level >= demanded,
        "problem": report.problem,
        "fix": report.fix,
        "probes": [
            {"name": each.name, "held": each.has_held, "detail": each.detail}
            for each in report.probes
        ],
    }


@command.command()
@examples(
    "homarus sandbox explain", "homarus sandbox explain --session agent:main:telegram:group:-100"
)
@session_option("The session.")
@agent_option("The agent.", default="the default agent")
@as_json_option
def explain(session_key: str | None, agent: str | None, *, as_json: bool) -> None:
    """Show what holds for the sandbox of a session, and which setting decides it."""
    from homarus.agent.sandbox_explanation import explain_sandbox

    paths, loaded = load_own_config()
    key = resolve_session_key(loaded.config, session_key, agent)

    async def run() -> "SandboxExplanation":
        entry = await read_session_entry(paths, key)
        return await explain_sandbox(loaded.config, paths, key, entry, find_traits)

    found = asyncio.run(run())
    if as_json:
        click.echo(json.dumps(_explanation_to_json(found), ensure_ascii=False))
    else:
        click.echo(escape_invisible(_explanation_to_text(found)))


def _explanation_to_text(found: "SandboxExplanation") -> str:
    where = f"in the sandbox {found.sandbox_name}" if found.is_sandboxed else "on this machine"
    rows = [(each.name, each.value, each.key) for each in found.settings]
    names = max(len(name) for name, _, _ in rows)
    values = max(len(value) for _, value, _ in rows)
    elevated = "no"
    if found.is_elevated_allowed:
        elevated = f"yes, for senders of tools.elevated; it is {found.elevated} in this session"
    denied = ", ".join(found.denied_tools) or "none"
    lines = [
        f"{found.session_key}: commands run {where}",
        *(f"  {name:<{names}}  {value:<{values}}  {key}" for name, value, key in rows),
        f"  {'elevated':<{names}}  {elevated:<{values}}  tools.elevated",
        f"  tools allowed by tools.sandbox.tools: {', '.join(found.allowed_tools)}",
        f"  tools denied by tools.sandbox.tools: {denied}",
    ]
    if not found.is_sandboxed:
        lines.append("  These settings would hold if sandbox.mode gave this session a sandbox.")
    return "\n".join(line.rstrip() for line in lines)


def _explanation_to_json(found: "SandboxExplanation") -> dict[str, Any]:
    return {
        "sessionKey": found.session_key,
        "agentId": found.agent_id,
        "sandboxed": found.is_sandboxed,
        "sandbox": found.sandbox_name,
        "backend": found.backend,
        "level": found.level,
        "settings": [
            {"name": each.name, "value": each.value, "key": each.key} for each in found.settings
        ],
        "tools": {"allow": list(found.allowed_tools), "deny": list(found.denied_tools)},
        "elevated": {"allowed": found.is_elevated_allowed, "level": found.elevated},
    }


@command.command("list")
@examples("homarus sandbox list", "homarus sandbox list --json")
@as_json_option
def list_(*, as_json: bool) -> None:
    """List the sandboxes on disk: what they belong to, their size, age and last use."""
    paths, loaded = load_own_config()
    entries = _make_registry(paths, loaded.config).entries()
    now_ms = SystemClock().now_ms()
    if as_json:
        rows = [_entry_to_json(each, now_ms) for each in entries]
        click.echo(json.dumps({"sandboxes": rows}, ensure_ascii=False))
        return
    count = "1 sandbox" if len(entries) == 1 else f"{len(entries)} sandboxes"
    click.echo(f"{count}:" if entries else "There is no sandbox.")
    for each in entries:
        click.echo(escape_invisible(f"  {_describe_entry(each, paths, now_ms)}"))


def _describe_entry(entry: "SandboxEntry", paths: Paths, now_ms: int) -> str:
    owner = {"session": entry.key, "agent": f"agent {entry.agent_id}"}.get(
        entry.scope, "all agents"
    )
    live = ", a command runs in it" if entry.is_live else ""
    return (
        f"{entry.name}: {entry.backend}, of {owner}, {_format_bytes(_used_bytes(entry.path))},"
        f" made {_format_age(now_ms - entry.created_ms)},"
        f" used {_format_age(now_ms - entry.used_ms)}{live}, {shorten(entry.path, paths.home)}"
    )


def _format_age(ms: int) -> str:
    text = age(max(0, ms))
    return text if text == "now" else f"{text} ago"


def _entry_to_json(entry: "SandboxEntry", now_ms: int) -> dict[str, Any]:
    return {
        "name": entry.name,
        "sessionKey": entry.key,
        "agentId": entry.agent_id,
        "scope": entry.scope,
        "backend": entry.backend,
        "path": str(entry.path),
        "sizeBytes": _used_bytes(entry.path),
        "createdAtMs": entry.created_ms,
        "lastUsedAtMs": entry.used_ms,
        "ageMs": now_ms - entry.created_ms,
        "idleMs": now_ms - entry.used_ms,
        "live": entry.is_live,
    }


def _used_bytes(folder: Path) -> int:
    """Return the size of the files of a folder; links are not followed."""
    total, todo = 0, [str(folder)]  # no recursion: commands can make very deep folders
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def _format_bytes(size: int) -> str:
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


@command.command()
@examples("homarus sandbox recreate --all", "homarus sandbox recreate --agent work --force")
@click.option("--all", "everything", is_flag=True, help="All sandboxes.")
@session_option("The sandbox that this session uses.")
@agent_option("The sandboxes of this agent and its sessions.")
@click.option("--browser", is_flag=True, help="Only browsers; a sandbox has none yet.")
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
def recreate(
    session_key: str | None,
    agent: str | None,
    *,
    everything: bool,
    browser: bool,
    force: bool,
) -> None:
    """Remove sandboxes with their files; the next command makes new ones.

    A sandbox in which a command runs stays, and the exit status is 1.
    """
    if sum((everything, session_key is not None, agent is not None)) != 1:
        fix = "give one of --all, --session KEY and --agent ID"
        raise UserError("it is not clear which sandboxes are meant", fix=fix)
    paths, loaded = load_own_config()
    registry = _make_registry(paths, loaded.config)
    chosen = [] if browser else _choose(registry.entries(), loaded.config, session_key, agent)
    if not chosen:
        click.echo("There is no browser to recreate." if browser else "There is no such sandbox.")
        return
    for each in chosen:
        click.echo(escape_invisible(f"  {_describe_entry(each, paths, SystemClock().now_ms())}"))
    if not force:
        if not sys.stdin.isatty():
            raise UserError("removing sandboxes must be confirmed", fix="add --force")
        click.confirm(f"Remove {len(chosen)} with their files?", abort=True)
    if not asyncio.run(_remove(registry, chosen)):
        raise click.exceptions.Exit(1)


def _choose(
    entries: "list[SandboxEntry]", config: Config, session_key: str | None, agent: str | None
) -> "list[SandboxEntry]":
    """Return the sandboxes that the options name."""
    from homarus.core.session_keys import agent_id_of
    from homarus.tools.sandbox.folders import make_sandbox_name

    if session_key is not None:
        key = resolve_session_key(config, session_key, None)
        settings = resolve_sandbox(config, agent_id_of(key))
        names = {
            make_sandbox_name(scope, agent_id_of(key), key) for scope in ("session", settings.scope)
        }
        return [each for each in entries if each.name in names]
    if agent is None:
        return entries
    owner = known_agent(config, agent)
    return [each for each in entries if each.agent_id == owner and each.scope != "shared"]


async def _remove(registry: "SandboxRegistry", chosen: "list[SandboxEntry]") -> bool:
    """Remove sandboxes and print what was done; return whether all of them are gone."""
    is_complete = True
    for each in chosen:
        try:
            await registry.remove(each.name)
        except (SandboxError, UserError) as exc:
            is_complete = False
            click.echo(f"{each.name} stays: {exc.message} → {exc.fix}", err=True)
        else:
            click.echo(f"{each.name} is removed.")
    return is_complete
